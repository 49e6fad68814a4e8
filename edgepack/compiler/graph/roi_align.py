"""RoiAlign of means: a legalisation instead of TVM's.

Where a region decides how many samples there are, TVM's writes nothing for one without extent, and takes as
many as a region has pixels, however far it reaches beyond the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import relax, te, tirx, topi
from tvm.ir import Op

from edgepack.compiler.graph.rewrite import shape_of

__all__ = ["roi_align"]

Expr = Any

#: Pixels of a bin from which on float32 does not tell its samples apart: what the image adds to their mean is
#: nothing then.
_MANY = 2.0**24


@dataclass(frozen=True)
class _Samples:
    """Where the samples of bins are: tensors by region, axis (down, across) and, but for the first two, bin.

    Attributes:
        grid: how many there are; 0 for a region without extent, or of NaN. float32.
        step: from one to the next, in pixels.
        start: position of the first one.
        first: number of the first one that lies in the image. float32.
        count: from there on, of how many some lie in it; at least 1. int32.
    """

    grid: te.Tensor
    step: te.Tensor
    start: te.Tensor
    first: te.Tensor
    count: te.Tensor


def roi_align(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """The mean of each bin's samples, 0 for a region that has none; samples outside of the image are 0.

    Of a region that reaches far beyond the image only the samples inside are looked at.
    """
    attributes = call.attrs
    if str(attributes.mode) != "avg":  # rewritten by the frontend (``frontend/onnx/rewrites/roi_align.py``)
        return Op.get("relax.vision.roi_align").get_attr("FLegalize")(builder, call)
    data, rois = call.args
    last, shape = str(attributes.layout) == "NHWC", shape_of(data)
    sizes = shape[1:3] if last else shape[2:]

    def compute(x: te.Tensor, regions: te.Tensor) -> te.Tensor:
        samples = _samples(regions, sizes, attributes)

        def element(*place: Expr) -> Expr:
            region, channel = place[0], place[3 if last else 1]
            bins = place[1:3] if last else place[2:]
            numbers = [
                te.reduce_axis((0, samples.count[region, axis, at]), name)
                for axis, (at, name) in enumerate(zip(bins, ("down", "across"), strict=True))
            ]
            image = tirx.Cast("int32", regions[region, 0])
            share = _share(x, (image, region, channel), bins, numbers, samples, sizes, last=last)
            return te.sum(share, axis=numbers)

        return te.compute(shape_of(call), element, name="roi_align")

    return builder.call_te(compute, data, rois, primfunc_name_hint="roi_align")


def _samples(regions: te.Tensor, sizes: tuple[int, ...], attributes: Any) -> _Samples:
    """The samples of each bin.

    Args:
        regions: image, and x and y of two corners, each.
        sizes: of the image: height and width.
        attributes: of the call.
    """
    dtype, count = str(regions.dtype), regions.shape[0]
    bins, given = [int(n) for n in attributes.pooled_size], int(attributes.sample_ratio)

    def const(value: float) -> Expr:
        return tirx.const(value, dtype)

    def of(values: list[int], axis: Expr) -> Expr:
        """What belongs to an axis."""
        return const(values[0]) if values[0] == values[1] else tirx.Select(axis < 1, *map(const, values))

    def corner(i: Expr, column: Expr) -> Expr:
        return regions(i, column) * const(float(attributes.spatial_scale))

    def length(i: Expr, axis: Expr) -> Expr:
        found = corner(i, 4 - axis) - corner(i, 2 - axis)
        if not attributes.aligned:  # a pixel at least; NaN stays
            found = tirx.Select(found < const(1), const(1), found)
        return found / of(bins, axis)

    def grids(i: Expr, axis: Expr) -> Expr:
        found = lengths(i, axis)
        if given > 0:
            return tirx.Select(tirx.abs(found) < const(_MANY), const(given), const(0))
        inside = tirx.And(found > const(0), found < const(_MANY))  # not NaN
        return tirx.Select(inside, tirx.ceil(found), const(0))

    def starts(i: Expr, axis: Expr, at: Expr) -> Expr:
        begin = corner(i, 2 - axis) + tirx.Cast(dtype, at) * lengths(i, axis)
        return begin + step(i, axis) * const(0.5)

    def before(i: Expr, axis: Expr, at: Expr) -> Expr:
        """The number of the sample before the one that lies at -1, or before that."""
        if given > 0:
            return const(0)
        found = tirx.floor((const(-1) - start(i, axis, at)) / step(i, axis)) - const(1)
        return tirx.Max(tirx.Min(found, grid(i, axis)), const(0))

    def counts(i: Expr, axis: Expr, at: Expr) -> Expr:
        if given > 0:
            return tirx.const(given, "int32")
        end = tirx.ceil((of(list(sizes), axis) - start(i, axis, at)) / step(i, axis)) + const(2)
        inside = tirx.Min(end, grid(i, axis)) - first(i, axis, at)
        return tirx.Cast("int32", tirx.Max(tirx.Min(inside, const(_MANY)), const(1)))

    lengths = te.compute((count, 2), length, name="length")
    grid = te.compute((count, 2), grids, name="grid")
    step = te.compute(
        (count, 2), lambda i, axis: lengths(i, axis) / tirx.Max(grid(i, axis), const(1)), name="step"
    )
    each = (count, 2, max(bins))
    start = te.compute(each, starts, name="start")
    first = te.compute(each, before, name="first")
    return _Samples(grid, step, start, first, te.compute(each, counts, name="count"))


def _share(
    x: te.Tensor,
    where: tuple[Expr, Expr, Expr],
    bins: tuple[Expr, ...],
    numbers: list[Expr],
    samples: _Samples,
    sizes: tuple[int, ...],
    *,
    last: bool,
) -> Expr:
    """A sample's share of the mean: 0 outside of the image, and of a region without samples.

    Args:
        where: image, region and channel.
        numbers: of the sample along each axis, from the first one in the image on.
        sizes: of the image.
        last: whether channels are.
    """
    places, inside = [], []
    image, region, channel = where
    total: Expr = tirx.const(1, str(x.dtype))
    for axis, (at, number, size) in enumerate(zip(bins, numbers, sizes, strict=True)):
        dtype = str(samples.start.dtype)
        index = samples.first[region, axis, at] + tirx.Cast(dtype, number)
        place = samples.start[region, axis, at] + index * samples.step[region, axis]
        inside += [index < samples.grid[region, axis]]
        inside += [place >= tirx.const(-1, dtype), place <= tirx.const(size, dtype)]
        places.append(tirx.Min(tirx.Max(place, tirx.const(0, dtype)), tirx.const(size - 1, dtype)))
        total = total * samples.grid[region, axis]
    height, width = sizes
    if last:
        read = topi.cpp.utils.bilinear_sample_nhwc(x, (image, *places, channel), height - 1, width - 1)
    else:
        read = topi.cpp.utils.bilinear_sample_nchw(x, (image, channel, *places), height - 1, width - 1)
    return tirx.if_then_else(tirx.all(*inside), read / total, tirx.const(0, str(x.dtype)))
