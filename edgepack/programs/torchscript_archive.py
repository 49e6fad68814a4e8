"""Looks through a TorchScript archive before PyTorch reads it, and refuses pickles of models.

``torch.jit.load`` unpickles with a reader of its own, which makes objects of the archive's classes and
tensors alone, and compiles the archive's code for an interpreter. That code may call any operator of
PyTorch's, also those that read and write files: these are refused, and PyTorch reads a copy of what was
looked at.
"""

from __future__ import annotations

import re
import shutil
import zipfile
import zlib
from pathlib import Path

from edgepack.errors import ModelError

__all__ = ["SCRIPT_SUFFIXES", "check_script"]

#: Of files that ``torch.jit.save`` writes, and ``torch.save``, which are refused.
SCRIPT_SUFFIXES = (".pt", ".pth", ".ts", ".torchscript")

#: What torch.jit.save writes, below a folder of any name.
_ENTRIES = re.compile(
    r"code/[\w/.]+\.py|code/[\w/.]+\.py\.debug_pkl|(?:data|constants|traced_inputs)(?:\.pkl|/\d+)|extra/.+"
    r"|version|byteorder|\.data/(?:version|serialization_id)|\.format_version|\.storage_alignment"
)
_CODE = re.compile(r"code/.+\.py")
#: Calls of operators that read or write files, or load code.
_FILES = re.compile(
    r"\b(?:torch|ops\.\w+|aten|prim)\.(?:from_file|save|load|open|read|write|system|exec)\w*\s*\("
)
_LARGEST_CODE = 1 << 26


def check_script(model: Path, checked: Path | None = None) -> None:
    """Raises ModelError for what is no TorchScript, or calls operators that read or write files.

    Args:
        checked: an archive of what was looked at, and nothing else, is written there.
    """
    if not model.is_file():
        raise ModelError(f"There is no model file {model}.", hint="Check the path.")
    if not zipfile.is_zipfile(model):
        raise _pickled(model) if _begins_like_a_pickle(model) else _damaged(model, "it is no archive")
    try:
        with zipfile.ZipFile(model) as archive:
            _check_entries(model, archive)
            if checked is not None:
                _write(archive, checked)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise _damaged(model, str(error) or type(error).__name__) from error


def _check_entries(model: Path, archive: zipfile.ZipFile) -> None:
    entries = [(one, *one.filename.partition("/")[::2]) for one in archive.infolist()]
    names = [name for _, _, name in entries]
    if "data.pkl" in names and not any(_CODE.fullmatch(name) for name in names):
        raise _pickled(model)
    if any(name.startswith("models/") for name in names):
        raise ModelError(
            f"{model} is a program of torch.export.save, under another suffix.", hint="Call it .pt2."
        )
    if "data.pkl" not in names or "constants.pkl" not in names:
        raise _damaged(model, "it holds no data.pkl and constants.pkl")
    if len({name.lower() for name in names}) < len(names) or len({top for _, top, _ in entries}) > 1:
        raise _refused(model, "two entries in it have one name, or it has two folders")
    for one, _, name in entries:
        if not _ENTRIES.fullmatch(name):
            raise _refused(model, f"{name!r:.80} in it is nothing that torch.jit.save writes")
        if _CODE.fullmatch(name):
            if one.file_size > _LARGEST_CODE:
                raise _refused(model, f"{name!r:.80} in it is longer than any code")
            found = _FILES.search(archive.read(one).decode("utf-8"))
            if found:
                raise _refused(model, f"its code calls {found[0].rstrip('( ')}, which reads or writes files")


def _write(archive: zipfile.ZipFile, checked: Path) -> None:
    """A copy, stored."""
    with zipfile.ZipFile(checked, "w", zipfile.ZIP_STORED) as made:
        for one in archive.infolist():
            with archive.open(one) as read, made.open(one.filename, "w", force_zip64=True) as written:
                shutil.copyfileobj(read, written, 1 << 20)


def _begins_like_a_pickle(model: Path) -> bool:
    """Of protocol 2 and later; what torch.save wrote before 1.6 begins so."""
    with model.open("rb") as stream:
        head = stream.read(2)
    return len(head) == 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def _pickled(model: Path) -> ModelError:
    return ModelError(
        f"{model} is a pickle that torch.save wrote, and unpickling runs code of whoever made the file.",
        hint="Load it where its classes are, and give edgepack.pack the module, or save a program: "
        "torch.export.save(torch.export.export(module, example), 'model.pt2'). A state_dict has no program.",
    )


def _damaged(model: Path, why: str) -> ModelError:
    return ModelError(
        f"{model} is no TorchScript file, or it is damaged: {why.rstrip('.')}.",
        hint="Save it again: torch.jit.save(script, path).",
    )


def _refused(model: Path, what: str) -> ModelError:
    return ModelError(
        f"{model} is not read: {what}.",
        hint="If it is yours, give edgepack.pack the module itself, or export it again.",
    )
