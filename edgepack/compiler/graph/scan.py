"""Cumulative sums and products as one operator: a function with the anchor ``scan``.

Its body only names what it reads and writes; the rule ``scan`` computes it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tvm import relax, tirx

from edgepack.compiler.graph.legalize import ANCHOR
from edgepack.compiler.graph.recurrent import OPAQUE
from edgepack.compiler.graph.rewrite import dtype_of, shape_of

__all__ = ["Scan", "emit_scan"]


@dataclass(frozen=True)
class Scan:
    """What each element along an axis and those before it give.

    Attributes:
        product: they are multiplied, not added.
        axis: not negative.
        exclusive: without the element itself; the first result is 0 (1 of a product).
        reverse: from the last element on.
    """

    product: bool
    axis: int
    exclusive: bool = False
    reverse: bool = False

    def attributes(self) -> dict[str, Any]:
        """Plain numbers, for a function's attribute."""
        return {key: int(value) for key, value in asdict(self).items()}


def emit_scan(builder: relax.BlockBuilder, scan: Scan, x: relax.Expr) -> relax.Expr:
    """Emits the operator; its result has the shape and dtype of ``x``."""
    shape, dtype = shape_of(x), dtype_of(x)
    buffers = [
        tirx.decl_buffer([tirx.const(size, "int64") for size in shape], dtype, name) for name in ("x", "y")
    ]
    body = tirx.Evaluate(tirx.call_extern("int32", "edgepack_scan", *(b.data for b in buffers)))
    function = tirx.PrimFunc(buffers, body).with_attr("op_pattern", OPAQUE)
    name = builder.add_func(function.with_attr(ANCHOR, {"kind": "scan", **scan.attributes()}), "scan")
    call = relax.call_tir(name, relax.Tuple([builder.normalize(x)]), relax.TensorType(shape, dtype))
    return builder.emit(call)
