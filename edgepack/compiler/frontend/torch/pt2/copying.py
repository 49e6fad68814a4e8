"""Looks through a ``.pt2`` file, and makes the copy that PyTorch reads: each part is written anew from what
was looked at, and what PyTorch does not need is not in it."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from edgepack.compiler.frontend.torch.pt2.entries import (
    Part,
    check_entries,
    inner_archive,
    rewritten,
    small_text,
)
from edgepack.compiler.frontend.torch.pt2.forms import RefusedError, said
from edgepack.compiler.frontend.torch.pt2.payloads import Room, payloads
from edgepack.compiler.frontend.torch.pt2.program import MAJOR, libraries, program
from edgepack.compiler.frontend.torch.pt2.said import said_in
from edgepack.programs.exporting import EXTRA

__all__ = ["LookedThrough", "look_through"]

#: The program that PyTorch loads.
_MODEL = "models/model.json"
_CONFIG = re.compile(r"data/(?:weights|constants)/.*\.json", re.IGNORECASE)
_JSON_BYTES, _EXTRA_BYTES = 256 << 20, 16 << 20


@dataclass
class LookedThrough:
    """An archive, and what is left of it.

    Attributes:
        program: of :mod:`.program`.
        libraries: whose operators it calls (``aten``).
        parts: of the copy, by their names below its folder.
        top: the folder.
    """

    program: dict[str, Any]
    libraries: set[str]
    parts: dict[str, Part] = field(default_factory=dict)
    top: str = ""

    def write(self, archive: zipfile.ZipFile, path: Path) -> None:
        """Write the copy.

        Args:
            archive: which was looked through.
        """
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as copy:
            rewritten(archive, copy, {f"{self.top}/{name}": part for name, part in self.parts.items()})


def look_through(archive: zipfile.ZipFile, nbytes: int) -> LookedThrough:
    """Look at all that PyTorch would read of an archive.

    Args:
        nbytes: of the file.

    Raises:
        RefusedError: something is not of the schema.
    """
    if not any(re.search(r"/models/\w+\.json$", name) for name in archive.namelist()):
        raise RefusedError(
            "",
            instead="{model} holds no exported program (models/model.json).",
            hint="Save it with torch.export.save, or torch.jit.save; pickled modules are not read.",
        )
    entries = check_entries(archive, nbytes)
    if _MODEL not in entries:
        raise RefusedError(f"it has no {_MODEL}")
    with _of(_MODEL):
        whole = _json(archive, entries[_MODEL])
        _refuse_newer(whole)
        copy = program(whole)
    found = LookedThrough(copy, libraries(copy), top=entries[_MODEL].filename.partition("/")[0])
    found.parts[_MODEL] = json.dumps(copy).encode("utf-8")
    for name, entry in entries.items():
        if (text := small_text(archive, name, entry)) is not None:
            found.parts[name] = text
    _numbers(archive, entries, Room(nbytes), found.parts)
    extra = entries.get(f"extra/{EXTRA}")
    if extra is not None:
        with _of(f"extra/{EXTRA}"):
            if extra.file_size > _EXTRA_BYTES:
                raise RefusedError(f"is of {extra.file_size} bytes")
            found.parts[f"extra/{EXTRA}"] = said_in(archive.read(extra))
    return found


def _numbers(
    archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], room: Room, parts: dict[str, Part]
) -> None:
    """Weights, constants and example inputs."""
    for name, entry in entries.items():
        folder, _, file = name.rpartition("/")
        if _CONFIG.fullmatch(name):
            files = {
                other.rpartition("/")[2]: one.file_size
                for other, one in entries.items()
                if other.rpartition("/")[0] == folder
            }
            own = name == f"{folder}/model_{folder.rpartition('/')[2]}_config.json"
            with _of(name):
                table = payloads(_json(archive, entry), files, room if own else Room(1 << 62))
            if own:
                parts[name] = json.dumps(table).encode("utf-8")
                used = {one["path_name"] for one in table["config"].values()}
                parts |= {f"{folder}/{path}": entries[f"{folder}/{path}"] for path in sorted(used)}
        elif folder in ("data/weights", "data/constants", "data/sample_inputs") and file == "model.pt":
            with _of(name):
                parts[name] = inner_archive(_opened(archive, entry), entry.file_size, room)


def _opened(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> IO[bytes]:
    """An entry that can be sought in: in memory where it is small, for its readers jump to and fro."""
    return io.BytesIO(archive.read(entry)) if entry.file_size <= 64 << 20 else archive.open(entry)


def _json(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Any:
    if entry.file_size > _JSON_BYTES:
        raise RefusedError(f"is of {entry.file_size} bytes; {_JSON_BYTES} are allowed")
    try:
        return json.loads(archive.read(entry).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"is no JSON ({str(error)[:80]})") from None


def _refuse_newer(whole: Any) -> None:
    version = whole.get("schema_version") if isinstance(whole, dict) else None
    major = version.get("major") if isinstance(version, dict) else None
    if type(major) is int and MAJOR < major < 10_000:
        by = said(whole.get("torch_version") or "a newer one", 40)
        raise RefusedError(
            "",
            instead=f"{{model}} was saved by PyTorch {by}, in version {major} of its schema; {{reader}} "
            f"reads version {MAJOR}.",
            hint="Save it by a PyTorch whose version is that one, or give edgepack.pack the module.",
        )


@contextmanager
def _of(name: str) -> Iterator[None]:
    """What is refused inside is of this entry."""
    try:
        yield
    except RefusedError as refused:
        refused.inside(f"{name}: ")
        raise
