"""The operators of ``operator.py`` for ONNX's own evaluator: NumPy, all rows at once."""

from __future__ import annotations

import json
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.classical.tables import keys_of
from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN
from edgepack.compiler.frontend.onnx.support import COUPLING, TREE_WALK

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["classical_operators", "couple", "walk"]


def walk(said: dict[str, Any], x: NDArray[Any], records: NDArray[Any], *others: NDArray[Any]) -> NDArray[Any]:
    """What :class:`edgepack.compiler.graph.trees.TreeWalk` describes; ``others`` are its other operands."""
    import numpy as np

    thresholds = others[0] if x.dtype == np.float64 else records[:, 0]
    trees = others[1] if x.dtype == np.float64 else others[0]
    if said["wide"]:
        features, offsets = records[:, -2], records[:, -1]
    else:
        features, offsets = records[:, -1] & 0xFFFF, (records[:, -1] >> 16) & 0xFFFF
    keys = _keys(x, said["nan"])
    first = {"SUM": 0.0, "MIN": np.inf, "MAX": -np.inf}[said["aggregate"]]
    combine = {"SUM": np.add, "MIN": np.minimum, "MAX": np.maximum}[said["aggregate"]]
    result, rows = np.full((len(x), said["columns"]), first, x.dtype), np.arange(len(x))
    for root, depth, column in trees:
        at = np.full(len(x), root, np.int64)
        for _ in range(depth):
            at = at + offsets[at] + (keys[rows, features[at]] <= thresholds[at])
        found = thresholds[at]
        if said["by_row"]:
            result = combine(result, others[-1][found])
        else:
            result[:, column] = combine(result[:, column], np.ascontiguousarray(found).view(x.dtype))
    return result


def _keys(x: NDArray[Any], nan: str) -> NDArray[Any]:
    """The keys of all rows, and behind them the one that is greater than all thresholds."""
    import numpy as np

    high = keys_of(x)
    most, least = np.iinfo(high.dtype).max, np.iinfo(high.dtype).min
    low = np.where(np.isnan(x), least, high)
    copies = {"high": [high], "low": [low], "both": [high, low]}[nan]
    return np.concatenate([*copies, np.full((len(x), 1), most, high.dtype)], axis=1)


def couple(pairs: NDArray[Any], classes: int) -> NDArray[Any]:
    """Probabilities of classes of those of pairs, float32; the iteration ends for each row by itself."""
    import numpy as np

    results = []
    for row in pairs.astype(np.float32):
        r = np.zeros((classes, classes), np.float32)
        for value, (i, j) in zip(row, combinations(range(classes), 2), strict=True):
            r[i, j], r[j, i] = value, np.float32(1) - value
        q = -r.T * r
        np.fill_diagonal(q, (r * r).sum(axis=0))
        p = np.full(classes, 1 / classes, np.float32)
        for _ in range(100):
            qp = q @ p
            whole = p @ qp
            if np.abs(qp - whole).max() < 0.005 / classes:
                break
            for i in range(classes):
                step = (whole - qp[i]) / q[i, i]
                p[i] += step
                whole = (whole + step * (step * q[i, i] + 2 * qp[i])) / (1 + step) / (1 + step)
                qp = (qp + step * q[i]) / (1 + step)
                p /= 1 + step
        results.append(p)
    return np.stack(results)


@cache
def classical_operators() -> list[Any]:
    """Classes of ``onnx.reference``, one for each operator."""
    from onnx.reference.op_run import OpRun

    class TreeWalk(OpRun):  # type: ignore[misc]
        op_domain = DOMAIN

        def _run(self, *operands: Any, walk: str = "") -> Any:
            return (_walked(json.loads(walk), *operands),)

    class PairwiseCoupling(OpRun):  # type: ignore[misc]
        op_domain = DOMAIN

        def _run(self, pairs: Any, classes: int = 0) -> Any:
            return (couple(pairs, classes),)

    assert (TreeWalk.__name__, PairwiseCoupling.__name__) == (TREE_WALK, COUPLING)
    return [TreeWalk, PairwiseCoupling]


_walked = walk
