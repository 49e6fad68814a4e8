"""Operators that are no loops over elements, as functions that nothing fuses with: their bodies only name
what they read and write.

``custom``: a user's C function, of which the rule of that name makes a step. ``region``: an If or a loop. The
graphs inside it are modules of their own, which are lowered like the model; the planner puts their steps in
the place of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import relax, tirx

from edgepack.compiler.graph.legalize import ANCHOR
from edgepack.compiler.graph.recurrent import OPAQUE
from edgepack.compiler.graph.rewrite import dtype_of, shape_of

__all__ = ["CUSTOM", "REGION", "emit_opaque"]

#: Kinds of anchors.
CUSTOM, REGION = "custom", "region"


def emit_opaque(
    builder: relax.BlockBuilder,
    name: str,
    anchor: Mapping[str, str | int],
    operands: Sequence[relax.Expr],
    results: Sequence[tuple[Sequence[int], str]],
) -> list[relax.Expr]:
    """Emits the call of such an operator; its results.

    Args:
        name: what it calls, a C identifier.
        anchor: its ``kind`` and attributes, which tell it from others.
        results: shape and dtype of each.
    """
    operands = [builder.normalize(operand) for operand in operands]
    shapes = [(shape_of(operand), dtype_of(operand)) for operand in operands]
    buffers = [
        tirx.decl_buffer([tirx.const(size, "int64") for size in shape], dtype, f"b{number}")
        for number, (shape, dtype) in enumerate([*shapes, *results])
    ]
    body = tirx.Evaluate(tirx.call_extern("int32", name, *(b.data for b in buffers)))
    function = tirx.PrimFunc(buffers, body).with_attr("op_pattern", OPAQUE)
    added = builder.add_func(function.with_attr(ANCHOR, dict(anchor)), str(anchor["kind"]))
    types = [relax.TensorType(shape, dtype) for shape, dtype in results]
    made = builder.emit(relax.call_tir(added, relax.Tuple(operands), types if len(types) > 1 else types[0]))
    if len(types) == 1:
        return [made]
    return [builder.emit(relax.TupleGetItem(made, index)) for index in range(len(types))]
