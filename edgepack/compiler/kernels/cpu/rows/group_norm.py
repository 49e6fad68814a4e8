"""Group and instance normalisation, channels last, with the elementwise operators behind it.

Two stages. The first takes the mean of each channel, and the sum of squared differences from it, over each
part of the pixels. The second makes those of the groups of them (T. F. Chan, G. H. Golub and R. J. LeVeque,
Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979), and from these a factor and
a summand for each channel, with which it goes through its part of the pixels: a multiply-add, then the tail.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tvm import tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, Stage
from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.emit.arithmetic import Arithmetic
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import div, index, unravel
from edgepack.compiler.kernels.cpu.emit.value import Value
from edgepack.compiler.kernels.expressions.operations import FLOATS, OPERATIONS
from edgepack.compiler.kernels.rule import Rule
from edgepack.plan.target import CpuTarget

__all__ = ["group_norm"]

#: Pixels of a part, at least: each part's sums are read again for all parts.
LEAST_PIXELS = 64
#: Parts for each thread, at most.
MOST_PARTS = 4
#: Vectors of channels that are summed side by side.
SIDE_BY_SIDE = 4


class GroupNorm(KernelBuilder):
    """Builds the two kernels; a task of either is a part of one image's pixels."""

    def __init__(self, found: AnchoredGroup, target: CpuTarget) -> None:
        shape = found.output_shape
        lanes = target.lanes(found.dtype)
        while lanes > shape[-1]:
            lanes //= 2
        super().__init__("group_norm", target, dtype=found.dtype, lanes=lanes)
        self.found, self.shape = found, shape
        self.batch, self.channels = shape[0], shape[-1]
        self.pixels = prod(shape[1:-1])
        self.groups = int(found.anchor.attributes["groups"])
        self.epsilon = float(found.anchor.attributes["epsilon"])
        self.size = self.channels // self.groups
        most = max(1, min(MOST_PARTS * target.threads, self.pixels // LEAST_PIXELS))
        self.parts = max(1, most // target.threads * target.threads) if most > target.threads else most

    def parameters(self) -> dict[str, Any]:
        return {"parts": self.parts, "lanes": self.lanes}

    def build(self) -> Implementation:
        elements = self.batch * self.pixels * self.channels
        second = self._apply()
        return Implementation(
            self.rule,
            (self._sums(), second),
            temps=(self.batch * self.parts * 2 * self.channels * self.element_bytes,),
            scratch=tuple(self.e.scratch_bytes),
            parameters=self.parameters(),
            flops=7 * elements,
        )

    def _part(self, part: Any) -> Any:
        """The first pixel of a part."""
        return div(part * self.pixels, self.parts)

    def _vectors(self, e: Emitter, body: Callable[[Any], None]) -> None:
        """``body(first channel)`` for each vector; the last one overlaps the one before."""
        whole, rest = divmod(self.channels, self.lanes)
        e.loop(0, whole, lambda i: body(e.let(i * self.lanes)))
        if rest:
            body(index(self.channels - self.lanes))

    # Sums -------------------------------------------------------------------------------------------------

    def _sums(self) -> Stage:
        """Means and sums of squared differences, [image][part][2][channels]."""
        e = Emitter(self.lanes, self.target, self.dtype)
        x = e.param(self.found.operand(0), self.batch * self.pixels * self.channels)
        sums = e.temp(0, self.batch * self.parts * 2 * self.channels)
        step = SIDE_BY_SIDE * self.lanes
        whole, rest = divmod(self.channels, step)

        def task(number: Any) -> None:
            image, part = (e.let(index(i)) for i in unravel(number, (self.batch, self.parts)))
            begin, end = e.let(self._part(part)), e.let(self._part(part + 1))
            count = e.let(tirx.Cast(self.dtype, end - begin))
            source = e.let((image * self.pixels + begin) * self.channels)
            span = (source, e.let(end - begin), count, e.let(number * (2 * self.channels)))
            e.loop(0, whole, lambda i: self._block(e, (x, sums), span, e.let(i * step), SIDE_BY_SIDE))
            for at in range(whole * step, whole * step + rest, self.lanes):
                first = min(at, self.channels - self.lanes)
                self._block(e, (x, sums), span, index(first), 1)

        e.tasks(task)
        return e.stage(self.batch * self.parts)

    def _block(
        self,
        e: Emitter,
        buffers: tuple[Any, Any],
        span: tuple[Any, Any, Any, Any],
        channel: Any,
        vectors: int,
    ) -> None:
        """``vectors`` vectors of channels; sums are of differences from the first pixel, which is near the
        mean where that is far from zero."""
        (x, sums), (source, pixels, count, target), lanes = buffers, span, self.lanes
        first = e.let(source + channel)
        pivots = [e.let(e.vload(x, first + i * lanes)) for i in range(vectors)]
        totals = e.local(2 * vectors * lanes, self.dtype)
        for i in range(2 * vectors):
            e.vstore(totals, i * lanes, self._number(0, lanes))

        def pixel(p: Any) -> None:
            at = e.let(first + p * self.channels)
            for i in range(vectors):
                d = e.let(e.vload(x, at + i * lanes) - pivots[i])
                e.vstore(totals, 2 * i * lanes, e.vload(totals, 2 * i * lanes) + d)
                squares = (2 * i + 1) * lanes
                e.vstore(totals, squares, e.multiply_add(d, d, e.vload(totals, squares)))

        e.loop(0, pixels, pixel)
        n = e.splat(count)
        for i in range(vectors):
            total = e.let(e.vload(totals, 2 * i * lanes))
            mean = e.let(total / n)
            place = e.let(target + channel + i * lanes)
            e.vstore(sums, place, pivots[i] + mean)
            e.vstore(sums, place + self.channels, e.vload(totals, (2 * i + 1) * lanes) - total * mean)

    # Normalising ------------------------------------------------------------------------------------------

    def _apply(self) -> Stage:
        e, found, elements = self.e, self.found, self.batch * self.pixels * self.channels
        x = e.param(found.operand(0), elements)
        gamma, beta = (e.param(found.operand(i), self.channels) for i in (1, 2))
        extra = found.declare_epilogue(e)
        y = e.output(0, found.output_elements)
        sums = e.temp(0, self.batch * self.parts * 2 * self.channels)
        total, mean, factor, summand = (e.scratch(self.channels) for _ in range(4))

        def task(number: Any) -> None:
            image, part = (e.let(index(i)) for i in unravel(number, (self.batch, self.parts)))
            self._merge(sums, e.let(image * (self.parts * 2 * self.channels)), total, mean)

            def weights(c: Any) -> None:
                value = e.let(e.vload(gamma, c) * e.vload(total, c))
                e.vstore(factor, c, value)
                e.vstore(summand, c, e.vload(beta, c) - e.vload(mean, c) * value)

            self._vectors(e, weights)
            begin, end = e.let(self._part(part)), e.let(self._part(part + 1))

            def pixel(p: Any) -> None:
                row = e.let(image * self.pixels + p)
                place = (image, *(e.let(i) for i in unravel(p, self.shape[1:-1])))

                def vector(c: Any) -> None:
                    at = e.let(row * self.channels + c)
                    value = e.multiply_add(e.vload(x, at), e.vload(factor, c), e.vload(summand, c))
                    views = {q: (extra[q], at) for q in found.epilogue.dense}
                    stored = found.stored(e, e.let(value), (*place, c), self.lanes, extra, views)
                    e.vstore(y, e.let(row * found.row_stride + c), stored)

                self._vectors(e, vector)

            e.loop(begin, end, pixel)

        e.tasks(task)
        return e.stage(self.batch * self.parts)

    def _merge(self, sums: Any, first: Any, total: Any, mean: Any) -> None:
        """Merges the sums of one image: ``mean`` becomes the mean of each channel's group, ``total`` the
        reciprocal of the root of its variance and epsilon.

        Args:
            first: where the image's sums begin.
        """
        e, lanes = self.e, self.lanes

        def over_parts(c: Any, term: Callable[[Any, Any, Any], Any]) -> None:
            sum_ = e.local(lanes, self.dtype)
            e.vstore(sum_, 0, self._number(0, lanes))

            def part(i: Any) -> None:
                pixels = e.splat(e.let(tirx.Cast(self.dtype, self._part(i + 1) - self._part(i))))
                place = e.let(first + i * (2 * self.channels) + c)
                there, squares = e.let(e.vload(sums, place)), e.vload(sums, place + self.channels)
                e.vstore(sum_, 0, e.vload(sum_, 0) + term(pixels, there, squares))

            e.loop(0, self.parts, part)
            e.vstore(total, c, e.vload(sum_, 0))

        self._vectors(e, lambda c: over_parts(c, lambda n, there, squares: n * there))
        self._of_groups(total, mean, lambda value, lanes: value)

        def about_the_mean(c: Any) -> None:
            middle = e.let(e.vload(mean, c))

            def term(n: Any, there: Any, squares: Any) -> Any:
                return squares + n * (there - middle) * (there - middle)

            over_parts(c, term)

        self._vectors(e, about_the_mean)
        self._of_groups(total, total, self._reciprocal_root)

    def _reciprocal_root(self, variance: Any, lanes: int) -> Any:
        total = self.e.let(variance + self._number(self.epsilon, lanes))
        root = Arithmetic(self.e).operated(OPERATIONS["sqrt"], [Value(total, lanes, self.dtype)], self.dtype)
        return self._number(1.0, lanes) / root.expr

    def _number(self, value: float, lanes: int) -> Any:
        return self.e.splat(tirx.const(float(value), self.dtype), lanes)

    def _of_groups(self, source: Any, target: Any, value: Callable[[Any, int], Any]) -> None:
        """``value`` of the mean of each group, of the sums of its channels, for each of its channels."""
        e, scale = self.e, 1.0 / (self.pixels * self.size)
        if self.size == 1:

            def vector(i: Any) -> None:
                mean = e.let(e.vload(source, i * self.lanes) * self._number(scale, self.lanes))
                e.vstore(target, i * self.lanes, value(mean, self.lanes))

            e.loop(0, self.channels // self.lanes, vector)

        def group(g: Any) -> None:
            first = e.let(g * self.size)
            sum_ = e.local(1, self.dtype)
            e.vstore(sum_, 0, self._number(0, 1), 1)
            e.loop(
                0,
                self.size,
                lambda i: e.vstore(sum_, 0, e.load(sum_, 0) + e.load(source, first + i), 1),
            )
            result = e.let(value(e.let(e.load(sum_, 0) * self._number(scale, 1)), 1))
            e.loop(0, self.size, lambda i: e.vstore(target, first + i, result, 1))

        whole = self.channels // self.lanes * self.lanes if self.size == 1 else 0
        e.loop(whole, self.groups, group)


def group_norm(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rule ``group_norm``."""
    found = anchored(fused, ["group_norm"])
    return GroupNorm(found, target).build()


RULE = Rule("group_norm", order=850, dtypes=FLOATS, apply=group_norm, heeds_row_stride=True)
