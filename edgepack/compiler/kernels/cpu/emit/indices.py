"""Arithmetic on indices: each is an int, or a TIR expression of int32 that is not negative.

What is known when a kernel is generated stays an int, so constants are folded by Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.tirx import IntImm

__all__ = ["Index", "balanced_split", "div", "index", "mod", "run_lengths", "unravel"]

Expr = Any
Index = Any  # int or a TIR expression of type int32


def index(value: Index) -> Expr:
    """An int32 TIR expression."""
    return IntImm("int32", value) if isinstance(value, int) else value


def div(a: Index, b: int) -> Index:
    """a // b for a >= 0, without TIR's floordiv (which needs a pass to lower)."""
    if isinstance(a, int):
        return a // b
    return a if b == 1 else tirx.truncdiv(a, index(b))


def mod(a: Index, b: int) -> Index:
    """a % b for a >= 0."""
    if isinstance(a, int):
        return a % b
    return 0 if b == 1 else tirx.truncmod(a, index(b))


def unravel(flat: Index, dims: Sequence[int]) -> list[Index]:
    """The position along each of ``dims`` of a flat, row-major index; 0 along dimensions of size one."""
    position: list[Index] = []
    for axis in reversed(range(len(dims))):
        if dims[axis] == 1:
            position.append(0)
            continue
        outermost = all(d == 1 for d in dims[:axis])
        position.append(flat if outermost else mod(flat, dims[axis]))
        flat = flat if outermost else div(flat, dims[axis])
    return position[::-1]


def balanced_split(total: int, largest: int) -> list[tuple[int, int]]:
    """Cuts ``total`` rows into the fewest tiles of at most ``largest`` rows, of at most two sizes.

    Returns:
        [(size, count), ...], the larger size first: 49 by 6 gives [(6, 4), (5, 5)].
    """
    tiles = -(-total // largest)
    size, rest = divmod(total, tiles)
    return [(s, n) for s, n in ((size + 1, rest), (size, tiles - rest)) if n]


def run_lengths(count: int, key: Callable[[int], Any]) -> list[tuple[int, int, Any]]:
    """Runs of equal ``key(i)`` for i in [0, count): [(begin, end, key), ...]."""
    runs: list[tuple[int, int, Any]] = []
    for i in range(count):
        k = key(i)
        if runs and runs[-1][2] == k:
            runs[-1] = (runs[-1][0], i + 1, k)
        else:
            runs.append((i, i + 1, k))
    return runs
