"""The work folder of a release: what of it is built already, so that one that was ended goes on there.

It lies beside the release, as ``.NAME.edgepack-work``, until the release is complete. A unit is in it as a
whole or not at all: its folder is renamed into place, then its record, then the seal by which the next
release knows that this user's edgepack built it.

Where a release is made others may write too, and could put a folder of this name there, or links to this
user's other folders: so the work folder is this user's alone, and what is in it is reached by descriptors
(``system/private_files.py``).
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from edgepack.errors import ConfigError
from edgepack.pipeline.cache_secret import cache_secret, seal
from edgepack.release.index import UnitRecord
from edgepack.release.matrix import Unit
from edgepack.release.unit_files import BuiltUnit, digests_below
from edgepack.system.disk_errors import refusal
from edgepack.system.private_files import OwnFolder, entered, own_folder, private_folder, read_own_file
from edgepack.system.temporary import remove_dead, try_lock

__all__ = ["WorkFolder", "work_folder", "work_place"]

_LOCK = "lock"
_UNITS, _STAGES, _RECORDS = "units", "stages", "records"
_SEAL = ".seal"
_LARGEST = 64 << 20


@dataclass(frozen=True)
class WorkFolder:
    """The work folder at ``path``."""

    path: Path

    def stage_file(self, unit: Unit) -> Path:
        """The file that says, while a unit is built, which stage it is in."""
        return self.path / _STAGES / _short(unit)

    def stage(self, unit: Unit) -> tuple[str, float] | None:
        """The stage that a unit is in and when that began, by the clock of files; None unless it is being
        built."""
        with suppress(OSError, UnicodeDecodeError):
            file = self.stage_file(unit)
            return file.read_text(encoding="utf-8"), file.stat().st_mtime
        return None

    def check(self) -> None:
        """Raise OSError unless it is there, and this user's alone."""
        with own_folder(self.path):
            pass

    def publish(self, unit: Unit, folder: Path, record: UnitRecord) -> None:
        """Take over what was built in ``folder``, with its record. Raises OSError."""
        name = _short(unit)
        with (
            self._within(_RECORDS) as records,
            self._within(_UNITS, unit.model) as place,
            entered(folder.parent) as beside,
        ):
            for old in (name + _SEAL, f"{name}.json"):
                records.remove(old)
            place.remove(unit.device)
            with entered(Path(folder.name), beside) as made:
                digests = digests_below(made)
            beside.rename(folder.name, place, unit.device)
            data = {"record": record.model_dump(mode="json"), "files": digests}
            _write(records, f"{name}.json", json.dumps(data, indent=1).encode())

    def keep(self, unit: Unit) -> str:
        """Seal a unit that this release had built, so that the next one goes on with it.

        Returns:
            why that cannot be done here, or "".
        """
        name = _short(unit)
        try:
            secret = cache_secret()
            with self._within(_RECORDS) as records:
                _write(records, name + _SEAL, seal(secret, unit.name, _read(records, f"{name}.json")))
        except OSError as error:
            return str(error.strerror or error)
        return ""

    def built(self, unit: Unit, key: str, *, now: bool = False) -> BuiltUnit | None:
        """A unit, if it is there with this key, its files are whole, and this user's edgepack built it.

        Args:
            now: it was built by this release, so its seal is not asked for.
        """
        name = _short(unit)
        try:
            with self._within(_RECORDS) as records:
                text = _read(records, f"{name}.json")
                if not now and not _is_sealed(records, unit, text):
                    return None
            data = json.loads(text)
            record, files = UnitRecord.model_validate(data["record"]), data["files"]
            with (
                self._within(_UNITS, unit.model) as place,
                entered(Path(unit.device), place) as folder,
            ):
                whole = record.inputs == key and files == digests_below(folder)
        except (OSError, ValueError, KeyError, TypeError, ValidationError):
            return None
        return (
            BuiltUnit(record, self.path / _UNITS / unit.model / unit.device, files, False) if whole else None
        )

    def clear(self) -> None:
        """Forget all units: the release is complete."""
        with suppress(OSError), self._within(_RECORDS) as records:
            for name in records.names():
                records.remove(name)

    @contextmanager
    def _within(self, *names: str) -> Iterator[OwnFolder]:
        """The folder that these names lead to, each of which is made where it is missing and is this user's
        alone. Raises OSError."""
        with ExitStack() as stack:
            folder = stack.enter_context(own_folder(self.path))
            for name in names:
                folder.make_known(name)
                folder = stack.enter_context(entered(Path(name), folder))
                folder.check()
            yield folder


def _is_sealed(records: OwnFolder, unit: Unit, text: bytes) -> bool:
    return hmac.compare_digest(_read(records, _short(unit) + _SEAL), seal(cache_secret(), unit.name, text))


def _short(unit: Unit) -> str:
    return sha256(unit.name.encode()).hexdigest()[:32]  # a device's name may fill a file's name


def _read(folder: OwnFolder, name: str) -> bytes:
    with read_own_file(folder, name) as descriptor, open(descriptor, "rb", closefd=False) as file:
        return file.read(_LARGEST)


def _write(folder: OwnFolder, name: str, content: bytes) -> None:
    """The file whole or not at all."""
    new = f"{name}.{os.getpid()}.new"
    folder.remove(new)
    with os.fdopen(folder.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(content)
    folder.rename(new, folder, name)


def work_place(output: Path) -> Path:
    """Where the work folder of the release at ``output`` lies."""
    return output.parent / f".{output.name}.edgepack-work"


@contextmanager
def work_folder(output: Path) -> Iterator[WorkFolder]:
    """The work folder of the release at ``output``, for this process alone; made where it is missing, and
    removed at the end unless a later release can go on with something in it.

    Raises:
        ConfigError: another release to ``output`` is being made, it cannot be written, it is a link, or it
            belongs to another user.
    """
    path = work_place(output)
    with ExitStack() as stack:
        try:
            own = stack.enter_context(own_folder(private_folder(path)))
            lock = own.open(_LOCK, os.O_RDWR | os.O_CREAT)
            stack.callback(os.close, lock)
        except OSError as error:
            raise _unusable(path, error) from error
        if not try_lock(lock):
            raise ConfigError(
                f"Another release is being written to {output}.",
                hint="Wait for it, or choose another --output.",
            )
        work = WorkFolder(path)
        try:
            remove_dead(path)
            own.remove(_STAGES)
            for name in (_UNITS, _STAGES, _RECORDS):
                with work._within(name):
                    pass
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            yield work
        finally:
            with suppress(OSError):
                _remove_unless_needed(path, own)


def _remove_unless_needed(path: Path, own: OwnFolder) -> None:
    """Remove the work folder unless it holds a unit that is sealed; its name last, when it is empty."""
    with entered(Path(_RECORDS), own) as records:
        if any(name.endswith(_SEAL) for name in records.names()):
            return
    for name in own.names():
        own.remove(name)
    with entered(path.parent) as beside:
        place, where = beside.at(path.name)
        os.rmdir(place, **where)


def _unusable(path: Path, error: OSError) -> ConfigError:
    why = "it is a symbolic link" if path.is_symlink() else error.strerror or str(error)
    return refusal(error) or ConfigError(
        f"The work folder {path} cannot be used: {why}.",
        hint="Choose another folder with --output, or remove the work folder if it is yours.",
    )
