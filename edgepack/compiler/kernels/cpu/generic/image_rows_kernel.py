"""Kernels of fused groups without a reduction whose tasks are the rows of an image."""

from __future__ import annotations

from math import prod

from tvm.ir import Expr

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.analysis.image_rows import ROWS
from edgepack.compiler.kernels.cpu.generic.elementwise_kernel import ElementwiseKernel

__all__ = ["ImageRowsKernel"]


class ImageRowsKernel(ElementwiseKernel):
    """Emits the kernel of one output, an image of (1, height, width, channels)."""

    def emit_rows(self) -> int:
        """Emits a task for each row of the image; returns how many there are.

        Raises:
            RuleError: if the axes that are walked as one cut the rows otherwise.
        """
        e, count, rows = self.e, self.block.extents[ROWS], prod(self.outer)
        if rows % count == 0:
            each = rows // count

            def several(t: Expr) -> None:
                begin = e.let(t * each)
                e.loop(begin, e.let(begin + each), self.row)

            e.tasks(several)
        elif rows == 1 and not self.splittable and not self.tables:
            each = self.length // count
            e.tasks(lambda t: self.piece(0, t * each, each))
        else:
            raise RuleError("rows that are cut otherwise")
        return count
