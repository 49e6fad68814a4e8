"""Nothing of a ``.pt2`` file runs: what is more than data in it is refused, without PyTorch."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from edgepack.compiler.frontend.torch.archive import check_archive
from edgepack.errors import ModelError


def archive(
    tmp_path: Path, program: Any, others: dict[str, Any] | None = None, compression: int = zipfile.ZIP_STORED
) -> Path:
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("m/models/model.json", json.dumps(program))
        for name, data in (others or {}).items():
            file.writestr(f"m/{name}", data if isinstance(data, str | bytes) else json.dumps(data))
    return path


def calls(target: str) -> dict[str, Any]:
    return {"graph_module": {"graph": {"nodes": [{"target": target, "inputs": [], "outputs": []}]}}}


def size(text: str) -> dict[str, Any]:
    return {"sizes": [{"as_expr": {"expr_str": text, "hint": None}}]}


@pytest.mark.parametrize(
    "program",
    [
        calls("torch.ops.aten.convolution.default"),
        calls("torch.ops.higher_order.cond"),
        calls("_operator.getitem"),
        size("Symbol('s53', positive=True, integer=True)"),
        size("Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(-1))"),
        size("2*s77 + FloorDiv(s0 - 1, 4)"),
        size("Eq(u0, 1)"),
        size("LessThan(Piecewise(ExprCondPair(1, Eq(u0, 1)), ExprCondPair(0, true)), 1)"),
    ],
)
def test_programs_of_operators_and_arithmetic_are_read(tmp_path: Path, program: Any) -> None:
    check_archive(archive(tmp_path, program))


@pytest.mark.parametrize(
    ("program", "named"),
    [
        (calls("torch.hub.load"), "'torch.hub.load'"),
        (calls("torch.serialization.load"), "no operator"),
        (calls("_operator.methodcaller"), "no operator"),
        (calls("torch.ops.aten.add.default.__class__"), "no operator"),
        (calls("#my_extension:run"), "no operator"),
        (calls("torch.ops.aten.from_file.default"), "no operator"),
        (calls("torch.ops.higher_order.call_torchbind"), "no operator"),
        ({"nodes": [{"inputs": [{"arg": {"as_operator": "torch.hub.load"}}]}]}, "'torch.hub.load'"),
        (size("__import__('os').system('id')"), "no arithmetic"),
        (size("s0.__class__"), "no arithmetic"),
        (size("exec('1')"), "no arithmetic"),
        (size("Symbol('s0') Symbol('s1')"), "no arithmetic"),
        (size("Symbol('__class__')"), "no arithmetic"),
        (size("Max(s0, s1)(s0)"), "no arithmetic"),
        (size(""), "no arithmetic"),
        ({"range_constraints": {"().__class__": {}}}, "no arithmetic"),
    ],
)
def test_a_program_that_would_call_python_is_refused(tmp_path: Path, program: Any, named: str) -> None:
    with pytest.raises(ModelError, match=named) as refused:
        check_archive(archive(tmp_path, program))
    assert "could run code" in refused.value.message


def test_pickles_libraries_and_compressed_entries_are_refused(tmp_path: Path) -> None:
    pickled = {"config": {"w": {"path_name": "weight_0", "use_pickle": True}}}
    places = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.JSON")
    for place in (*places, "data/weights/other.json"):
        with pytest.raises(ModelError, match="'w' in it is pickled"):
            check_archive(archive(tmp_path, {}, {place: pickled}))
    with pytest.raises(ModelError, match="AOTInductor"):
        check_archive(archive(tmp_path, {}, {"data/aotinductor/model/x.so": b"\x7fELF"}))
    with pytest.raises(ModelError, match="is compressed"):
        check_archive(archive(tmp_path, {}, compression=zipfile.ZIP_DEFLATED))


@pytest.mark.parametrize(
    "name", ["models/a-b.json", "data/weights/a/b", "code/x.py", "data/weights/w-1.json"]
)
def test_what_torch_does_not_write_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match="nothing that torch"):
        check_archive(archive(tmp_path, {}, {name: {}}))


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    """PyTorch finds names in any case, and a reader of zip files may take the first or the last."""
    with pytest.raises(ModelError, match="two entries"):
        check_archive(archive(tmp_path, {}, {"models/MODEL.json": calls("torch.hub.load")}))
    path = archive(tmp_path, {})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("other/version", "1")
    with pytest.raises(ModelError, match="two folders"):
        check_archive(path)


def test_pytorch_reads_a_copy_of_what_was_looked_at(tmp_path: Path) -> None:
    """Whatever else is in the file: here another archive, before it."""
    inner = archive(tmp_path, calls("torch.hub.load")).read_bytes()
    path = archive(tmp_path, calls("torch.ops.aten.relu.default"), {"version": "1"})
    path.write_bytes(inner + path.read_bytes())
    check_archive(path, tmp_path / "copy.pt2")
    assert b"torch.hub.load" in path.read_bytes()
    assert b"torch.hub.load" not in (tmp_path / "copy.pt2").read_bytes()
    with zipfile.ZipFile(tmp_path / "copy.pt2") as file:
        assert file.namelist() == ["m/models/model.json", "m/version"]


def test_what_is_no_program_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.pt2").write_text("no archive", encoding="utf-8")
    whole = archive(tmp_path, calls("torch.ops.aten.relu.default")).read_bytes()
    (tmp_path / "cut.pt2").write_bytes(whole[: len(whole) // 2])
    with zipfile.ZipFile(tmp_path / "script.pt2", "w") as file:
        file.writestr("m/data.pkl", b"")
    (tmp_path / "nested.pt2").write_bytes(archive(tmp_path, None).read_bytes())
    with zipfile.ZipFile(tmp_path / "deep.pt2", "w") as file:
        file.writestr("m/models/model.json", "[" * 100_000)
    archive(tmp_path, {}, {"data/weights/model_weights_config.json": [1]}).rename(tmp_path / "odd.pt2")
    for name, said in (
        ("odd.pt2", "no file of torch.export.save"),
        ("none.pt2", "There is no model file"),
        ("text.pt2", "no file of torch.export.save"),
        ("cut.pt2", "no file of torch.export.save"),
        ("script.pt2", "no exported program"),
        ("deep.pt2", "no file of torch.export.save"),
    ):
        with pytest.raises(ModelError, match=said):
            check_archive(tmp_path / name)
