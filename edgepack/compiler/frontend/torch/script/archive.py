"""Looks through a TorchScript archive before PyTorch reads it, and refuses pickles of models.

``torch.jit.load`` compiles the archive's code, runs some of it while it reads (``__setstate__``), and
believes its pickles. So the code is read here, against a list of forms and operators
(:mod:`.source`), and the pickles against what the code says (:mod:`.values`); PyTorch
gets an archive of what was read, written again. What is not needed to compute (``debug_pkl``, ``extra/``) is
left out of it.
"""

from __future__ import annotations

import re
import shutil
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from edgepack.compiler.frontend.torch.script.pickle_writer import write
from edgepack.compiler.frontend.torch.script.pickles import Made, read
from edgepack.compiler.frontend.torch.script.source import Code
from edgepack.compiler.frontend.torch.script.types import Refused
from edgepack.compiler.frontend.torch.script.values import Values
from edgepack.errors import ModelError

__all__ = ["check_script", "refused_script"]

#: What torch.jit.save writes, below a folder of any name.
_ENTRIES = re.compile(
    r"code/__torch__(?:/\w+)*\.py(?:\.debug_pkl)?|(?:data|constants|traced_inputs)(?:\.pkl|/\d{1,9})|extra/.+"
    r"|version|byteorder|\.data/(?:version|serialization_id)|\.format_version|\.storage_alignment",
    re.ASCII,
)
_CODE = re.compile(r"code/.+\.py")
_STORAGE = re.compile(r"(data|constants)/(\d+)")
_VERSION = re.compile(rb"\d{1,3}\n?")
#: Bytes of all code, and of a pickle.
_LARGEST_CODE, _LARGEST_PICKLE = 1 << 24, 1 << 26
#: The folder in what is written.
_TOP = "script"


def check_script(model: Path, checked: Path | None = None, others: Collection[str] = ()) -> Code:
    """Looks through an archive, and returns its code.

    Args:
        checked: an archive of what was looked at, and nothing else, is written there.
        others: names that no method of it may have (:func:`.operators.others_of`).

    Raises:
        ModelError: it is no TorchScript, or holds what is more than arithmetic on tensors.
    """
    if not model.is_file():
        raise ModelError(f"There is no model file {model}.", hint="Check the path.")
    if not zipfile.is_zipfile(model):
        raise _pickled(model) if _begins_like_a_pickle(model) else _damaged(model, "it is no archive")
    try:
        with zipfile.ZipFile(model) as archive:
            entries = _entries(model, archive)
            try:
                return _Archive(archive, entries).check(checked, others)
            except Refused as refused:
                raise refused_script(model, str(refused)) from None
    except (
        zipfile.BadZipFile,
        OSError,
        ValueError,
        NotImplementedError,
        RuntimeError,
        EOFError,
        zlib.error,
    ) as error:
        raise _damaged(model, str(error) or type(error).__name__) from error


def _entries(model: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The entries by their names below the archive's folder, where these are torch.jit.save's."""
    listed = [(one, *one.filename.partition("/")[::2]) for one in archive.infolist()]
    names = [name for _, _, name in listed]
    if "data.pkl" in names and not any(_CODE.fullmatch(name) for name in names):
        raise _pickled(model)
    if any(name.startswith("models/") for name in names):
        raise ModelError(
            f"{model} is a program of torch.export.save, under another suffix.", hint="Call it .pt2."
        )
    if "data.pkl" not in names or "constants.pkl" not in names:
        raise _damaged(model, "it holds no data.pkl and constants.pkl")
    if len({name.lower() for name in names}) < len(names) or len({top for _, top, _ in listed}) > 1:
        raise refused_script(model, "two entries in it have one name, or it has two folders")
    for one, _, name in listed:
        if not _ENTRIES.fullmatch(name):
            raise refused_script(model, f"{name!r:.80} in it is nothing that torch.jit.save writes")
        if one.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED} or one.flag_bits & 1:
            raise refused_script(model, f"{name!r:.80} in it is packed as torch.jit.save never does")
        if _STORAGE.fullmatch(name) and one.compress_type != zipfile.ZIP_STORED:
            raise refused_script(model, f"{name!r:.80} in it is compressed, which torch.jit.save never does")
    if sum(one.compress_size for one, _, _ in listed) > model.stat().st_size:
        raise refused_script(model, "its entries share bytes")
    if sum(one.file_size for one, _, name in listed if _CODE.fullmatch(name)) > _LARGEST_CODE:
        raise refused_script(model, f"its code is longer than {_LARGEST_CODE} bytes")
    return {name: one for one, _, name in listed}


class _Archive:
    """Reads the code and the pickles of an archive, and writes them again."""

    def __init__(self, archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo]) -> None:
        self._archive = archive
        self._entries = entries

    def check(self, checked: Path | None, others: Collection[str]) -> Code:
        """The code. What was looked at is written to ``checked``."""
        code = Code({name: self._text(name) for name in sorted(self._entries) if _CODE.fullmatch(name)})
        if wrong := code.methods & set(others):
            raise Refused(f"its code has a method {min(wrong)!r}, which is also an operator that edgepack "
                          "does not know as arithmetic")  # fmt: skip
        held = {name: self._pickle(name, code) for name in ("data", "constants")}
        root = held["data"]
        if not isinstance(root, Made) or code.defined[root.name].kind != "Module":
            raise Refused("its data.pkl holds no module")
        if "forward" not in code.defined[root.name].methods:
            raise Refused("its module has no method forward")
        if checked is not None:
            self._write(checked, code, {f"{name}.pkl": write(value) for name, value in held.items()})
        return code

    def _text(self, name: str) -> str:
        return self._archive.read(self._entries[name]).decode("ascii", "replace")

    def _pickle(self, name: str, code: Code) -> Any:
        entry = self._entries[f"{name}.pkl"]
        if entry.file_size > _LARGEST_PICKLE:
            raise Refused(f"its {name}.pkl is longer than {_LARGEST_PICKLE} bytes")
        sizes = {
            found[2]: one.file_size
            for one_name, one in self._entries.items()
            if (found := _STORAGE.fullmatch(one_name)) and found[1] == name
        }
        try:
            value = read(self._archive.read(entry))
            Values(code.defined, sizes).check(value)
        except Refused as refused:
            raise Refused(f"its {name}.pkl holds {refused}") from None
        except RecursionError:
            raise Refused(f"its {name}.pkl is nested too deeply") from None
        return value

    def _write(self, checked: Path, code: Code, pickles: dict[str, bytes]) -> None:
        versions = list(self._versions())
        with zipfile.ZipFile(checked, "w", zipfile.ZIP_STORED) as made:
            for name, text in code.written.items():
                made.writestr(f"{_TOP}/{name}", text)
            for name, data in (*pickles.items(), *versions):
                made.writestr(f"{_TOP}/{name}", data)
            for name, entry in self._entries.items():
                if _STORAGE.fullmatch(name):
                    target = f"{_TOP}/{name}"
                    with (
                        self._archive.open(entry) as found,
                        made.open(target, "w", force_zip64=True) as written,
                    ):
                        shutil.copyfileobj(found, written, 1 << 20)

    def _versions(self) -> Iterator[tuple[str, bytes]]:
        """The version of the format, and the order of bytes."""
        for name in ("version", ".data/version"):
            if name in self._entries:
                data = self._archive.read(self._entries[name]) if self._entries[name].file_size < 9 else b""
                if not _VERSION.fullmatch(data):
                    raise Refused("it has a version that is none")
                yield name, data
        if "byteorder" in self._entries:
            if (
                self._entries["byteorder"].file_size != 6
                or self._archive.read(self._entries["byteorder"]) != b"little"
            ):
                raise Refused("its bytes are in another order than this machine's")
            yield "byteorder", b"little"


def _begins_like_a_pickle(model: Path) -> bool:
    """Whether a file begins like a pickle of protocol 2 to 5, as files of torch.save before 1.6 do."""
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


def refused_script(model: Path, what: str) -> ModelError:
    """The error of an archive that holds more than arithmetic on tensors, or is not as PyTorch writes it."""
    return ModelError(
        f"{model} is not read: {what}.",
        hint="If it is yours, give edgepack.pack the module itself, or export it again.",
    )
