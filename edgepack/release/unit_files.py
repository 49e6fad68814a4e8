"""The files of a unit that is built, wherever they lie: found, compared and taken over by descriptors, so
that nobody puts something else in their place in between."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from edgepack.errors import ConfigError
from edgepack.release.index import UnitRecord
from edgepack.system.files import sha256_file
from edgepack.system.private_files import OwnFolder, entered, ours_alone

__all__ = ["BuiltUnit", "digest_of", "digests_below"]

_CHUNK = 1 << 20


@dataclass(frozen=True)
class BuiltUnit:
    """A unit that is built.

    Attributes:
        record: what the release says of it.
        folder: where its files lie.
        files: SHA-256, in hex, of each by its path in the folder.
        published: they lie in the release that stands there, not in the work folder.
    """

    record: UnitRecord
    folder: Path
    files: Mapping[str, str]
    published: bool

    def take(self, target: Path) -> None:
        """Have the files in the folder ``target`` too, which is made. A file that belongs to this user alone
        is linked, where the file system can; what others may write to is copied. Each is compared when it is
        there.

        Raises:
            ConfigError: a file is missing or not what it was.
            OSError: it cannot be written.
        """
        try:
            with entered(self.folder.parent) as beside, entered(Path(self.folder.name), beside) as source:
                for name, digest in self.files.items():
                    new = target / name
                    new.parent.mkdir(parents=True, exist_ok=True)
                    _take(source, name.split("/"), new)
                    if sha256_file(new) != digest:
                        raise ValueError(name)
        except (FileNotFoundError, ValueError) as error:
            raise ConfigError(
                f"A file of {self.record.name} in {self.folder} was changed meanwhile: {error}.",
                hint="Another program writes there; make the release again.",
            ) from error


def digests_below(folder: OwnFolder) -> dict[str, str]:
    """SHA-256, in hex, of each file below a folder, by its path in it.

    Raises:
        OSError: there is something that is neither file nor folder, or one cannot be read.
    """
    return {path: digest_of(holder, name) for path, holder, name in folder.files()}


def digest_of(folder: OwnFolder, name: str) -> str:
    """SHA-256, in hex, of a file in a folder; no link is followed. Raises OSError."""
    digest = hashlib.sha256()
    with os.fdopen(folder.open(name, os.O_RDONLY), "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _take(source: OwnFolder, parts: list[str], new: Path) -> None:
    with ExitStack() as stack:
        folder = source
        for part in parts[:-1]:
            folder = stack.enter_context(entered(Path(part), folder))
        path, where = folder.at(parts[-1])
        if ours_alone(folder.status(parts[-1])):
            descriptor = {"src_dir_fd": where["dir_fd"]} if where else {}
            try:
                os.link(path, new, follow_symlinks=False, **descriptor)
                return
            except (OSError, NotImplementedError):
                pass  # a file system without hard links, or another one
        with os.fdopen(folder.open(parts[-1], os.O_RDONLY), "rb") as file, new.open("wb") as copy:
            shutil.copyfileobj(file, copy, _CHUNK)
            copy.flush()
            new.chmod(0o755 if os.fstat(file.fileno()).st_mode & 0o100 else 0o644)
