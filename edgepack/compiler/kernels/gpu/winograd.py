"""Convolutions by 3x3 of stride 1 by Winograd's minimal filtering, F(2x2, 3x3) and F(4x4, 3x3).

Three kernels. The first transforms tiles of the input, V = B^T d B, a work item for each tile and channel, in
registers. The second multiplies V by the weights, which are transformed when packing: for each of the 16 or
36 positions of a tile, and each group of channels, a product of matrices, by the rules that serve any other.
The third transforms back, Y = A^T M A, and computes what stands behind the convolution. V and M are float32.

The matrices are those of the CPU's kernels (``cpu/conv/winograd_transforms.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tvm import te, tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Operand, RuleError
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import (
    Transform,
    input_rows,
    output_rows,
    tile_side,
)
from edgepack.compiler.kernels.gpu.code import Code
from edgepack.compiler.kernels.gpu.contract import GpuStage, HalfOperands
from edgepack.compiler.kernels.gpu.contraction import RULE as CONTRACTION
from edgepack.compiler.kernels.gpu.expressions import Evaluator, unravelled
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.limits import check_group
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest, LoopNests, find_loop_nests
from edgepack.compiler.kernels.gpu.rule import GpuRule
from edgepack.compiler.kernels.gpu.simdgroup_matrix import RULE as SIMDGROUP_MATRIX
from edgepack.compiler.kernels.gpu.winograd_cost import TILES, winograd_tile
from edgepack.compiler.kernels.gpu.winograd_form import Filtering, filtering
from edgepack.compiler.kernels.schedule import Schedule, ScheduleError
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["WINOGRAD", "GpuWinogradSchedule", "Winograd", "winograd"]

#: The name under which a schedule is given.
WINOGRAD = "winograd"

#: Channels, outputs of a group and tiles at least: what a product needs.
LEAST = 8


@dataclass(frozen=True)
class GpuWinogradSchedule(Schedule):
    """What is decided about a convolution in Winograd's form.

    Attributes:
        outputs: of a tile, along each side.
        threads: work items of a group of both transforms.
        tile, grid, depth, split_k: of the products, as those of the rule that computes them.
    """

    outputs: int | None = None
    threads: int | None = None
    tile: tuple[int, int] | None = None
    grid: tuple[int, int] | None = None
    depth: int | None = None
    split_k: int | None = None

    def of_product(self, rule: GpuRule) -> Schedule:
        """What is decided about the products. ScheduleError where the rule decides no such thing."""
        own = ("outputs", "threads")
        return rule.schedule.from_json({k: v for k, v in self.to_json().items() if k not in own})


@dataclass(frozen=True)
class Winograd:
    """A convolution in Winograd's form.

    Attributes:
        m: side of a tile of the result.
        schedule: what was decided.
        stages: its kernels, and ``rules`` their names.
        scratch: bytes of what lies between them, the temps behind the tensor of partial sums.
    """

    m: int
    schedule: GpuWinogradSchedule
    stages: tuple[GpuStage, ...]
    rules: tuple[str, ...]
    scratch: tuple[int, int]


def winograd(
    fused: FusedGroup,
    nests: LoopNests,
    nest: LoopNest,
    target: GpuTarget,
    half: HalfOperands,
    given: GpuWinogradSchedule,
) -> Winograd:
    """The kernels of a nest that is such a convolution by constant weights.

    ScheduleError where what is given does not fit. RuleError for another nest, where another form is
    estimated to be faster, and where units for matrices multiply float16 or TF32: there products are not what
    takes the time.
    """
    kernel = Kernel(fused, nests, target.most_parameters, half)
    units = target.tensor_cores or target.simdgroup_matrices
    if nest.reduction is None or half.tf32 or (target.precision == "fp16" and units):
        raise RuleError("no reduction, or one for other units")
    conv = filtering(fused, kernel, nest.reduction)
    source = conv.weights.source
    if kernel.constant(source) is None:
        raise RuleError("the weights are not constant")
    half_weights, rounds = kernel.stored(source) == "float16", target.precision == "fp16"
    if half_weights and not rounds:
        raise RuleError("weights that are float16 as they are would be float32")
    m = given.outputs or winograd_tile(conv, target, half_input=rounds, half_weights=half_weights)
    if given.outputs is not None and m not in (TILES[:1] if rounds else TILES):
        raise ScheduleError(f"there are no tiles of {m}x{m} outputs, or they lose too many bits in float16")
    if m == 0 or min(conv.channels, conv.outputs // conv.groups, conv.tiles(m)) < LEAST:
        raise RuleError("the direct convolution is estimated to be faster")
    return _WinogradStages(fused, nests, nest, target, half, conv, replace(given, outputs=m)).build()


class _Text(Transform):
    """The arithmetic of a transform, as C."""

    def __init__(self, code: Code, evaluator: Evaluator) -> None:
        self.code, self.evaluator = code, evaluator

    def add(self, x: Any, y: Any) -> Any:
        return self.code.let("float", f"{x} + {y}")

    def sub(self, x: Any, y: Any) -> Any:
        return self.code.let("float", f"{x} - {y}")

    def times(self, factor: float, x: Any) -> Any:
        return self.code.let("float", f"{self._number(factor)} * {x}")

    def mad(self, factor: float, x: Any, y: Any) -> Any:
        return self.code.let("float", f"fma({self._number(factor)}, {x}, {y})")

    def _number(self, value: float) -> str:
        return self.evaluator.value(tirx.FloatImm("float32", value), {})


class _WinogradStages:
    """Writes the kernels.

    Attributes:
        m, a: side of a tile of the result and of the input.
        down, across: tiles of an image, and ``tiles`` those of all images.
        between: V and M as operands, float32: [positions * groups][tiles][channels or outputs of a group].
    """

    def __init__(
        self,
        fused: FusedGroup,
        nests: LoopNests,
        nest: LoopNest,
        target: GpuTarget,
        half: HalfOperands,
        conv: Filtering,
        given: GpuWinogradSchedule,
    ) -> None:
        m = given.outputs or TILES[0]
        self.made_of = (fused, nests, target.most_parameters, half)
        self.nest, self.target, self.conv, self.m, self.a = nest, target, conv, m, tile_side(m)
        self.given, self.threads = given, given.threads or target.group_size
        check_group(self.threads, 0, target)
        self.down, self.across, self.tiles = -(-conv.height // m), -(-conv.width // m), conv.tiles(m)
        self.each = conv.outputs // conv.groups
        self.partial = Operand("temp", len(nests.temps))
        self.between = tuple(Operand("temp", len(nests.temps) + i) for i in (1, 2))

    def build(self) -> Winograd:
        conv, size = self.conv, 4 * self.a * self.a * self.tiles
        scratch = (size * conv.channels * conv.groups, size * conv.outputs)
        if max(scratch) >= 2**31:
            raise RuleError("what lies between its kernels is too large")
        rule, product = self._product()
        last = (product.last,) if product.last is not None else ()
        stages = (self._input(), replace(product, last=None), *last, self._output())
        name = f"winograd{self.m}"
        rules = (f"{name}_input", rule, *("partial_sums" for _ in last), f"{name}_output")
        decided = product.schedule.to_json() if product.schedule else {}
        schedule = GpuWinogradSchedule.from_json({"outputs": self.m, "threads": self.threads, **decided})
        return Winograd(self.m, schedule, stages, rules, scratch)

    def _product(self) -> tuple[str, GpuStage]:
        """V by the weights, by a rule for products: of a group of operators that is nothing else."""
        conv, members = self.conv, self.a * self.a * self.conv.groups
        v = te.placeholder((members, self.tiles, conv.channels), "float32")
        u = te.placeholder((members, conv.channels, self.each), "float32")
        k = te.reduce_axis((0, conv.channels))
        product = te.compute(
            (members, self.tiles, self.each), lambda b, i, j: te.sum(v[b, i, k] * u[b, k, j], axis=k)
        )
        group = FusedGroup("winograd", te.create_prim_func([v, u, product]), 1, ("winograd",))
        kernel = Kernel(*self.made_of)
        dtype = kernel.stored(conv.weights.source)
        half = HalfOperands(frozenset({1}) if dtype == "float16" else frozenset())
        nests = find_loop_nests(group)
        param = kernel.constant(conv.weights.source)
        assert param is not None
        places = {
            Operand("param", 0): self.between[0],
            Operand("param", 1): Operand("packed", 0),
            Operand("output", 0): self.between[1],
            Operand("temp", 0): self.partial,
        }

        def placed(stage: GpuStage) -> GpuStage:
            return replace(stage, operands=tuple(places[o] for o in stage.operands))

        units = self.target.simdgroup_matrices
        for rule in (SIMDGROUP_MATRIX, CONTRACTION) if units else (CONTRACTION,):
            kernel = Kernel(group, nests, self.target.most_parameters, half)
            try:
                given = self.given.of_product(rule)
                made = rule.implement(kernel, nests.nests[0], self.target, given)
            except RuleError as error:
                refused = error
                continue
            last = placed(made.last) if made.last is not None else None
            return rule.name, replace(placed(made), packed=(conv.packing(param, self.m, dtype),), last=last)
        raise refused

    # Transforms --------------------------------------------------------------------------------------------

    def _tile(self, code: Code) -> dict[Any, str]:
        """The first row and column of a tile, as ``row0`` and ``column0``, and the images' variables."""
        sizes = (*(n for _, n in self.conv.images), self.down, self.across)
        *images, row, column = unravelled(code, "tile", sizes)
        code.line(f"const int row0 = {row} * {self.m}, column0 = {column} * {self.m};")
        return {variable: text for (variable, _), text in zip(self.conv.images, images, strict=True)}

    def _ended(self, code: Code, items: int) -> GpuStage:
        size = self.threads
        return code.stage((-(-items // size), 1, 1), (size, 1, 1))

    def _input(self) -> GpuStage:
        """A work item for each tile and channel; neighbours have neighbouring channels."""
        kernel, conv, a = Kernel(*self.made_of), self.conv, self.a
        code, evaluator = kernel.code, kernel.evaluator
        count = conv.channels * conv.groups
        v = code.parameter(self.between[0], "float32", written=True)
        code.line(f"const int at = GROUP(0) * {self.threads} + THREAD(0);")
        with code.block(f"if (at < {self.tiles * count})"):
            code.line(f"const int tile = at / {count}, member = at % {count} / {conv.channels};")
            code.line(f"const int channel = at % {conv.channels};")
            env = self._tile(code)
            code.line(f"float d[{a * a}];")
            with self._each(code, a):
                code.line("const int row = row0 + i, column = column0 + j;")
                env |= {conv.at["row"]: "row", conv.at["column"]: "column"}
                env |= {conv.at["channel"]: "channel", conv.at["group"]: "member"}
                tests = self._inside(self.a - self.m)
                if tests:
                    code.line(f"d[i * {a} + j] = 0.0f;")
                with evaluator.fresh(), code.block(f"if ({tests})" if tests else ""):
                    code.line(f"d[i * {a} + j] = {evaluator.value(conv.data, env)};")
            text = _Text(code, evaluator)
            columns = [
                input_rows(text, self.m, range(a), [f"d[{i * a + j}]" for i in range(a)]) for j in range(a)
            ]
            for i in range(a):
                for j, value in enumerate(input_rows(text, self.m, range(a), [c[i] for c in columns])):
                    code.line(f"{v}[{self._place(i * a + j, conv.channels, 'channel')}] = {value};")
        return self._ended(code, self.tiles * count)

    def _output(self) -> GpuStage:
        """A work item for each tile and channel of the result; neighbours have neighbouring channels."""
        kernel, conv, a, m = Kernel(*self.made_of), self.conv, self.a, self.m
        code, evaluator = kernel.code, kernel.evaluator
        products = code.parameter(self.between[1], "float32")
        code.line(f"const int at = GROUP(0) * {self.threads} + THREAD(0);")
        with code.block(f"if (at < {self.tiles * conv.outputs})"):
            code.line(f"const int tile = at / {conv.outputs}, output = at % {conv.outputs};")
            code.line(f"const int member = output / {self.each}, channel = output % {self.each};")
            env = self._tile(code)
            text = _Text(code, evaluator)
            columns = []
            for j in range(a):
                places = [self._place(i * a + j, self.each, "channel") for i in range(a)]
                loads = [code.let("float", f"{products}[{place}]") for place in places]
                columns.append(output_rows(text, m, range(m), loads))
            code.line(f"float y[{m * m}];")
            for i in range(m):
                for j, value in enumerate(output_rows(text, m, range(m), [c[i] for c in columns])):
                    code.line(f"y[{i * m + j}] = {value};")
            with self._each(code, m):
                code.line("const int row = row0 + i, column = column0 + j;")
                tests = self._inside(0)
                with code.block(f"if ({tests})" if tests else ""), evaluator.fresh():
                    env |= {conv.row: "row", conv.column: "column", conv.output: "output"}
                    self._store(kernel, env, f"y[i * {m} + j]")
        return self._ended(code, self.tiles * conv.outputs)

    def _store(self, kernel: Kernel, env: dict[Any, str], value: str) -> None:
        """An element, with what stands behind the convolution."""
        nest, block = self.nest, self.conv.block
        inner, outer = LoopNest(block).spatial[0], nest.spatial[0]
        kernel.evaluator.given[block.target] = value
        positions = {o: env.get(v, "0") for v, o in zip(inner, outer, strict=True)}
        kernel.store(nest.result, positions, value if nest.result is block else None)

    @staticmethod
    @contextmanager
    def _each(code: Code, count: int) -> Iterator[None]:
        """Loops over rows ``i`` and columns ``j`` of a tile."""
        code.line("UNROLL")
        with code.block(f"for (int i = 0; i < {count}; ++i)"):
            code.line("UNROLL")
            with code.block(f"for (int j = 0; j < {count}; ++j)"):
                yield

    def _inside(self, more: int) -> str:
        """The condition under which ``row`` and ``column`` are in an image with as many ``more`` of both; ""
        where tiles do not reach beyond it."""
        conv, tests = self.conv, []
        if conv.height % self.m:
            tests.append(f"row < {conv.height + more}")
        if conv.width % self.m:
            tests.append(f"column < {conv.width + more}")
        return " && ".join(tests)

    def _place(self, position: int, channels: int, channel: str) -> str:
        """Bytes of an element of V or M."""
        first = position * self.conv.groups * self.tiles * channels
        return f"{first} + (member * {self.tiles} + tile) * {channels} + {channel}"
