"""Rule ``coupling``: probabilities of classes out of those of pairs, iterated as ONNX Runtime does
(``multiclass_probability`` in core/providers/cpu/ml/ml_common.h, which is libsvm's); scalar."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index, index
from edgepack.compiler.kernels.cpu.selection.builder import Cell, repeat
from edgepack.compiler.kernels.rule import FLOAT32, Rule
from edgepack.plan.opt_level import PLAIN
from edgepack.plan.target import CpuTarget

__all__ = ["coupling"]

#: Most rounds, and how near a fixed point the last one is, times the number of classes.
ROUNDS, NEAR = 100, 0.005


class CouplingKernel:
    """Builds the kernel; a task is a row."""

    def __init__(self, fused: FusedGroup, target: CpuTarget) -> None:
        pairs, result = fused.function.params
        self.rows, self.pairs = (int(d) for d in pairs.shape)
        self.classes = int(result.shape[1])
        self.e = e = Emitter(1, target, "float32")
        self.given = e.param(0, self.rows * self.pairs)
        self.result = e.output(0, self.rows * self.classes)
        square = self.classes * self.classes
        self.against, self.matrix, self.product = (
            e.scratch(square),
            e.scratch(square),
            e.scratch(self.classes),
        )

    def build(self) -> Implementation:
        """Emits the kernel."""
        e = self.e

        def task(row: Expr) -> None:
            self._fill(row)
            place = e.let(row * self.classes)
            e.loop(0, self.classes, lambda i: e.vstore(self.result, place + i, e.f32(1 / self.classes), 1))
            rounds = Cell(e, 0)
            more = rounds.now() < index(ROUNDS)
            repeat(e, more, lambda: self._round(place, rounds))

        e.tasks(task)
        return Implementation("coupling", (e.stage(self.rows),), scratch=tuple(e.scratch_bytes))

    def _fill(self, row: Expr) -> None:
        """The probabilities of each class against each other one, and the matrix of the quadratic form."""
        e, n = self.e, self.classes
        source = e.let(row * self.pairs)
        for number, (i, j) in enumerate(combinations(range(n), 2)):
            value = e.let(e.load(self.given, source + number))
            e.vstore(self.against, i * n + j, value, 1)
            e.vstore(self.against, j * n + i, e.f32(1) - value, 1)

        def line(i: Expr) -> None:
            diagonal = Cell(e, e.f32(0), "float32")

            def one(j: Expr) -> None:
                def other() -> None:
                    lost = e.let(e.load(self.against, j * n + i))
                    diagonal.set(diagonal.get() + lost * lost)
                    e.vstore(self.matrix, i * n + j, e.f32(0) - lost * e.load(self.against, i * n + j), 1)

                e.branch(tirx.NE(i, j), other)

            e.loop(0, n, one)
            e.vstore(self.matrix, i * n + i, diagonal.get(), 1)

        e.loop(0, n, line)

    def _sum(self, count: Index, value: Callable[[Expr], Expr]) -> Expr:
        """The sum of some values, in order."""
        e = self.e
        total = Cell(e, e.f32(0), "float32")
        e.loop(0, count, lambda i: total.set(total.get() + value(i)))
        return total.get()

    def _round(self, place: Expr, rounds: Cell) -> None:
        e, n = self.e, self.classes

        def p(i: Expr) -> Expr:
            return e.load(self.result, place + i)

        def product(i: Expr) -> None:
            total = self._sum(n, lambda j: e.load(self.matrix, i * n + j) * p(j))
            e.vstore(self.product, i, total, 1)

        e.loop(0, n, product)
        whole = Cell(e, self._sum(n, lambda i: p(i) * e.load(self.product, i)), "float32")
        error = Cell(e, e.f32(0), "float32")

        def off(i: Expr) -> None:
            apart = e.let(e.load(self.product, i) - whole.get())
            error.set(tirx.max(error.get(), tirx.max(apart, e.f32(0) - apart)))

        e.loop(0, n, off)
        rounds.set(rounds.get() + 1)
        near = error.get() < e.f32(NEAR / n)
        e.branch(
            near, lambda: rounds.set(ROUNDS), lambda: e.loop(0, n, lambda i: self._improve(place, i, whole))
        )

    def _improve(self, place: Expr, i: Expr, whole: Cell) -> None:
        """Moves one probability to where the form is least, and scales all."""
        e, n = self.e, self.classes
        diagonal, own = e.let(e.load(self.matrix, i * n + i)), e.let(e.load(self.product, i))
        step = e.let((whole.get() - own) / diagonal)
        scale = e.let(step + e.f32(1))
        e.vstore(self.result, place + i, e.load(self.result, place + i) + step, 1)
        whole.set((whole.get() + step * (step * diagonal + e.f32(2) * own)) / scale / scale)

        def one(j: Expr) -> None:
            moved = (e.load(self.product, j) + step * e.load(self.matrix, i * n + j)) / scale
            e.vstore(self.product, j, moved, 1)
            e.vstore(self.result, place + j, self._divided(self.result, place + j, scale), 1)

        e.loop(0, n, one)

    def _divided(self, buffer: Buffer, at: Expr, by: Expr) -> Expr:
        return self.e.load(buffer, at) / by


def coupling(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Applies the rule to a fused group whose anchor is of that kind."""
    del constants
    if fused.anchor is None or fused.anchor.kind != "coupling":
        raise RuleError("another operator")
    return CouplingKernel(fused, target).build()


RULE = Rule("coupling", order=690, dtypes=FLOAT32, apply=coupling, level=PLAIN)
