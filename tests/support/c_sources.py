"""Small C sources that tests of toolchains and object files compile; most have a defect that they are named
after."""

from __future__ import annotations

from pathlib import Path

__all__ = ["SOURCES"]

SOURCES = Path(__file__).parent / "sources"
