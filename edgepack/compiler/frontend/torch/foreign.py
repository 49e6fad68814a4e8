"""Refuses programs of a newer PyTorch, of a GPU, and of types of others, each with a sentence of its own."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

from edgepack.errors import ModelError

__all__ = ["refuse_programs_of_others"]

_DEVICE = re.compile(r'"type": "(cuda|xpu|mps|hpu|npu|xla|mtia|privateuseone)"')


def refuse_programs_of_others(model: Path, checked: Path) -> None:
    """Raise ModelError for a program that this PyTorch cannot read.

    Args:
        model: for messages.
        checked: an archive that was looked through (:func:`.archive.check_archive`).
    """
    with zipfile.ZipFile(checked) as archive:
        for name in archive.namelist():
            if re.search(r"/models/\w+\.json$|data/(?:weights|constants)/.*\.json$", name, re.IGNORECASE):
                _refuse(model, archive.read(name).decode("utf-8"))


def _refuse(model: Path, text: str) -> None:
    import torch
    from torch._export.serde.schema import SCHEMA_VERSION

    program = json.loads(text)
    version = program.get("schema_version") if isinstance(program, dict) else None
    major = version.get("major") if isinstance(version, dict) else None
    if isinstance(major, int) and major > SCHEMA_VERSION[0]:
        by = str(program.get("torch_version") or "a newer one")[:40]
        raise ModelError(
            f"{model} was saved by PyTorch {by}, in version {major} of its schema; the installed PyTorch "
            f"{torch.__version__} reads version {SCHEMA_VERSION[0]}.",
            hint="Install the PyTorch that saved it, or export the module with the installed one.",
        )
    if found := _DEVICE.search(text):
        raise ModelError(
            f"{model} was exported on the device {found[1]}, and edgepack reads programs of the CPU.",
            hint="Export module.cpu() with inputs on the CPU; for which GPU it is packed, --device says.",
        )
    _refuse_types(model, program)


def _refuse_types(model: Path, program: Any) -> None:
    """Types of arguments and results that this process does not know."""
    from torch.utils import _pytree as pytree

    known = set(pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE)
    for name in ("in_spec", "out_spec"):
        for text in _values(program, name):
            for kind in re.findall(r'"type": "([^"]+)"', text):
                if kind not in known:
                    raise ModelError(
                        f"{model} takes or returns objects of {kind:.100}, a type that only the process "
                        "knows that exported it.",
                        hint="Give edgepack.pack the module in that process, or export one that takes and "
                        "returns tensors, dicts and tuples.",
                    )


def _values(one: Any, key: str) -> list[str]:
    found, todo = [], [one]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            found += [value for name, value in each.items() if name == key and isinstance(value, str)]
            todo += each.values()
        elif isinstance(each, list):
            todo += each
    return found
