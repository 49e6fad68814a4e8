"""From Relax operators to TIR, keeping what a kernel rule needs to know of the operator that it came from.

An operator that has rules of its own is called an *anchor*. Its PrimFunc carries the attribute
``edgepack.anchor``: a map with "kind" and the operator's attributes, whose meaning is the Relax operator's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax, te, tirx, topi
from tvm.ir import IRModule, Op

from edgepack.compiler.graph.byte_tables import is_look_up, legalise_look_up
from edgepack.compiler.graph.checked_calls import Legalize, legalised
from edgepack.compiler.graph.fold import VIEWS
from edgepack.compiler.graph.fused_group import TABLE
from edgepack.compiler.graph.group_norm import group_norm_expression
from edgepack.compiler.graph.positions import POSITIONED, known_positions, position
from edgepack.compiler.graph.rewrite import constant, is_constant, op_name, shape_of
from edgepack.compiler.graph.roi_align import roi_align
from edgepack.compiler.graph.special_values import SPECIAL

__all__ = ["ANCHOR", "FUSES_BEHIND", "Attributes", "convolution_attributes", "legalize"]

#: Name of the PrimFunc attribute.
ANCHOR = "edgepack.anchor"

#: Elements of the longest table that a block is annotated with.
LONGEST_TABLE = 4096

#: TVM's pattern of operators behind which elementwise ones may be fused.
FUSES_BEHIND = 4

#: TVM's pattern of operators that move elements, and fuse with what is before and behind them.
FUSES_INTO = 2

#: What a rule is told of an operator: strings, numbers and lists of numbers by name.
Attributes = dict[str, Any]

#: Types of floating point numbers that are compared.
FLOATS = frozenset({"float16", "float32", "float64"})


def convolution_attributes(call: relax.Call) -> Attributes:
    """What a rule is told of a convolution."""
    a = call.attrs
    return {
        "kind": op_name(call).removeprefix("relax.nn."),
        "strides": [int(v) for v in a.strides],
        "padding": [int(v) for v in a.padding],
        "dilation": [int(v) for v in a.dilation],
        "groups": int(a.groups),
        "layout": f"{a.data_layout}/{a.kernel_layout}",
    }


def _pooling(call: relax.Call) -> Attributes:
    a = call.attrs
    return {
        "kind": op_name(call).removeprefix("relax.nn."),
        "pool_size": [int(v) for v in a.pool_size],
        "strides": [int(v) for v in a.strides],
        "padding": [int(v) for v in a.padding],
        "dilation": [int(v) for v in a.dilation],
        "ceil_mode": bool(a.ceil_mode),
        "count_include_pad": bool(a.count_include_pad),
        "layout": str(a.layout),
    }


def _matmul(call: relax.Call) -> Attributes:
    return {"kind": "matmul"}


#: Elements of a row that a gather reads, from which on the row counts as a pixel.
LEAST_PIXEL = 4

#: Poolings that give the largest number of each window.
LARGEST_OF_WINDOW = tuple(f"relax.nn.max_pool{rank}d" for rank in (1, 2, 3))

ANCHORS: dict[str, Callable[[relax.Call], Attributes]] = {
    **{f"relax.nn.conv{rank}d": convolution_attributes for rank in (1, 2, 3)},
    **{f"relax.nn.{kind}_pool{rank}d": _pooling for kind in ("max", "avg") for rank in (1, 2, 3)},
    "relax.matmul": _matmul,
}


def _anchored(name: str, describe: Callable[[relax.Call], Attributes]) -> Legalize:
    """TVM's own legalisation of ``name``, with the anchor's description on the PrimFunc that it makes."""
    legalise = Op.get(name).get_attr("FLegalize")

    def convert(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
        result = legalise(builder, call)
        if op_name(result) == "relax.call_tir":
            gvar = result.args[0]
            function = builder.get()[gvar]
            if name in LARGEST_OF_WINDOW and str(call.args[0].ty.dtype) in FLOATS:
                function = _without_nan(_with_infinities(function, str(call.args[0].ty.dtype)))
            builder.update_func(gvar, function.with_attr(ANCHOR, describe(call)))
        return result

    return convert


def _without_nan(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A largest element that leaves out NaN, as ONNX's reference does in windows: -inf stands for it."""

    def replace(node: tirx.Max) -> tirx.Max:
        dtype = str(node.b.ty)
        if dtype not in FLOATS:
            return node
        least = tirx.FloatImm(dtype, float("-inf"))
        return tirx.Max(node.a, tirx.Select(tirx.isnan(node.b), least, node.b))

    return tvm_ffi.structural_map(function, (tirx.Max, replace))


def _with_infinities(function: tirx.PrimFunc, dtype: str) -> tirx.PrimFunc:
    """The function with infinities for the largest finite numbers of a type."""
    bound = float(np.finfo(dtype).max)

    def replace(number: tirx.FloatImm) -> tirx.FloatImm:
        infinite = abs(number.value) == bound
        return tirx.FloatImm(dtype, np.copysign(np.inf, number.value)) if infinite else number

    return tvm_ffi.structural_map(function, (tirx.FloatImm, replace))


def _unbounded(name: str) -> Legalize:
    """TVM's legalisation of a largest or smallest element, whose reduction begins with an infinity.

    TVM's begins with the largest finite number, which is then the maximum of a row of -inf.
    """
    legalise = Op.get(name).get_attr("FLegalize")

    def convert(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
        result = legalise(builder, call)
        dtype = str(call.args[0].ty.dtype)
        if op_name(result) == "relax.call_tir" and dtype in FLOATS:
            gvar = result.args[0]
            builder.update_func(gvar, _with_infinities(builder.get()[gvar], dtype))
        return result

    return convert


def _take(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """What constants index along one axis fuses with its neighbours, as a transpose does, and so does a
    gather of pixels, of which what samples an image is a weighted sum."""
    if is_look_up(call):
        return legalise_look_up(builder, call)
    axis = call.attrs.axis
    if axis is not None and is_constant(call.args[1]) and len(shape_of(call.args[1])) == 1:
        return _take_constants(builder, call, int(axis) % len(shape_of(call.args[0])))
    result = POSITIONED["relax.take"](builder, call)
    if _gathers_pixels(builder, call):
        gvar = result.args[0]
        builder.update_func(gvar, builder.get()[gvar].with_attr("op_pattern", FUSES_INTO))
    return result


def _split(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """TVM's own splits nothing into parts of which some are empty."""
    sizes = [[int(n) for n in part.shape] for part in call.ty.fields]
    if all(all(size) for size in sizes):
        return Op.get("relax.split").get_attr("FLegalize")(builder, call)
    axis = int(call.attrs.axis) % len(sizes[0])

    starts = [sum(size[axis] for size in sizes[:place]) for place in range(len(sizes))]

    def parts(x: te.Tensor) -> list[te.Tensor]:
        def part(size: list[int], start: int) -> te.Tensor:
            return te.compute(
                size, lambda *at: x[(*at[:axis], at[axis] + start, *at[axis + 1 :])], name="part"
            )

        return [part(*one) for one in zip(sizes, starts, strict=True)]

    return builder.call_te(parts, call.args[0])


def _gather_elements(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """It fuses with what computes its indices, and with what follows."""
    result = POSITIONED["relax.gather_elements"](builder, call)
    gvar = result.args[0]
    builder.update_func(gvar, builder.get()[gvar].with_attr("op_pattern", FUSES_INTO))
    return result


def _gathers_pixels(builder: relax.BlockBuilder, call: relax.Call) -> bool:
    """Whether a gather reads rows of some elements of a view."""
    data, shape = call.args[0], shape_of(call.args[0])
    rows = call.attrs.axis is not None and int(call.attrs.axis) == 0 and len(shape) == 2
    view = isinstance(data, relax.Var) and op_name(builder.lookup_binding(data)) in VIEWS
    return rows and view and shape[1] >= LEAST_PIXEL


def _take_constants(builder: relax.BlockBuilder, call: relax.Call, axis: int) -> relax.Call:
    extent = shape_of(call.args[0])[axis]
    positions = known_positions(call.args[1], extent)
    known = constant(positions)
    annotation = {TABLE: [int(n) for n in positions]} if len(positions) <= LONGEST_TABLE else None

    def compute(x: te.Tensor, table: te.Tensor) -> te.Tensor:
        shape = [*x.shape[:axis], table.shape[0], *x.shape[axis + 1 :]]

        def element(*at: Any) -> Any:
            # The bounds tell kernel rules what they need to know of a position that is read from memory.
            index = position(table(at[axis]), extent, known=True)
            return x[(*at[:axis], index, *at[axis + 1 :])]

        return te.compute(shape, element, name="take", attrs=annotation)

    result = builder.call_te(compute, call.args[0], known, primfunc_name_hint="take")
    gvar = result.args[0]
    builder.update_func(gvar, builder.get()[gvar].with_attr("op_pattern", FUSES_INTO))
    return result


def _group_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """With the channels last an anchor, behind which elementwise operators fuse."""
    a, rank = call.attrs, len(shape_of(call))
    axis = int(a.channel_axis) % rank
    numbers = (int(a.num_groups), axis, float(a.epsilon))
    result = builder.call_te(
        lambda x, gamma, beta: group_norm_expression(x, gamma, beta, *numbers),
        *call.args,
        primfunc_name_hint="group_norm",
    )
    if axis == rank - 1:
        gvar = result.args[0]
        attributes = {"kind": "group_norm", "groups": numbers[0], "epsilon": numbers[2]}
        function = builder.get()[gvar].with_attr(ANCHOR, attributes).with_attr("op_pattern", FUSES_BEHIND)
        builder.update_func(gvar, function)
    return result


def _largest_position(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """argmax and argmin as two reductions, the extreme and the first position that has it: kernels for rows
    know both, but none that hands on two values. Positions are compared as float32 where that is exact.

    A NaN counts as the extreme, as in NumPy: the first one's position, that many elements too low while they
    are compared.
    """
    largest = op_name(call) == "relax.argmax"
    axis, keeps = call.attrs.axis, bool(call.attrs.keepdims)
    rank = len(call.args[0].ty.shape)
    if axis is None or rank == 0:
        return Op.get(op_name(call)).get_attr("FLegalize")(builder, call)
    at, dtype = int(axis) % rank, str(call.args[0].ty.dtype)
    by = "float32" if int(call.args[0].ty.shape[at]) <= 1 << 23 else "int64"

    def compute(x: te.Tensor) -> te.Tensor:
        extent = int(x.shape[at])
        kept = [n for i, n in enumerate(x.shape) if i != at]

        def whole(position: Sequence[Any], k: Any) -> tuple[Any, ...]:
            return (*position[:at], k, *position[at:])

        k, j = te.reduce_axis((0, extent), "k"), te.reduce_axis((0, extent), "j")
        reduce = _extreme(str(x.dtype), largest=largest)
        extreme = te.compute(kept, lambda *i: reduce(x[whole(i, k)], axis=k), name="extreme")
        end = tirx.const(extent, by)

        def position(*i: Any) -> Any:
            value, place = x[whole(i, j)], tirx.Cast(by, j)
            found = tirx.Select(tirx.EQ(value, extreme[i]), place, end)
            if dtype.startswith("float"):
                found = tirx.Select(tirx.isnan(value), place - end, found)
            return te.min(found, axis=j)

        first = te.compute(kept, position, name="first")

        def result(*i: Any) -> Any:
            place = first[(*i[:at], *i[at + 1 :]) if keeps else i]
            if dtype.startswith("float"):
                place = tirx.Select(place < tirx.const(0, by), place + end, place)
            return tirx.Cast("int64", tirx.Min(place, tirx.const(extent - 1, by)))

        shape = [1 if i == at else n for i, n in enumerate(x.shape)] if keeps else kept
        return te.compute(shape, result, name="position")

    return builder.call_te(compute, call.args[0], primfunc_name_hint=op_name(call).removeprefix("relax."))


def _extreme(dtype: str, *, largest: bool) -> Any:
    """te.max or te.min, which starts from an infinity: TVM's own ends are not below a row of these."""
    if not dtype.startswith("float"):
        return te.max if largest else te.min

    def combine(a: Any, b: Any) -> Any:
        return tirx.Max(a, b) if largest else tirx.Min(a, b)

    reducer: Any = te.comm_reducer(combine, lambda t: tirx.const(float("-inf" if largest else "inf"), t))
    return reducer


def _mean(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """A mean of integers is the quotient without its fraction, in their own type: TVM's has 64 bits, which is
    more than the result has room for."""
    (data,), dtype = call.args, str(call.args[0].ty.dtype)
    if not dtype.startswith(("int", "uint")):
        return Op.get(op_name(call)).get_attr("FLegalize")(builder, call)
    rank = len(shape_of(data))
    given = call.attrs.axis
    axes = sorted({int(axis) % rank for axis in given}) if given is not None else list(range(rank))
    keeps, wide = bool(call.attrs.keepdims), "uint64" if dtype.startswith("u") else "int64"
    count = tirx.const(prod(shape_of(data)[axis] for axis in axes), wide)

    def compute(x: te.Tensor) -> te.Tensor:
        numbers = te.compute(x.shape, lambda *at: tirx.Cast(wide, x(*at)), name="wide", tag="elemwise")
        total = topi.sum(numbers, axis=axes, keepdims=keeps)
        return te.compute(
            total.shape,
            lambda *at: tirx.Cast(dtype, tirx.truncdiv(total(*at), count)),
            name="mean",
            tag="elemwise",
        )

    return builder.call_te(compute, data, primfunc_name_hint="mean")


def legalize(module: IRModule) -> IRModule:
    """Turns every operator but views into ``call_tir``; PrimFuncs of anchors carry :data:`ANCHOR`.

    Raises:
        InternalError: an operator's function gives another type or shape than the operator.
        ModelError: an operator reads elements of a dimension that has none.
    """
    custom = {name: _anchored(name, describe) for name, describe in ANCHORS.items()}
    custom |= POSITIONED | SPECIAL
    custom["relax.take"] = _take
    custom["relax.split"] = _split
    custom["relax.mean"] = _mean
    custom["relax.gather_elements"] = _gather_elements
    custom["relax.nn.group_norm"] = _group_norm
    custom["relax.vision.roi_align"] = roi_align
    custom |= {name: _unbounded(name) for name in ("relax.max", "relax.min")}
    custom["relax.argmax"] = custom["relax.argmin"] = _largest_position
    return legalised(module, custom, VIEWS)
