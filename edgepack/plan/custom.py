"""Operators that the user computes in C: how they are declared, and what a Plan says of their functions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["CFunction", "CustomOperator", "CustomOutput", "ExpressionError", "evaluate"]


class ExpressionError(ValueError):
    """An expression that cannot be evaluated; the text says why."""


@dataclass(frozen=True)
class CustomOutput:
    """An output of a custom operator.

    Attributes:
        shape: the expression of a whole shape (``inputs[0]``), or one for each extent.
        dtype: its name, or ``inputs[0]`` for that of an input.
    """

    shape: str | tuple[str, ...] = "inputs[0]"
    dtype: str = "inputs[0]"


@dataclass(frozen=True)
class CustomOperator:
    """An operator that the user computes in C.

    Attributes:
        domain, operator: as the model's nodes name it.
        symbol: C identifier of the function.
        source: path of its C file.
        outputs: in order.
        arguments: expressions whose values the function is given behind its pointers.
        reference: path of a Python file with the reference; "" for none.
        function: name of the function there.
    """

    domain: str
    operator: str
    symbol: str
    source: str
    outputs: tuple[CustomOutput, ...] = (CustomOutput(),)
    arguments: tuple[str, ...] = ()
    reference: str = ""
    function: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CustomOperator:
        """Inverse of :meth:`to_json`, also where lists stand for tuples."""
        outputs = tuple(
            CustomOutput(o["shape"] if isinstance(o["shape"], str) else tuple(o["shape"]), o["dtype"])
            for o in data["outputs"]
        )
        return cls(**{**data, "outputs": outputs, "arguments": tuple(data["arguments"])})


@dataclass(frozen=True)
class CFunction:
    """A function of the user's that a step calls: ``int32_t symbol(inputs..., outputs..., numbers...)``.

    Attributes:
        symbol: C identifier.
        source: name of its C file.
        inputs, outputs: dtypes of what its pointers point to, in order.
        numbers: what it is given behind them: whole numbers as ``int32_t``, others as ``float``.
    """

    symbol: str
    source: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    numbers: tuple[int | float, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CFunction:
        """Inverse of ``dataclasses.asdict``, also where lists stand for tuples."""
        tuples = {key: tuple(data[key]) for key in ("inputs", "outputs", "numbers")}
        return cls(**{**data, **tuples})


_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}


def evaluate(text: str, shapes: Sequence[Sequence[int]], attributes: Mapping[str, Any]) -> Any:
    """The value of an expression: numbers, ``+ - * / // %``, ``min``, ``max``, ``inputs[i]`` (a shape), its
    extents ``inputs[i][j]``, and the node's attributes by name.

    Raises:
        ExpressionError: it is none, or names what there is not.
    """

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Expression(body=body):
                return value(body)
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id="inputs"):
                return [tuple(shape) for shape in shapes]
            case ast.Name(id=name) if name in attributes:
                return attributes[name]
            case ast.Name(id=name):
                raise ExpressionError(f"the node has no attribute {name!r}")
            case ast.Subscript(value=base, slice=index):
                return value(base)[value(index)]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=args, keywords=[]):
                return (min if name == "min" else max)(*map(value, args))
        raise ExpressionError(f"{ast.unparse(node)!r} is not allowed here")

    try:
        return value(ast.parse(text, mode="eval"))
    except ExpressionError as error:
        raise ExpressionError(f"{text!r}: {error}") from None
    except SyntaxError:
        raise ExpressionError(f"{text!r} is no expression") from None
    except (TypeError, IndexError, ArithmeticError, ValueError) as error:
        raise ExpressionError(f"{text!r}: {error}") from None
