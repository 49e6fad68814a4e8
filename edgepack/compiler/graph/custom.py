"""A user's C function as an operator: a function with the anchor ``custom``, which nothing fuses with.

Its body only names what it reads and writes; the rule ``custom`` makes a step of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax, tirx

from edgepack.compiler.graph.legalize import ANCHOR
from edgepack.compiler.graph.recurrent import OPAQUE
from edgepack.compiler.graph.rewrite import dtype_of, shape_of

__all__ = ["emit_custom"]


def emit_custom(
    builder: relax.BlockBuilder,
    call: dict[str, str],
    operands: Sequence[relax.Expr],
    results: Sequence[tuple[Sequence[int], str]],
) -> list[relax.Expr]:
    """Emits the call; its results.

    Args:
        call: ``symbol``, ``source`` and ``numbers`` of :class:`~edgepack.plan.custom.CFunction` as texts.
        results: shape and dtype of each.
    """
    operands = [builder.normalize(operand) for operand in operands]
    shapes = [(shape_of(operand), dtype_of(operand)) for operand in operands]
    buffers = [
        tirx.decl_buffer([tirx.const(size, "int64") for size in shape], dtype, f"b{number}")
        for number, (shape, dtype) in enumerate([*shapes, *results])
    ]
    body = tirx.Evaluate(tirx.call_extern("int32", call["symbol"], *(b.data for b in buffers)))
    function = tirx.PrimFunc(buffers, body).with_attr("op_pattern", OPAQUE)
    described = {"kind": "custom", **call}
    name = builder.add_func(function.with_attr(ANCHOR, described), "custom")
    types = [relax.TensorType(shape, dtype) for shape, dtype in results]
    made = builder.emit(relax.call_tir(name, relax.Tuple(operands), types if len(types) > 1 else types[0]))
    if len(types) == 1:
        return [made]
    return [builder.emit(relax.TupleGetItem(made, index)) for index in range(len(types))]
