"""What bundles that are here for a while only have on other machines, so that it is removed with them.

A tuner's programs, and those of ``verify --layers``, lie in temporary folders. Each one's folder on a device
is noted in the cache before it is made there, and removed at the end, by the next run at that place once the
bundle is gone, or, where this process was killed or the device did not answer, by the next process that
runs anything there.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from edgepack.system.paths import cache_dir
from edgepack.system.private_files import OwnFolder, own_folder, private_folder, read_own_file
from edgepack.system.temporary import remove_dead

__all__ = ["Left", "forget", "left_at", "note"]

_FOLDER = "boards-1"

#: Notes that are read, and bytes of each.
_MOST, _LARGEST = 1000, 1 << 14

#: A folder that a bundle has on a device: no other one is ever removed there.
_NAME = re.compile(r"[A-Za-z0-9._-]{0,90}-[0-9a-f]{8}")


@dataclass(frozen=True)
class Left:
    """A folder on a device.

    Attributes:
        place: the runner and where it connects to.
        parent: the folder that it lies in; from the login's home if it is relative.
        name: its name.
        bundle: the folder here that it is a copy of, in the temporary folder ``root``.
        machine: the name of this machine.
    """

    place: str
    parent: str
    name: str
    bundle: str
    root: str
    machine: str = platform.node()

    @property
    def file(self) -> str:
        """The name of the file that notes it: SHA-256 over its fields, in hex."""
        return hashlib.sha256(json.dumps(asdict(self)).encode("utf-8", "surrogatepass")).hexdigest()


def note(left: Left) -> None:
    """Remember it: that it is there, or will be. Raises OSError."""
    with own_folder(private_folder(cache_dir() / _FOLDER)) as folder:
        if left.file not in folder.names():
            text = json.dumps(asdict(left)).encode("ascii")
            with os.fdopen(folder.open(left.file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
                file.write(text)


def left_at(place: str, parent: str, within: Path | None = None) -> list[Left]:
    """What is to be removed at a place: of bundles that are gone, or that lie ``within`` a folder here."""
    with suppress(OSError), own_folder(cache_dir() / _FOLDER) as folder:
        here = place, parent, platform.node()
        found = [one for one in _notes(folder) if (one.place, one.parent, one.machine) == here]
        for beside in {Path(one.root).parent for one in found if os.path.lexists(one.bundle)}:
            remove_dead(beside)
        return [
            one
            for one in found
            if not os.path.lexists(one.bundle) or (within and Path(one.bundle).is_relative_to(within))
        ]
    return []


def forget(removed: Collection[Left]) -> None:
    """They are not there any more."""
    with suppress(OSError), own_folder(cache_dir() / _FOLDER) as folder:
        for one in removed:
            folder.remove(one.file)


def _notes(folder: OwnFolder) -> Iterator[Left]:
    for name in folder.names()[:_MOST]:
        with suppress(OSError, ValueError, TypeError, RecursionError):
            with read_own_file(folder, name) as file:
                said = json.loads(os.read(file, _LARGEST))
            found = Left(**said)
            texts = all(isinstance(value, str) for value in said.values())
            if texts and found.file == name and _NAME.fullmatch(found.name):
                yield found
