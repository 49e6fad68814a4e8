"""Reads the attributes of TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.classical.refusals import check_lengths, refuse

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["LEAF", "MODES", "Ensemble", "read_ensemble", "read_old_ensemble"]

#: What a node asks, in the order of TreeEnsemble's numbers; the old operators have them as BRANCH_LEQ.
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
LEAF = len(MODES)

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")

#: In the order of TreeEnsemble's numbers as ONNX Runtime reads them: ONNX's text has 1 for SOFTMAX and 2 for
#: LOGISTIC, and a model's outputs are those that it had before it was packed.
_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


@dataclass
class Ensemble:
    """Trees and what is found at their leaves. What has an element for each node is marked by *.

    Attributes:
        modes: int64 *, of :data:`MODES`, or :data:`LEAF`.
        features: int64 *.
        values: * what features are compared with, float32 or float64.
        tracks: bool *, whether NaN is always true.
        if_true, if_false: int64 *, index of the next node; -1 of a leaf.
        roots: int64, index of each tree's first node.
        members: by node, the set of one that asks for membership.
        at: int64 [entries], leaf of each weight; others: its target, and the weight itself.
        targets: how many there are.
        aggregate: AVERAGE, SUM, MIN or MAX.
        transform: that of the results.
        base: added to the results; empty for nothing.
    """

    modes: NDArray[np.int64]
    features: NDArray[np.int64]
    values: NDArray[Any]
    tracks: NDArray[np.bool_]
    if_true: NDArray[np.int64]
    if_false: NDArray[np.int64]
    roots: NDArray[np.int64]
    members: dict[int, NDArray[Any]]
    at: NDArray[np.int64]
    target_ids: NDArray[np.int64]
    weights: NDArray[Any]
    targets: int
    aggregate: str
    transform: str
    base: NDArray[Any]


def _numbers(values: dict[str, Any], name: str, dtype: Any) -> NDArray[Any]:
    """A list of numbers, which may be a tensor of another name; empty if there is none."""
    import numpy as np
    from onnx import numpy_helper

    if f"{name}_as_tensor" in values:
        return np.asarray(numpy_helper.to_array(values[f"{name}_as_tensor"]).reshape(-1), dtype)
    return np.asarray(values.get(name, ()), dtype)


def read_old_ensemble(node: onnx.NodeProto, values: dict[str, Any], dtype: Any) -> Ensemble:
    """The trees of a classifier or regressor.

    Args:
        values: its attributes.
        dtype: that the input is compared in, float32 or float64.

    Raises:
        RefusedNodesError: the attributes do not fit each other.
    """
    import numpy as np

    kind = "class" if node.op_type == "TreeEnsembleClassifier" else "target"
    ints = {
        name: np.asarray(values.get(name, ()), np.int64)
        for name in (
            *("nodes_nodeids", "nodes_treeids", "nodes_featureids", "nodes_truenodeids"),
            *("nodes_falsenodeids", f"{kind}_ids", f"{kind}_nodeids", f"{kind}_treeids"),
        )
    }
    thresholds = _numbers(values, "nodes_values", dtype)
    modes = _old_modes(node, values.get("nodes_modes", ()))
    weights = _numbers(values, f"{kind}_weights", dtype)
    nodes = {name: value for name, value in ints.items() if name.startswith("nodes_")}
    check_lengths(node, {**nodes, "nodes_modes": modes, "nodes_values": thresholds})
    entries = {name: value for name, value in ints.items() if name.startswith(kind)}
    check_lengths(node, {**entries, f"{kind}_weights": weights})
    if not len(modes):
        refuse(node, "has no tree")
    places = _Places(node, ints["nodes_treeids"], ints["nodes_nodeids"])
    inner = modes != LEAF
    trees = ints["nodes_treeids"]
    if_true, if_false = (np.full(len(modes), -1, np.int64) for _ in range(2))
    for next_, name in ((if_true, "nodes_truenodeids"), (if_false, "nodes_falsenodeids")):
        next_[inner] = places.of(trees[inner], ints[name][inner], name)
    at = places.of(ints[f"{kind}_treeids"], ints[f"{kind}_nodeids"], f"{kind}_nodeids")
    counted = ~inner[at]  # exporters once wrote weights for other nodes too, which count nothing
    labels = len(values.get("classlabels_strings", ())) or len(values.get("classlabels_int64s", ()))
    return _checked(
        node,
        Ensemble(
            modes=modes,
            features=ints["nodes_featureids"],
            values=thresholds,
            tracks=_tracks(node, values, len(modes)),
            if_true=if_true,
            if_false=if_false,
            roots=np.flatnonzero(np.diff(trees, prepend=trees[0] - 1)),
            members={},
            at=at[counted],
            target_ids=ints[f"{kind}_ids"][counted],
            weights=weights[counted],
            targets=labels if kind == "class" else int(values.get("n_targets", 0)),
            aggregate=str(values.get("aggregate_function", "SUM")),
            transform=str(values.get("post_transform", "NONE")),
            base=_numbers(values, "base_values", dtype),
        ),
    )


def _tracks(node: onnx.NodeProto, values: dict[str, Any], count: int) -> NDArray[np.bool_]:
    """Of each node whether NaN is always true."""
    import numpy as np

    tracks = np.asarray(values.get("nodes_missing_value_tracks_true", np.zeros(count)), np.int64)
    if len(tracks) != count:
        refuse(node, f"has {count} nodes, and {len(tracks)} nodes_missing_value_tracks_true")
    return np.asarray(tracks == 1)


def _old_modes(node: onnx.NodeProto, names: Sequence[bytes]) -> NDArray[np.int64]:
    import numpy as np

    known = {f"BRANCH_{mode}".encode(): number for number, mode in enumerate(MODES[:-1])}
    known[b"LEAF"] = LEAF
    strange = sorted(set(names) - known.keys())
    if strange:
        refuse(node, f"has the mode {strange[0].decode(errors='replace')!r}, which ONNX does not know")
    return np.asarray([known[name] for name in names], np.int64)


class _Places:
    """Where nodes are, by the numbers of tree and node."""

    def __init__(self, node: onnx.NodeProto, trees: NDArray[np.int64], ids: NDArray[np.int64]) -> None:
        import numpy as np

        self._node = node
        self._trees, self._first = np.unique(trees, return_index=True)
        self._ids = np.unique(ids)
        keys = self._keys(trees, ids, "nodes_treeids")
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        if (self._sorted[1:] == self._sorted[:-1]).any():
            twice = int(self._order[np.flatnonzero(self._sorted[1:] == self._sorted[:-1])[0]])
            refuse(node, f"has the node {ids[twice]} of tree {trees[twice]} twice")

    def _keys(self, trees: NDArray[np.int64], ids: NDArray[np.int64], name: str) -> NDArray[np.int64]:
        import numpy as np

        rows, columns = (
            np.minimum(np.searchsorted(known, some), len(known) - 1)
            for known, some in ((self._trees, trees), (self._ids, ids))
        )
        wrong = np.flatnonzero((self._trees[rows] != trees) | (self._ids[columns] != ids))
        if len(wrong):
            self._missing(trees, ids, int(wrong[0]), name)
        return np.asarray(rows * len(self._ids) + columns, np.int64)

    def of(self, trees: NDArray[np.int64], ids: NDArray[np.int64], name: str) -> NDArray[np.int64]:
        """Indices of nodes of which the attribute ``name`` has the numbers; those missing are refused."""
        import numpy as np

        keys = self._keys(trees, ids, name)
        place = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        wrong = np.flatnonzero(self._sorted[place] != keys)
        if len(wrong):
            self._missing(trees, ids, int(wrong[0]), name)
        return np.asarray(self._order[place], np.int64)

    def _missing(self, trees: NDArray[np.int64], ids: NDArray[np.int64], at: int, name: str) -> None:
        refuse(self._node, f"names in {name} the node {ids[at]} of tree {trees[at]}, which does not exist")


def read_ensemble(node: onnx.NodeProto, values: dict[str, Any], dtype: Any) -> Ensemble:
    """The trees of a TreeEnsemble, whose leaves are numbered apart from other nodes.

    Args, Raises: as :func:`read_old_ensemble`.
    """
    import numpy as np
    from onnx import numpy_helper

    ints = {
        name: np.asarray(values.get(name, ()), np.int64)
        for name in (
            *("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs"),
            *("nodes_falseleafs", "tree_roots", "leaf_targetids"),
        )
    }
    missing = [n for n in ("nodes_splits", "nodes_modes", "leaf_weights") if n not in values]
    if missing:
        refuse(node, f"has no {missing[0]}")
    splits, modes, weights = (
        numpy_helper.to_array(values[n]).reshape(-1) for n in ("nodes_splits", "nodes_modes", "leaf_weights")
    )
    nodes = {name: value for name, value in ints.items() if name.startswith("nodes_")}
    check_lengths(node, {**nodes, "nodes_splits": splits, "nodes_modes": modes})
    check_lengths(node, {"leaf_targetids": ints["leaf_targetids"], "leaf_weights": weights})
    count, leaves = len(modes), len(weights)
    if not count or not leaves or not len(ints["tree_roots"]):
        refuse(node, "has no tree")
    if (modes > MODES.index("MEMBER")).any():
        refuse(node, f"has the mode {int(modes.max())}, which ONNX does not know")
    next_ = _next_nodes(node, ints, count, leaves)
    roots = ints["tree_roots"]
    if ((roots < 0) | (roots >= count)).any():
        refuse(node, "names in tree_roots a node that does not exist")
    number = int(values.get("aggregate_function", 1)), int(values.get("post_transform", 0))
    if not (0 <= number[0] < len(_AGGREGATES) and 0 <= number[1] < len(_TRANSFORMS)):
        refuse(node, "has an aggregate_function or a post_transform that ONNX does not know")
    return _checked(
        node,
        Ensemble(
            modes=np.concatenate([modes.astype(np.int64), np.full(leaves, LEAF)]),
            features=np.concatenate([ints["nodes_featureids"], np.zeros(leaves, np.int64)]),
            values=np.concatenate([splits, np.zeros(leaves, splits.dtype)]).astype(dtype),
            tracks=np.concatenate([_tracks(node, values, count), np.zeros(leaves, np.bool_)]),
            if_true=next_["true"],
            if_false=next_["false"],
            roots=roots,
            members=_member_sets(node, values, np.flatnonzero(modes == MODES.index("MEMBER")), dtype),
            at=count + np.arange(leaves),
            target_ids=ints["leaf_targetids"],
            weights=weights.astype(dtype),
            targets=int(values.get("n_targets", 0)),
            aggregate=_AGGREGATES[number[0]],
            transform=_TRANSFORMS[number[1]],
            base=np.zeros(0, dtype),
        ),
    )


def _next_nodes(
    node: onnx.NodeProto, ints: dict[str, NDArray[np.int64]], count: int, leaves: int
) -> dict[str, NDArray[np.int64]]:
    """Indices of the next nodes if true, and if false: leaves stand behind ``count`` other nodes."""
    import numpy as np

    next_: dict[str, NDArray[np.int64]] = {}
    for way in ("true", "false"):
        name, ids, leaf = f"nodes_{way}nodeids", ints[f"nodes_{way}nodeids"], ints[f"nodes_{way}leafs"] != 0
        wrong = np.flatnonzero((ids < 0) | (ids >= np.where(leaf, leaves, count)))
        if len(wrong):
            what = "leaf" if leaf[wrong[0]] else "node"
            refuse(node, f"names in {name} the {what} {ids[wrong[0]]}, which does not exist")
        next_[way] = np.concatenate([ids + np.where(leaf, count, 0), np.full(leaves, -1)])
    return next_


def _member_sets(
    node: onnx.NodeProto, values: dict[str, Any], nodes: NDArray[np.int64], dtype: Any
) -> dict[int, NDArray[Any]]:
    """The sets of the nodes that ask for membership, in order; NaN ends each."""
    import numpy as np
    from onnx import numpy_helper

    if not len(nodes):
        return {}
    flat = (
        numpy_helper.to_array(values["membership_values"]) if "membership_values" in values else np.zeros(0)
    )
    ends = np.flatnonzero(np.isnan(flat))
    if len(ends) != len(nodes):
        refuse(node, f"has {len(nodes)} nodes that ask for membership, and {len(ends)} sets")
    starts = [0, *(ends[:-1] + 1)]
    return {
        int(at): flat[start:end].astype(dtype) for at, start, end in zip(nodes, starts, ends, strict=True)
    }


def _checked(node: onnx.NodeProto, made: Ensemble) -> Ensemble:
    if made.targets < 1:
        refuse(node, "has no targets or classes")
    if made.features.min(initial=0) < 0:
        refuse(node, f"reads the feature {made.features.min()}")
    if len(made.target_ids) and not (made.target_ids.min() >= 0 and made.target_ids.max() < made.targets):
        wrong = made.target_ids[(made.target_ids < 0) | (made.target_ids >= made.targets)][0]
        refuse(node, f"has a weight for the target {wrong}, and {made.targets} targets")
    if made.aggregate not in _AGGREGATES or made.transform not in _TRANSFORMS:
        refuse(node, "has an aggregate_function or a post_transform that ONNX does not know")
    if len(made.base) not in (0, 1, made.targets):
        refuse(node, f"has {made.targets} targets, and {len(made.base)} base_values")
    return made
