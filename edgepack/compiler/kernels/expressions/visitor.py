"""The walk over an expression: one dispatch, on the kind of a node's operation."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.expressions.nodes import Node, operation_of
from edgepack.compiler.kernels.expressions.operations import Kind

__all__ = ["Visitor"]

Expr = Any
Context = TypeVar("Context")
Result = TypeVar("Result")


class Visitor(Generic[Context, Result]):
    """Evaluates expressions to something: vectors, text, a number.

    ``Context`` is handed down unchanged by whoever does not need another one for an operand: the values of
    variables, the block that an expression stands in.
    """

    def visit(self, x: Expr, context: Context) -> Result:
        """What an expression is."""
        operation = operation_of(x)
        result: Result = getattr(self, _METHODS[operation.kind])(Node(x, operation), context)
        return result

    def operands(self, node: Node, context: Context) -> list[Result]:
        """What a node's operands are, in order."""
        return [self.visit(x, context) for x in node.operands]

    def visit_constant(self, node: Node, context: Context) -> Result:
        return self.visit_operation(node, context)

    def visit_variable(self, node: Node, context: Context) -> Result:
        return self.visit_other(node, context)

    def visit_load(self, node: Node, context: Context) -> Result:
        return self.visit_other(node, context)

    def visit_cast(self, node: Node, context: Context) -> Result:
        return self.visit_operation(node, context)

    def visit_select(self, node: Node, context: Context) -> Result:
        return self.visit_operation(node, context)

    def visit_hint(self, node: Node, context: Context) -> Result:
        """Its operand."""
        return self.visit(node.operands[0], context)

    def visit_logical(self, node: Node, context: Context) -> Result:
        return self.visit_operation(node, context)

    def visit_operation(self, node: Node, context: Context) -> Result:
        """What computes an element of others: arithmetic, comparisons, bits, functions, and all that has no
        method of its own."""
        return self.visit_other(node, context)

    def visit_other(self, node: Node, context: Context) -> Result:
        raise RuleError(f"{node.operation.name} has no form here")


_METHODS = {
    Kind.CONSTANT: "visit_constant",
    Kind.VARIABLE: "visit_variable",
    Kind.LOAD: "visit_load",
    Kind.CAST: "visit_cast",
    Kind.SELECT: "visit_select",
    Kind.HINT: "visit_hint",
    Kind.LOGICAL: "visit_logical",
    **dict.fromkeys((Kind.COMPARE, Kind.ARITHMETIC, Kind.DIVISION), "visit_operation"),
    **dict.fromkeys((Kind.BITWISE, Kind.SHIFT, Kind.FUNCTION), "visit_operation"),
    Kind.OTHER: "visit_other",
}
