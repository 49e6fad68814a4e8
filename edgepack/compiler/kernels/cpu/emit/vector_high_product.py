"""Bits of products of 64 bits, of two vectors or numbers of int32: ``int32((int64(a) * int64(b) + c) >> s)``.

That is how fixed-point numbers are multiplied. x86 multiplies the even elements of two vectors to 64 bits by
one instruction (VPMULDQ), and the odd ones once they are shifted down; widening both vectors first, as LLVM
does, takes seven instructions more. AArch64 and Helium have the rounded high half itself (SQRDMULH). Where no
instruction multiplies to 64 bits, products of 16 bits do.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.vector_rounded_shift import rounded_shift
from edgepack.compiler.tvm_target import has_feature

__all__ = ["HIGH", "high_product", "rounded_away", "rounded_high"]

Expr = Any

#: What brings VPMULDQ for so many elements of 32 bits.
X86 = {4: "sse4.1", 8: "avx2", 16: "avx512f"}

#: What brings the rounded high half of doubled products, bytes of the CPU's pointers, LLVM's name of it.
ROUNDED_HIGH = (
    ("neon", 8, "llvm.aarch64.neon.sqrdmulh"),
    ("mve", 4, "llvm.arm.mve.vqrdmulh"),
)

#: What SQRDMULH adds to the doubled product before it takes the high half, and the shift that this is.
ROUNDED, HIGH = 1 << 30, 31


def high_product(e: Emitter, a: Expr, b: Expr, added: int, shift: int, lanes: int) -> Expr | None:
    """The bits of a product as a vector of int32; None where no instruction does it better than LLVM.

    Args:
        a, b: vectors of int32, not both -2**31 anywhere.
        added, shift: as above, the shift from 1 to 32.
    """
    if e.target is not None and not e.target.multiplies_long and lanes == 1:
        return _of_words(e, a, b, added, shift)
    if e.target is None or lanes < 4 or not 1 <= shift <= 32:
        return None
    if shift == HIGH and (made := rounded_high(e, a, b, added, lanes)) is not None:
        return made
    width = max((n for n, feature in X86.items() if n <= lanes and has_feature(e.target, feature)), default=0)
    if not width or lanes % width:
        return None

    def product(e: Emitter, a: Expr, b: Expr, lanes: int) -> Expr:
        return _of_halves(e, a, b, (added, shift), lanes)

    return _in_parts(e, a, b, width, lanes, product)


def rounded_high(e: Emitter, a: Expr, b: Expr, added: int, lanes: int) -> Expr | None:
    """``int32((int64(a) * int64(b) + added) >> HIGH)`` by one instruction; None where there is none."""
    if e.target is None or lanes < 4 or added != ROUNDED:
        return None
    for feature, pointer_bytes, name in ROUNDED_HIGH:
        if e.target.pointer_bytes == pointer_bytes and has_feature(e.target, feature):
            return _in_parts(e, a, b, 4, lanes, partial(_rounded_high, name))
    return None


def _of_words(e: Emitter, a: Expr, b: Expr, added: int, shift: int) -> Expr | None:
    """The bits by four products of 16 bits; None where ``added`` is not half of 2**shift, or the shift is
    below 17.

    With a = 2^16 ah + al, al from 0 to 2^16 - 1, and b alike, none of the sums below overflows; the lower 16
    bits of the product change nothing.
    """
    if not 17 <= shift <= 32 or added != 1 << (shift - 1):
        return None

    def number(value: int) -> Expr:
        return tirx.IntImm("int32", value)

    sixteen, mask = number(16), number(0xFFFF)
    (al, ah), (bl, bh) = (
        (e.let(tirx.bitwise_and(x, mask)), e.let(tirx.shift_right(x, sixteen))) for x in (e.let(a), e.let(b))
    )
    low = tirx.Cast("int32", tirx.shift_right(tirx.Cast("uint32", al * bl), tirx.IntImm("uint32", 16)))
    first = e.let(ah * bl + low)
    second = e.let(al * bh + tirx.bitwise_and(first, mask))
    high = ah * bh + tirx.shift_right(first, sixteen)
    if shift < 32:
        high = tirx.shift_left(high, number(32 - shift))
    rounded = tirx.shift_right(tirx.shift_right(second, number(shift - 17)) + number(1), number(1))
    return e.let(high + rounded)


def rounded_away(e: Emitter, a: Expr, b: Expr, added: int, shift: int, lanes: int) -> Expr | None:
    """``int32((int64(a) * int64(b) + added - (a < 0)) >> shift)`` by Helium's VMULH, where ``added`` is half
    of what the shift divides by, which is more than 2**32; None elsewhere.

    The lower half of a product matters where it is 0 only: less 1 it takes 1 of the upper one.
    """
    if e.target is None or lanes != 4 or not 32 < shift < 64 or added != 1 << (shift - 1):
        return None
    if not has_feature(e.target, "mve"):
        return None
    a, zero = e.let(a), e.splat(tirx.IntImm("int32", 0), lanes)
    high = e.let(
        tirx.call_llvm_pure_intrin("int32x4", "llvm.arm.mve.vmulh.v4i32", a, b, tirx.IntImm("int32", 0))
    )
    sign = tirx.shift_right(a, e.splat(tirx.IntImm("int32", 31), lanes))
    less = e.let(high + tirx.Select(tirx.EQ(a * b, zero), sign, zero))
    return rounded_shift(e, less, e.splat(tirx.IntImm("int32", shift - 32), lanes), lanes)


def _in_parts(e: Emitter, a: Expr, b: Expr, width: int, lanes: int, product: Any) -> Expr:
    """Vectors that are wider than the CPU's, one after the other."""
    a, b = e.let(a), e.let(b)
    if lanes == width:
        return product(e, a, b, lanes)
    if lanes % width:
        return None
    parts = []
    for at in range(0, lanes, width):
        places = list(range(at, at + width))
        pair = (e.let(tirx.Shuffle([x], places)) for x in (a, b))
        parts.append(product(e, *pair, width))
    return e.let(tirx.Shuffle(parts, list(range(lanes))))


def _rounded_high(name: str, e: Emitter, a: Expr, b: Expr, lanes: int) -> Expr:
    return e.let(tirx.call_llvm_pure_intrin(f"int32x{lanes}", f"{name}.v{lanes}i32", a, b))


def _of_halves(e: Emitter, a: Expr, b: Expr, numbers: tuple[int, int], lanes: int) -> Expr:
    added, shift = numbers
    half = lanes // 2

    def number(value: int) -> Expr:
        return e.splat(tirx.IntImm("int64", value), half)

    pairs = [e.let(tirx.reinterpret(f"int64x{half}", x)) for x in (a, b)]
    word = number(32)
    # VPMULDQ reads the lower halves alone, so LLVM leaves the two shifts out.
    even = [e.let(tirx.shift_right(tirx.shift_left(x, word), word)) for x in pairs]
    odd = [e.let(tirx.shift_right(x, word)) for x in pairs]
    sums = [e.let(x * y + number(added)) for x, y in (even, odd)]
    lower = e.let(tirx.shift_right(sums[0], number(shift)))
    upper = e.let(tirx.shift_left(sums[1], number(32 - shift))) if shift < 32 else sums[1]
    found = [e.let(tirx.reinterpret(f"int32x{lanes}", x)) for x in (lower, upper)]
    return e.let(tirx.Shuffle(found, [lane + lanes * (lane % 2) for lane in range(lanes)]))
