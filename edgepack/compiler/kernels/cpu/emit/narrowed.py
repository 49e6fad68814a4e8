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

__all__ = ["narrowed_param", "split_param", "widened", "word_params"]


def narrowed_param(e: Emitter, number: int, elements: int, dtype: str) -> Buffer:
    """Declares a constant parameter of the fused function, stored as a narrower type than its own."""
    split = dtype == INT24
    made = e.param(number, elements * 3 if split else elements, "uint8" if split else dtype)
    e.operands[-1] = replace(e.operands[-1], narrowed=dtype)
    return split_param(e, made) if split else made


def split_param(e: Emitter, buffer: Buffer) -> Buffer:
    """Has the last operand, of bytes, read as numbers of 24 bits."""
    elements = int(buffer.shape[0]) // 3
    low, high = _view(e, elements, "uint16"), _view(e, 3 * elements, "int8")

    def read(at: Index, lanes: int) -> Any:
        upper = tirx.Cast(_int32(lanes), e.vload(high, at + 2 * elements, lanes))
        return (upper << e.splat(index(16), lanes)) | tirx.Cast(_int32(lanes), e.vload(low, at, lanes))

    e.readers[buffer] = read
    return buffer


def word_params(e: Emitter, number: int, other: int, least: int, elements: int) -> dict[int, Buffer]:
    """Declares two constant parameters that share words, of which the first has factors; the buffers to read
    them from, by parameter."""
    factors = e.param(number, elements, "uint32")
    e.operands[-1] = replace(e.operands[-1], beside=(e.number("param", other), least))
    others = _view(e, elements, "uint32")

    def read_factor(at: Index, lanes: int) -> Any:
        upper = e.vload(factors, at, lanes) >> _unsigned(e, 2, lanes)
        return tirx.reinterpret(_int32(lanes), upper | _unsigned(e, 1 << 30, lanes))

    def read_other(at: Index, lanes: int) -> Any:
        lower = e.vload(others, at, lanes) & _unsigned(e, 3, lanes)
        return tirx.reinterpret(_int32(lanes), lower) + e.splat(index(least), lanes)

    e.readers |= {factors: read_factor, others: read_other}
    return {number: factors, other: others}


def _view(e: Emitter, elements: int, dtype: str) -> Buffer:
    """The last operand, as elements of another type."""
    made = tirx.decl_buffer((elements,), dtype, e.name("b"))
    e.add(DeclBuffer(made, data=e.params[-1]))
    return made


def _int32(lanes: int) -> str:
    return "int32" if lanes == 1 else f"int32x{lanes}"


def _unsigned(e: Emitter, number: int, lanes: int) -> Any:
    return e.splat(tirx.const(number, "uint32"), lanes)


def widened(e: Emitter, buffer: Any, at: Index, lanes: int) -> Any:
    """Elements of such a parameter as int32."""
    if buffer in e.readers:
        return e.readers[buffer](at, lanes)
    return tirx.Cast(_int32(lanes), e.vload(buffer, at, lanes))
