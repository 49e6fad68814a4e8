"""Operators that choose among elements: sorting, and those whose results have as many entries as there are.

Relax has no operator with a result of static size for them, so each is a function of its own with the anchor
``selection``, which nothing fuses with. Its body only names what it reads and writes; the rule ``selection``
computes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx

from edgepack.compiler.graph.legalize import ANCHOR
from edgepack.compiler.graph.recurrent import OPAQUE
from edgepack.compiler.graph.rewrite import dtype_of, shape_of

__all__ = ["Selection", "emit_selection"]


@dataclass(frozen=True)
class Selection:
    """A node that chooses.

    Attributes:
        operator: its ONNX operator.
        operands: what its operands are, in order, by ONNX's names in lower case; those left out are missing.
        results: what its results are, likewise; ``count`` is how many entries there really are.
        numbers: its attributes, and ``most``, the entries that its results have room for.
    """

    operator: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    numbers: Mapping[str, int]

    def attributes(self) -> dict[str, Any]:
        """Plain numbers, strings and lists of them, for a function's attribute."""
        return {
            "operator": self.operator,
            "operands": list(self.operands),
            "results": list(self.results),
            "names": list(self.numbers),
            "numbers": list(self.numbers.values()),
        }

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Selection:
        """Inverse of :meth:`attributes`."""
        names, numbers = attributes["names"], attributes["numbers"]
        return cls(
            str(attributes["operator"]),
            tuple(str(name) for name in attributes["operands"]),
            tuple(str(name) for name in attributes["results"]),
            {str(name): int(number) for name, number in zip(names, numbers, strict=True)},
        )


def emit_selection(
    builder: relax.BlockBuilder,
    selection: Selection,
    operands: Sequence[relax.Expr],
    results: Sequence[tuple[Sequence[int], str]],
) -> list[relax.Expr]:
    """Emits the call; its results.

    Args:
        operands: those that ``selection.operands`` names, in that order.
        results: shape and dtype of those that ``selection.results`` names.
    """
    operands = [builder.normalize(operand) for operand in operands]
    shapes = [(shape_of(operand), dtype_of(operand)) for operand in operands]
    buffers = [
        tirx.decl_buffer([tirx.const(size, "int64") for size in shape], dtype, f"b{number}")
        for number, (shape, dtype) in enumerate([*shapes, *results])
    ]
    body = tirx.Evaluate(tirx.call_extern("int32", "edgepack_selection", *(b.data for b in buffers)))
    function = tirx.PrimFunc(buffers, body).with_attr("op_pattern", OPAQUE)
    described = {"kind": "selection", **selection.attributes()}
    name = builder.add_func(function.with_attr(ANCHOR, described), selection.operator.lower())
    types = [relax.TensorType(shape, dtype) for shape, dtype in results]
    call = builder.emit(relax.call_tir(name, relax.Tuple(operands), types))
    return [builder.emit(relax.TupleGetItem(call, index)) for index in range(len(results))]
