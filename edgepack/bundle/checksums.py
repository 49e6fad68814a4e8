"""SHA256SUMS: what ``sha256sum --check`` reads, over every file of the bundle but itself."""

from __future__ import annotations

import hashlib
from pathlib import Path

from edgepack.bundle.layout import MANIFEST, SUMS
from edgepack.bundle.listed_files import find_damage
from edgepack.bundle.manifest import Manifest
from edgepack.bundle.paths import inside
from edgepack.errors import CheckFailedError
from edgepack.system.files import list_files, read_regular, sha256_file

__all__ = ["check_sums", "write_sums"]

_LARGEST = 64 << 20
_HINT = "Pack the model again, or copy the bundle again."


def write_sums(root: Path) -> None:
    """Write ``root/SHA256SUMS``; to be called when all else is in place."""
    lines = [f"{sha256_file(root / name)}  {name}\n" for name in list_files(root) if name != SUMS]
    (root / SUMS).write_text("".join(lines), encoding="utf-8", newline="\n")


def check_sums(root: Path, manifest: Manifest) -> int:
    """Compare every file with ``root/SHA256SUMS`` and with the manifest's list of files: its size, then its
    content.

    Files that are in neither are left alone: a user may build in the folder.

    Returns:
        the number of files that were compared.

    Raises:
        CheckFailedError: the sums are missing or malformed, they and the manifest disagree, or a file is
            missing or differs (all are named).
        ConfigError: a file lies outside of the bundle.
    """
    sums = root / SUMS
    try:
        lines = read_regular(sums, _LARGEST).decode("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise CheckFailedError(f"{sums} cannot be read: {error}.", hint=_HINT) from error
    listed: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64 or name in listed:
            raise CheckFailedError(f"{sums}:{number}: not a line of sha256sum.", hint=_HINT)
        listed[name] = digest
    if not lines:
        raise CheckFailedError(f"{sums} is empty.", hint=_HINT)
    recorded = {file.path: file for file in manifest.files}
    wrong = [f"{name}: not in {SUMS}" for name in sorted({*recorded, MANIFEST} - listed.keys())]
    for name, digest in listed.items():
        path = inside(root, name)
        if name == MANIFEST:
            damage = _manifest_damage(path, digest)
        elif name not in recorded or recorded[name].sha256 != digest:
            damage = f"not as {MANIFEST} says"
        else:
            damage = find_damage(root, recorded[name])
        if damage:
            wrong.append(f"{name}: {damage}")
    if wrong:
        count = "1 file" if len(wrong) == 1 else f"{len(wrong)} files"
        raise CheckFailedError(
            f"{root} is damaged: {count} of {len(lines)} not as packed: {wrong[0]}"
            + (", ..." if len(wrong) > 1 else "."),
            hint=_HINT,
            detail="\n".join(wrong),
        )
    return len(lines)


def _manifest_damage(path: Path, digest: str) -> str:
    """What is wrong with manifest.json, as of :func:`find_damage`: no record has its size."""
    try:
        content = read_regular(path, _LARGEST)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return "" if hashlib.sha256(content).hexdigest() == digest else "differs from its checksum"
