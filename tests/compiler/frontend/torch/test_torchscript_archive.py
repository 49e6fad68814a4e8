"""Pickles are refused, and TorchScript that is more than arithmetic on tensors, without PyTorch."""

from __future__ import annotations

import ast
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgepack.compiler.frontend.torch.script import source as torchscript_source
from edgepack.compiler.frontend.torch.script.archive import check_script
from edgepack.compiler.frontend.torch.script.pickles import Items, Made, Pairs, Row, read
from edgepack.errors import ModelError
from tests.support.script_archives import ADDS, ARCHIVES, HEAD, archive, entries, module, tensor


def checked(tmp_path: Path, found: dict[str, bytes]) -> dict[str, bytes]:
    """What PyTorch would get of an archive, by name."""
    check_script(archive(tmp_path / "model.pt", found), tmp_path / "copy.pt")
    with zipfile.ZipFile(tmp_path / "copy.pt") as file:
        return {name.partition("/")[2]: file.read(name) for name in file.namelist()}


def refused(tmp_path: Path, found: dict[str, bytes]) -> str:
    with pytest.raises(ModelError) as error:
        checked(tmp_path, found)
    assert not (tmp_path / "copy.pt").exists()
    return str(error.value.message)


def calls(text: str) -> str:
    """Code that does something else than to add 1."""
    return ADDS.replace("return torch.add(x, 1)", text)


@pytest.mark.parametrize("name", ARCHIVES)
def test_what_was_looked_at_is_copied(tmp_path: Path, name: str) -> None:
    """Code is the same but for what prints, pickles the same values, storages the same bytes."""
    found = ARCHIVES[name]
    copy = checked(tmp_path, {**found, "code/__torch__.py.debug_pkl": b"x", "extra/a": b"y"})
    assert copy.keys() == found.keys()
    for entry, data in found.items():
        if entry.endswith(".py"):
            kept = "".join(line for line in data.decode().splitlines(True) if "print(" not in line)
            assert ast.dump(ast.parse(copy[entry])) == ast.dump(ast.parse(kept))
        else:
            assert copy[entry] == data


@pytest.mark.parametrize(
    "text",
    [
        "torch.save(x, 'p')",
        "torch. from_file('p', True, 3)",
        "torch.\tfrom_file('p')",
        "torch.\\\n    from_file('p')",
        "(torch).from_file('p')",
        "(torch.\n    from_file('p'))",
        "(torch. # here\n    from_file('p'))",
        "ops. aten. from_file('p')",
        "ops.aten.save(x, 'p')",
        "ops.prim.rpc_sync(x)",
        "ops.prim.unchecked_cast(x)",
        "ops.profiler._record_function_enter('p')",
        "ops.my.operator(x)",
        "torch.autograd.from_file('p')",
        "torch.ops.aten.from_file('p')",
        "torch.classes.x.Y()",
        "x.save('p')",
        "('p').save('p')",
        "x.copy_(x)",
        "getattr(torch, 'from_file')('p')",
        "getattr(x, 'save')('p')",
        "torch['from_file']('p')",
        "[torch.from_file][0]('p')",
        "fork(torch.save)",
        "x.__class__",
        "__torch__.torch.classes.quantized.Conv2dPackedParamsBase.__new__(x)",
        "__torch__.other.f(x)",
        "open('p')",
        "torch.add(*x)",
        "torch.add(x, **x)",
        "(lambda: x)()",
        "[torch.add(y, 1) for y in x][0]",
        "f'{x}'",
        "torch.add(x, y := 1)",
        "torch.add(x, 'é')",
        "torch.add(x, 'ж'[0])",
        "torch.add(x, '\\u0436')",
        "torch.ﬀrom_file('p')",
    ],
)
def test_calls_of_what_is_no_arithmetic_are_refused(tmp_path: Path, text: str) -> None:
    said = refused(tmp_path, entries(calls(f"return {text}")))
    assert "code/__torch__.py:" in said or "characters" in said


@pytest.mark.parametrize(
    "text",
    [
        "f = torch.from_file\n    return f('p')",
        "f = x.save\n    return f('p')",
        "f, g = torch.save, x\n    return f('p')",
        "f : Any = torch.save\n    return f('p')",
        "torch = x\n    return torch.save('p')",
        "ops = x\n    return ops.aten.save('p')",
        "with torch.save as f:\n      pass\n    return f('p')",
        "f = __torch__.g\n    f = x\n    return f('p')",
        "for f in range(3):\n      f = __torch__.g\n    return f('p')",
        "def inner():\n      return x\n    return fork(inner)",
        "import os\n    return os.system('p')",
        "raise torch.save(x, 'p')",
        "assert torch.save(x, 'p')",
        "global f\n    return x",
        "x[0] = torch.save\n    return x",
        "x.save = x\n    return x",
        "for y in x:\n      pass\n    return x",
        "y = 1; torch.save(x, 'p')\n    return x",
        "try:\n      pass\n    finally:\n      pass\n    return x",
    ],
)
def test_no_statement_leads_around_the_list(tmp_path: Path, text: str) -> None:
    refused(tmp_path, entries(calls(text) + "def g(x: Tensor) -> Tensor:\n  return x\n"))


@pytest.mark.parametrize(
    "code",
    [
        ADDS.replace("x: Tensor)", "x: Tensor=torch.from_file('p'))"),
        ADDS.replace("x: Tensor)", "x: Tensor=torch.add(1, 1))"),
        ADDS.replace("x: Tensor)", "torch: Tensor)"),
        ADDS.replace("x: Tensor)", "x: torch.save)"),
        ADDS.replace("x: Tensor)", "x: __torch__.torch.classes.dist_rpc.WorkerInfo)"),
        ADDS.replace("-> Tensor", "-> Future[Tensor]"),
        ADDS.replace("training : bool", "training : bool\n  a : Final[Tensor] = torch.from_file('p')"),
        ADDS.replace("  training", "  __annotations__[torch.save] = Tensor\n  training"),
        ADDS.replace("  training", "  torch.save('p', 'q')\n  training"),
        ADDS.replace("(Module)", "(torch.save('p', 'q'))"),
        ADDS.replace("class M", "@torch.save\nclass M"),
        ADDS.replace("  def", "  @torch.save\n  def"),
        ADDS + "torch.save('p', 'q')\n",
        "op_version_set = torch.save\n" + ADDS,
        ADDS + "class M:\n  pass\n",
        ADDS.replace("x: Tensor)", "*x)"),
        ADDS.replace("  training : bool", "  training : bool\n  training : int"),
    ],
)
def test_nothing_is_called_where_classes_and_arguments_are_defined(tmp_path: Path, code: str) -> None:
    refused(tmp_path, entries(code))


@pytest.mark.parametrize(
    "body",
    [
        "self.w = torch.from_file('p')",
        "self.w = ops.aten. from_file('p')",
        "self.w = (self).forward(state, )",
        "self.w = __torch__.M.__new__(__torch__.M)",
        "while True:\n      pass",
        "for i in range(1000000000):\n      pass",
        "self.w = unchecked_cast(__torch__.M, state)",
    ],
)
def test_what_runs_while_pytorch_reads_the_file_is_a_line_of_arithmetic(tmp_path: Path, body: str) -> None:
    """``__setstate__`` of a class in another class's attribute."""
    inner = ARCHIVES["state"]["code/__torch__.py"].decode().replace("self.w = torch.mul((state)[0], 1)", body)
    outer = HEAD.replace("class M", "class Outer") + "  m : __torch__.M\n"
    root = module("__torch__.Outer", m=Made("__torch__.M", Row((tensor("0", 2), False))))
    refused(tmp_path, entries(inner + outer, root, data_0=bytes(8)))


def test_comments_continued_lines_and_escapes_do_not_reach_pytorch(tmp_path: Path) -> None:
    """Which its lexer reads otherwise than Python's (``# type:`` is a type there)."""
    body = "# type: (Tensor) -> Tensor\n    y = torch.add( x,\\\n  0x10)\n"
    body += "    return torch.add(y, '\\x41' r'\\n')"
    copy = checked(tmp_path, entries(calls(body)))["code/__torch__.py"].decode()
    assert copy.splitlines()[-2:] == ["    y = torch.add(x, 16)", '    return torch.add(y, "A\\\\n")']


def test_old_headers_and_prints_are_left_out(tmp_path: Path) -> None:
    text = "op_version_set = 1\nimport __torch__.b\n" + calls(
        "print('\x1b[31m')\n    torch.warn('x')\n    return x"
    )
    with pytest.raises(ModelError, match="characters"):
        checked(tmp_path, entries(text))
    copy = checked(tmp_path, entries(text.replace("\x1b", "\\033")))["code/__torch__.py"].decode()
    assert "version" not in copy and "print" not in copy and "warn" not in copy


DEEP = {
    "parentheses": "return " + "(" * 5000 + "x" + ")" * 5000,
    "attributes": "return x" + ".training" * 200_000,
    "calls": "return " + "torch.add(" * 150 + "x" + ", 1)" * 150,
    "minus": "return " + "-" * 100_000 + "1",
    "blocks": "\n".join("  " * i + "if x:" for i in range(2, 300)) + "\n" + "  " * 300 + "pass",
}


@pytest.mark.parametrize("name", DEEP)
def test_code_that_is_nested_deeply_is_one_sentence(tmp_path: Path, name: str) -> None:
    if name == "calls":  # as deep as Python's parser goes
        checked(tmp_path, entries(calls(DEEP[name])))
    else:
        refused(tmp_path, entries(calls(DEEP[name])))


def test_code_is_no_longer_than_code_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "longer than" in refused(tmp_path, entries(ADDS + "\n" * (1 << 24)))
    monkeypatch.setattr(torchscript_source, "_MOST_TOKENS", 1000)
    many = "def f() -> List[int]:\n  return [" + "1," * 1000 + "]\n"
    assert "more than 1000 words" in refused(tmp_path, entries(ADDS + many))


@pytest.mark.parametrize(
    "body",
    [
        "A : int",
        "pass",
        "A = 1\n  B = 'b'",
        "A = [1]",
        "A = None",
        "A, B = 1, 2",
        "def f(self) -> int:\n    return 1",
    ],
)
def test_enumerations_have_members_of_one_type(tmp_path: Path, body: str) -> None:
    """PyTorch's reader ends the process at the first two."""
    refused(tmp_path, entries(f"{ADDS}class E(Enum):\n  {body}\n"))
    checked(tmp_path, entries(f"{ADDS}class E(Enum):\n  A = -1\n  B = 2\n"))


@pytest.mark.parametrize("body", ["a = 1", "a : int = 1", "def f(self) -> int:\n    return 1"])
def test_named_tuples_have_types_alone(tmp_path: Path, body: str) -> None:
    refused(tmp_path, entries(f"{ADDS}class T(NamedTuple):\n  {body}\n"))


W = ADDS.replace("training : bool", "training : bool\n  w : Tensor")


def held(value: Any, kind: str = "Tensor", **storages: bytes) -> dict[str, bytes]:
    """A module with an attribute ``w``."""
    return entries(W.replace("w : Tensor", f"w : {kind}"), module(w=value), **storages)


LARGER = tensor("0", 3, count=2)
FAR = replace(tensor("0", 2), offset=1)
SPREAD = replace(tensor("0", 2), strides=(1 << 40,))
BEFORE = replace(tensor("0", 2), strides=(-1,))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (held(LARGER, data_0=bytes(8)), "beyond its storage"),
        (held(FAR, data_0=bytes(8)), "beyond its storage"),
        (held(SPREAD, data_0=bytes(8)), "beyond its storage"),
        (held(BEFORE, data_0=bytes(8)), "sizes that are none"),
        (held(tensor("0", 2), data_0=bytes(4)), "has 4 bytes"),
        (held(tensor("0", 2)), "has 0 bytes"),
        (held(tensor("0", 1 << 60), data_0=bytes(4)), "has 4 bytes"),
        (
            held(replace(tensor("0", 1), sizes=(1 << 40,), strides=(0,)), data_0=bytes(4)),
            "beyond its storage",
        ),
        (held(7), "attribute 'w' of '__torch__.M' that is no Tensor"),
        (held(module(w=1)), "that is no Tensor"),
        (held(Items([1], "List[int]"), "List[Tensor]"), "that is no List"),
        (held(Items([1], "List[Tensor]"), "List[Tensor]"), "that is no List"),
        (held(Pairs([("a", 1)]), "Dict[str, Tensor]"), "that is no Dict"),
        (held(Row((1,)), "Tuple[int, int]"), "that is no Tuple"),
        (held(True, "int"), "that is no int"),
        (held(Items([], "__torch__.torch.classes.x.Y"), "Any"), "'x.Y'"),
        (held(Items([], "List[int]; import os"), "Any"), "which is none"),
        (entries(W), "without its attribute 'w'"),
        (entries(root=module("__torch__.Other")), "does not define"),
        (entries(root=module("__torch__.torch.classes.quantized.X")), "does not define"),
        (entries(root=Made("__torch__.M", 1)), "without attributes"),
        (entries(root=Row(())), "holds no module"),
        (entries(ADDS.replace("def forward", "def other")), "no method forward"),
        (entries(constants=[tensor("0", 3, count=2)], constants_0=bytes(8)), "constants.pkl holds"),
    ],
)
def test_pickles_hold_what_the_code_says(tmp_path: Path, found: dict[str, bytes], said: str) -> None:
    """PyTorch's reader makes tensors and objects without asking, and would read and write beyond them."""
    assert said in refused(tmp_path, found)


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\nX\x01\x00\x00\x00p\x85R.",
        b"cos\nsystem\n)\x81.",
        b"ctorch.distributed.rpc\nrref\n)R.",
        b"ctorch._utils\n_rebuild_sparse_tensor\n)R.",
        b"c__torch__.torch.classes.quantized\nX\n)\x81}b.",
        b"(X\x07\x00\x00\x00storageX\x01\x00\x00\x00pX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ.",
        b"K\x00K\x00R.",
        b"c__torch__\nM\n)\x81q\x00}bh\x00.",
        b"]q\x00(h\x00e.",
        b"h\x07.",
        b"(.",
        b"e.",
        b".",
        b"",
        b"X\xff\xff\xff\xff.",
        b"\x8a\xff" + b"\x7f" * 255 + b".",
        b"i",
        b"\x95" + struct.pack("<Q", 1 << 60) + b".",
    ],
)
def test_opcodes_that_torch_does_not_write_are_refused(tmp_path: Path, data: bytes) -> None:
    code = W.replace("w : Tensor", "w : Any")
    refused(tmp_path, {**entries(code, module(w=1)), "data.pkl": b"\x80\x02" + data})


def test_a_list_in_itself_and_many_of_one_are_no_trouble(tmp_path: Path) -> None:
    items = Items([1], "List[Any]")
    for _ in range(60):
        items = Items([items, items])
    kept = read(checked(tmp_path, held(items, "Any"))["data.pkl"])
    first = kept.state.pairs[1][1]
    assert first.items[0] is first.items[1]
    circle = b"c__torch__\nM\n)\x81}(X\x01\x00\x00\x00w]q\x01(h\x01eX\x08\x00\x00\x00training\x89ub."
    found = entries(W.replace("w : Tensor", "w : Any"), module(w=1))
    (tmp_path / "copy.pt").unlink()
    assert "holds itself" in refused(tmp_path, {**found, "data.pkl": b"\x80\x02" + circle})


def test_entries_are_stored_as_torch_stores_them(tmp_path: Path) -> None:
    found = held(tensor("0", 2), data_0=bytes(8))
    path = archive(tmp_path / "model.pt", found)
    check_script(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in found.items():
            file.writestr(f"m/{name}", data)
    with pytest.raises(ModelError, match="is compressed"):
        check_script(path)
    for name, data in (("byteorder", b"big"), ("version", b"3x"), ("version", b"9" * 100)):
        (tmp_path / "copy.pt").unlink(missing_ok=True)
        refused(tmp_path, {**found, name: data})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
        for name, data in found.items():
            file.writestr(f"m/{name}", data)
    with pytest.raises(ModelError, match="packed as torch"):
        check_script(path)


def test_pickles_are_refused_and_said_why(tmp_path: Path) -> None:
    """A state_dict as torch.save writes it now, and as it wrote it before PyTorch 1.6."""
    with zipfile.ZipFile(tmp_path / "now.pt", "w") as file:
        file.writestr("m/data.pkl", b"\x80\x02}.")
        file.writestr("m/data/0", b"")
    (tmp_path / "before.pth").write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
    for name in ("now.pt", "before.pth"):
        with pytest.raises(ModelError, match="unpickling runs code") as error:
            check_script(tmp_path / name)
        assert "torch.export.save" in error.value.hint


def test_what_is_no_torchscript_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("no archive", encoding="utf-8")
    whole = archive(tmp_path / "model.pt", entries()).read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    with zipfile.ZipFile(tmp_path / "program.pt", "w") as file:
        file.writestr("m/models/model.json", "{}")
    archive(tmp_path / "other.pt", {**entries(), "other": b"x"})
    archive(tmp_path / "two.pt", entries())
    with zipfile.ZipFile(tmp_path / "two.pt", "a") as file:
        file.writestr("n/version", "3")
    for name, said in (
        ("none.pt", "There is no model file"),
        ("text.pt", "no TorchScript file"),
        ("cut.pt", "no TorchScript file"),
        ("program.pt", "under another suffix"),
        ("other.pt", "nothing that torch.jit.save writes"),
        ("two.pt", "two folders"),
    ):
        with pytest.raises(ModelError, match=said):
            check_script(tmp_path / name)
