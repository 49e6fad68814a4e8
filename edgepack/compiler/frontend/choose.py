"""Which frontend reads a model: by the suffix of its file, and by its contents where that says nothing."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from edgepack.compiler.frontend.base import Frontend
from edgepack.errors import ModelError
from edgepack.registry import FRONTENDS

__all__ = ["choose", "frontend_of"]

_GIT_LFS = b"version https://git-lfs"


def frontend_of(name: str) -> Frontend:
    """The frontend of this name. Raises ConfigError if there is none."""
    return cast(Frontend, FRONTENDS.find(name))


def choose(model: Path) -> str:
    """The name of the frontend that reads a model.

    Raises:
        ModelError: its suffix is none that a frontend has, and none knows its contents.
        ConfigError: a frontend of another package cannot be imported.
    """
    suffix = model.suffix.lower()
    names = FRONTENDS.names()
    if suffix.removeprefix(".") in names:  # a format's own name is a suffix of its files
        return suffix.removeprefix(".")
    frontends = {name: frontend_of(name) for name in names}
    for name, frontend in frontends.items():
        if suffix in getattr(frontend, "SUFFIXES", ()):
            return name
    if not model.exists():
        raise ModelError(f"There is no model file {model}.", hint="Check the path.")
    for name, frontend in frontends.items():
        recognises = getattr(frontend, "recognises", None)
        if model.is_file() and recognises is not None and recognises(model):
            return name
    raise _unknown(model, names)


def _unknown(model: Path, names: list[str]) -> ModelError:
    read = "edgepack reads " + ", ".join(name.upper() for name in names)
    if model.is_dir():
        return ModelError(f"{model} is a directory, not a model file.", hint=f"{read}: name the file itself.")
    with model.open("rb") as stream:
        head = stream.read(len(_GIT_LFS))
    if not head:
        return ModelError(f"{model} is empty (0 bytes).", hint="Export or download the model again.")
    if head == _GIT_LFS:
        return ModelError(f"{model} is a Git LFS pointer, not the model itself.", hint="Run `git lfs pull`.")
    return ModelError(
        f"{model} is no model of a format that edgepack reads: neither its suffix nor its contents say so.",
        hint=f"{read}; export the model with torch.onnx.export, tf2onnx or the like.",
    )
