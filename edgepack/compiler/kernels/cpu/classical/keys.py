"""Features as integers that are ordered as the numbers are."""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Expr

__all__ = ["key_of", "largest"]


def largest(kind: str) -> int:
    """The key that is greater than all thresholds: of int32 or int64."""
    return (1 << (63 if kind == "int64" else 31)) - 1


def key_of(raw: Expr, kind: str, lanes: int, *, low: bool) -> Expr:
    """The key of a float's bits: its magnitude with its sign, so that both zeros are 0.

    Args:
        raw: the bits, of type ``kind`` (int32 or int64) in each of ``lanes``.
        low: whether NaN is less than all numbers, instead of greater.
    """

    def number(value: int) -> Expr:
        scalar = tirx.const(value, kind)
        return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)

    bits, most = (63, largest("int64")) if kind == "int64" else (31, largest("int32"))
    infinity = 0x7FF0000000000000 if kind == "int64" else 0x7F800000
    magnitude = tirx.bitwise_and(raw, number(most))
    sign = tirx.shift_right(raw, number(bits))
    key = tirx.bitwise_xor(magnitude, sign) - sign
    return tirx.Select(magnitude > number(infinity), number(-most - 1 if low else most), key)
