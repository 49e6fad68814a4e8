"""A fused group: operators that became one TIR function, and what the kernel rules are told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm.tirx import PrimFunc

__all__ = ["TABLE", "Anchor", "FusedGroup"]

#: Name of the annotation of a block that looks positions up: the elements of its table, a constant of int32.
TABLE = "edgepack.table"


@dataclass(frozen=True)
class Anchor:
    """The operator of a fused group that has kernel rules of its own.

    Attributes:
        kind: "matmul", "attention", "recurrent", or, with 1 to 3 for the 2, "conv2d", "max_pool2d",
            "avg_pool2d".
        attributes: the Relax operator's attributes.
        operands: for each operand, the index of the fused function's parameter that it is, or None if it is
            computed inside.
        operator: which of the group's operators it is; None where that is unknown.
    """

    kind: str
    attributes: Mapping[str, Any]
    operands: tuple[int | None, ...]
    operator: int | None = None


@dataclass(frozen=True)
class FusedGroup:
    """Operators that were fused into one TIR function.

    Attributes:
        name: name of the function in the module.
        function: parameters, then outputs, as buffers.
        outputs: how many of its buffers are outputs.
        operators: names of the fused operators, in order.
        anchor: the operator that decides the schedule, or None.
        nodes: indices of the model's nodes whose values it computes on the way to its output.
        row_stride: elements from one row of its output to the next (a row is the last dimension), where that
            is part of a wider tensor; None where rows follow each other.
        sizes: how many statements (loop nests) of the function each operator has, in order; empty where that
            is unknown.
        operator_nodes: for each operator, the model's node whose value it computes; None where it computes
            none, or that of the group's output.
        origin: name of the group that it is a part of, where it is one.
        float16_params: indices of its constant parameters that are to be stored as float16, which their
            values are.
        narrow_params: indices of its constant parameters of int32 that are to be stored as a narrower type,
            which has their values, and that type.
        word_params: of its constant parameters that share words, the one of factors, the other, and what is
            subtracted from that (:func:`edgepack.compiler.kernels.narrow_integers.as_words`). A kernel may
            read them so, or as ``narrow_params`` says.
        callers_params: indices of its parameters that are inputs or outputs of the model: they lie in the
            caller's memory, which is aligned to an element and no more.
        by_rows: whether the tasks of its kernels are to be the rows of its output, an image of (1, height,
            width, channels), in order and equally many for each.
        rounded_to: element type to which both operands of its anchor may be rounded before they are
            multiplied; "" for none.
    """

    name: str
    function: PrimFunc
    outputs: int
    operators: tuple[str, ...]
    anchor: Anchor | None = None
    nodes: tuple[int, ...] = ()
    row_stride: int | None = None
    sizes: tuple[int, ...] = ()
    operator_nodes: tuple[int | None, ...] = ()
    origin: str = ""
    float16_params: frozenset[int] = frozenset()
    narrow_params: frozenset[tuple[int, str]] = frozenset()
    word_params: frozenset[tuple[int, int, int]] = frozenset()
    callers_params: frozenset[int] = frozenset()
    by_rows: bool = False
    rounded_to: str = ""

    @property
    def title(self) -> str:
        """What the user is told that it is called."""
        return self.origin or self.name
