"""Isolate what is gathered: a tensor that several gathers read is not fused into them, nor is what
GatherElements reads, which may have many more elements than it reads from.

A resize is a weighted sum of gathers along one axis, then of gathers along another. TVM would fuse all of
them: each element of the second sum would compute all elements of the first that it reads. A view ends a
group, so the pass puts two that cancel each other behind what several gathers read.
"""

from __future__ import annotations

from collections import Counter

from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.rewrite import Rewriter, op_name

__all__ = ["isolate_gathered"]

#: Gathers that read one tensor, from which on it is computed before them.
SEVERAL = 2

#: As how many gathers an operator counts.
TIMES = {"relax.take": 1, "relax.gather_elements": SEVERAL}


class _IsolateGathered(Rewriter):
    """Attributes:
    gathers: how many gathers read a variable of the old function.
    """

    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        self.gathers = Counter(
            binding.value.args[0]
            for block in module["main"].body.blocks
            for binding in block.bindings
            for _ in range(TIMES.get(op_name(binding.value), 0))
        )

    def visit_binding(self, binding: relax.Binding) -> None:
        super().visit_binding(binding)
        if self.gathers[binding.var] >= SEVERAL:
            self.bind(binding.var, self.isolated(self.use(binding.var)))


def isolate_gathered(module: IRModule) -> IRModule:
    """Ends fused groups before what several gathers read.

    Args:
        module: before legalisation; views that cancel each other are not folded after this.
    """
    return _IsolateGathered(module).run()
