"""Which of PyTorch's archives a file is, by the names of its entries: nothing of them is read."""

from __future__ import annotations

import zipfile
from pathlib import Path

from edgepack.programs.torchscript import SCRIPT_SUFFIXES

__all__ = ["is_script_file", "recognises"]

#: Entries that ``torch.jit.save`` writes, and ``torch.export.save``, below a folder of any name.
_CODE, _CONSTANTS = "code/", "constants.pkl"
_PROGRAMS = ("models/model.json", "archive_format", "serialized_exported_program.json")


def is_script_file(model: Path) -> bool:
    """Whether a file is TorchScript rather than an exported program: by its entries, and by its suffix where
    they do not say so (a file of ``torch.save``, or a damaged one)."""
    return model.suffix.lower() in SCRIPT_SUFFIXES if (kind := _kind(model)) == "" else kind == "script"


def recognises(model: Path) -> bool:
    """Whether it is an archive of TorchScript, or of an exported program, whatever its suffix."""
    return _kind(model) != ""


def _kind(model: Path) -> str:
    """``script``, ``program``, or "" for what is neither, or cannot be read."""
    try:
        if not zipfile.is_zipfile(model):
            return ""
        with zipfile.ZipFile(model) as archive:
            names = [name.partition("/")[2] for name in archive.namelist()]
    except (OSError, ValueError, NotImplementedError, RuntimeError, zipfile.BadZipFile):
        return ""
    if _CONSTANTS in names and any(name.startswith(_CODE) for name in names):
        return "script"
    return "program" if not set(_PROGRAMS).isdisjoint(names) else ""
