"""From an ensemble's attributes to the tables of the operator that walks them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.classical.ensemble import LEAF, MODES, Ensemble
from edgepack.compiler.frontend.onnx.classical.refusals import refuse
from edgepack.compiler.frontend.onnx.classical.tables import (
    BadTreesError,
    Forest,
    Tables,
    intervals,
    keys_of,
    search,
    tables_of,
)

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["Walk", "check_trees", "walk_of"]

#: Depth of the deepest tree: ONNX Runtime reads trees recursively, and ends with SIGSEGV on far deeper ones.
DEEPEST = 1000

#: What the results begin with, by how they are combined.
_FIRST = {"SUM": 0.0, "AVERAGE": 0.0, "MIN": float("inf"), "MAX": float("-inf")}


@dataclass(frozen=True)
class Walk:
    """An ensemble as it is walked: the results are [rows, columns], each of a target or class.

    Attributes:
        tables: the records; a leaf's threshold is its value's bits, or with ``rows`` the number of one.
        nan: "high" if NaN is a key greater than all numbers, "low" if less, "both" if the features are there
            twice, high and low.
        columns: int64, the target or class of each column, ascending.
        always: bool, whether some weight is added to a column whatever the input is.
        tree_columns: int32 [trees], the column that a tree's leaves belong to; without ``rows``.
        rows: [different leaves, columns], what a leaf adds to all columns; None if each tree has one column.
            With counts there are as many columns more: how many weights were added to each.
        first: what a column begins with.
    """

    tables: Tables
    nan: str
    columns: NDArray[np.int64]
    always: NDArray[np.bool_]
    tree_columns: NDArray[np.int32]
    rows: NDArray[Any] | None
    first: float


def check_trees(node: onnx.NodeProto, made: Ensemble) -> None:
    """Refuses trees that are none: a node that leads back to itself."""
    leaves = _Leaves(made.modes != LEAF, made)
    _tables(node, made, leaves.thresholds, int(made.features.max(initial=0)) + 1)


def walk_of(node: onnx.NodeProto, made: Ensemble, features: int, *, count: bool = False) -> Walk:
    """The tables of an ensemble.

    Args:
        features: elements of a row of the input.
        count: where some column may get no weight, count how many it gets; the weights are added up then.

    Raises:
        RefusedNodesError: a feature is not there, or the trees are none.
    """
    import numpy as np

    asking = made.modes != LEAF
    if asking.any() and int(made.features[asking].max()) >= features:
        refuse(node, f"reads the feature {made.features[asking].max()}, and its input has {features}")
    leaves = _Leaves(asking, made)
    tables, nan = _tables(node, made, leaves.thresholds, features)
    always, tree_columns = leaves.reached(tables)
    first, rows = _FIRST[made.aggregate], leaves.rows
    if count and rows is not None and not all(always):
        tables, rows = leaves.counted(tables)
    return Walk(tables, nan, leaves.columns, np.asarray(always), tree_columns, rows, first)


class _Leaves:
    """What is found at the leaves.

    Attributes:
        thresholds: keys by node: a value's bits, or a row's number.
        columns: as those of :class:`Walk`.
        rows: likewise.
    """

    def __init__(self, asking: NDArray[np.bool_], made: Ensemble) -> None:
        import numpy as np

        dtype = made.weights.dtype
        self.kind: Any = np.int64 if dtype == np.float64 else np.int32
        self._asking, self._made = asking, made
        self.columns = np.unique(made.target_ids)
        if not len(self.columns):
            self.columns = np.zeros(1, np.int64)
        self._column = np.searchsorted(self.columns, made.target_ids)
        weights = np.where(np.isnan(made.weights), dtype.type(np.nan), made.weights)
        self.thresholds = np.zeros(len(asking), self.kind)
        #: The only column of each node's leaf; -1 of none, -2 of several.
        self.of_leaf = np.full(len(asking), -1, np.int64)
        counts = np.bincount(made.at, minlength=len(asking))
        self.of_leaf[made.at] = self._column
        self.of_leaf[counts > 1] = -2
        self._trees = self._of_trees()
        if (self._trees >= 0).all():
            self.rows: NDArray[Any] | None = None
            self.thresholds[made.at] = weights.view(self.kind)
            return
        leaves = np.flatnonzero(~asking)
        number = np.zeros(len(asking), np.int64)
        number[leaves] = np.arange(len(leaves))
        rows = np.full((len(leaves), len(self.columns)), _FIRST[made.aggregate], dtype)
        place = (number[made.at], self._column)
        {"MIN": np.minimum, "MAX": np.maximum}.get(made.aggregate, np.add).at(rows, place, weights)
        self.rows, numbers = np.unique(rows, axis=0, return_inverse=True)
        self.thresholds[leaves] = numbers.reshape(-1)

    def _of_trees(self) -> NDArray[np.int64]:
        """The only column of each tree; negative where its leaves have several, or some have none."""
        import numpy as np

        made = self._made
        bounds = np.append(made.roots, len(self._asking))
        if len(self.columns) == 1 and (self.of_leaf[~self._asking] == 0).all():
            return np.zeros(len(made.roots), np.int64)
        if (np.diff(bounds) <= 0).any() or made.roots[0] != 0:  # TreeEnsemble's leaves lie apart
            return np.full(len(made.roots), -1, np.int64)
        of_leaf = np.where(self._asking, np.iinfo(np.int64).max, self.of_leaf)
        low = np.minimum.reduceat(of_leaf, made.roots)
        high = np.maximum.reduceat(np.where(self._asking, -3, self.of_leaf), made.roots)
        return np.where(low == high, low, -2)

    def counted(self, tables: Tables) -> tuple[Tables, NDArray[Any]]:
        """The tables, and rows that count the weights too."""
        import numpy as np

        assert self.rows is not None
        leaves = np.flatnonzero(~self._asking)
        present = np.zeros((len(self._asking), len(self.columns)), self.rows.dtype)
        np.add.at(present, (self._made.at, self._column), 1)
        wide = np.concatenate([self.rows[self.thresholds[leaves]], present[leaves]], axis=1)
        rows, numbers = np.unique(wide, axis=0, return_inverse=True)
        self.thresholds[leaves] = numbers.reshape(-1)
        return tables, rows

    def reached(self, tables: Tables) -> tuple[list[bool], NDArray[np.int32]]:
        """For each column whether every input adds something to it, and the column of each tree."""
        import numpy as np

        if self.rows is None:
            return [bool((self._trees == c).any()) for c in range(len(self.columns))], self._trees.astype(
                np.int32
            )
        leaf = tables.offsets == 0
        present = np.zeros((len(self._asking), len(self.columns)), np.bool_)
        present[self._made.at, self._column] = True
        # A row's number is what different leaves share, so presence is asked by row.
        by_row = np.ones((len(self.rows), len(self.columns)), np.bool_)
        leaves = np.flatnonzero(~self._asking)
        np.logical_and.at(by_row, self.thresholds[leaves].astype(np.int64), present[leaves])
        seen = np.where(leaf[:, None], by_row[np.where(leaf, tables.thresholds, 0).astype(np.int64)], True)
        of_trees = np.logical_and.reduceat(seen, tables.roots, axis=0)
        return np.asarray(of_trees.any(axis=0)).tolist(), np.zeros(len(tables.roots), np.int32)


def _tables(node: onnx.NodeProto, made: Ensemble, leaves: NDArray[Any], features: int) -> tuple[Tables, str]:
    """The records, and which copies of the features there are."""
    import numpy as np

    kind, least, most = leaves.dtype, np.iinfo(leaves.dtype).min, np.iinfo(leaves.dtype).max
    mode = made.modes
    greater = (mode == MODES.index("GTE")) | (mode == MODES.index("GT"))
    open_ = (mode == MODES.index("LT")) | (mode == MODES.index("GTE"))
    keys = keys_of(made.values)
    nothing = np.where(greater, most - 1, least)
    bounds = np.where(np.isnan(made.values), nothing, np.where(open_, keys - (keys > least), keys))
    asking = mode < MODES.index("EQ")
    low = asking & (greater != made.tracks)  # NaN goes where small numbers go
    nodes = _Nodes(
        np.where(mode == LEAF, leaves, bounds).astype(kind),
        made.features,
        np.where(greater, made.if_false, made.if_true),
        np.where(greater, made.if_true, made.if_false),
    )
    for at in np.flatnonzero((mode >= MODES.index("EQ")) & (mode != LEAF)):
        nodes.ask(int(at), made, int(most))
    first, second = nodes.joined()
    thresholds, if_true, if_false = first, *second
    names = np.concatenate([made.features, np.asarray(nodes.more_features, np.int64)])
    low = np.concatenate([low, np.zeros(len(names) - len(low), np.bool_)])
    inner = if_true >= 0
    nan = "both" if low[inner].any() and not low[inner].all() else "low" if low[inner].any() else "high"
    if nan == "both":
        names = names + np.where(low, features, 0)
    forest = Forest(names, thresholds, if_true, if_false, made.roots)
    try:
        made_of = tables_of(forest, features * (2 if nan == "both" else 1))
    except BadTreesError as error:
        refuse(node, str(error))
    if made_of.depths.max() > DEEPEST:
        refuse(
            node, f"has a tree of depth {made_of.depths.max()}, and {DEEPEST} is the most", "Bound the depth."
        )
    return made_of, nan


class _Nodes:
    """Nodes of which some become several."""

    def __init__(
        self,
        thresholds: NDArray[Any],
        features: NDArray[np.int64],
        if_true: NDArray[np.int64],
        if_false: NDArray[np.int64],
    ) -> None:
        self._own = thresholds, if_true, if_false
        self._features = features
        self._more: tuple[list[int], list[int], list[int]] = ([], [], [])
        self.more_features: list[int] = []

    def ask(self, at: int, made: Ensemble, most: int) -> None:
        """Makes a search of the node ``at``, which asks for equality or for membership in a set."""
        mode = MODES[int(made.modes[at])]
        values = made.members[at] if mode == "MEMBER" else made.values[at : at + 1]
        bounds, answers = intervals(mode, values)
        nan = bool(made.tracks[at]) or mode == "NEQ"
        if nan != answers[-1]:
            bounds, answers = [*bounds, most - 1], [*answers, nan]
        ends = int(made.if_false[at]), int(made.if_true[at])
        if not bounds:  # whatever the number is
            bounds, answers = [most - 1], [answers[0]] * 2
        middle = (len(bounds) - 1) // 2
        feature = int(made.features[at])

        def add(bound: int, low: int, high: int) -> int:
            for numbers, number in zip(self._more, (bound, low, high), strict=True):
                numbers.append(number)
            self.more_features.append(feature)
            return len(made.modes) + len(self.more_features) - 1

        low = search(bounds[:middle], answers[: middle + 1], ends, add)
        high = search(bounds[middle + 1 :], answers[middle + 1 :], ends, add)
        for numbers, number in zip(self._own, (bounds[middle], low, high), strict=True):
            numbers[at] = number

    def joined(self) -> tuple[NDArray[Any], tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Thresholds, and next nodes, of all."""
        import numpy as np

        own = (
            np.concatenate([a, np.asarray(b, a.dtype)]) for a, b in zip(self._own, self._more, strict=True)
        )
        thresholds, if_true, if_false = own
        return thresholds, (if_true, if_false)
