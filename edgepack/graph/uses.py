"""How often the values of a function are read, while a pass rewrites it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tvm import relax
from tvm.ir import IRModule

__all__ = ["Uses"]


class Uses:
    """Counts for the variables of a new function, from those of the old one that they stand for."""

    def __init__(self, module: IRModule) -> None:
        self._old: Counter[Any] = Counter()
        self._new: Counter[Any] = Counter()
        function = module["main"]
        for block in function.body.blocks:
            for binding in block.bindings:
                self._count(binding.value)
        self._count(function.body.body)

    def _count(self, expr: Any) -> None:
        def visit(part: Any) -> None:
            if isinstance(part, relax.Var):
                self._old[part] += 1

        relax.analysis.post_order_visit(expr, visit)

    def bind(self, old: Any, new: Any) -> None:
        """Records that ``new`` stands for ``old``."""
        if isinstance(new, relax.Var):
            self._new[new] += self._old[old]

    def __getitem__(self, new: Any) -> int:
        return self._new[new]
