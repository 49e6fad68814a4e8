"""Reads static libraries (``ar`` archives: GNU, BSD and LLVM flavours)."""

from __future__ import annotations

from pathlib import Path

from edgepack.errors import CheckFailedError

__all__ = ["MAGIC", "members"]

MAGIC = b"!<arch>\n"
_HEADER = 60


def members(path: Path) -> list[tuple[str, bytes]]:
    """(name, content) of each member, without the symbol index. CheckFailedError for a broken one."""
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        raise CheckFailedError(
            f"{path.name}: is not a static library (found {data[:8]!r}, allowed {MAGIC!r})"
        )
    found: list[tuple[str, bytes]] = []
    long_names = b""
    position = len(MAGIC)
    while position + _HEADER <= len(data):
        header = data[position : position + _HEADER]
        field = header[:16].decode("latin-1").rstrip()
        try:
            size = int(header[48:58])
        except ValueError:
            raise CheckFailedError(f"{path.name}: broken archive header at byte {position}") from None
        content = data[position + _HEADER : position + _HEADER + size]
        if len(content) != size:
            raise CheckFailedError(f"{path.name}: ends within its member {field!r}")
        position += _HEADER + size + size % 2
        if field == "//":
            long_names = content
        elif field.startswith("#1/"):  # BSD: the name stands before the content
            length = int(field[3:])
            name = content[:length].rstrip(b"\0").decode("utf-8", errors="replace")
            if not name.startswith("__.SYMDEF"):
                found.append((name, content[length:]))
        elif field not in {"/", "/SYM64/", "__.SYMDEF", "__.SYMDEF_64"}:
            found.append((_name(field, long_names), content))
    return found


def _name(field: str, long_names: bytes) -> str:
    if field.startswith("/") and field[1:].isdigit():
        rest = long_names[int(field[1:]) :]
        return rest.split(b"/\n", 1)[0].split(b"\0", 1)[0].decode("utf-8", errors="replace")
    return field.rstrip("/")
