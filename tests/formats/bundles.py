"""Copies of a bundle whose manifest says something else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgepack.api import Bundle
from edgepack.bundle.checksums import write_sums

__all__ = ["altered"]


def altered(bundle: Bundle, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of the bundle with another manifest, whose sums are right."""
    shutil.copytree(bundle.path, folder)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    write_sums(folder)
    return folder
