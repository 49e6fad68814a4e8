"""What a WebAssembly module's instructions ask of an engine: read from the code itself, for the section that
a compiler writes about it is lost when a file is stripped (WebAssembly specification, chapter 5.4)."""

from __future__ import annotations

from edgepack.objectfiles.wasm.sections import WasmError, sections, uleb

__all__ = ["features_used"]

_CODE = 10

# Kinds of immediates: l a LEB128 number, m a memory argument, b one byte, 4, 8 and 16 bytes, v a vector of
# numbers, c a vector of catch clauses.
_PLAIN: dict[int, str] = {
    **dict.fromkeys((0x02, 0x03, 0x04, 0x0C, 0x0D, 0x10, *range(0x20, 0x27)), "l"),
    **dict.fromkeys((0x3F, 0x40, 0x41, 0x42, 0xD0, 0xD2), "l"),
    **dict.fromkeys(range(0x28, 0x3F), "m"),
    **{0x0E: "vl", 0x11: "ll", 0x1C: "v", 0x43: "4", 0x44: "8"},
    **{0x12: "l", 0x13: "ll", 0x14: "l", 0x15: "l"},
    **{0x06: "l", 0x07: "l", 0x08: "l", 0x09: "l", 0x18: "l", 0x1F: "lc"},
}
_PLAIN_FEATURES = {
    **dict.fromkeys((0x12, 0x13), "tail-call"),
    **dict.fromkeys((0x14, 0x15), "gc"),
    **dict.fromkeys((0x06, 0x07, 0x08, 0x09, 0x0A, 0x18, 0x19, 0x1F), "exception-handling"),
    **dict.fromkeys((0x1C, 0x25, 0x26, 0xD0, 0xD1, 0xD2), "reference-types"),
    **dict.fromkeys(range(0xC0, 0xC5), "sign-ext"),
}
#: 0xfc: what follows the second number, and its feature.
_MISC: dict[int, tuple[str, str]] = {
    **dict.fromkeys(range(8), ("", "nontrapping-fptoint")),
    **{8: ("ll", "bulk-memory"), 9: ("l", "bulk-memory"), 10: ("ll", "bulk-memory")},
    **{11: ("l", "bulk-memory"), 12: ("ll", "bulk-memory"), 13: ("l", "bulk-memory")},
    **{14: ("ll", "bulk-memory"), **dict.fromkeys(range(15, 18), ("l", "reference-types"))},
}
_SIMD: dict[int, str] = {
    **dict.fromkeys((*range(12), 92, 93), "m"),
    **dict.fromkeys((12, 13), "16"),
    **dict.fromkeys(range(21, 35), "b"),
    **dict.fromkeys(range(84, 92), "mb"),
}
_WIDTH = {"b": 1, "4": 4, "8": 8}


def features_used(data: bytes) -> dict[str, int]:
    """Feature (LLVM's name: ``simd128``, ``relaxed-simd``, ``atomics``) -> how many instructions need it.

    Raises WasmError for an instruction that is not known here.
    """
    used: dict[str, int] = {}
    for section in sections(data):
        if section.number == _CODE:
            count, position = uleb(data, section.start)
            for _ in range(count):
                size, start = uleb(data, position)
                position = start + size
                _scan(data, _skip_locals(data, start), position, used)
    return used


def _skip_locals(data: bytes, position: int) -> int:
    count, position = uleb(data, position)
    for _ in range(count):
        _, position = uleb(data, position)
        position += 1
    return position


def _scan(data: bytes, position: int, end: int, used: dict[str, int]) -> None:
    """Count the instructions between two positions by feature."""
    while position < end:
        code = data[position]
        position += 1
        if code < 0xFC:
            feature = _PLAIN_FEATURES.get(code, "")
            immediates = _PLAIN.get(code, "")
            known = code <= 0xD2 and not 0xC5 <= code <= 0xCF
        else:
            number, position = uleb(data, position)
            immediates, feature = _prefixed(code, number)
            known = feature != ""
        if not known:
            raise WasmError(f"the instruction 0x{code:02x} at byte {position} is not known")
        if feature:
            used[feature] = used.get(feature, 0) + 1
        if immediates:
            position = _skip(data, position, immediates)


def _prefixed(code: int, number: int) -> tuple[str, str]:
    """What follows an instruction of two numbers, and its feature; "" for one that is not known."""
    if code == 0xFC:
        return _MISC.get(number, ("", ""))
    if code == 0xFD:
        return _SIMD.get(number, ""), "simd128" if number < 0x100 else "relaxed-simd"
    if code == 0xFE:
        return "b" if number == 3 else "m", "atomics"
    return "", ""


def _skip(data: bytes, position: int, immediates: str) -> int:
    """The position after an instruction's immediates."""
    if immediates == "16":
        return position + 16
    for kind in immediates:
        if kind in _WIDTH:
            position += _WIDTH[kind]
        elif kind == "m":
            flags, position = uleb(data, position)
            if flags & 0x40:  # of another memory than the first
                _, position = uleb(data, position)
            _, position = uleb(data, position)
        elif kind == "l":
            _, position = uleb(data, position)
        else:
            count, position = uleb(data, position)
            for _ in range(count):
                # A catch clause is its kind, a tag if that is 0 or 1, and a label.
                numbers = 1 if kind == "v" else 3 if data[position] < 2 else 2
                for _ in range(numbers):
                    _, position = uleb(data, position)
    return position
