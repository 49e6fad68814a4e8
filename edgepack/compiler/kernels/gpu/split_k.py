"""Matrix products whose depth is shared among groups, where rows and columns alone make too few of them.

Late layers of a network have few pixels and many channels. Each group then sums some of the terms (split-K),
and leaves what it has in a tensor of partial sums; a second kernel adds these up, and computes what stands
behind the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgepack.compiler.kernels.gpu.code import Code
from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest
from edgepack.compiler.kernels.gpu.matrix_product import MatrixProduct
from edgepack.compiler.kernels.schedule import ScheduleError
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["MOST_PARTS", "WHOLE", "SplitK", "given_split", "split_k"]

#: Terms of a part at least, and parts at most: partial sums are written and read.
LEAST_TERMS, MOST_PARTS = 128, 16


@dataclass(frozen=True)
class SplitK:
    """How the terms of a product are shared.

    Attributes:
        count: groups that share them.
        terms: of each group but the last, which may have fewer; 0 for all.
    """

    count: int
    terms: int

    def begin(self, code: Code, product: MatrixProduct) -> None:
        """Says which member of the batch (``batch``) and which terms (``from`` ``k_first`` to ``k_end``) a
        group computes."""
        members, k = product.counts["b"], product.counts["k"]
        if self.count == 1:
            code.line(f"const int batch = GROUP(2), k_first = 0, k_end = {k};")
            return
        code.line(f"const int slice = GROUP(2) / {members}, batch = GROUP(2) % {members};")
        code.line(f"const int k_first = slice * {self.terms}, k_end = min(k_first + {self.terms}, {k});")

    def store(self, kernel: Kernel, nest: LoopNest, product: MatrixProduct, value: str) -> None:
        """Writes an element at the row ``m``, the column ``n`` and the ``batch``, or a partial sum of it."""
        if self.count == 1:
            kernel.store_product(nest, product, value)
            return
        name = kernel.code.parameter(kernel.partial, "float32", written=True)
        members, m, n = (product.counts[side] for side in "bmn")
        kernel.code.line(f"{name}[((slice * {members} + batch) * {m} + m) * {n} + n] = {value};")

    def together(self, kernel: Kernel, nest: LoopNest, product: MatrixProduct, count: int) -> bool:
        """Whether ``count`` neighbouring columns, from a multiple of that on, can be written at once."""
        if self.count == 1:
            return kernel.columns_together(nest, product, count)
        return product.counts["n"] % count == 0

    def store_columns(
        self, kernel: Kernel, nest: LoopNest, product: MatrixProduct, values: Sequence[str]
    ) -> None:
        """As ``store``, 2 or 4 columns from ``n`` on at once, where they are ``together``."""
        if self.count == 1:
            kernel.store_columns(nest, product, values)
            return
        code, vector = kernel.code, f"float{len(values)}"
        name = code.parameter(kernel.partial, "float32", written=True)
        members, m, n = (product.counts[side] for side in "bmn")
        code.line(f"{vector} together;")
        for component, value in zip("xyzw", values, strict=False):
            code.line(f"together.{component} = {value};")
        at = f"((slice * {members} + batch) * {m} + m) * {n} + n"
        code.line(f"*(GLOBAL {vector} *)({name} + {at}) = together;")

    def ended(
        self, stage: GpuStage, kernel: Kernel, nest: LoopNest, product: MatrixProduct, target: GpuTarget
    ) -> GpuStage:
        """The product's kernel with the one that adds up what it leaves."""
        if self.count == 1:
            return stage
        members, m, n = (product.counts[side] for side in "bmn")
        results, size = members * m * n, target.group_size
        last = kernel.another()
        code = last.code
        code.line(f"const int at = GROUP(0) * {size} + THREAD(0);")
        with code.block(f"if (at < {results})"):
            code.line(f"const int n = at % {n}, m = at / {n} % {m}, batch = at / {m * n};")
            name = code.parameter(last.partial, "float32")
            code.line(f"float sum = {name}[at];")
            code.line("UNROLL")
            with code.block(f"for (int i = 1; i < {self.count}; ++i)"):
                code.line(f"sum += {name}[i * {results} + at];")
            last.store_product(nest, product, "sum")
        added = code.stage((-(-results // size), 1, 1), (size, 1, 1))
        return replace(stage, partial_bytes=4 * self.count * results, last=added)


#: A group computes all terms.
WHOLE = SplitK(1, 0)


def split_k(groups: int, product: MatrixProduct, depth: int, target: GpuTarget) -> SplitK:
    """How many groups share the terms of a product, so that there are enough groups.

    Args:
        groups: what rows, columns and batch make.
        depth: of which the terms of a part are a multiple.
    """
    k = product.counts["k"]
    count = min(-(-target.least_groups // groups), k // LEAST_TERMS, MOST_PARTS)
    return WHOLE if count < 2 else _shared(count, product, depth) or WHOLE


def given_split(
    count: int | None, groups: int, product: MatrixProduct, depth: int, target: GpuTarget
) -> SplitK:
    """The same, or as many as are given; ScheduleError where the terms are too few for them, or what they
    leave is too large."""
    if count is None:
        return split_k(groups, product, depth, target)
    if count == 1:
        return WHOLE
    found = _shared(count, product, depth) if count <= MOST_PARTS else None
    if found is None or found.count != count:
        raise ScheduleError(f"{product.counts['k']} terms are not shared by {count} groups")
    return found


def _shared(count: int, product: MatrixProduct, depth: int) -> SplitK | None:
    """Terms shared by so many groups, or fewer if they suffice; None where there are too many results."""
    k = product.counts["k"]
    results = product.counts["m"] * product.counts["n"] * product.counts["b"]
    if results * count >= 2**31:
        return None
    each = -(-k // count)
    terms = (each + depth - 1) // depth * depth
    return SplitK(-(-k // terms), terms)
