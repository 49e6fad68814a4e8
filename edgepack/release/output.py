"""The folder of a release: what of an earlier one still holds, and how a new one takes its place at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from edgepack.bundle.paths import inside
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.files import list_files, read_regular, sha256_file
from edgepack.release.index import INDEX, MEASUREMENTS, SUMS, Index, JointRecord, UnitRecord, load_index
from edgepack.storage import refusal
from edgepack.temporary import OLD, remove_dead, temporary_folder

__all__ = ["UNSUMMED", "Earlier", "check_output", "link_tree", "read_sums", "replacing", "write_sums"]

_LARGEST = 64 << 20
_SIGNATURES = (".minisig", ".sig", ".pem", ".bundle", ".sigstore.json")
#: Files at the top that are in no sum: the sums, what signs them, and what is never the same twice.
UNSUMMED = (SUMS, MEASUREMENTS, *(SUMS + suffix for suffix in _SIGNATURES))


def read_sums(root: Path) -> dict[str, str]:
    """Path to SHA-256 in hex, of all lines of ``root/SHA256SUMS``.

    Raises:
        CheckFailedError: it cannot be read, or a line is none of sha256sum.
    """
    path = root / SUMS
    try:
        lines = read_regular(path, _LARGEST).decode("utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise CheckFailedError(f"{path} cannot be read: {error}.", hint="Make the release again.") from error
    listed: dict[str, str] = {}
    for number, line in enumerate(lines[:-1], start=1):
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64 or set(digest) - set("0123456789abcdef") or name in listed:
            raise CheckFailedError(
                f"{path}:{number}: not a line of sha256sum.", hint="Make the release again."
            )
        listed[name] = digest
    if not listed or lines[-1]:
        raise CheckFailedError(f"{path} is not complete.", hint="Make the release again.")
    return listed


def write_sums(root: Path) -> None:
    """Write ``root/SHA256SUMS`` over all files but those that are in no sum."""
    names = [name for name in list_files(root) if name not in UNSUMMED]
    lines = [f"{sha256_file(root / name)}  {name}\n" for name in names]
    (root / SUMS).write_text("".join(lines), encoding="utf-8", newline="\n")


@dataclass(frozen=True)
class Earlier:
    """The release that stands in the folder; an empty one where there is none, or none that can be used.

    Attributes:
        root: the folder.
        index: what it holds.
        sums: its files.
    """

    root: Path
    index: Index | None = None
    sums: Mapping[str, str] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, root: Path) -> Earlier:
        """The one in a folder."""
        try:
            return cls(root, load_index(root), read_sums(root))
        except (ConfigError, CheckFailedError):
            return cls(root)

    def record(self, name: str, place: str, key: str) -> UnitRecord | None:
        """The record of a unit with this key, if all files of its place are whole."""
        found = self.index.unit(name) if self.index is not None else None
        return found if found is not None and found.inputs == key and self._whole(f"{place}/") else None

    def joint(self, model: str, format_: str, key: str) -> tuple[JointRecord, ...]:
        """The packages of a model for several devices, if they are whole."""
        every = self.index.joint if self.index is not None else ()
        found = [one for one in every if (one.model, one.format, one.inputs) == (model, format_, key)]
        return tuple(found) if all(self._whole(one.path) for one in found) else ()

    def holds(self, name: str, text: str) -> bool:
        """Whether a file at its top has just this content."""
        with suppress(OSError):
            return read_regular(self.root / name, _LARGEST) == text.encode("utf-8") and self._whole(name)
        return False

    def _listed(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self.sums)

    def whole(self) -> bool:
        """Whether all its files are those of the sums, and nothing else is there."""
        there = {name for name in list_files(self.root) if name not in UNSUMMED}
        return there == set(self.sums) and all(self._whole(name) for name in there)

    def _whole(self, prefix: str) -> bool:
        """Whether the files whose path begins so are those of the sums, and nothing else is there."""
        listed = {name: digest for name, digest in self.sums.items() if name.startswith(prefix)}
        try:
            folder = inside(self.root, prefix.removesuffix("/"))
            there = {prefix + name for name in list_files(folder)} if prefix.endswith("/") else {prefix}
            return (
                bool(listed)
                and set(listed) == there
                and all(self._digest(name) == listed[name] for name in listed)
            )
        except (OSError, ConfigError):
            return False

    def _digest(self, name: str) -> str:
        """SHA-256 of a file, read once."""
        if name not in self._digests:
            self._digests[name] = sha256_file(inside(self.root, name))
        return self._digests[name]


def check_output(output: Path, *, partial: bool) -> None:
    """Refuse a folder that a release must not replace.

    Args:
        partial: the release is a part of a project (``--only``).

    Raises:
        ConfigError: it is no folder, holds something that is no release, or a whole release where only a part
            is made.
    """
    if not os.path.lexists(output):
        return
    if not output.is_dir():
        raise ConfigError(
            f"{output} exists and is not a folder.", hint="Choose another folder with --output."
        )
    if not any(output.iterdir()):
        return
    if not (output / INDEX).is_file():
        raise ConfigError(
            f"{output} is not empty and holds no release.", hint="Choose another folder with --output."
        )
    earlier = Earlier.at(output).index
    if partial and earlier is not None and not earlier.only:
        raise ConfigError(
            f"{output} holds a whole release, of which --only would leave a part.",
            hint="Choose another folder with --output.",
        )


def link_tree(source: Path, target: Path) -> None:
    """The files of a folder in another one, without copying where the file system can."""

    def link(old: str, new: str) -> str:
        try:
            os.link(old, new)
        except OSError:
            shutil.copy2(old, new)
        return new

    shutil.copytree(source, target, copy_function=link, dirs_exist_ok=True)


@contextmanager
def replacing(output: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A new folder beside ``output``, and a function that puts it in its place.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        remove_dead(output.parent)
        hidden = temporary_folder(output.parent, prefix=f".{output.name[:40]}.", destination=output.name)
        with hidden as place:
            new = place / "release"
            new.mkdir()

            def publish() -> None:
                _normalise(new)
                if output.exists():
                    output.rename(place / OLD)
                try:
                    new.rename(output)
                except BaseException:
                    with suppress(OSError):
                        (place / OLD).rename(output)
                    raise

            yield new, publish
    except OSError as error:
        raise refusal(error) or ConfigError(
            f"{output} cannot be written: {error.strerror or error}.",
            hint="Choose another folder with --output.",
        ) from error


def _normalise(root: Path) -> None:
    """Modes that do not depend on the umask; what is executable in a bundle stays it."""
    for path in [root, *root.rglob("*")]:
        executable = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if executable else 0o644)
