"""Rule ``scan``: cumulative sums and products, in the order of the elements.

A lane has an element of the axes behind the one that is scanned. Each sum waits for the one before, so a task
goes through several vectors, or several rows, side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Expr

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.emit.float16 import SIXTEEN_BIT_FLOATS
from edgepack.compiler.kernels.cpu.emit.indices import div, index, mod
from edgepack.compiler.kernels.rule import EVERY_DTYPE, Rule
from edgepack.plan.opt_level import PLAIN
from edgepack.plan.target import CpuTarget

__all__ = ["scan"]

#: Vectors that wait for nobody but themselves, side by side: an addition takes about four cycles, and two
#: start in each.
SIDE_BY_SIDE = 8


class ScanKernel(KernelBuilder):
    """Builds the kernel of (outer, n, inner) elements, scanned along n; a task is some of the columns of some
    of the outer rows."""

    def __init__(self, fused: FusedGroup, target: CpuTarget) -> None:
        assert fused.anchor is not None
        x = fused.function.params[0]
        shape, attributes = [int(d) for d in x.shape], fused.anchor.attributes
        axis = int(attributes["axis"])
        self.outer, self.extent, self.inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
        dtype = str(x.dtype)
        lanes = target.lanes(dtype)
        while lanes > self.inner:
            lanes //= 2
        super().__init__("scan", target, dtype=dtype, lanes=lanes)
        self.product, self.exclusive, self.reverse = (
            bool(attributes[key]) for key in ("product", "exclusive", "reverse")
        )
        elements = self.outer * self.extent * self.inner
        self.x, self.y = self.e.param(0, elements), self.e.output(0, elements)
        vectors, rest = divmod(self.inner, lanes)
        #: Blocks of columns that have all vectors, and what the last one has: offsets of its vectors from its
        #: beginning. The last vector may overlap its predecessor, so both are in one block.
        self.whole = vectors // SIDE_BY_SIDE - (vectors % SIDE_BY_SIDE == 0 and rest > 0)
        begin = self.whole * SIDE_BY_SIDE * lanes
        self.last = [at - begin for at in range(begin, vectors * lanes, lanes)]
        self.last += [self.inner - lanes - begin] if rest else []
        self.rows = max(1, SIDE_BY_SIDE // vectors)

    def parameters(self) -> dict[str, Any]:
        return {"lanes": self.lanes, "rows": self.rows}

    def build(self) -> Implementation:
        e, block = self.e, SIDE_BY_SIDE * self.lanes
        blocks = self.whole + bool(self.last)
        groups = -(-self.outer // self.rows)
        behind = self.outer - (groups - 1) * self.rows

        def columns(rows: int, group: Expr, number: Expr) -> None:
            first = e.let(group * (self.rows * self.extent * self.inner) + number * block)
            every = list(range(0, block, self.lanes))
            if not self.last or not self.whole:
                self._chains(first, rows, self.last or every)
                return
            inside = index(number) < index(self.whole)
            e.branch(
                inside, lambda: self._chains(first, rows, every), lambda: self._chains(first, rows, self.last)
            )

        def task(t: Expr) -> None:
            group, number = e.let(div(t, blocks)), e.let(mod(t, blocks))
            if behind == self.rows or groups == 1:
                columns(behind, group, number)
            else:
                whole = index(group) < index(groups - 1)
                e.branch(
                    whole,
                    lambda: columns(self.rows, group, number),
                    lambda: columns(behind, group, number),
                )

        e.tasks(task)
        flops = self.outer * self.extent * self.inner
        return Implementation(
            self.rule, (e.stage(groups * blocks),), parameters=self.parameters(), flops=flops
        )

    def _chains(self, first: Expr, rows: int, columns: Sequence[int]) -> None:
        """Scans vectors at these offsets of so many rows, one element of each after the other."""
        e, lanes = self.e, self.lanes
        offsets = [row * self.extent * self.inner + at for row in range(rows) for at in columns]
        sums = e.local(len(offsets) * lanes, self.dtype)
        for number in range(len(offsets)):
            neutral = e.splat(tirx.const(int(self.product), self.dtype), lanes)
            e.vstore(sums, number * lanes, neutral, lanes)

        def step(i: Expr) -> None:
            at = e.let(first + ((self.extent - 1) - i if self.reverse else i) * self.inner)
            for number, offset in enumerate(offsets):
                x, before = e.let(e.vload(self.x, at + offset)), e.let(e.vload(sums, number * lanes))
                after = e.let(before * x if self.product else before + x)
                e.vstore(sums, number * lanes, after, lanes)
                e.vstore(self.y, at + offset, before if self.exclusive else after, lanes)

        e.loop(0, self.extent, step)


def scan(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Applies the rule to a group that is one scan."""
    del constants
    if fused.anchor is None or fused.anchor.kind != "scan":
        raise RuleError("another operator")
    dtype = str(fused.function.params[0].dtype)
    if dtype in SIXTEEN_BIT_FLOATS or dtype == "bool":
        raise RuleError(f"arithmetic on {dtype} has no vector form")
    return ScanKernel(fused, target).build()


RULE = Rule("scan", order=870, dtypes=EVERY_DTYPE, apply=scan, level=PLAIN)
