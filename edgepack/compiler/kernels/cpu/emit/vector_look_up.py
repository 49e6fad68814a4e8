"""Elements of a table of 256 bytes that vectors of bytes choose.

AVX-512 VBMI permutes the bytes of two registers, AVX-512 BW pairs of these, AArch64 looks up in four: a
table is two or four of these. Other x86 CPUs have 16 bytes in a register, the sixteen of which are chosen
between by the upper four bits.
Elsewhere elements are loaded one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx import BufferLoad, IntImm

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.tvm_target import has_feature
from edgepack.plan.target import CpuTarget

__all__ = ["looked_up"]

Expr = Any

#: Makes a vector of elements of one of positions.
_Form = Callable[[Emitter, Any, Expr], Expr]

_SHUFFLES = {16: "llvm.x86.ssse3.pshuf.b.128", 32: "llvm.x86.avx2.pshuf.b"}


def looked_up(e: Emitter, table: Any, x: Expr, lanes: int, dtype: str) -> Expr:
    """The bytes of a table whose positions are the bits of the bytes ``x``.

    Args:
        table: a buffer of 256 int8 or uint8.
        dtype: of ``x``, int8 or uint8.

    Returns:
        of the table's element type.
    """
    x = e.let(x)
    form = _form(e.target, lanes) if e.target is not None and lanes > 1 else None
    if form is None:
        at = e.let(tirx.Cast("int32" if lanes == 1 else f"int32x{lanes}", x))
        if dtype == "int8":
            at = e.let(tirx.bitwise_and(at, e.splat(IntImm("int32", 255), lanes)))
        return e.let(BufferLoad(table, [at]))
    width, make = form
    x = e.let(tirx.reinterpret(f"int8x{lanes}", x))
    parts = []
    for at in range(0, lanes, width):
        count = min(width, lanes - at)
        piece = x if lanes == count else e.let(tirx.Shuffle([x], list(range(at, at + count))))
        if count < width:  # the vector again and again
            piece = e.let(tirx.Shuffle([piece] * -(-width // count), list(range(width))))
        part = e.let(make(e, table, piece))
        parts.append(part if count == width else e.let(tirx.Shuffle([part], list(range(count)))))
    made = parts[0] if len(parts) == 1 else e.let(tirx.Shuffle(parts, list(range(lanes))))
    return made if str(table.dtype) == "int8" else e.let(tirx.reinterpret(f"{table.dtype}x{lanes}", made))


def _form(target: CpuTarget, lanes: int) -> tuple[int, _Form] | None:
    """Bytes of a vector, and what looks them up; None where no instruction does."""
    if has_feature(target, "avx512vbmi"):
        return 64, _permuted
    if has_feature(target, "avx512bw"):
        return 32, _permuted_pairs
    if has_feature(target, "neon") and target.pointer_bytes == 8:
        return 16, _neon
    if has_feature(target, "avx2") and lanes > 16:
        return 32, _chosen
    return (16, _chosen) if has_feature(target, "ssse3") else None


def _part(e: Emitter, table: Any, at: int, count: int) -> Expr:
    return e.let(tirx.reinterpret(f"int8x{count}", e.let(e.vload(table, at, count))))


def _permuted(e: Emitter, table: Any, x: Expr) -> Expr:
    """Both halves of the table, of which the uppermost bit chooses."""
    parts = [_part(e, table, at, 64) for at in range(0, 256, 64)]
    permute = "llvm.x86.avx512.vpermi2var.qi.512"
    low, high = (
        e.let(tirx.call_llvm_pure_intrin("int8x64", permute, a, x, b)) for a, b in (parts[:2], parts[2:])
    )
    return tirx.Select(tirx.LT(x, e.splat(IntImm("int8", 0), 64)), high, low)


def _permuted_pairs(e: Emitter, table: Any, x: Expr) -> Expr:
    """Pairs of bytes from both halves of the table, and one byte of each."""
    pairs = [e.let(tirx.reinterpret("int16x32", _part(e, table, at, 64))) for at in range(0, 256, 64)]
    at = e.let(tirx.Cast("uint16x32", tirx.reinterpret("uint8x32", x)))

    def number(value: int) -> Expr:
        return e.splat(IntImm("uint16", value), 32)

    permute = "llvm.x86.avx512.vpermi2var.hi.512"
    place = e.let(tirx.reinterpret("int16x32", e.let(tirx.shift_right(at, number(1)))))
    low, high = (
        e.let(tirx.call_llvm_pure_intrin("int16x32", permute, a, place, b)) for a, b in (pairs[:2], pairs[2:])
    )
    found = e.let(tirx.Select(tirx.LT(x, e.splat(IntImm("int8", 0), 32)), high, low))
    upper = e.let(tirx.shift_left(e.let(tirx.bitwise_and(at, number(1))), number(3)))
    byte = e.let(tirx.shift_right(e.let(tirx.reinterpret("uint16x32", found)), upper))
    return tirx.Cast("int8x32", byte)


def _neon(e: Emitter, table: Any, x: Expr) -> Expr:
    """Quarters of the table; positions beyond one leave what was found so far."""
    found: Expr = None
    for quarter in range(4):
        parts = [_part(e, table, 64 * quarter + at, 16) for at in range(0, 64, 16)]
        if found is None:
            found = tirx.call_llvm_pure_intrin("int8x16", "llvm.aarch64.neon.tbl4.v16i8", *parts, x)
        else:
            x = e.let(x - e.splat(IntImm("int8", 64), 16))
            found = tirx.call_llvm_pure_intrin("int8x16", "llvm.aarch64.neon.tbx4.v16i8", found, *parts, x)
        found = e.let(found)
    return found


def _chosen(e: Emitter, table: Any, x: Expr) -> Expr:
    """Sixteenths of the table by the lower four bits, of which the upper four bits choose.

    PSHUFB gives 0 where a position's uppermost bit is set: of that bit's two choices one is 0, and both are
    joined by an OR.
    """
    width = int(str(x.ty.dtype).partition("x")[2])
    name, wide = _SHUFFLES[width], f"int16x{width // 2}"
    first = e.let(tirx.bitwise_and(x, e.splat(IntImm("int8", -128 + 15), width)))
    second = e.let(tirx.bitwise_xor(first, e.splat(IntImm("int8", -128), width)))

    def part(at: int, places: Expr) -> Expr:
        repeated = e.let(tirx.Shuffle([_part(e, table, at, 16)] * (width // 16), list(range(width))))
        return e.let(tirx.call_llvm_pure_intrin(f"int8x{width}", name, repeated, places))

    found = [e.let(tirx.bitwise_or(part(at, first), part(at + 128, second))) for at in range(0, 128, 16)]
    pairs = e.let(tirx.reinterpret(wide, x))
    for bit in range(4, 7):
        # The bit, moved up to where it is the sign of its byte.
        moved = e.let(tirx.shift_left(pairs, e.splat(IntImm("int16", 7 - bit), width // 2)))
        signs = e.let(tirx.reinterpret(f"int8x{width}", moved))
        negative = tirx.LT(signs, e.splat(IntImm("int8", 0), width))
        found = [e.let(tirx.Select(negative, b, a)) for a, b in zip(found[::2], found[1::2], strict=True)]
    return found[0]
