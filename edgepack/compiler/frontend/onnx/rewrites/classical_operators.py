"""Writes the operators of edgepack's domain that ``classical/operator.py`` imports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.classical.forest import Walk
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor
from edgepack.compiler.frontend.onnx.support import COUPLING, TREE_WALK

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["write_coupling", "write_walk"]


def write_walk(editor: Editor, x: str, walk: Walk, shape: tuple[int, int], aggregate: str) -> str:
    """Writes the node; the name of its result.

    Args:
        x: float32 or float64 of this ``shape``, [rows, features].
        aggregate: SUM, MIN or MAX.
    """
    import numpy as np

    tables, columns = walk.tables, len(walk.columns) if walk.rows is None else walk.rows.shape[1]
    double = tables.thresholds.dtype == np.int64
    trees = np.stack([tables.roots, tables.depths, walk.tree_columns], axis=1).astype(np.int32)
    operands = [_records(walk, double=double), *([tables.thresholds] if double else []), trees]
    said = {
        "rows": shape[0],
        "features": shape[1],
        "trees": len(trees),
        "columns": columns,
        "aggregate": aggregate,
        "nan": walk.nan,
        "wide": not tables.narrow,
        "by_row": walk.rows is not None,
        "uneven": tables.uneven,
    }
    if walk.rows is not None:
        operands.append(walk.rows)
    names = [editor.const(np.ascontiguousarray(array)) for array in operands]
    result = np.dtype(np.float64 if double else np.float32), (shape[0], columns)
    return editor.own(TREE_WALK, x, *names, result=result, walk=json.dumps(said))


def _records(walk: Walk, *, double: bool) -> NDArray[np.int32]:
    import numpy as np

    tables = walk.tables
    first = [] if double else [tables.thresholds]
    if tables.narrow:
        both = (tables.features | tables.offsets << 16).astype(np.uint32).view(np.int32)
        return np.stack([*first, both], axis=1).astype(np.int32)
    return np.stack([*first, tables.features, tables.offsets], axis=1).astype(np.int32)


def write_coupling(editor: Editor, pairs: str, rows: int, classes: int) -> str:
    """Writes the node that makes probabilities of classes, float32 [rows, classes], of those of pairs.

    Args:
        pairs: as :func:`edgepack.compiler.graph.coupling.emit_coupling` has them.
    """
    import numpy as np

    return editor.own(COUPLING, pairs, result=(np.dtype(np.float32), (rows, classes)), classes=classes)
