"""The work folder of a release: what of it is built already, so that one that was ended goes on there.

It lies beside the release, as ``.NAME.edgepack-work``, until the release is complete. A unit is in it as a
whole or not at all: its folder is renamed into place, then its record.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from edgepack.errors import ConfigError
from edgepack.files import list_files, sha256_file
from edgepack.release.index import UnitRecord
from edgepack.release.matrix import Unit
from edgepack.temporary import remove_dead, try_lock

__all__ = ["WorkFolder", "work_folder", "work_place"]

_LOCK = "lock"


@dataclass(frozen=True)
class WorkFolder:
    """The work folder at ``path``."""

    path: Path

    def folder(self, unit: Unit) -> Path:
        """Where a unit that is built lies."""
        return self.path / "units" / unit.model / unit.device

    def stage_file(self, unit: Unit) -> Path:
        """The file that says, while a unit is built, which stage it is in."""
        return self.path / "stages" / self._short(unit)

    def stage(self, unit: Unit) -> tuple[str, float] | None:
        """The stage that a unit is in and when that began, by the clock of files; None unless it is being
        built."""
        with suppress(OSError, UnicodeDecodeError):
            file = self.stage_file(unit)
            return file.read_text(encoding="utf-8"), file.stat().st_mtime
        return None

    def publish(self, unit: Unit, folder: Path, record: UnitRecord) -> None:
        """Take over what was built in ``folder``, with its record."""
        target, file = self.folder(unit), self._record(unit)
        file.unlink(missing_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        digests = {name: sha256_file(folder / name) for name in list_files(folder)}
        folder.rename(target)
        data = {"record": record.model_dump(mode="json"), "files": digests}
        new = file.with_name(f"{file.name}.{os.getpid()}.new")
        new.write_text(json.dumps(data, indent=1), encoding="utf-8")
        new.replace(file)

    def record(self, unit: Unit, key: str) -> UnitRecord | None:
        """The record of a unit, if it is there with this key and its files are whole."""
        try:
            data = json.loads(self._record(unit).read_text(encoding="utf-8"))
            record = UnitRecord.model_validate(data["record"])
            folder = self.folder(unit)
            whole = record.inputs == key and data["files"] == {
                name: sha256_file(folder / name) for name in list_files(folder)
            }
        except (OSError, ValueError, KeyError, TypeError, ValidationError):
            return None
        return record if whole else None

    def _record(self, unit: Unit) -> Path:
        return self.path / "records" / f"{self._short(unit)}.json"

    def _short(self, unit: Unit) -> str:
        return sha256(unit.name.encode()).hexdigest()[:32]  # a device's name may fill a file's name


def work_place(output: Path) -> Path:
    """Where the work folder of the release at ``output`` lies."""
    return output.parent / f".{output.name}.edgepack-work"


@contextmanager
def work_folder(output: Path) -> Iterator[WorkFolder]:
    """The work folder of the release at ``output``, for this process alone; made where it is missing.

    Raises:
        ConfigError: another release to ``output`` is being made, or it cannot be written.
    """
    path = work_place(output)
    try:
        for folder in ("units", "stages", "records"):
            (path / folder).mkdir(parents=True, exist_ok=True)
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}.",
            hint="Choose another folder with --output.",
        ) from error
    try:
        if not try_lock(lock):
            raise ConfigError(
                f"Another release is being written to {output}.",
                hint="Wait for it, or choose another --output.",
            )
        remove_dead(path)
        shutil.rmtree(path / "stages")
        (path / "stages").mkdir()
        try:
            yield WorkFolder(path)
        finally:
            with suppress(OSError):
                if not any((path / "records").iterdir()):  # nothing to go on with
                    shutil.rmtree(path)
    finally:
        os.close(lock)
