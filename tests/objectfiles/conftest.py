"""A folder whose name is not simple."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose name holds what names of folders may hold."""
    path = tmp_path / "a folder, é"
    path.mkdir()
    return path
