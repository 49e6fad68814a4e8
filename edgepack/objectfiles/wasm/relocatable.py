"""Symbols of a relocatable WebAssembly object: the symbol table of its "linking" section (tool conventions,
"Linking", version 2)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from edgepack.errors import ToolchainError
from edgepack.objectfiles.wasm import sections
from edgepack.objectfiles.wasm.sections import WasmError, text, uleb

__all__ = ["Symbol", "hide_symbols", "symbols"]

_SYMBOL_TABLE = 8
_FUNCTION, _DATA, _GLOBAL, _SECTION, _TAG, _TABLE = range(6)
_BINDING, _LOCAL = 0x3, 0x2
_HIDDEN, _UNDEFINED, _EXPLICIT_NAME = 0x4, 0x10, 0x40


@dataclass(frozen=True)
class Symbol:
    """A function, datum, global or table with a name; ``flags_at`` is where in the file its flags are."""

    name: str
    flags: int
    flags_at: int

    @property
    def defined(self) -> bool:
        """Whether the object holds it."""
        return not self.flags & _UNDEFINED

    @property
    def local(self) -> bool:
        """Whether nothing outside of the object can use it."""
        return self.flags & _BINDING == _LOCAL

    @property
    def hidden(self) -> bool:
        """Whether nothing outside of what it is linked into can use it."""
        return bool(self.flags & _HIDDEN)


def symbols(data: bytes | bytearray) -> list[Symbol]:
    """The symbols of an object; WasmError for a file that is none, or has no table of symbols."""
    for section in sections.sections(data):
        if section.name == "linking":
            return _symbols(data, section.start, section.end, _import_names(bytes(data)))
    raise WasmError("is linked already")


def hide_symbols(path: Path, keep: Collection[str]) -> None:
    """Give each global symbol that the object defines hidden visibility, but for the names in ``keep``.

    Raises ToolchainError for a file that is no WebAssembly object.
    """
    data = bytearray(path.read_bytes())
    try:
        found = symbols(data)
    except WasmError as error:
        raise ToolchainError(f"{path.name}: is not a WebAssembly object: {error}") from None
    for symbol in found:
        if symbol.defined and not symbol.local and symbol.name not in keep:
            data[symbol.flags_at] |= _HIDDEN  # in the lowest byte of the LEB number, whatever its length
    path.write_bytes(data)


def _import_names(data: bytes) -> dict[str, list[str]]:
    """Names of the imports by kind: an undefined symbol without a name of its own has its import's."""
    names: dict[str, list[str]] = {}
    for _, name, kind in sections.imports(data):
        names.setdefault(kind, []).append(name)
    return names


def _symbols(
    data: bytes | bytearray, position: int, end: int, imported: dict[str, list[str]]
) -> list[Symbol]:
    _, position = uleb(data, position)  # version
    found: list[Symbol] = []
    while position < end:
        kind = data[position]
        size, position = uleb(data, position + 1)
        if kind == _SYMBOL_TABLE:
            count, at = uleb(data, position)
            for _ in range(count):
                symbol, at = _symbol(data, at, imported)
                found += [symbol] if symbol else []
        position += size
    return found


def _symbol(
    data: bytes | bytearray, position: int, imported: dict[str, list[str]]
) -> tuple[Symbol | None, int]:
    """One entry of the table; None for one without a name (a section)."""
    kind, flags_at = data[position], position + 1
    flags, position = uleb(data, flags_at)
    name = ""
    if kind == _DATA:
        name, position = text(data, position)
        if not flags & _UNDEFINED:
            for _ in range(3):  # segment, offset, size
                _, position = uleb(data, position)
    else:
        index, position = uleb(data, position)
        if kind == _SECTION:
            return None, position
        if not flags & _UNDEFINED or flags & _EXPLICIT_NAME:
            name, position = text(data, position)
        else:
            kinds = {_FUNCTION: "function", _GLOBAL: "global", _TAG: "tag", _TABLE: "table"}
            name = imported[kinds[kind]][index]
    return Symbol(name, flags, flags_at), position
