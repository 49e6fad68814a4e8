"""SHA256SUMS: what ``sha256sum --check`` reads, over every file of the bundle but itself."""

from __future__ import annotations

from pathlib import Path

from edgepack.bundle.layout import SUMS
from edgepack.errors import CheckFailedError
from edgepack.files import list_files, sha256_file

__all__ = ["check_sums", "write_sums"]


def write_sums(root: Path) -> None:
    """Write ``root/SHA256SUMS``; to be called when all else is in place."""
    lines = [f"{sha256_file(root / name)}  {name}\n" for name in list_files(root) if name != SUMS]
    (root / SUMS).write_text("".join(lines), encoding="utf-8", newline="\n")


def check_sums(root: Path) -> int:
    """Compare every file with ``root/SHA256SUMS``; files that are not listed there are left alone.

    Returns:
        the number of files that were compared.

    Raises:
        CheckFailedError: the list is missing or malformed, or a file is missing or differs (all are named).
    """
    sums = root / SUMS
    hint = "Pack the model again, or copy the bundle again."
    try:
        lines = sums.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckFailedError(f"{sums} cannot be read: {error}.", hint=hint) from error
    wrong: list[str] = []
    for number, line in enumerate(lines, start=1):
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64:
            raise CheckFailedError(f"{sums}:{number}: not a line of sha256sum.", hint=hint)
        path = root / name
        if not path.is_file():
            wrong.append(f"{name}: missing")
        elif sha256_file(path) != digest:
            wrong.append(f"{name}: differs from its checksum")
    if not lines:
        raise CheckFailedError(f"{sums} is empty.", hint=hint)
    if wrong:
        count = "1 file" if len(wrong) == 1 else f"{len(wrong)} files"
        raise CheckFailedError(
            f"{root} is damaged: {count} of {len(lines)} not as packed: {wrong[0]}"
            + (", ..." if len(wrong) > 1 else "."),
            hint=hint,
            detail="\n".join(wrong),
        )
    return len(lines)
