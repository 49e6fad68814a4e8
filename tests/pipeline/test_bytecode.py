"""The worker may write no bytecode, so it is compiled before, once."""

from __future__ import annotations

import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from edgepack.pipeline import bytecode


@pytest.fixture(autouse=True)
def _anew() -> None:
    bytecode.compile_modules.cache_clear()


def package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with a module, both uncompiled, in the place of all that a worker imports."""
    (place := folder / "large").mkdir()
    for name in ("__init__", "module"):
        (place / f"{name}.py").write_text("number = 1\n")
    monkeypatch.setattr(bytecode, "_PACKAGES", ("large", "not_installed"))
    monkeypatch.setattr(bytecode, "PACKAGE", place)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    return place


def test_what_the_installer_did_not_compile_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = package(tmp_path, monkeypatch)
    bytecode.compile_modules()
    assert all(Path(cache_from_source(str(file))).is_file() for file in place.glob("*.py"))
    bytecode.compile_modules.cache_clear()
    monkeypatch.setattr(bytecode, "run_tool", lambda *_, **__: pytest.fail("it is compiled"))
    bytecode.compile_modules()


def test_who_wants_no_bytecode_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, monkeypatch)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(bytecode, "run_tool", lambda *_, **__: pytest.fail("it was compiled"))
    bytecode.compile_modules()
