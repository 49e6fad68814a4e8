"""``edgepack new``: a project file to begin with, that works at once, and what has CI release it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from edgepack.bundle.layout import check_name, default_name
from edgepack.errors import ConfigError
from edgepack.pipeline.compile import summarise
from edgepack.plan.model_summary import Dim
from edgepack.release.project import PROJECT_FILE, SCHEMA_FILE
from edgepack.release.vendored import vendored
from edgepack.release.workflows import WORKFLOWS, write_workflows
from edgepack.render.templates import render
from edgepack.system.atomic import write_file
from edgepack.system.files import is_file, is_text

__all__ = ["new_project", "new_project_files"]

#: File beside the project file that editors check it with.
SCHEMA_NAME = "edgepack.schema.json"


def new_project_files(
    folder: Path, model: Path | None = None, ci: Sequence[str] = (), edgepack: str | None = None
) -> list[Path]:
    """The files of :func:`new_project`, and the workflows of ``ci``. With these a project file that is there
    stays.

    Args:
        ci: ``github``, ``gitlab``.
        edgepack: what the workflows install, as of :func:`edgepack.release.vendored.vendored`.

    Returns:
        the project file, the workflows, and the wheel that these install, if it is one.

    Raises:
        ConfigError: as of :func:`new_project`, :func:`edgepack.release.workflows.write_workflows` and
            :func:`edgepack.release.vendored.vendored`.
        ToolchainError: no wheel can be made of the checkout that this edgepack is from.
    """
    if unknown := next((one for one in ci if one not in WORKFLOWS), None):
        raise ConfigError(f"There is no workflow for {unknown!r}.", hint=f"There are {', '.join(WORKFLOWS)}.")
    target = folder / PROJECT_FILE
    if not ci:
        return [new_project(folder, model)]
    with vendored(edgepack) as installed:
        if model is not None or not is_file(target):
            target = new_project(folder, model)
        return [target, *write_workflows(folder, list(dict.fromkeys(ci)), installed)]


def new_project(folder: Path, model: Path | None = None) -> Path:
    """Write a commented project file, and its schema, into a folder, which is made where it is missing.

    Args:
        model: a model that it names; without one it names ``models/model.onnx``, which is yet to come.

    Returns:
        the project file.

    Raises:
        ConfigError: there is a project file already, or no such model.
    """
    target = folder / PROJECT_FILE
    if os.path.lexists(target):
        raise ConfigError(f"{target} exists.", hint="Choose another folder, or remove it.")
    if model is not None and not is_file(model):
        raise ConfigError(f"There is no model {model}.", hint="Give the path of an ONNX file.")
    if model is not None and not is_text(str(model)):
        raise ConfigError(f"The path {model} is no UTF-8, which YAML needs.", hint="Rename it.")
    path = "models/model.onnx" if model is None else _relative(model, folder)
    dims, shapes = _open_sizes(model) if model is not None else ({}, {})
    values = {
        "schema": SCHEMA_NAME,
        "project": json.dumps(_project_name(folder)),
        "model": check_name(default_name(Path(path))),
        "path": json.dumps(path, ensure_ascii=False),
        "missing": model is None,
        "dims": json.dumps(dims, ensure_ascii=False) if dims else "",
        "shapes": json.dumps(shapes, ensure_ascii=False) if shapes else "",
    }
    text = render(f"release/{PROJECT_FILE}.j2", values)
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / SCHEMA_NAME, SCHEMA_FILE.read_bytes())
    write_file(target, text.encode())
    return target


def _open_sizes(model: Path) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Sizes that a model leaves open: of named dimensions, and shapes of inputs with nameless ones."""
    dims: dict[str, int] = {}
    shapes: dict[str, list[int]] = {}
    found = summarise(model)
    for tensor in found.inputs:
        if tensor.name not in found.unbound or tensor.shape is None:
            continue
        rank = len(tensor.shape)
        guessed = [_guess(axis, rank, size) for axis, size in enumerate(tensor.shape)]
        if None in tensor.shape:
            shapes[tensor.name] = guessed
        else:
            named = zip(tensor.shape, guessed, strict=True)
            dims |= {name: size for name, size in named if isinstance(name, str)}
    return dims, shapes


def _guess(axis: int, rank: int, size: Dim) -> int:
    """A size for an open dimension: one sample, images of 224 x 224, else 16."""
    if isinstance(size, int):
        return size
    return 1 if axis == 0 else 224 if rank == 4 else 16


def _relative(model: Path, folder: Path) -> str:
    """The model's path as the project file has it: from its folder."""
    absolute, root = model.resolve(), folder.resolve()
    try:
        return Path(os.path.relpath(absolute, root)).as_posix()
    except ValueError:  # another drive
        return absolute.as_posix()


def _project_name(folder: Path) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.resolve().name).strip("-")[:50]
    return plain or "models"
