"""The model's file that a command is given."""

from __future__ import annotations

import os
from pathlib import Path

from edgepack.errors import ModelError
from edgepack.system.files import is_file

__all__ = ["check_model_file"]


def check_model_file(model: Path, hint: str = "Give the path of an ONNX file.") -> None:
    """Raise ModelError where there is no such file."""
    if not is_file(model):
        what = "is a folder" if os.path.isdir(model) else "does not exist"  # noqa: PTH112 (any text)
        raise ModelError(f"{model} {what}.", hint=hint)
