"""Writes a folder as one act: made in a hidden folder beside its destination, then renamed into place.

Whatever ends the process in between, the destination is either what it was or complete (``system/atomic.py``;
where the system cannot exchange two folders, what was killed between two renames is put back by the next
write beside it). An error or a signal leaves nothing (`cli/signals.py`); what SIGKILL or a power cut leaves
is removed by the next write beside it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from edgepack.bundle.layout import MANIFEST, SUMS
from edgepack.bundle.manifest import load_manifest
from edgepack.errors import ConfigError
from edgepack.signing.sums import SIGNATURES
from edgepack.system.atomic import replace_folder
from edgepack.system.disk_errors import refusal
from edgepack.system.files import as_text, every_entry
from edgepack.system.temporary import OLD, remove_dead, temporary_folder

__all__ = ["Workplace", "check_destination", "check_holds_only", "normalise_modes", "workplace"]

#: What Finder and Explorer leave.
_OF_DESKTOPS = {".DS_Store", "Thumbs.db", "desktop.ini"}


@dataclass(frozen=True)
class Workplace:
    """Folders beside the destination: ``bundle`` becomes it, ``job`` is for the worker, ``build`` for
    objects."""

    root: Path
    destination: Path

    @property
    def bundle(self) -> Path:
        """What will be renamed to the destination."""
        return self.root / "bundle"

    @property
    def job(self) -> Path:
        """The worker's folder."""
        return self.root / "job"

    @property
    def build(self) -> Path:
        """The folder for objects and other intermediate files."""
        return self.root / "build"

    def publish(self, *, force: bool) -> None:
        """Put ``bundle`` in the destination's place.

        Raises:
            ConfigError: the destination appeared in the meantime and ``force`` is false, or cannot be
            written.
        """
        check_destination(self.destination, force=force)
        try:
            replace_folder(self.bundle, self.destination, self.root / OLD)
        except OSError as error:
            raise _not_written(self.destination, error) from error


def check_destination(destination: Path, *, force: bool, model: Path | None = None) -> None:
    """Refuse a destination that must not be replaced.

    Raises:
        ConfigError: it is a file; or exists and ``force`` is false; or is, with ``force``, no bundle, or
            holds the model or anything else that is not of the bundle.
    """
    if not os.path.lexists(destination):
        return
    if not destination.is_dir():
        raise ConfigError(
            f"{destination} exists and is not a folder.", hint="Choose another folder with --output."
        )
    if not any(destination.iterdir()):
        return
    if not force:
        raise ConfigError(
            f"{destination} exists.", hint="Replace it with --force, or choose another folder with --output."
        )
    if not (destination / MANIFEST).is_file():
        raise ConfigError(
            f"{destination} is not a bundle; --force replaces only bundles.",
            hint="Remove it yourself, or choose another folder with --output.",
        )
    if model is not None and destination.resolve() in model.resolve().parents:
        raise ConfigError(
            f"{destination} holds the model {model.name} and would be replaced with it.",
            hint="Choose another folder with --output.",
        )
    try:
        manifest = load_manifest(destination)
    except ConfigError as error:
        raise ConfigError(
            f"{destination} is not a bundle that this edgepack knows: {error.message}",
            hint="Remove it yourself, or choose another folder with --output.",
        ) from error
    signatures = (SUMS + suffix for suffix in SIGNATURES)
    own = {MANIFEST, SUMS, *signatures, *(file.path for file in manifest.files)}
    check_holds_only(destination, own, "bundle")


def check_holds_only(folder: Path, own: Collection[str], what: str, option: str = "--output") -> None:
    """Refuse to replace a folder in which there is more than edgepack wrote. What a desktop leaves in folders
    that are looked at (``.DS_Store``) does not count.

    Args:
        own: paths of the files that are edgepack's, with ``/``.
        what: what the folder is (``bundle``), for the message.
        option: by which the user chose the folder.

    Raises:
        ConfigError: there is something else, or something of another kind than a file; it is named.
    """
    found = (
        name
        for name, entry in every_entry(folder)
        if not (name in own and entry.is_file(follow_symlinks=False)) and entry.name not in _OF_DESKTOPS
    )
    if others := sorted(found):
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise ConfigError(
            f"{folder} holds what is not of the {what} and would be deleted: {as_text(others[0])}{more}.",
            hint=f"Move it elsewhere, or choose another folder with {option}.",
        )


@contextmanager
def workplace(destination: Path) -> Iterator[Workplace]:
    """A :class:`Workplace` for ``destination``, removed with all that is left in it at the end.

    Raises:
        ConfigError: the folder of the destination cannot be made or written to.
    """
    parent = destination.parent
    made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    with ExitStack() as stack:
        try:
            parent.mkdir(parents=True, exist_ok=True)
            remove_dead(parent)
            hidden = temporary_folder(
                parent, prefix=f".{destination.name[:40]}.", destination=destination.name
            )
            place = Workplace(stack.enter_context(hidden), destination)
            for folder in (place.bundle, place.job, place.build):
                folder.mkdir()
        except OSError as error:
            raise _not_written(parent, error) from error
        try:
            yield place
        finally:
            stack.close()
            if not destination.exists():
                for folder in made:
                    with suppress(OSError):
                        folder.rmdir()


def _not_written(folder: Path, error: OSError) -> ConfigError:
    return refusal(error) or ConfigError(
        f"{folder} cannot be written: {error.strerror or error}.", hint="Choose another folder with --output."
    )


def normalise_modes(root: Path, executables: set[str]) -> None:
    """Modes that do not depend on the umask: 755 for folders and ``executables``, 644 for other files."""
    for path in [root, *root.rglob("*")]:
        name = path.relative_to(root).as_posix()
        path.chmod(0o755 if path.is_dir() or name in executables else 0o644)
