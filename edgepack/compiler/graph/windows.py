"""Convolutions and poolings of any rank, channels first, as their channels-last forms."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tvm import relax

from edgepack.compiler.graph.dilated import FilteredTiles, by_phases
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
from edgepack.compiler.graph.taps import Axis, trimmed

__all__ = ["DATA_LAYOUTS", "WEIGHT_LAYOUTS", "adaptive_average", "convolution", "pooling"]

#: Layouts of data, channels first and channels last, and of weights, by the number of spatial dimensions.
DATA_LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
WEIGHT_LAYOUTS = {1: ("OIW", "WIO"), 2: ("OIHW", "HWIO"), 3: ("OIDHW", "DHWIO")}

#: The largest window along height and width that one kernel goes over.
LARGEST_WINDOW = 16
#: Taps from which on it takes longer to go over both at once than one after the other, at stride 1.
OVERLAPPING_TAPS = 64


def convolution(
    rewriter: Rewriter, data: relax.Expr, call: relax.Call, *, filtered: FilteredTiles | None = None
) -> OptionalExpr:
    """A convolution, also one by computed weights; None for another layout than channels first.

    Args:
        data: the input, channels last.
        call: ``relax.nn.conv1d``, ``conv2d`` or ``conv3d``, channels first.
        filtered: tiles by which plain convolutions by 3x3 have Winograd's form, for which dilated ones are
            taken apart; None where they may not have it.
    """
    a, rank = call.attrs, len(shape_of(call)) - 2
    (data_first, data_last), (weights_first, weights_last) = DATA_LAYOUTS[rank], WEIGHT_LAYOUTS[rank]
    if a.data_layout != data_first or a.kernel_layout != weights_first:
        return None
    order, padding = [*range(2, rank + 2), 1, 0], [int(v) for v in a.padding]
    if is_constant(call.args[1]):
        kept, axes = trimmed(numpy_of(call.args[1]).transpose(order), _axes(call))
        if filtered and int(a.groups) == 1 and dtype_of(call) == "float32":
            first, channels, *rest = shape_of(call.args[0])
            shape = (first, *rest, channels)
            if (found := by_phases(rewriter, data, kept, axes, shape, filtered)) is not None:
                return found
        weights, padding = constant(kept), [*(x.before for x in axes), *(x.after for x in axes)]
    else:
        weights = rewriter.emit(relax.op.permute_dims(rewriter.use(call.args[1]), order))
    return rewriter.emit(
        getattr(relax.op.nn, f"conv{rank}d")(
            data,
            weights,
            strides=list(a.strides),
            padding=padding,
            dilation=list(a.dilation),
            groups=int(a.groups),
            data_layout=data_last,
            kernel_layout=weights_last,
            out_dtype=dtype_of(call),
        )
    )


def _axes(call: relax.Call) -> list[Axis]:
    """The dimensions of a convolution, channels first."""
    a, rank = call.attrs, len(shape_of(call)) - 2
    sizes, taps = shape_of(call.args[0])[2:], shape_of(call.args[1])[2:]
    strides, dilation, pads = ([int(v) for v in values] for values in (a.strides, a.dilation, a.padding))
    return [
        Axis(sizes[i], shape_of(call)[2 + i], taps[i], strides[i], dilation[i], pads[i], pads[i + rank])
        for i in range(rank)
    ]


def pooling(rewriter: Rewriter, data: relax.Expr, call: relax.Call) -> OptionalExpr:
    """A maximum or average over windows; None for a layout other than channels first.

    That of a volume is one over height and width, and one over depth of what that gives; that over a large
    window is one over each dimension. An average of averages is that of all: each is over as many elements.

    Args:
        data: the input, channels last.
        call: ``relax.nn.max_pool2d``, ``avg_pool2d`` or those of one and three dimensions.
    """
    a, rank = call.attrs, len(shape_of(call)) - 2
    first, last = DATA_LAYOUTS[rank]
    if a.layout != first:
        return None
    operator = getattr(relax.op.nn, op_name(call).removeprefix("relax.nn."))
    sizes, strides, dilation, pads = (
        [int(v) for v in values] for values in (a.pool_size, a.strides, a.dilation, a.padding)
    )
    reach = [(k - 1) * d + 1 for k, d in zip(sizes, dilation, strict=True)]
    floor = [
        (n + pads[i] + pads[i + rank] - reach[i]) // strides[i] + 1
        for i, n in enumerate(shape_of(call.args[0])[2:])
    ]
    for dimensions in _pooled_together(sizes, strides):
        if rank == 3 and {(sizes[d], strides[d], pads[d], pads[d + rank]) for d in dimensions} == {
            (1, 1, 0, 0)
        }:
            continue

        def only(values: list[int], nothing: int, here: object = dimensions) -> list[int]:
            return [v if i % rank in here else nothing for i, v in enumerate(values)]  # type: ignore[operator]

        data = rewriter.emit(
            operator(
                data,
                pool_size=only(sizes, 1),
                strides=only(strides, 1),
                padding=only(pads, 0),
                dilation=only(dilation, 1),
                ceil_mode=bool(a.ceil_mode) and floor != list(shape_of(call)[2:]),
                count_include_pad=bool(a.count_include_pad),
                layout=last,
            )
        )
    return data


def _pooled_together(sizes: Sequence[int], strides: Sequence[int]) -> list[tuple[int, ...]]:
    """The dimensions that one kernel goes over, and those of the next."""
    if len(sizes) == 1:
        return [(0,)]
    apart = max(sizes[-2:]) > LARGEST_WINDOW
    apart = apart or (prod(sizes[-2:]) >= OVERLAPPING_TAPS and set(strides[-2:]) == {1})
    along = len(sizes) - 2, len(sizes) - 1
    planes: list[tuple[int, ...]] = [along[1:], along[:1]] if apart else [along]
    return [*planes, *([(0,)] if len(sizes) == 3 else [])]


def adaptive_average(rewriter: Rewriter, data: relax.Expr, call: relax.Call) -> OptionalExpr:
    """An average over as many windows as there are outputs; None for a layout other than channels first.

    Args:
        data: the input, channels last.
        call: ``relax.nn.adaptive_avg_pool2d`` or those of one and three dimensions.
    """
    rank = len(shape_of(call)) - 2
    first, last = DATA_LAYOUTS[rank]
    if call.attrs.layout != first:
        return None
    size = shape_of(call)[2:]
    if prod(size) == 1:
        return rewriter.emit(relax.op.mean(data, axis=list(range(1, rank + 1)), keepdims=True))
    operator = getattr(relax.op.nn, f"adaptive_avg_pool{rank}d")
    return rewriter.emit(operator(data, output_size=size, layout=last))
