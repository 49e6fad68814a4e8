"""Decision trees and their models in ai.onnx.ml, made of seeded numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Forest", "forest", "ml_model", "modern_ensemble", "old_ensemble"]

#: Element types by the names of NumPy's.
ELEMENTS = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64}

#: What thresholds are drawn from, and inputs: so that they meet.
GRID = np.asarray([-2.5, -1.0, -0.5, -0.0, 0.0, 0.25, 1.0, 3.0], np.float32)


@dataclass
class Forest:
    """Nodes of trees, a list for each attribute of the old operators, and the leaves' weights."""

    trees: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    features: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    true_ids: list[int] = field(default_factory=list)
    false_ids: list[int] = field(default_factory=list)
    tracks: list[int] = field(default_factory=list)
    weights: list[tuple[int, int, int, float]] = field(default_factory=list)


def forest(
    trees: int,
    depth: int,
    features: int,
    *,
    modes: Sequence[str] = ("BRANCH_LEQ",),
    targets: Sequence[Sequence[int]] = ((0,),),
    tracks: bool = False,
    positive: bool = False,
    seed: int = 0,
) -> Forest:
    """Random trees, some of whose branches end early.

    Args:
        modes: of the nodes, drawn at random.
        targets: what a leaf has weights for: one of these lists, for each tree the next one.
        tracks: whether NaN is true at some nodes.
        positive: no weight is negative.
    """
    rng, made = np.random.default_rng(seed), Forest()

    def grow(tree: int, level: int) -> int:
        node = sum(t == tree for t in made.trees)
        leaf = level == depth or (level > 0 and rng.random() < 0.2)
        made.trees.append(tree)
        made.ids.append(node)
        at = len(made.ids) - 1
        made.modes.append("LEAF" if leaf else str(rng.choice(list(modes))))
        made.features.append(0 if leaf else int(rng.integers(features)))
        made.values.append(0.0 if leaf else float(rng.choice(GRID)))
        made.tracks.append(int(tracks and not leaf and rng.random() < 0.5))
        made.true_ids.append(0)
        made.false_ids.append(0)
        if leaf:
            for target in targets[tree % len(targets)]:
                weight = float(rng.uniform(0 if positive else -1, 1))
                made.weights.append((tree, node, target, weight))
            return node
        made.true_ids[at] = grow(tree, level + 1)
        made.false_ids[at] = grow(tree, level + 1)
        return node

    for tree in range(trees):
        grow(tree, 0)
    return made


def old_ensemble(op_type: str, made: Forest, *, double: bool = False, **more: Any) -> onnx.NodeProto:
    """A TreeEnsembleClassifier or TreeEnsembleRegressor of x, y (and the label).

    Args:
        double: numbers are tensors of float64.
        more: other attributes.
    """
    kind = "class" if op_type.endswith("Classifier") else "target"
    numbers = {"nodes_values": made.values, f"{kind}_weights": [w for *_, w in made.weights]}
    if double:
        numbers = {
            f"{name}_as_tensor": numpy_helper.from_array(np.asarray(values))
            for name, values in numbers.items()
        }
    return helper.make_node(
        op_type,
        ["x"],
        ["label", "y"] if kind == "class" else ["y"],
        name="trees",
        domain="ai.onnx.ml",
        nodes_treeids=made.trees,
        nodes_nodeids=made.ids,
        nodes_modes=made.modes,
        nodes_featureids=made.features,
        nodes_truenodeids=made.true_ids,
        nodes_falsenodeids=made.false_ids,
        nodes_missing_value_tracks_true=made.tracks,
        **{f"{kind}_treeids": [t for t, *_ in made.weights]},
        **{f"{kind}_nodeids": [n for _, n, *_ in made.weights]},
        **{f"{kind}_ids": [c for *_, c, _ in made.weights]},
        **numbers,
        **more,
    )


def modern_ensemble(dtype: str, **changes: Any) -> onnx.NodeProto:
    """A TreeEnsemble of two trees, which ask for everything that can be asked for."""
    kind = np.dtype(dtype)
    tensor = numpy_helper.from_array
    # Tree 0: x0 <= 0.25 ? (x1 in {0, 1, 3} ? leaf 0 : leaf 1) : (x2 != 1 ? leaf 2 : leaf 3)
    # Tree 1: x1 > -1 ? (x0 == 3 ? leaf 4 : leaf 5) : leaf 1
    given = {
        "n_targets": 2,
        "tree_roots": [0, 3],
        "nodes_featureids": [0, 1, 2, 1, 0],
        "nodes_modes": tensor(np.asarray([0, 6, 5, 3, 4], np.uint8)),
        "nodes_splits": tensor(np.asarray([0.25, 0, 1, -1, 3], kind)),
        "nodes_truenodeids": [1, 0, 2, 4, 4],
        "nodes_trueleafs": [0, 1, 1, 0, 1],
        "nodes_falsenodeids": [2, 1, 3, 1, 5],
        "nodes_falseleafs": [0, 1, 1, 1, 1],
        "membership_values": tensor(np.asarray([0, 1, 3, np.nan], kind)),
        "leaf_targetids": [0, 1, 0, 1, 0, 1],
        "leaf_weights": tensor(np.asarray([1, 2, 4, 8, 16, 32], kind)),
        "aggregate_function": 1,
        "post_transform": 0,
    }
    return helper.make_node(
        "TreeEnsemble", ["x"], ["y"], name="trees", domain="ai.onnx.ml", **given | changes
    )


def ml_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[str, Sequence[int]]],
    outputs: Mapping[str, str] | None = None,
    *,
    opsets: tuple[int, int] = (18, 3),
    constants: Mapping[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A model of nodes of ai.onnx.ml.

    Args:
        inputs: dtype and shape of each.
        outputs: dtype of each; the last node's, where it is a classifier int64 and float32, unless given.
        opsets: versions of the standard domain, or 0 for none, and of ai.onnx.ml.
        constants: by name.
    """
    if outputs is None:
        names = list(nodes[-1].output)
        outputs = {names[-1]: "float32"} | ({names[0]: "int64"} if len(names) > 1 else {})
    graph = helper.make_graph(
        nodes,
        "classical",
        [helper.make_tensor_value_info(n, ELEMENTS[dtype], shape) for n, (dtype, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, ELEMENTS[dtype], None) for name, dtype in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    known = [("", opsets[0]), ("ai.onnx.ml", opsets[1])]
    return helper.make_model(
        graph, ir_version=9, opset_imports=[helper.make_opsetid(d, v) for d, v in known if v]
    )
