"""Decision trees as one operator: each row of the input walks through all trees, and what it finds is
combined.

Relax has no operator for that, so an ensemble is a function of its own with the anchor ``trees``. Its body
only names what it reads and writes; the rule ``trees`` computes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from tvm import relax, tirx

from edgepack.compiler.graph.legalize import ANCHOR
from edgepack.compiler.graph.recurrent import OPAQUE
from edgepack.compiler.graph.rewrite import dtype_of, shape_of

__all__ = ["TreeWalk", "emit_trees"]


@dataclass(frozen=True)
class TreeWalk:
    """All trees of an ensemble, walked as ``frontend/onnx/classical/tables.py`` says.

    Operands:
        x: float32 or float64 [rows, features].
        records: int32 [records, words]. Of float32 the first word is the threshold; then come feature and
            offset, in one word of 16 bits each, the feature the lower ones, or with ``wide`` in two words.
        thresholds: int64 [records], of float64 only.
        trees: int32 [trees, 3], of each the first record, how many steps reach every leaf, and the column of
            its leaves.
        leaves: [leaves, columns] in the type of x, what a leaf with the number of a row adds to all columns;
            left out where a leaf's threshold is its value's bits, for the tree's column.

    Result: [rows, columns] in the type of x.

    Attributes:
        rows, features, trees, columns: extents.
        aggregate: SUM, MIN or MAX.
        nan: "high", "low" or "both", see :class:`edgepack.compiler.frontend.onnx.classical.forest.Walk`.
        wide: whether features and offsets have 32 bits.
        by_row: whether there are ``leaves``.
        uneven: whether many leaves are reached long before the deepest one of their tree.
    """

    rows: int
    features: int
    trees: int
    columns: int
    aggregate: str
    nan: str
    wide: bool
    by_row: bool
    uneven: bool

    def attributes(self) -> dict[str, Any]:
        """Plain numbers and strings, for a function's attribute."""
        return {key: int(v) if isinstance(v, bool) else v for key, v in asdict(self).items()}

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> TreeWalk:
        """Inverse of :meth:`attributes`."""
        kinds = {"aggregate": str, "nan": str, "wide": bool, "by_row": bool, "uneven": bool}
        return cls(**{f.name: kinds.get(f.name, int)(attributes[f.name]) for f in fields(cls)})


def emit_trees(builder: relax.BlockBuilder, walk: TreeWalk, operands: Sequence[relax.Expr]) -> relax.Expr:
    """Emits the call; its result.

    Args:
        operands: those that :class:`TreeWalk` lists, without those that are left out.
    """
    operands = [builder.normalize(operand) for operand in operands]
    shapes = [(shape_of(operand), dtype_of(operand)) for operand in operands]
    result = ((walk.rows, walk.columns), shapes[0][1])
    buffers = [
        tirx.decl_buffer([tirx.const(size, "int64") for size in shape], dtype, f"b{number}")
        for number, (shape, dtype) in enumerate([*shapes, result])
    ]
    body = tirx.Evaluate(tirx.call_extern("int32", "edgepack_trees", *(b.data for b in buffers)))
    function = tirx.PrimFunc(buffers, body).with_attr("op_pattern", OPAQUE)
    name = builder.add_func(function.with_attr(ANCHOR, {"kind": "trees", **walk.attributes()}), "trees")
    return builder.emit(relax.call_tir(name, relax.Tuple(operands), relax.TensorType(*result)))
