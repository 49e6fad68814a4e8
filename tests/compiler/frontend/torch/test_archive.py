"""Nothing of a ``.pt2`` file runs: what is not of the schema is refused by name, without PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from edgepack.compiler.frontend.torch.archive import check_archive
from edgepack.compiler.frontend.torch.frontend import model_files
from edgepack.errors import ModelError
from tests.support.fuzz_programs import run_cases
from tests.support.hostile_programs import ATTACKS, EMPTIED, attacked
from tests.support.saved_program import MODEL, SAVED, parts, write


def program(target: str = "torch.ops.aten.relu.default", size: str = "Symbol('s0', integer=True)") -> Any:
    """The saved program with one more call, and one more tensor."""
    whole = parts()[MODEL]
    graph = whole["graph_module"]["graph"]
    node = {"target": target, "inputs": [], "outputs": [], "metadata": {}}
    graph["nodes"].append(node)
    symbolic = {"as_expr": {"expr_str": size, "hint": None}}
    graph["tensor_values"]["more"] = {
        **graph["tensor_values"]["x"],
        "sizes": [symbolic],
        "strides": [symbolic],
    }
    return whole


def archive(
    tmp_path: Path, model: Any, others: dict[str, Any] | None = None, compression: int = zipfile.ZIP_STORED
) -> Path:
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("m/models/model.json", json.dumps(model))
        for name, data in (others or {}).items():
            file.writestr(f"m/{name}", data if isinstance(data, str | bytes) else json.dumps(data))
    return path


@pytest.mark.parametrize(
    "target",
    [
        *("torch.ops.aten.convolution.default", "torch.ops.aten.__or__.Tensor", "torch.ops.aten.random.from"),
        *("torch.ops.higher_order.cond", "_operator.getitem", "torch.sym_max", "math.ceil"),
    ],
)
def test_programs_of_operators_are_read(tmp_path: Path, target: str) -> None:
    check_archive(archive(tmp_path, program(target)))


@pytest.mark.parametrize(
    "size",
    [
        "Symbol('s53', positive=True, integer=True)",
        "Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(-1))",
        "2*s77 + FloorDiv(s0 - 1, 4)",
        "Eq(u0, 1)",
        "LessThan(Piecewise(ExprCondPair(1, Eq(u0, 1)), ExprCondPair(0, true)), 1)",
        "Mul(Rational(1, 2), Pow(Symbol('s0', integer=True), Integer(2)))",
        "Max(1, (s0 + 3) // 2 % 7)",
        "PowByNatural(Symbol('s0'), Integer(3))",
        "s0**2 - (-3)",
        "+".join(f"FloorDiv(s{number}, 2)" for number in range(400)),
        "TruncToInt(Mul(Float('1.5', precision=53), ToFloat(Symbol('s25', integer=True))))",
    ],
)
def test_sizes_that_are_arithmetic_are_read(tmp_path: Path, size: str) -> None:
    check_archive(archive(tmp_path, program(size=size)))


@pytest.mark.parametrize(
    "target",
    [
        *("torch.hub.load", "torch.serialization.load", "_operator.methodcaller", "#my_extension:run"),
        *(
            "torch.ops.aten.add.default.__class__",
            "torch.ops.aten.add.__init_subclass__",
            "torch.ops.aten.__file__",
        ),
        *(
            "torch.ops.aten.from_file.default",
            "torch.ops.higher_order.call_torchbind",
            "torch.ops.load_library",
        ),
    ],
)
def test_a_program_that_would_call_python_is_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(ModelError, match="no operator") as refused:
        check_archive(archive(tmp_path, program(target)))
    assert "could run code" in refused.value.message and f"'{target}'" in refused.value.message


@pytest.mark.parametrize(
    "size",
    [
        *("__import__('os').system('id')", "s0.__class__", "exec('1')", "Symbol('s0') Symbol('s1')", ""),
        *("Symbol('__class__')", "Max(s0, s1)(s0)", "s0 s1", "s0 +", "(s0", "Symbol('s0', integer=s1)"),
        *("9**9**9**9", "2**s0", "Pow(2, s0)", "9**17", "LShift(1, 999999999)", "RoundDecimal(s0, 99999999)"),
        *(
            "s0**16**2",
            "((s0**16)**16)**16",
            "u1234567",
            "1" * 20,
            "s0[0]",
            "lambda: 0",
            "'s0'",
            "Float('1e99')",
        ),
        *("(" * 100 + "s0" + ")" * 100, "-" * 100 + "s0", "+".join(["s0"] * 9000), "(s0+s1+s2+s3)**9"),
        f"Piecewise({', '.join(['ExprCondPair(1, Eq(u0, 1))'] * 101)})",
    ],
)
def test_a_size_that_is_code_or_large_is_refused(tmp_path: Path, size: str) -> None:
    with pytest.raises(ModelError, match="no arithmetic"):
        check_archive(archive(tmp_path, program(size=size)))


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_by_its_key(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "net.pt2", attacked(name, tmp_path / "marker"))
    with pytest.raises(ModelError) as refused:
        model_files(path)
    message = refused.value.message
    assert ATTACKS[name][1] in message and "\n" not in message and len(message) < 600
    assert not (tmp_path / "marker").exists() and "antigravity" not in sys.modules


def test_inspect_ends_with_the_key_of_an_attack(tmp_path: Path) -> None:
    path = write(tmp_path / "net.pt2", attacked("argument_default", tmp_path / "marker"))
    command = [sys.executable, "-m", "edgepack", "inspect", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 3 and "forward_arg_names[0]" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "marker").exists()


def test_damaged_programs_end_with_exit_code_0_or_3() -> None:
    assert [one for one in run_cases(range(80)) if one.code not in (0, 3)] == []


@pytest.mark.slow
def test_many_damaged_programs_end_with_exit_code_0_or_3() -> None:
    """With PyTorch where it is."""
    root = Path(__file__).parents[4]
    path = os.pathsep.join([str(root / "build" / "torch"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.fuzz_programs", "--count", "20000"]
    done = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize("name", EMPTIED)
def test_what_nothing_needs_is_not_in_what_pytorch_reads(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "net.pt2", attacked(name, tmp_path / "marker"))
    check_archive(path, tmp_path / "copy.pt2")
    with zipfile.ZipFile(tmp_path / "copy.pt2") as file:
        text = file.read("net/models/model.json")
    assert b"exec(" in path.read_bytes() or name == "function_stack"
    assert b"exec(" not in text and b"torch.hub" not in text and json.loads(text)["guards_code"] == []


def test_pickles_libraries_and_compressed_entries_are_refused(tmp_path: Path) -> None:
    pickled = {"config": {"w": {"path_name": "weight_0", "use_pickle": True}}}
    places = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.JSON")
    for place in (*places, "data/weights/other.json"):
        with pytest.raises(ModelError, match="'w' in it is pickled"):
            check_archive(archive(tmp_path, program(), {place: pickled}))
    with pytest.raises(ModelError, match="AOTInductor"):
        check_archive(archive(tmp_path, program(), {"data/aotinductor/model/x.so": b"\x7fELF"}))
    with pytest.raises(ModelError, match="is compressed"):
        check_archive(archive(tmp_path, program(), compression=zipfile.ZIP_DEFLATED))


@pytest.mark.parametrize(
    "name", ["models/a-b.json", "data/weights/a/b", "code/x.py", "data/weights/w-1.json"]
)
def test_what_torch_does_not_write_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match="nothing that torch"):
        check_archive(archive(tmp_path, program(), {name: {}}))


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    """PyTorch finds names in any case, and a reader of zip files may take the first or the last."""
    with pytest.raises(ModelError, match="two entries"):
        check_archive(archive(tmp_path, program(), {"models/MODEL.json": program("torch.hub.load")}))
    path = archive(tmp_path, program())
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("other/version", "1")
    with pytest.raises(ModelError, match="two folders"):
        check_archive(path)


def test_pytorch_reads_a_copy_of_what_was_looked_at(tmp_path: Path) -> None:
    """Whatever else is in the file: here another archive, before it, and another program beside it."""
    inner = archive(tmp_path, program("torch.hub.load")).read_bytes()
    path = archive(tmp_path, program(), {"version": "1", "models/other.json": {"torch.hub.load": 1}})
    path.write_bytes(inner + path.read_bytes())
    check_archive(path, tmp_path / "copy.pt2")
    assert b"torch.hub.load" in path.read_bytes()
    assert b"torch.hub.load" not in (tmp_path / "copy.pt2").read_bytes()
    with zipfile.ZipFile(tmp_path / "copy.pt2") as file:
        assert file.namelist() == ["m/models/model.json", "m/version"]


def test_a_saved_program_is_read(tmp_path: Path) -> None:
    assert check_archive(SAVED, tmp_path / "copy.pt2") == {"aten"}


def test_a_copy_has_the_numbers_of_the_file_and_nothing_else(tmp_path: Path) -> None:
    entries = parts()
    check_archive(
        write(tmp_path / "net.pt2", {**entries, "data/weights/weight_9": b"1234"}), tmp_path / "copy.pt2"
    )
    with zipfile.ZipFile(tmp_path / "copy.pt2") as file:
        names = {name.removeprefix("net/") for name in file.namelist()}
        assert file.read("net/data/weights/weight_0") == entries["data/weights/weight_0"]
    assert set(entries) - names == {"extra/other.txt", ".data/serialization_id"} and names < set(entries)


def test_what_is_no_program_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.pt2").write_text("no archive", encoding="utf-8")
    whole = archive(tmp_path, program()).read_bytes()
    (tmp_path / "cut.pt2").write_bytes(whole[: len(whole) // 2])
    with zipfile.ZipFile(tmp_path / "script.pt2", "w") as file:
        file.writestr("m/data.pkl", b"")
    with zipfile.ZipFile(tmp_path / "none.pt2", "w"):
        pass
    with zipfile.ZipFile(tmp_path / "deep.pt2", "w") as file:
        file.writestr("m/models/model.json", "[" * 100_000)
    archive(tmp_path, program(), {"data/weights/model_weights_config.json": [1]}).rename(tmp_path / "odd.pt2")
    for name, said in (
        ("odd.pt2", "model_weights_config.json: is a list of 1"),
        ("nowhere.pt2", "There is no model file"),
        ("text.pt2", "no file of torch.export.save"),
        ("cut.pt2", "no file of torch.export.save"),
        ("script.pt2", "no exported program"),
        ("none.pt2", "no exported program"),
        ("deep.pt2", "models/model.json: is no JSON"),
    ):
        with pytest.raises(ModelError, match=said):
            check_archive(tmp_path / name)


def test_names_that_modules_may_have_are_read(tmp_path: Path) -> None:
    """Of keys of an nn.ModuleDict, and of a dict that is an argument."""
    entries = json.dumps({name: data for name, data in parts().items() if name.endswith(".json")})
    for old, new in (
        ("layers.0.", "layers.conv(3x3), #1 é."),
        ('image\\\\\\"', 'image {left}: 50% = ½\\\\\\"'),
    ):
        assert old in entries
        entries = entries.replace(old, new)
    check_archive(write(tmp_path / "net.pt2", {**parts(), **json.loads(entries)}))


def test_keys_that_older_versions_lack_are_not_needed(tmp_path: Path) -> None:
    whole = parts()[MODEL]
    for name in ("verifiers", "torch_version", "guards_code"):
        del whole[name]
    graph = whole["graph_module"]["graph"]
    del (
        graph["sym_float_values"],
        graph["custom_obj_values"],
        whole["graph_module"]["treespec_namedtuple_fields"],
    )
    for node in graph["nodes"]:
        del node["name"], node["is_hop_single_tensor_return"]
        for one in node["inputs"]:
            del one["kind"]
    check_archive(archive(tmp_path, whole))


def test_a_program_of_a_newer_pytorch_is_named_as_such(tmp_path: Path) -> None:
    whole = program()
    whole["schema_version"]["major"], whole["torch_version"], whole["new"] = 9, "3.1", {}
    with pytest.raises(ModelError, match=r"was saved by PyTorch 3\.1, in version 9 of its schema"):
        check_archive(archive(tmp_path, whole))
