"""A rewriter that counts the uses of variables: for passes that replace several bindings by one, which they
may only where nothing else uses what is replaced.
"""

from __future__ import annotations

from collections import Counter

from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.rewrite import OptionalExpr, Rewriter, op_name

__all__ = ["UseCountingRewriter"]


class UseCountingRewriter(Rewriter):
    """A rewriter that knows what each variable of the new function is bound to, and how often it is used."""

    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        self._old = _use_counts(module)
        self._new: Counter[relax.Expr] = Counter()

    def bind(self, old: relax.Expr, new: relax.Expr) -> None:
        """Records that ``old`` is now ``new``: what reads one will read the other."""
        super().bind(old, new)
        if isinstance(new, relax.Var):
            self._new[new] += self._old[old]

    def uses(self, expr: relax.Expr) -> int:
        """How many operands of the function the expression is; 0 for one that is no variable."""
        return self._new[expr]

    def used_once(self, expr: relax.Expr) -> bool:
        """Whether the expression is a variable with exactly one use in the function."""
        return self.uses(expr) == 1

    def definition(self, expr: relax.Expr) -> OptionalExpr:
        """What a variable is bound to; None for a parameter, and for what is no variable."""
        return self.builder.lookup_binding(expr) if isinstance(expr, relax.Var) else None

    def definition_if_used_once(self, expr: relax.Expr) -> OptionalExpr:
        """What a variable with one use is bound to: it may go when that use goes. Else None."""
        return self.definition(expr) if self.used_once(expr) else None

    def call(self, expr: relax.Expr, *names: str) -> OptionalExpr:
        """What a variable is bound to if that calls one of these operators, else None."""
        definition = self.definition(expr)
        return definition if op_name(definition) in names else None


def _use_counts(module: IRModule) -> Counter[relax.Expr]:
    """For each variable of ``main``, how many operands it is."""
    counts: Counter[relax.Expr] = Counter()

    def visit(part: relax.Expr) -> None:
        if isinstance(part, relax.Var):
            counts[part] += 1

    function = module["main"]
    for block in function.body.blocks:
        for binding in block.bindings:
            relax.analysis.post_order_visit(binding.value, visit)
    relax.analysis.post_order_visit(function.body.body, visit)
    return counts
