"""A convolution and the depthwise convolution behind it as one kernel, so that what lies between them never
leaves the cache.

A task is a band of rows of the depthwise convolution's output, and goes through it a few rows at a time: it
computes the rows of the first convolution's output that these need and those before did not, into a ring of
rows in the thread's scratch, and reads the windows from there. Only the first of the tasks that a thread does
one after the other computes rows that belong to another task, so there are no more tasks than that allows.

A mobile network's expansion is the largest tensor of a block, and both kernels around it wait for memory:
docs/lab-book.md says what that costs MobileNetV2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tvm import tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, Operand, Packing, RuleError, Stage
from edgepack.compiler.kernels.cpu.analysis.fused_group import AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d, pack_weights
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import ImplicitGemm
from edgepack.compiler.kernels.cpu.conv.sliding_window import Depthwise
from edgepack.compiler.kernels.cpu.emit.emitter import div, index, mod, unravel
from edgepack.compiler.kernels.cpu.emit.register_tile import narrow_vectors, tile_for
from edgepack.compiler.kernels.rule import FLOAT32, PairRule
from edgepack.plan.target import CpuTarget

__all__ = ["fused_depthwise_conv2d"]


def fused_depthwise_conv2d(
    first: FusedGroup,
    second: FusedGroup,
    target: CpuTarget,
    constants: Sequence[frozenset[int]],
) -> Implementation:
    """``conv2d.chained``: ``second`` reads what ``first`` computes, and nobody else does.

    Parameters of the implementation are those of ``first``, then those of ``second`` from its second one on.

    Args:
        constants: of each group, the parameters that are constant at every call.

    Raises:
        RuleError: if the two are not such convolutions, or two kernels are faster.
    """
    outer, inner = anchored(first, ["conv2d"]), anchored(second, ["conv2d"])
    conv, depthwise = Conv2d.of(outer), Conv2d.of(inner)
    if not depthwise.depthwise or inner.operand(0) != 0 or conv.groups != 1 or first.pitch is not None:
        raise RuleError("not a convolution and a depthwise convolution")
    if outer.output_shape != inner.operand_shape(0):
        raise RuleError("a reshape stands between them")
    if 0 in inner.epilogue.params:
        raise RuleError("the second one's tail reads what lies between too")
    if outer.operand(1) not in constants[0] or inner.operand(1) not in constants[1]:
        raise RuleError("the weights are not constant")
    chain = _Chain(conv, outer, depthwise, inner, target)
    chain.check()
    return chain.implementation()


#: Rows of the output that are done at a time. Of MobileNetV2's four chains 1 to 4 are equally fast, 7 takes
#: 5 % longer, on Zen 4 with 1 MB of L2.
ROWS_AT_A_TIME = 2
#: Tasks for each thread, at most: where threads claim them one by one, the fast ones do more of them.
MOST_TASKS = 4
#: Multiply-adds that may be done twice, for each element of what lies between. One that leaves the cache and
#: comes back costs 8 bytes of traffic, in whose time a core does some 7 multiply-adds (Zen 4).
MOST_AGAIN = 4


class _Ring(Depthwise):
    """A depthwise convolution whose input is a ring of rows, with row ``r`` at ``r % slots``."""

    def __init__(self, conv: Conv2d, group: AnchoredGroup, target: CpuTarget) -> None:
        super().__init__(conv, group, target)
        self.conv = conv
        self.row_parts = -(-conv.out_height // ROWS_AT_A_TIME)

    @property
    def slots(self) -> int:
        """Rows that are read at a time."""
        rows = -(-self.conv.out_height // self.row_parts)
        return (rows - 1) * self.conv.strides[0] + self.reach

    @property
    def reach(self) -> int:
        """Rows from the first to the last of a window."""
        return (self.conv.kernel[0] - 1) * self.conv.dilation[0] + 1

    @property
    def shared_rows(self) -> int:
        """That the windows of two rows have in common."""
        return max(0, self.reach - self.conv.strides[0])

    def lines(self, image: Any, top: Any, at: Any) -> Callable[[Any], Any]:
        e, c = self.e, self.conv

        def line(k: Any) -> Any:
            # Rows in the padding are not read.
            row = tirx.max(index(0), top + k * c.dilation[0])
            return e.let(mod(row, self.slots) * (c.width * c.in_channels) + at)

        if not self.unrolled:
            return line
        places = [line(k) for k in range(c.kernel[0])]
        return lambda k: places[k]


class _Chain:
    """Emits the kernel."""

    def __init__(
        self, conv: Conv2d, outer: AnchoredGroup, depthwise: Conv2d, inner: AnchoredGroup, target: CpuTarget
    ) -> None:
        self.conv, self.depthwise, self.target = conv, depthwise, target
        self.outer, self.inner = outer, inner
        narrow = narrow_vectors(target, conv.out_channels)
        self.tile = tile_for(narrow, conv.out_width, conv.out_channels)
        self.first = ImplicitGemm(conv, self.tile, outer, narrow, rows_apart=True)
        self.second = _Ring(depthwise, inner, target)
        self.second.e = self.first.e

    @property
    def bands(self) -> int:
        """Tasks of an image: none if threads would compute too much twice."""
        threads, ring = self.target.threads, self.second
        for count in (n * threads for n in range(MOST_TASKS, 0, -1)):
            again = ring.shared_rows * (count - 1) * self.conv.depth
            if again <= MOST_AGAIN * self.conv.out_height and count <= ring.row_parts:
                return count
        return 0

    @property
    def row_floats(self) -> int:
        """Of what lies between the two."""
        return self.conv.out_width * self.conv.out_channels

    @property
    def ring_bytes(self) -> int:
        return self.second.slots * self.row_floats * 4

    def check(self) -> None:
        """RuleError where two kernels are as fast or faster."""
        c, cut = self.conv, self.first.blocking
        if not (c.pointwise or c.strides != (1, 1)):
            raise RuleError("Winograd's transforms may be faster")
        if cut.weights_first or cut.slices > 1:
            raise RuleError("the weights do not stay in the cache beside the rows")
        if 2 * c.pixels * c.out_channels * 4 <= self.target.l2_bytes * self.target.threads:
            raise RuleError("what lies between fits the caches")
        if not self.bands:
            raise RuleError("threads would compute too much twice")
        if self.ring_bytes > self.target.l2_bytes // 2:
            raise RuleError("the ring does not fit the cache")

    def implementation(self) -> Implementation:
        weights = self.outer.operand(1)
        columns, zeros = self.tile.columns, self.first.zeros
        packing = Packing(
            weights, f"conv2d:1:{columns}:{zeros}", lambda w: pack_weights(w, 1, columns, zeros)
        )
        depthwise = self.second.packing(self._place(self.inner.operand(1)))
        return Implementation(
            "conv2d.chained",
            (self._build(),),
            (packing, depthwise),
            scratch=(self.ring_bytes,),
            parameters={
                "tile": f"{self.tile.rows}x{columns}",
                "strip": f"{self.second.columns}x{self.second.lanes}",
                "rows": self.second.slots,
                "bands": self.bands,
            },
            flops=self.conv.flops + self.depthwise.flops,
        )

    def _place(self, param: int) -> int:
        """Of a parameter of the second group among those of both."""
        return len(self.outer.params) + param - 1

    def _build(self) -> Stage:
        e, second = self.first.e, self.second
        begin = self.first.pointers()
        end = []
        for operand in second.pointers():
            place = {"param": self._place(operand.index), "packed": 1}.get(operand.kind, operand.index)
            end.append(replace(operand, index=place))
        self.ring = second.x = e.pointer(self.ring_bytes // 4)
        bands = self.bands
        lo, hi = e.task_range()

        def task(number: Any) -> None:
            image, band = (e.let(index(i)) for i in unravel(number, (self.depthwise.batch, bands)))
            top, bottom = (e.let(div((band + i) * second.row_parts, bands)) for i in (0, 1))

            def part(p: Any) -> None:
                begins = tirx.all(tirx.EQ(number, lo), tirx.EQ(p, top))
                self._rows(image, p, tirx.any(begins, tirx.EQ(p, index(0))))
                e.loop(0, second.blocks, lambda block: second.task(image, p, block))

            e.loop(top, bottom, part)

        e.loop(lo, hi, task)
        return Stage(e.finish(), self.depthwise.batch * bands, (*begin, *end, Operand("scratch", 0)))

    def _rows(self, image: Any, part: Any, alone: Any) -> None:
        """The rows that a part of the output reads, but for those that the part before it has read.

        Args:
            alone: whether the ring does not hold what that one has read.
        """
        e, c, d, ring = self.first.e, self.conv, self.depthwise, self.second
        top = e.let(tirx.max(index(0), ring.first_row(part) * d.strides[0] - d.pad_top))
        before, end = (
            e.let(tirx.min(index(d.height), (ring.first_row(p) - 1) * d.strides[0] - d.pad_top + ring.reach))
            for p in (part, part + 1)
        )
        begin = e.let(tirx.Select(alone, top, tirx.max(top, before)))

        def row(y: Any) -> None:
            at = e.let(mod(y, ring.slots) * self.row_floats)
            self.first.row(e.let(image * c.out_height + y), self.ring, at)

        e.loop(begin, e.let(tirx.max(begin, end)), row)


PAIR_RULE = PairRule("conv2d.chained", order=100, dtypes=FLOAT32, apply=fused_depthwise_conv2d)
