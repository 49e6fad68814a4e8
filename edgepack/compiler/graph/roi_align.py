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
            counts = [
                tirx.Min(samples.count(region, axis, at), tirx.const(_most(size, attributes), "int32"))
                for axis, (at, size) in enumerate(zip(bins, sizes, strict=True))
            ]
            numbers = [
                te.reduce_axis((0, n), name) for n, name in zip(counts, ("down", "across"), strict=True)
            ]
            image = tirx.Cast("int32", regions[region, 0])
            share = _share(x, (image, region, channel), bins, numbers, samples, sizes, last=last)
            return te.sum(share, axis=numbers)

        return te.compute(shape_of(call), element, name="roi_align")

    return builder.call_te(compute, data, rois, primfunc_name_hint="roi_align")


def _most(size: int, attributes: Any) -> int:
    """Samples of a bin along one axis that are looked at, at most: steps of bins of more than one are longer
    than half a pixel. It bounds what a run is estimated to take."""
    given = int(attributes.sample_ratio)
    return given if given > 0 else 2 * (size + 2) + 5


class _Regions:
    """Where regions lie: image, and x and y of two corners, each; formulas by region and axis (down, across).

    Args:
        regions: as the operator has them.
        sizes: of the image: height and width.
        attributes: of the call.
    """

    def __init__(self, regions: te.Tensor, sizes: tuple[int, ...], attributes: Any) -> None:
        self.regions, self.sizes, self.attributes = regions, list(sizes), attributes
        self.dtype, self.count = str(regions.dtype), regions.shape[0]
        self.bins, self.given = [int(n) for n in attributes.pooled_size], int(attributes.sample_ratio)

    def const(self, value: float) -> Expr:
        return tirx.const(value, self.dtype)

    def of(self, values: list[int], axis: Expr) -> Expr:
        """What belongs to an axis."""
        if values[0] == values[1]:
            return self.const(values[0])
        return tirx.Select(axis < 1, *map(self.const, values))

    def corner(self, i: Expr, column: Expr) -> Expr:
        return self.regions(i, column) * self.const(float(self.attributes.spatial_scale))

    def length(self, i: Expr, axis: Expr) -> Expr:
        """Pixels of a bin."""
        found = self.corner(i, 4 - axis) - self.corner(i, 2 - axis)
        if not self.attributes.aligned:  # a pixel at least; NaN stays
            found = tirx.Select(found < self.const(1), self.const(1), found)
        return found / self.of(self.bins, axis)

    def grid(self, length: Expr) -> Expr:
        """Samples of a bin of so many pixels."""
        if self.given > 0:
            known = tirx.abs(length) < self.const(_MANY)
            return tirx.Select(known, self.const(self.given), self.const(0))
        inside = tirx.And(length > self.const(0), length < self.const(_MANY))  # not NaN
        return tirx.Select(inside, tirx.ceil(length), self.const(0))

    def first(self, start: Expr, step: Expr, grid: Expr) -> Expr:
        """The number of the sample before the one that lies at -1, or before that."""
        if self.given > 0:
            return self.const(0)
        found = tirx.floor((self.const(-1) - start) / step) - self.const(1)
        return tirx.Max(tirx.Min(found, grid), self.const(0))

    def rest(self, axis: Expr, start: Expr, step: Expr, grid: Expr, first: Expr) -> Expr:
        """Samples from the first one on to the one behind that at the image's end."""
        if self.given > 0:
            return tirx.const(self.given, "int32")
        end = tirx.ceil((self.of(self.sizes, axis) - start) / step) + self.const(2)
        inside = tirx.Min(tirx.Min(end, grid) - first, self.const(_MANY))
        return tirx.Cast("int32", tirx.Max(inside, self.const(1)))


def _samples(regions: te.Tensor, sizes: tuple[int, ...], attributes: Any) -> _Samples:
    """The samples of each bin; arguments as those of :class:`_Regions`."""
    r = _Regions(regions, sizes, attributes)
    each, bins = (r.count, 2), (r.count, 2, max(r.bins))
    length = te.compute(each, r.length, name="length")
    grid = te.compute(each, lambda i, axis: r.grid(length(i, axis)), name="grid")

    def steps(i: Expr, axis: Expr) -> Expr:
        return tirx.Select(grid(i, axis) > r.const(0), length(i, axis) / grid(i, axis), r.const(1))

    step = te.compute(each, steps, name="step")

    def starts(i: Expr, axis: Expr, at: Expr) -> Expr:
        begin = r.corner(i, 2 - axis) + tirx.Cast(r.dtype, at) * length(i, axis)
        known = grid(i, axis) > r.const(0)  # so that no number of a region without samples is NaN
        return tirx.Select(known, begin + step(i, axis) * r.const(0.5), r.const(0))

    start = te.compute(bins, starts, name="start")

    def firsts(i: Expr, axis: Expr, at: Expr) -> Expr:
        return r.first(start(i, axis, at), step(i, axis), grid(i, axis))

    first = te.compute(bins, firsts, name="first")

    def counts(i: Expr, axis: Expr, at: Expr) -> Expr:
        return r.rest(axis, start(i, axis, at), step(i, axis), grid(i, axis), first(i, axis, at))

    return _Samples(grid, step, start, first, te.compute(bins, counts, name="count"))


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
