"""Paths that are no UTF-8, as libraries that want text (TVM, ONNX) can open them."""

from __future__ import annotations

import os
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from edgepack.system.files import as_text, is_text

__all__ = ["utf8_folder", "utf8_paths"]


def utf8_paths(job: dict[str, Any]) -> dict[str, Any]:
    """A job whose folders have names that are text; the model's own name stays, for edgepack opens it."""
    changed = dict(job)
    if "model" in job:
        model = Path(_joined(job["model"]))
        changed["model"] = str(utf8_folder(model.parent) / model.name)
    if job.get("calibration"):
        changed["calibration"] = _joined(job["calibration"])
    if "imported" in job:
        changed["imported"] = str(utf8_folder(Path(job["imported"])))
    if job.get("stages"):
        changed["stages"] = _joined(job["stages"])
    return changed


def utf8_folder(folder: Path) -> Path:
    """The folder itself, or a symbolic link to it in the working folder, which is this process's own, if its
    path cannot be written as UTF-8. On a system without such links the folder itself."""
    return _linked(_joined(str(folder)))


@cache
def _linked(folder: str) -> Path:
    path = Path(folder)
    if is_text(folder):
        return path
    for number in count():
        link = Path(f"{as_text(path.name)}{number or ''}")
        try:
            link.symlink_to(path, target_is_directory=True)
            return link
        except FileExistsError:
            continue
        except (OSError, NotImplementedError):
            return path
    raise AssertionError("count() does not end")


def _joined(text: str) -> str:
    """What a process whose encoding is ASCII wrote as single bytes, as the characters that they are."""
    return os.fsdecode(os.fsencode(text))
