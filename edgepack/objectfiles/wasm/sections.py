"""Reads the binary format of WebAssembly as far as edgepack needs it (WebAssembly specification, chapter 5;
tool conventions, "Linking")."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "MAGIC",
    "Memory",
    "Section",
    "WasmError",
    "code_bytes",
    "exports",
    "imported_memories",
    "imports",
    "memories",
    "sections",
    "text",
    "uleb",
]

MAGIC = b"\0asm\x01\0\0\0"
_CUSTOM, _IMPORT, _MEMORY, _EXPORT, _CODE = 0, 2, 5, 7, 10
_KINDS = ("function", "table", "memory", "global", "tag")
_LIMIT_MAXIMUM, _LIMIT_SHARED, _LIMIT_64 = 1, 2, 4


class WasmError(Exception):
    """The bytes are no WebAssembly, or end too soon."""


@dataclass(frozen=True)
class Section:
    """A section: ``name`` of a custom one, where its content (after the name) starts and ends in the file."""

    number: int
    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Memory:
    """A linear memory, in pages of 64 KiB; ``maximum`` is None where it grows to what the engine allows."""

    minimum: int
    maximum: int | None
    shared: bool
    wide: bool


def uleb(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """An unsigned LEB128 number of at most 64 bits, and the position after it."""
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, position
    raise WasmError(f"a number at byte {position} does not end")


def text(data: bytes | bytearray, position: int) -> tuple[str, int]:
    """A name, and the position after it."""
    length, position = uleb(data, position)
    if position + length > len(data):
        raise WasmError(f"a name at byte {position} does not end")
    return bytes(data[position : position + length]).decode("utf-8", errors="replace"), position + length


def sections(data: bytes | bytearray) -> list[Section]:
    """All sections, in order. WasmError for other bytes, and for a file that ends too soon."""
    if bytes(data[:8]) != MAGIC:
        raise WasmError(f"found {bytes(data[:8])!r}")
    found: list[Section] = []
    position = 8
    while position < len(data):
        number = data[position]
        size, start = uleb(data, position + 1)
        position = start + size
        if position > len(data):
            raise WasmError(f"ends within its section {number}")
        name = ""
        if number == _CUSTOM:
            name, start = text(data, start)
        found.append(Section(number, name, start, position))
    return found


def imports(data: bytes) -> list[tuple[str, str, str]]:
    """(module, name, kind) of each import; the kind is ``function``, ``table``, ``memory``, ``global`` or
    ``tag``."""
    return [(module, name, kind) for module, name, kind, _ in _imports(data)]


def imported_memories(data: bytes) -> list[Memory]:
    """The memories that are among :func:`imports`."""
    return [_limits(data, at)[0] for _, _, kind, at in _imports(data) if kind == "memory"]


def exports(data: bytes) -> list[tuple[str, str]]:
    """(name, kind) of each export."""
    found: list[tuple[str, str]] = []
    count, position = _vector(data, _EXPORT)
    for _ in range(count):
        name, position = text(data, position)
        kind = _KINDS[data[position]]
        _, position = uleb(data, position + 1)
        found.append((name, kind))
    return found


def memories(data: bytes) -> list[Memory]:
    """The memories that the module has itself."""
    found: list[Memory] = []
    count, position = _vector(data, _MEMORY)
    for _ in range(count):
        memory, position = _limits(data, position)
        found.append(memory)
    return found


def code_bytes(data: bytes) -> int:
    """Bytes of the code section."""
    return sum(section.end - section.start for section in sections(data) if section.number == _CODE)


def _vector(data: bytes, number: int) -> tuple[int, int]:
    """How many entries the section with this number has, and where the first is."""
    for section in sections(data):
        if section.number == number:
            return uleb(data, section.start)
    return 0, 0


def _imports(data: bytes) -> list[tuple[str, str, str, int]]:
    """(module, name, kind, where its type stands) of each import."""
    found: list[tuple[str, str, str, int]] = []
    count, position = _vector(data, _IMPORT)
    for _ in range(count):
        module, position = text(data, position)
        name, position = text(data, position)
        kind, at = data[position], position + 1
        position = _skip_type(data, kind, at)
        found.append((module, name, _KINDS[kind], at))
    return found


def _skip_type(data: bytes, kind: int, position: int) -> int:
    """The position after an import's type."""
    word = _KINDS[kind]
    if word == "function":
        return uleb(data, position)[1]
    if word == "table":
        return _limits(data, position + 1)[1]
    if word == "memory":
        return _limits(data, position)[1]
    if word == "global":
        return position + 2
    return uleb(data, position + 1)[1]


def _limits(data: bytes, position: int) -> tuple[Memory, int]:
    flags = data[position]
    minimum, position = uleb(data, position + 1)
    maximum = None
    if flags & _LIMIT_MAXIMUM:
        maximum, position = uleb(data, position)
    return Memory(minimum, maximum, bool(flags & _LIMIT_SHARED), bool(flags & _LIMIT_64)), position
