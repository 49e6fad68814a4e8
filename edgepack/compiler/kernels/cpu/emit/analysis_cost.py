"""What TVM's analyser pays for a value: it replaces names by what they are bound to, again and again."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from edgepack.compiler.kernels.expressions.nodes import operands_of

__all__ = ["LARGEST_COST", "analysis_cost"]

Expr = Any

#: The largest cost of a value that is bound as it is. Measured: with one of a million Winograd's kernels with
#: GELU behind them took 2.4 s to compile in place of 0.5 s, and computed as fast.
LARGEST_COST = 3_000

#: How often the analyser looks at the parts of a selection: it simplifies each result under the condition and
#: again without it, by two simplifiers. Measured: three uses of a value in a selection take 27 times as long.
_LOOKS_AT_A_SELECTION = 9

#: The same of the operands of a minimum or maximum: sums that are bounded, added and bounded again took LLVM
#: 0.1 s and the analyser 60.
_LOOKS_AT_A_BOUND = 3

_LOOKS = {tirx.Select: _LOOKS_AT_A_SELECTION, tirx.Min: _LOOKS_AT_A_BOUND, tirx.Max: _LOOKS_AT_A_BOUND}


def analysis_cost(value: Expr, bound: dict[str, int]) -> int:
    """About how many nodes the analyser of TVM's code generator visits to bind a value.

    Args:
        value: TIR expression.
        bound: the costs of the names that were bound before.
    """
    total, parts = 0, [(value, 1)]
    while parts:
        part, times = parts.pop()
        kind = type(part)  # isinstance takes several times as long, and this is asked of all that is bound
        if kind is tirx.Var:
            total += times * bound.get(part.name, 1)
            continue
        total += times
        times *= _LOOKS.get(kind, 1)
        if kind is tirx.Shuffle:
            parts += [(vector, times) for vector in part.vectors]
        elif kind is not TensorLoad:  # positions are small
            parts += [(operand, times) for operand in operands_of(part)]
    return total
