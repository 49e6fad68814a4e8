"""A convolution and the depthwise convolution behind it as one kernel, so that what lies between them never
leaves the cache.

A task is a band of rows of the depthwise convolution's output, and goes through it a few rows at a time: it
computes the rows of the first convolution's output that these need and those before did not, into a ring of
rows in the thread's scratch, and reads the windows from there. Only the first of the tasks that a thread does
one after the other computes rows that belong to another task, so there are no more tasks than that allows.

A mobile network's expansion is the largest tensor of a block, and both kernels around it wait for memory:
notes/2026-11-22-windows-and-pairs.md says what that costs MobileNetV2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from tvm import tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.analysis.anchored_group import CONVOLUTIONS, AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.conv.blocking import Blocking
from edgepack.compiler.kernels.cpu.conv.depthwise import Depthwise
from edgepack.compiler.kernels.cpu.conv.gemm_schedule import GemmSchedule, divided, propose
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import ImplicitGemm, Pixels
from edgepack.compiler.kernels.cpu.conv.sliding_window import WindowOperands
from edgepack.compiler.kernels.cpu.conv.tile_product import GemmOperands, TileAt
from edgepack.compiler.kernels.cpu.conv.window_schedule import SlidingSchedule
from edgepack.compiler.kernels.cpu.emit.indices import div, index, mod, unravel
from edgepack.compiler.kernels.cpu.emit.register_tile import half_width_vectors
from edgepack.compiler.kernels.cpu.micro.registry import micro_kernel_for
from edgepack.compiler.kernels.rule import FLOAT32, PairRule
from edgepack.compiler.kernels.schedule import ScheduleError
from edgepack.plan.target import CpuTarget

__all__ = ["fused_depthwise_conv2d"]


@dataclass(frozen=True)
class ChainedSchedule(SlidingSchedule):
    """What is decided about a convolution and the depthwise one behind it: how the second one goes over its
    output, part by part of the rows.

    Attributes:
        tasks: of an image, each of which does some parts of the rows.
    """

    tasks: int | None = None

    def printed(self) -> dict[str, Any]:
        """Nothing: the builder does, behind the first kernel's register tile."""
        return {}


#: All is left to the cost model.
OPEN = ChainedSchedule()


def fused_depthwise_conv2d(
    first: FusedGroup,
    second: FusedGroup,
    target: CpuTarget,
    constants: Sequence[frozenset[int]],
    given: ChainedSchedule = OPEN,
) -> Implementation:
    """``conv2d.chained``: ``second`` reads what ``first`` computes, and nobody else does.

    Parameters of the implementation are those of ``first``, then those of ``second`` from its second one on.

    Args:
        constants: of each group, the parameters that are constant at every call.
        given: of the schedule. Where anything is given, it is not asked whether two kernels are faster.

    Raises:
        RuleError: if the two are not such convolutions, or two kernels are faster.
    """
    outer, inner = anchored(first, CONVOLUTIONS), anchored(second, CONVOLUTIONS)
    conv, depthwise = Conv2d.of(outer), Conv2d.of(inner)
    if not depthwise.depthwise or inner.operand(0) != 0 or conv.groups != 1 or first.row_stride is not None:
        raise RuleError("not a convolution and a depthwise convolution")
    if conv.depth_window or depthwise.depth_window:
        raise RuleError("windows with a depth")
    if outer.output_shape != inner.image_shape:
        raise RuleError("a reshape stands between them")
    if 0 in inner.epilogue.params:
        raise RuleError("the second one's tail reads what lies between too")
    if outer.operand(1) not in constants[0] or inner.operand(1) not in constants[1]:
        raise RuleError("the weights are not constant")
    kernel = FusedDepthwise(conv, outer, depthwise, inner, target, given)
    kernel.check()
    if given == OPEN:
        kernel.check_worth()
    return kernel.build()


#: Rows of the output that are done at a time. Of MobileNetV2's four chains 1 to 4 are equally fast, 7 takes
#: 5 % longer, on Zen 4 with 1 MB of L2.
ROWS_AT_A_TIME = 2
#: Tasks for each thread, at most: where threads claim them one by one, the fast ones do more of them.
MOST_TASKS = 4
#: Multiply-adds that may be done twice, for each element of what lies between. One that leaves the cache and
#: comes back costs 8 bytes of traffic, in whose time a core does some 7 multiply-adds (Zen 4).
MOST_AGAIN = 4

#: What lies between fits the caches where it is at most one in so many bytes of all threads' L2: the rest is
#: for what the first kernel reads, for the weights, and for what the second one writes. One kernel where it
#: is 0.45 of them makes MobileNetV2 1.04 times as fast on a Xeon, where it is 0.15 nothing is gained.
FITS = 4
#: The same of a microcontroller, whose memory has one level: more pairs would take more of it, and of flash.
FITS_ONE_LEVEL = 2


class _Ring(Depthwise):
    """A depthwise convolution whose input is a ring of rows, with row ``r`` at ``r % slots``."""

    def _declare(self) -> WindowOperands:
        others = self._declare_others()
        return WindowOperands(self.e.scratch(self.slots * self.row_elements), *others)

    @property
    def row_elements(self) -> int:
        """Elements of a row of what lies between the two convolutions."""
        return self.window.width * self.window.channels

    @property
    def slots(self) -> int:
        """Rows of the ring: those that a part of the output's rows reads."""
        rows = -(-self.window.out_height // self.row_parts)
        return (rows - 1) * self.window.strides[0] + self.reach

    @property
    def reach(self) -> int:
        """Rows from the first to the last of a window."""
        return (self.window.size[0] - 1) * self.window.dilation[0] + 1

    @property
    def shared_rows(self) -> int:
        """Input rows that the windows of two neighbouring output rows have in common."""
        return max(0, self.reach - self.window.strides[0])

    def lines(self, image: Any, top: Any, at: Any) -> Callable[[Any], Any]:
        e, g = self.e, self.window

        def line(k: Any) -> Any:
            # Rows in the padding are not read.
            row = tirx.max(index(0), top + k * g.dilation[0])
            return e.let(mod(row, self.slots) * self.row_elements + at)

        if not self.unrolled:
            return line
        places = [line(k) for k in range(g.size[0])]
        return lambda k: places[k]


class _Rows(ImplicitGemm):
    """A convolution that is asked for one row of its output at a time, in one group."""

    def _divided(self, given: GemmSchedule) -> tuple[GemmSchedule, Blocking]:
        row = replace(self.conv, batch=1, out_height=1)
        schedule = propose(row, self.micro, given, threads=1)
        return schedule, divided(row, self.micro, schedule)

    def _declare(self) -> GemmOperands:
        return GemmOperands(*self._declare_inputs())

    def row(self, number: Any, y: Any, at: Any) -> None:
        """Writes row ``number``, counted through all images, of the output to element ``at`` of ``y``."""
        e = self.e
        origin = e.let(number * self.conv.out_width)
        offset = e.let(at - origin * self.fused.row_stride)
        pixels = Pixels(0, self.blocking.tile_count, 0, y, offset, origin)
        e.loop(0, self.blocking.column_blocks, lambda column: self._columns(0, column, pixels))

    def _tile_range(self, pixels: Pixels, begin: int, end: int) -> tuple[Any, Any]:
        return begin, end

    def _destination(self, tile: TileAt, pixels: Pixels) -> tuple[Any, Any]:
        # Not by way of a view: LLVM is told that buffers do not overlap, and the kernel reads this one again.
        return pixels.y, self.e.let(
            tile.pixel * self.fused.row_stride + tile.columns.channel + pixels.output_offset
        )


class FusedDepthwise(KernelBuilder):
    """Builds the kernel of a convolution and the depthwise one behind it.

    Args:
        outer, inner: the fused groups whose anchors ``conv`` and ``depthwise`` are.
    """

    def __init__(
        self,
        conv: Conv2d,
        outer: AnchoredGroup,
        depthwise: Conv2d,
        inner: AnchoredGroup,
        target: CpuTarget,
        given: ChainedSchedule,
    ) -> None:
        vectors = half_width_vectors(target, conv.out_channels, conv.dtype)
        micro = micro_kernel_for(outer.unrounded, conv.group_sizes, vectors, constant=True)
        emitter = micro.emitter()
        super().__init__("conv2d.chained", target, dtype=conv.dtype, emitter=emitter)
        self.conv, self.depthwise = conv, depthwise
        self.first = _Rows(self.rule, "conv2d:1", conv, outer, micro, emitter=emitter)
        self.outer_params = len(outer.params)
        packed = len(self.first.packings())
        with emitter.renumbered(param=self._number, packed=lambda i: i + packed):
            ring = {one.name: getattr(given, one.name) for one in fields(SlidingSchedule)}
            ring["row_parts"] = given.row_parts or -(-depthwise.out_height // ROWS_AT_A_TIME)
            self.second = _Ring(depthwise, inner, target, SlidingSchedule(**ring), emitter=emitter)
        tasks = self._tasks() if given.tasks is None else given.tasks
        if tasks > self.second.row_parts:
            raise ScheduleError(f"{tasks} tasks of {self.second.row_parts} parts of the rows")
        self.schedule = ChainedSchedule(**asdict(self.second.schedule), tasks=tasks)
        self.bands = tasks

    def _number(self, param: int) -> int:
        """The number of the second group's parameter among those of both: its first is not one of them."""
        return self.outer_params + param - 1

    def _tasks(self) -> int:
        """Tasks of an image: none if threads would compute too much twice."""
        threads, ring = self.target.threads, self.second
        for count in (n * threads for n in range(MOST_TASKS, 0, -1)):
            again = ring.shared_rows * (count - 1) * self.conv.depth
            if again <= MOST_AGAIN * self.conv.out_height and count <= ring.row_parts:
                return count
        return 0

    def check(self) -> None:
        """RuleError where there is no such kernel."""
        if self.first.blocking.k_blocks > 1:
            raise RuleError("the weights do not stay in the cache beside the rows")
        if not self.bands:
            raise RuleError("threads would compute too much twice")

    def check_worth(self) -> None:
        """RuleError where two kernels are as fast or faster."""
        c = self.conv
        if not (c.pointwise or c.strides != (1, 1)):
            raise RuleError("Winograd's transforms may be faster")
        alone = micro_kernel_for(self.first.fused.products, c.group_sizes, self.target, constant=True)
        if alone.rate > self.first.micro.rate:
            # Half of 16 multiply-adds or more, while what lies between costs the time of 7 (above).
            raise RuleError(f"products of {alone.types.left} save more")
        if self.first.blocking.weight_stationary:
            raise RuleError("the weights do not stay in the cache beside the rows")
        between = c.pixels * c.out_channels * c.element_bytes
        fits = FITS_ONE_LEVEL if self.target.freestanding else FITS
        if fits * between <= self.target.l2_bytes * self.target.threads:
            raise RuleError("what lies between fits the caches")
        if self.e.scratch_bytes[0] > self.target.l2_bytes // 2:
            raise RuleError("the ring does not fit the cache")

    def parameters(self) -> dict[str, Any]:
        tile = self.first.tile
        return {
            "tile": f"{tile.rows}x{tile.columns}",
            "strip": f"{self.second.columns}x{self.second.lanes}",
            "rows": self.second.slots,
            "bands": self.bands,
        }

    def build(self) -> Implementation:
        e, second, bands = self.e, self.second, self.bands
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
        depthwise = (replace(p, param=self._number(p.param)) for p in second.packings())
        return Implementation(
            self.rule,
            (e.stage(self.depthwise.batch * bands),),
            (*self.first.packings(), *depthwise),
            scratch=tuple(e.scratch_bytes),
            schedule=self.schedule,
            parameters=self.parameters(),
            flops=self.conv.flops + self.depthwise.flops,
        )

    def _rows(self, image: Any, part: Any, alone: Any) -> None:
        """Computes the rows that a part of the output reads, but for those that the part before it has read.

        Args:
            alone: whether the ring does not hold what that one has read.
        """
        e, c, d, ring = self.e, self.conv, self.depthwise, self.second
        top = e.let(tirx.max(index(0), ring.first_row(part) * d.strides[0] - d.pad_top))
        before, end = (
            e.let(tirx.min(index(d.height), (ring.first_row(p) - 1) * d.strides[0] - d.pad_top + ring.reach))
            for p in (part, part + 1)
        )
        begin = e.let(tirx.Select(alone, top, tirx.max(top, before)))

        def row(y: Any) -> None:
            at = e.let(mod(y, ring.slots) * ring.row_elements)
            self.first.row(e.let(image * c.out_height + y), ring.operands.x, at)

        e.loop(begin, e.let(tirx.max(begin, end)), row)


PAIR_RULE = PairRule(
    "conv2d.chained",
    order=100,
    dtypes=FLOAT32,
    apply=fused_depthwise_conv2d,
    schedule=ChainedSchedule,
)
