"""Small C sources, compiled once per toolchain and device and shared by the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "sources"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose name holds what names of folders may hold."""
    path = tmp_path / "a folder, é"
    path.mkdir()
    return path


def source(name: str) -> Path:
    """A C file of this test folder."""
    return SOURCES / name
