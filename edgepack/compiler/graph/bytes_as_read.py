"""Convolutions and sums that read bytes as they lie: what stands before them in the graph becomes a part of
them.

A convolution of quads of bytes reads a zero point outside of an image, which is a padding of its own in the
graph; a depthwise one reads bytes less their zero point, as int16. TVM fuses neither with the convolution
behind it. A sum of integers widens what it reads, and what is computed of it is fused with it; TVM does
only one of the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi
from tvm.ir import IRModule

from edgepack.compiler.graph.filtered_integers import EXACT, ExactTiles, bounds_of
from edgepack.compiler.graph.integer_operands import BYTES, CONVOLUTIONS
from edgepack.compiler.graph.integer_ranges import range_of
from edgepack.compiler.graph.legalize import ANCHOR, FUSES_BEHIND, convolution_attributes
from edgepack.compiler.graph.rewrite import (
    OptionalExpr,
    Rewriter,
    constant,
    dtype_of,
    is_constant,
    numpy_of,
    op_name,
    shape_of,
)

__all__ = ["bytes_as_read"]

#: Operators that bytes less a zero point are written with, and the zero point's sign in them. Of the second
#: what computes the bytes writes int16, where memory is not short.
SIGNS = {"relax.add": -1, "relax.subtract": 1}

#: What a convolution reads instead, its padding, and the anchor's attributes of it.
_Source = tuple[relax.Expr, list[int], dict[str, int]]


#: Columns of the widest output, and bytes of the largest image, that is copied with its padding before a
#: window slides over it. A register tile of twelve pixels that is not all inside of one row asks for each tap
#: of each pixel where it lies: of 32 columns two thirds of the tiles do, and take twice as long as others.
WIDEST, LARGEST_COPY = 64, 1 << 16


class _BytesAsRead(Rewriter):
    def __init__(self, module: IRModule, tiles: ExactTiles | None, *, copies: bool, words: bool) -> None:
        super().__init__(module)
        self.tiles, self.copies, self.words = tiles, copies, words
        self.calls: dict[relax.Expr, relax.Call] = {}

    def visit_call(self, call: relax.Call, args: Sequence[relax.Expr]) -> relax.Expr:
        made = None
        if op_name(call) in CONVOLUTIONS:
            made = self._convolution(call, args)
        elif op_name(call) == "relax.sum":
            made = self._sum(call, args[0])
        if made is None:
            made = super().visit_call(call, args)
            self.calls[made] = relax.Call(call.op, list(args), call.attrs, call.ty_args)
        return made

    def _convolution(self, call: relax.Call, args: Sequence[relax.Expr]) -> OptionalExpr:
        a = call.attrs
        if dtype_of(call) != "int32" or str(a.data_layout)[-1] != "C" or not is_constant(args[1]):
            return None
        padding = [int(n) for n in a.padding]
        weights = args[1]
        found = self._padded(args[0]) if not any(padding) else None
        if found is None and int(a.groups) == shape_of(args[0])[-1] == shape_of(weights)[-1] > 1:
            found = self._less_zero(args[0], padding)
            if found is not None and self.words:
                weights = _as_bytes(weights)
        exact = self._exact(call, args, found)
        source, padding, numbers = found or (args[0], padding, {})
        if self._is_copied(call, source, padding):
            outside = numbers.pop("outside", 0)
            widths = [n for i in range(len(padding) // 2) for n in padding[i :: len(padding) // 2]]
            source = self.emit(relax.op.nn.pad(source, [0, 0, *widths, 0, 0], pad_value=float(outside)))
            padding = [0] * len(padding)
        elif found is None and not exact:
            return None
        attributes = {**convolution_attributes(call), **numbers, "padding": padding, **exact}
        if "zero" in numbers and dtype_of(weights) == "int8":
            # Two products of bytes fit 16 bits but for those of two weights that are -128.
            attributes["together"] = 1 + int(numpy_of(weights).min() > -128)
        rank = len(padding) // 2

        def compute(x: te.Tensor, w: te.Tensor) -> te.Tensor:
            outside, zero = numbers.get("outside", 0), numbers.get("zero", 0)
            if "zero" in numbers:
                x = te.compute(
                    x.shape, lambda *i: tirx.Cast("int16", x[i]) - tirx.const(zero, "int16"), name="centred"
                )
            if any(padding):
                before, after = [0, *padding[:rank], 0], [0, *padding[rank:], 0]
                x = topi.nn.pad(x, before, after, tirx.const(outside, x.dtype))
            strides, dilation = ([int(n) for n in values] for values in (a.strides, a.dilation))
            return topi.nn.conv(
                x,
                w,
                strides,
                0,
                dilation,
                int(a.groups),
                data_layout=str(a.data_layout),
                kernel_layout=str(a.kernel_layout),
                out_dtype="int32",
            )

        result = self.builder.call_te(
            compute, source, weights, primfunc_name_hint=op_name(call).removeprefix("relax.nn.")
        )
        return self._fused_behind(result, {ANCHOR: attributes})

    def _fused_behind(self, call: relax.Call, attributes: Mapping[str, Any]) -> relax.Expr:
        """The result of a new function, with which what reads it is fused."""
        function = self.builder.get()[call.args[0]]
        for name, value in {**attributes, "op_pattern": FUSES_BEHIND}.items():
            function = function.with_attr(name, value)
        self.builder.update_func(call.args[0], function)
        return self.emit(call)

    def _is_copied(self, call: relax.Call, source: relax.Expr, padding: list[int]) -> bool:
        """Whether a convolution by quads reads a small copy of its image with the padding in it."""
        rank, shape = len(padding) // 2, shape_of(source)
        if not self.copies or not any(padding) or int(call.attrs.groups) > 1 or dtype_of(source) not in BYTES:
            return False
        extents = [n + padding[i] + padding[i + rank] for i, n in enumerate(shape[1:-1])]
        return shape_of(call)[-2] <= WIDEST and shape[0] * prod(extents) * shape[-1] <= LARGEST_COPY

    def _sum(self, call: relax.Call, data: relax.Expr) -> OptionalExpr:
        """A sum of bytes that reads them as they lie; where memory is not short, what is computed of it is
        fused with it."""
        wide: OptionalExpr = self.calls.get(data)
        if op_name(wide) != "relax.astype" or dtype_of(call) != "int32":
            return None
        if dtype_of(wide.args[0]) not in (BYTES if self.words else BYTES | {"int16"}):
            return None
        axes = None if call.attrs.axis is None else [int(axis) for axis in call.attrs.axis]

        def compute(x: te.Tensor) -> te.Tensor:
            widened = te.compute(x.shape, lambda *i: tirx.Cast(dtype_of(call), x[i]), name="widened")
            return topi.sum(widened, axes, bool(call.attrs.keepdims))

        result = self.builder.call_te(compute, wide.args[0], primfunc_name_hint="sum")
        return self.emit(result) if self.words else self._fused_behind(result, {})

    def _exact(
        self, call: relax.Call, args: Sequence[relax.Expr], found: _Source | None
    ) -> dict[str, list[int]]:
        """The anchor's attribute of the tiles by which Winograd's form of a convolution is exact; empty where
        there are none."""
        a, weights = call.attrs, numpy_of(args[1])
        source, _, numbers = found or (args[0], [], {})
        plain = int(a.groups) == 1 and {*map(int, a.strides), *map(int, a.dilation)} == {1}
        if self.tiles is None or not plain or weights.shape[:-2] != (3, 3) or "zero" in numbers:
            return {}
        known = range_of(self.calls, source)
        if known is None:
            return {}
        # Tiles read beside the image, where its end cuts them, also without padding.
        values = (*known, numbers.get("outside", 0))
        tiles = self.tiles(bounds_of((min(values), max(values)), weights))
        return {EXACT: list(tiles)} if tiles else {}

    def _padded(self, data: relax.Expr) -> _Source | None:
        """What a padding by a number before a convolution pads, how far, and the number."""
        call: OptionalExpr = self.calls.get(data)
        if op_name(call) != "relax.nn.pad" or dtype_of(data) not in BYTES:
            return None
        widths = [int(n) for n in call.attrs.pad_width]
        inner = widths[2:-2]
        if str(call.attrs.pad_mode) != "constant" or any(widths[:2]) or any(widths[-2:]):
            return None
        outside = int(float(call.attrs.pad_value))
        return call.args[0], [*inner[::2], *inner[1::2]], {"outside": outside}

    def _less_zero(self, data: relax.Expr, padding: list[int]) -> _Source | None:
        """The bytes that a depthwise convolution's input of int16 is made of, and their zero point."""
        call: OptionalExpr = self.calls.get(data)
        zero = 0
        less = op_name(call) in (SIGNS if self.words else {"relax.add"})
        if less and is_constant(call.args[1]) and not shape_of(call.args[1]):
            zero = SIGNS[op_name(call)] * int(numpy_of(call.args[1]))
            call = self.calls.get(call.args[0])
        if (
            op_name(call) != "relax.astype"
            or dtype_of(data) != "int16"
            or dtype_of(call.args[0]) not in BYTES
        ):
            return None
        return call.args[0], padding, {"zero": zero}


def _as_bytes(weights: relax.Expr) -> relax.Expr:
    """Constant weights as int8, if they fit."""
    values = numpy_of(weights)
    return constant(values.astype(np.int8)) if ((values >= -128) & (values <= 127)).all() else weights


def bytes_as_read(
    module: IRModule, tiles: ExactTiles | None = None, *, copies: bool = False, words: bool = False
) -> IRModule:
    """Makes paddings by zero points a part of convolutions of bytes, the subtraction of zero points one of
    depthwise convolutions, and casts to int32 one of sums. Takes note of the tiles by which Winograd's form
    of other convolutions is exact.

    Args:
        module: convolutions channels last.
        tiles: that Winograd's form of integers has; None where convolutions may not have it.
        copies: small images are copied with their padding instead, where a window slides over them.
        words: whether weights of depthwise convolutions of bytes are bytes too, and sums of bytes kernels of
            their own.
    """
    return _BytesAsRead(module, tiles, copies=copies, words=words).run()
