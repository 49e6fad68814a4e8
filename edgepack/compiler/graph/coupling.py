"""Probabilities of classes out of those of pairs of classes: pairwise coupling (T.-F. Wu, C.-J. Lin and
R. C. Weng, 2004; the second of their methods), as libsvm and ONNX Runtime iterate.

The iteration ends when it is near enough, so it is a function of its own with the anchor ``coupling``, which
nothing fuses with. Its body only names what it reads and writes; the rule ``coupling`` computes it.
"""

from __future__ import annotations

from tvm import relax, tirx

from edgepack.compiler.graph.legalize import ANCHOR
from edgepack.compiler.graph.recurrent import OPAQUE
from edgepack.compiler.graph.rewrite import shape_of

__all__ = ["emit_coupling"]


def emit_coupling(builder: relax.BlockBuilder, pairs: relax.Expr, classes: int) -> relax.Expr:
    """Emits the call; its result, float32 [rows, classes].

    Args:
        pairs: float32 [rows, classes * (classes - 1) / 2], the probability of the first class of each pair,
            in the order (0, 1), (0, 2), ..., (1, 2), ...
    """
    pairs = builder.normalize(pairs)
    rows, count = shape_of(pairs)
    buffers = [
        tirx.decl_buffer([tirx.const(rows, "int64"), tirx.const(columns, "int64")], "float32", f"b{number}")
        for number, columns in enumerate((count, classes))
    ]
    body = tirx.Evaluate(tirx.call_extern("int32", "edgepack_coupling", *(b.data for b in buffers)))
    function = tirx.PrimFunc(buffers, body).with_attr("op_pattern", OPAQUE)
    name = builder.add_func(function.with_attr(ANCHOR, {"kind": "coupling"}), "coupling")
    result = relax.TensorType((rows, classes), "float32")
    return builder.emit(relax.call_tir(name, relax.Tuple([pairs]), result))
