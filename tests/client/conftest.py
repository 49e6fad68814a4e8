"""Fixtures of the tests of sessions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgepack.api import Bundle


@pytest.fixture
def copy(small_bundle: Bundle, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_bundle.path, tmp_path / "cöpy of it"))
