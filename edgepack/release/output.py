"""The folder of a release: what of an earlier one still holds, and how a new one takes its place at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from edgepack.bundle.writer import check_holds_only
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.release.index import INDEX, MEASUREMENTS, SUMS, Index, JointRecord, load_index
from edgepack.release.seals import is_remembered
from edgepack.release.unit_files import BuiltUnit, digest_of, digests_below
from edgepack.system.atomic import replace_folder
from edgepack.system.disk_errors import refusal
from edgepack.system.files import list_files, read_regular, sha256_file
from edgepack.system.private_files import entered, ours_alone
from edgepack.system.temporary import OLD, remove_dead, temporary_folder

if TYPE_CHECKING:
    from edgepack.signing.cosign import CosignPublicKey
    from edgepack.signing.minisign import MinisignPublicKey

    PublicKey = CosignPublicKey | MinisignPublicKey

__all__ = ["UNSUMMED", "Earlier", "check_output", "read_sums", "replacing", "write_sums"]

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
        return parsed_sums(read_regular(path, _LARGEST), path)
    except OSError as error:
        raise CheckFailedError(f"{path} cannot be read: {error}.", hint="Make the release again.") from error


def parsed_sums(text: bytes, path: Path) -> dict[str, str]:
    """What :func:`read_sums` reads, of the content of the file at ``path``."""
    try:
        lines = text.decode("utf-8").split("\n")
    except ValueError as error:
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


def write_sums(root: Path) -> bytes:
    """Write ``root/SHA256SUMS`` over all files but those that are in no sum; returns its content."""
    names = [name for name in list_files(root) if name not in UNSUMMED]
    text = "".join(f"{sha256_file(root / name)}  {name}\n" for name in names).encode()
    (root / SUMS).write_bytes(text)
    return text


@dataclass(frozen=True)
class Earlier:
    """The release that stands in the folder; an empty one where there is none, or none that is believed.

    Attributes:
        root: the folder.
        index: what it holds.
        sums: its files.
        doubt: why nothing of what stands there is taken over, as a sentence; "" where that has no reason.
    """

    root: Path
    index: Index | None = None
    sums: Mapping[str, str] = field(default_factory=dict)
    doubt: str = ""

    @classmethod
    def at(cls, root: Path, key: PublicKey | None = None) -> Earlier:
        """The one in a folder, if this user's edgepack made it (``seals.py``), or ``key`` signed it: whoever
        can write to the folder can change files, sums and index together."""
        try:
            text = read_regular(root / SUMS, _LARGEST)
            sums = parsed_sums(text, root / SUMS)
            index = load_index(root)
            if sha256(index.to_json().encode()).hexdigest() != sums.get(INDEX):
                return cls(root, doubt=f"{root / INDEX} is not what {SUMS} says: all is built again.")
        except (ConfigError, CheckFailedError, OSError):
            return cls(root)
        if is_remembered(text) or _signed(root, text, key):
            return cls(root, index, sums)
        signed = ", nor did your key sign it" if key is not None else ""
        why = "was not made by your edgepack on this machine, or was changed since"
        return cls(root, doubt=f"the release in {root} {why}{signed}: all is built again.")

    def built(self, name: str, place: str, key: str) -> BuiltUnit | None:
        """A unit with this key, if all files of its place are whole."""
        found = self.index.unit(name) if self.index is not None else None
        if found is None or found.inputs != key or not self._holds_folder(place):
            return None
        return BuiltUnit(found, self.root / place, self._below(place), True)

    def bundle(self, name: str, place: str, key: str) -> BuiltUnit | None:
        """The bundle of a unit, if that has this key and all files of its place are whole."""
        found = self.index.unit(name) if self.index is not None else None
        if found is None or found.bundle_inputs != key or not self._holds_folder(place):
            return None
        folder = f"{place}/{PurePosixPath(found.bundle).name}"
        return BuiltUnit(found, self.root / folder, self._below(folder), True)

    def _below(self, place: str) -> dict[str, str]:
        """The files in a folder, by their paths there."""
        begin = f"{place}/"
        return {path.removeprefix(begin): one for path, one in self.sums.items() if path.startswith(begin)}

    def joint(self, model: str, format_: str, key: str) -> tuple[JointRecord, ...]:
        """The packages of a model for several devices, if they are whole."""
        every = self.index.joint if self.index is not None else ()
        found = [one for one in every if (one.model, one.format, one.inputs) == (model, format_, key)]
        return tuple(found) if all(self._holds_file(one.path) for one in found) else ()

    def holds(self, name: str, text: str) -> bool:
        """Whether a file at its top has just this content."""
        with suppress(OSError):
            return read_regular(self.root / name, _LARGEST) == text.encode("utf-8") and self._holds_file(name)
        return False

    def whole(self) -> bool:
        """Whether its files are just those of the sums, and this user's alone."""
        try:
            with entered(self.root) as folder:
                folder.check()
                found = {}
                for path, holder, name in folder.files():
                    if not ours_alone(holder.status(name)):
                        return False
                    if path not in UNSUMMED:
                        found[path] = digest_of(holder, name)
        except OSError:
            return False
        return found == self.sums

    def _holds_folder(self, place: str) -> bool:
        """Whether the files in a folder are just those of the sums."""
        listed = {name: digest for name, digest in self.sums.items() if name.startswith(f"{place}/")}
        with suppress(OSError), ExitStack() as stack:
            folder = stack.enter_context(entered(self.root))
            for part in place.split("/"):
                folder = stack.enter_context(entered(Path(part), folder))
            return bool(listed) and listed == {
                f"{place}/{name}": d for name, d in digests_below(folder).items()
            }
        return False

    def _holds_file(self, name: str) -> bool:
        try:
            return name in self.sums and _digest(self.root, name) == self.sums[name]
        except OSError:
            return False


def _digest(root: Path, name: str) -> str:
    """SHA-256 of a file of a release; no link is followed. Raises OSError."""
    *parents, leaf = name.split("/")
    with ExitStack() as stack:
        folder = stack.enter_context(entered(root))
        for part in parents:
            folder = stack.enter_context(entered(Path(part), folder))
        return digest_of(folder, leaf)


def _signed(root: Path, sums: bytes, key: PublicKey | None) -> bool:
    if key is not None:
        path = root / f"{SUMS}{key.suffix}"
        with suppress(CheckFailedError, OSError):
            key.check(sums, read_regular(path, _LARGEST).decode("utf-8", "replace"), str(path))
            return True
    return False


def check_output(output: Path, *, partial: bool, sources: Iterable[Path] = ()) -> None:
    """Refuse a folder that a release must not replace.

    Args:
        partial: the release is a part of a project (``--only``).
        sources: files that the release is made from.

    Raises:
        ConfigError: it is no folder; holds no release, or one and something else, or a file of ``sources``;
            or it is a whole release where only a part is made.
    """
    if not os.path.lexists(output):
        return
    if not output.is_dir():
        raise ConfigError(
            f"{output} exists and is not a folder.", hint="Choose another folder with --output."
        )
    inside = next((one for one in sources if output.resolve() in one.resolve().parents), None)
    if inside is not None:
        raise ConfigError(
            f"{output} holds {inside.name}, which the release is made from.",
            hint="Choose another folder with --output.",
        )
    if not any(output.iterdir()):
        return
    if not (output / INDEX).is_file():
        raise ConfigError(
            f"{output} is not empty and holds no release.", hint="Choose another folder with --output."
        )
    try:
        index, sums = load_index(output), read_sums(output)
    except (ConfigError, CheckFailedError) as error:
        raise ConfigError(
            f"{output} holds no release that this edgepack knows: {error.message}",
            hint="Choose another folder with --output, or remove what is there yourself.",
        ) from error
    check_holds_only(output, {*sums, *UNSUMMED, *_unfinished(output)}, "release")
    if partial and not index.only:
        raise ConfigError(
            f"{output} holds a whole release, of which --only would leave a part.",
            hint="Choose another folder with --output.",
        )


def _unfinished(output: Path) -> Iterator[str]:
    """What a process that was killed left of a file that it was about to put beside the sums."""
    names = "|".join(re.escape(name) for name in UNSUMMED)
    found = (path.name for path in output.iterdir())
    return (name for name in found if re.fullmatch(rf"\.({names})\.[0-9a-z]+", name))


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
                replace_folder(new, output, place / OLD)

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
