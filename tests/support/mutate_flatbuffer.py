"""Damages a flatbuffer, by a number: bytes, offsets, lengths of vectors, what several offsets refer to."""

from __future__ import annotations

import struct

import numpy as np

__all__ = ["damaged_flatbuffer"]

_BYTES = (0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF)
_WORDS = (0, 1, 2, 4, 0x7F, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)


def damaged_flatbuffer(content: bytes, other: bytes, case: int) -> bytes:
    """A file that differs from ``content`` in one to four places, or ends before its end.

    Args:
        other: a file that pieces are taken of.
        case: from which all follows.
    """
    random = np.random.default_rng(case)
    made = bytearray(content)
    for _ in range(int(random.integers(1, 5))):
        how = _WAYS[int(random.integers(len(_WAYS)))]
        how(made, other, random)
    return bytes(made)


def _place(made: bytearray, random: np.random.Generator, size: int = 1) -> int:
    return int(random.integers(8 // size, len(made) // size)) * size


def _byte(made: bytearray, other: bytes, random: np.random.Generator) -> None:
    made[_place(made, random)] = int(random.choice([*_BYTES, int(random.integers(256))]))


def _word(made: bytearray, other: bytes, random: np.random.Generator) -> None:
    """Of an offset, a length or a number."""
    struct.pack_into("<I", made, _place(made, random, 4), int(random.choice(_WORDS)))


def _step(made: bytearray, other: bytes, random: np.random.Generator) -> None:
    """An index, an enum or a size is a little more, or less."""
    place = _place(made, random, 4)
    (value,) = struct.unpack_from("<I", made, place)
    struct.pack_into("<I", made, place, (value + int(random.integers(-3, 4))) % (1 << 32))


def _shared(made: bytearray, other: bytes, random: np.random.Generator) -> None:
    """Some offsets refer to what another one does."""
    offsets = _offsets(made)
    if len(offsets) < 2:
        return
    target = int(random.choice(offsets))
    (value,) = struct.unpack_from("<I", made, target)
    for place in random.choice(offsets, int(random.integers(1, 6))):
        if target + value > place:
            struct.pack_into("<I", made, int(place), target + value - int(place))


def _swapped(made: bytearray, other: bytes, random: np.random.Generator) -> None:
    first, second = _place(made, random, 4), _place(made, random, 4)
    made[first : first + 4], made[second : second + 4] = made[second : second + 4], made[first : first + 4]


def _spliced(made: bytearray, other: bytes, random: np.random.Generator) -> None:
    size = min(int(random.choice([4, 8, 16, 64])), len(other), len(made) - 8)
    start, place = int(random.integers(len(other) - size + 1)), int(random.integers(8, len(made) - size + 1))
    made[place : place + size] = other[start : start + size]


def _cut(made: bytearray, other: bytes, random: np.random.Generator) -> None:
    if not random.integers(4):
        del made[int(random.integers(16, len(made))) :]
    else:
        _byte(made, other, random)


def _offsets(made: bytearray) -> np.ndarray:
    """Where words are that refer to something in the file."""
    words = np.frombuffer(bytes(made[: len(made) // 4 * 4]), "<u4").astype(np.int64)
    places = np.arange(len(words)) * 4
    return places[(words >= 4) & (places + words < len(made)) & (places >= 8)]


_WAYS = (_byte, _byte, _byte, _word, _step, _step, _shared, _swapped, _spliced, _cut)
