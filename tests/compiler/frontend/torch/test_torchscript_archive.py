"""Pickles are refused, and TorchScript whose code reads or writes files, without PyTorch."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from edgepack.errors import ModelError
from edgepack.programs.torchscript_archive import check_script

ADDS = "class M(Module):\n  def forward(self, x: Tensor) -> Tensor:\n    return torch.add(x, 1)\n"


def script(tmp_path: Path, code: str = ADDS, **others: str) -> Path:
    """As torch.jit.save writes it; ``others`` by name, with ``__`` for a slash."""
    path = tmp_path / "model.pt"
    entries = {"data.pkl": "", "constants.pkl": "", "code/__torch__.py": code, "version": "3"}
    with zipfile.ZipFile(path, "w") as file:
        for name, text in {**entries, **others}.items():
            file.writestr(f"m/{name}", text, zipfile.ZIP_DEFLATED if name.startswith("code") else None)
    return path


def test_what_was_looked_at_is_copied(tmp_path: Path) -> None:
    check_script(script(tmp_path), tmp_path / "copy.pt")
    with zipfile.ZipFile(tmp_path / "copy.pt") as file:
        assert file.read("m/code/__torch__.py").decode() == ADDS


@pytest.mark.parametrize("call", ["torch.save(x, p)", "torch.from_file(p)", "ops.aten.from_file (p)"])
def test_code_that_reads_or_writes_files_is_refused(tmp_path: Path, call: str) -> None:
    with pytest.raises(ModelError, match="reads or writes files"):
        check_script(script(tmp_path, ADDS.replace("torch.add(x, 1)", call)))


def test_pickles_are_refused_and_said_why(tmp_path: Path) -> None:
    """A state_dict as torch.save writes it now, and as it wrote it before PyTorch 1.6."""
    with zipfile.ZipFile(tmp_path / "now.pt", "w") as file:
        file.writestr("m/data.pkl", b"\x80\x02}.")
        file.writestr("m/data/0", b"")
    (tmp_path / "before.pth").write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
    for name in ("now.pt", "before.pth"):
        with pytest.raises(ModelError, match="unpickling runs code") as refused:
            check_script(tmp_path / name)
        assert "torch.export.save" in refused.value.hint


def test_what_is_no_torchscript_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("no archive", encoding="utf-8")
    whole = script(tmp_path).read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    with zipfile.ZipFile(tmp_path / "program.pt", "w") as file:
        file.writestr("m/models/model.json", "{}")
    script(tmp_path, other="x").rename(tmp_path / "other.pt")
    with zipfile.ZipFile(script(tmp_path), "a") as file:
        file.writestr("n/version", "3")
    (tmp_path / "model.pt").rename(tmp_path / "two.pt")
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
