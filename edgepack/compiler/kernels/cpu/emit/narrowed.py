"""Parameters that are stored as narrower integers than they are computed with
(:mod:`edgepack.compiler.kernels.narrow_integers`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.tirx import Buffer, DeclBuffer

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index, index
from edgepack.compiler.kernels.narrow_integers import INT24

__all__ = ["narrowed_param", "split_param", "widened"]


def narrowed_param(e: Emitter, number: int, elements: int, dtype: str) -> Buffer:
    """Declares a constant parameter of the fused function, stored as a narrower type than its own."""
    split = dtype == INT24
    made = e.param(number, elements * 3 if split else elements, "uint8" if split else dtype)
    e.operands[-1] = replace(e.operands[-1], narrowed=dtype)
    return split_param(e, made) if split else made


def split_param(e: Emitter, buffer: Buffer) -> Buffer:
    """Has the last operand, of bytes, read as numbers of 24 bits."""
    elements = int(buffer.shape[0]) // 3
    low = tirx.decl_buffer((elements,), "uint16", e.name("b"))
    high = tirx.decl_buffer((3 * elements,), "int8", e.name("b"))
    for view in (low, high):
        e.add(DeclBuffer(view, data=e.params[-1]))
    e.split[buffer] = low, high
    return buffer


def widened(e: Emitter, buffer: Any, at: Index, lanes: int) -> Any:
    """Elements of such a parameter as int32."""
    wide = "int32" if lanes == 1 else f"int32x{lanes}"
    if buffer not in e.split:
        return tirx.Cast(wide, e.vload(buffer, at, lanes))
    low, high = e.split[buffer]
    upper = tirx.Cast(wide, e.vload(high, at + 2 * int(low.shape[0]), lanes))
    shift = e.splat(index(16), lanes)
    return tirx.bitwise_or(tirx.shift_left(upper, shift), tirx.Cast(wide, e.vload(low, at, lanes)))
