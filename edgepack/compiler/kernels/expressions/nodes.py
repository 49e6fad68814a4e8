"""A TIR expression's node as an operation on operands: the one place that knows TVM's classes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad

from edgepack.compiler.kernels.expressions.operations import CALL_COST, OPERATIONS, Kind, Operation

__all__ = ["Node", "dtype_of", "name_of", "nodes_in", "operands_of", "operation_of", "table_position"]

Expr = Any

#: Operations by the class of their nodes, and the fields that hold the operands.
_NODES: dict[type, tuple[str, tuple[str, ...]]] = {
    tirx.IntImm: ("integer", ()),
    tirx.FloatImm: ("float", ()),
    tirx.Var: ("variable", ()),
    TensorLoad: ("load", ("indices",)),
    tirx.Cast: ("cast", ("value",)),
    tirx.Select: ("select", ("condition", "true_value", "false_value")),
    tirx.Not: ("not", ("a",)),
    tirx.BitwiseNot: ("bitwise_not", ("a",)),
    tirx.Broadcast: ("broadcast", ("value",)),
    **{
        getattr(tirx, kind): (name, ("a", "b"))
        for kind, name in {
            **{"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Max": "max", "Min": "min"},
            **{"Mod": "mod", "FloorDiv": "floor_div", "FloorMod": "floor_mod"},
            **{kind: kind.lower() for kind in ("EQ", "NE", "LT", "LE", "GT", "GE", "And", "Or")},
            **{"BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor"},
            **{"LShift": "shift_left", "RShift": "shift_right"},
        }.items()
    },
}


@dataclass(frozen=True)
class Node:
    """A node of an expression.

    Attributes:
        expr: TVM's object.
        operation: what it computes.
    """

    expr: Expr
    operation: Operation

    @property
    def operands(self) -> tuple[Expr, ...]:
        """What it computes with: of a selection the condition first, of a load the positions."""
        return operands_of(self.expr)

    @property
    def dtype(self) -> str:
        """The element type of what it computes."""
        return dtype_of(self.expr)

    @property
    def number(self) -> int | float:
        """A constant's value."""
        assert self.operation.kind is Kind.CONSTANT
        return float(self.expr.value) if self.operation.name == "float" else int(self.expr.value)


def operation_of(x: Expr) -> Operation:
    """What a node computes."""
    kind = type(x)
    if kind is Call:  # TVM's names have the dialect in front: tirx.exp, prim.if_then_else
        name = str(getattr(x.op, "name", "")).rpartition(".")[2]
        return OPERATIONS.get(name) or Operation(name, Kind.FUNCTION, CALL_COST)
    known = _NODES.get(kind)
    return OPERATIONS[known[0]] if known else Operation(kind.__name__, Kind.OTHER)


def name_of(x: Expr) -> str:
    """The name of a node's operation."""
    return operation_of(x).name


def operands_of(x: Expr) -> tuple[Expr, ...]:
    """The expressions that a node computes with, see :attr:`Node.operands`."""
    kind = type(x)
    if kind is Call:
        return tuple(x.args)
    if kind is TensorLoad:
        return tuple(x.indices)
    return tuple(getattr(x, name) for name in _NODES.get(kind, ("", ()))[1])


def dtype_of(x: Expr) -> str:
    """The element type of an expression."""
    return str(x.ty.dtype) if hasattr(x.ty, "dtype") else str(x.ty)


def table_position(node: Node) -> Expr | None:
    """The byte whose bits are the position of a load from a table of 256 bytes; None for another load."""
    x = node.expr
    if type(x) is not TensorLoad or len(x.indices) != 1 or str(x.source.dtype) not in {"int8", "uint8"}:
        return None
    (at,), shape = x.indices, x.source.shape
    if [int(n) for n in shape if isinstance(n, tirx.IntImm)] != [256]:
        return None
    signed = type(at) is tirx.BitwiseAnd and isinstance(at.b, tirx.IntImm) and int(at.b) == 255
    cast = at.a if signed else at
    found = type(cast) is tirx.Cast and dtype_of(cast.value) == ("int8" if signed else "uint8")
    return cast.value if found else None


def nodes_in(x: Expr) -> Iterator[Node]:
    """Every node of an expression, positions in tensors included, each before its operands."""
    pending = [x]
    while pending:
        found = pending.pop()
        yield Node(found, operation_of(found))
        pending += reversed(operands_of(found))
