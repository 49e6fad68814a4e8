"""Operators of ai.onnx.ml on numbers: trees, thresholds, chosen features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["array_feature_extractor", "binarizer", "tree_ensemble"]

#: Modes of TreeEnsemble's nodes, by number.
COMPARISONS = ("LessOrEqual", "Less", "GreaterOrEqual", "Greater", "Equal", "NotEqual", "Member")

#: What TreeEnsemble does with the leaves' weights, by number.
AVERAGE, SUM, MIN, MAX = range(4)


def array_feature_extractor(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Chosen elements of the last axis; a vector counts as one row."""
    shape, chosen = editor.shape(node.input[0]), editor.shape(node.input[1])
    if shape is None or chosen is None:
        return None
    rows = editor.reshape(node.input[0], [1, *shape]) if len(shape) == 1 else str(node.input[0])
    return [editor.op("Gather", rows, editor.reshape(node.input[1], [-1]), axis=max(1, len(shape) - 1))]


def binarizer(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """1 where the value is above the threshold, else 0."""
    dtype = editor.dtype(node.input[0])
    threshold = editor.scalar(attributes(node).get("threshold", 0.0), dtype)
    return [editor.cast(editor.op("Greater", node.input[0], threshold), dtype)]


def tree_ensemble(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """All nodes are compared at once; a leaf counts where all comparisons on the way to it agree with it.

    The way to a leaf is a row of a matrix: with the comparisons as 0 and 1, one product says how many agree.
    """
    import numpy as np
    from onnx import numpy_helper

    values = attributes(node)
    shape, dtype = editor.shape(node.input[0]), editor.dtype(node.input[0])
    if shape is None or values.get("post_transform", 0) != 0:
        return None
    splits = numpy_helper.to_array(values["nodes_splits"])
    modes = numpy_helper.to_array(values["nodes_modes"])
    features = np.asarray(values["nodes_featureids"], np.int64)
    members = _member_sets(values)
    weights = numpy_helper.to_array(values["leaf_weights"])
    paths, leaves, trees = _paths(values)
    read = editor.op("Gather", node.input[0], editor.const(features), axis=1)  # rows x nodes
    answers = _answers(editor, read, splits.astype(dtype), modes, members)
    product = editor.op("MatMul", editor.cast(answers, dtype), editor.const(paths.T.astype(dtype)))
    needed = np.maximum(paths, 0).sum(axis=1).astype(dtype)  # of a leaf: so many hold, and none of the others
    reached = editor.op("Equal", product, editor.const(needed))
    return [_combined(editor, reached, weights[leaves].astype(dtype), trees, values, dtype)]


def _member_sets(values: dict[str, Any]) -> list[NDArray[Any]]:
    """Sets of the nodes that ask for membership, in order; NaN ends each."""
    import numpy as np
    from onnx import numpy_helper

    if "membership_values" not in values:
        return []
    flat = numpy_helper.to_array(values["membership_values"])
    ends = np.flatnonzero(np.isnan(flat))
    starts = [0, *(ends[:-1] + 1)]
    return [flat[start:end] for start, end in zip(starts, ends, strict=True)]


def _answers(
    editor: Editor, read: str, splits: NDArray[Any], modes: NDArray[Any], members: list[NDArray[Any]]
) -> str:
    """What every node says of every row: rows x nodes, bool."""
    import numpy as np

    result = ""
    for mode, name in enumerate(COMPARISONS):
        chosen = modes == mode
        if not chosen.any():
            continue
        if name == "Member":
            longest = max(len(values) for values in members)
            table = np.full((longest, len(modes)), np.nan, splits.dtype)
            for index, values in zip(np.flatnonzero(chosen), members, strict=True):
                table[: len(values), index] = values
            held = ""
            for row in table:
                same = editor.op("Equal", read, editor.const(row))
                held = editor.op("Or", held, same) if held else same
        elif name == "NotEqual":
            held = editor.op("Not", editor.op("Equal", read, editor.const(splits)))
        else:
            held = editor.op(name, read, editor.const(splits))
        if not chosen.all():
            held = editor.op("And", held, editor.const(chosen))
        result = editor.op("Or", result, held) if result else held
    return result


def _paths(values: dict[str, Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For each leaf that a tree reaches: what the nodes must say (1, -1, or 0 where they do not count), its
    number, and its tree."""
    import numpy as np

    true_ids, false_ids = values["nodes_truenodeids"], values["nodes_falsenodeids"]
    true_leaf, false_leaf = values["nodes_trueleafs"], values["nodes_falseleafs"]
    paths, leaves, trees = [], [], []
    for tree, root in enumerate(values["tree_roots"]):
        todo = [(root, np.zeros(len(true_ids), np.int64))]
        while todo:
            index, path = todo.pop()
            for sign, target, leaf in (
                (1, true_ids[index], true_leaf[index]),
                (-1, false_ids[index], false_leaf[index]),
            ):
                way = path.copy()
                way[index] = sign
                if leaf:
                    paths.append(way)
                    leaves.append(target)
                    trees.append(tree)
                else:
                    todo.append((target, way))
    return np.asarray(paths), np.asarray(leaves), np.asarray(trees)


def _combined(
    editor: Editor,
    reached: str,
    weights: NDArray[Any],
    trees: NDArray[np.int64],
    values: dict[str, Any],
    dtype: np.dtype[Any],
) -> str:
    """Rows x targets: the weights of the leaves that were reached, added up or compared."""
    import numpy as np

    targets = np.asarray(values["leaf_targetids"])
    count, how = values["n_targets"], values.get("aggregate_function", SUM)
    # weights and targets lie side by side for the leaves that the paths end at
    spread = np.zeros((len(weights), count), dtype)
    owner = targets[_leaf_order(values)]
    spread[np.arange(len(weights)), owner] = weights
    if how in (SUM, AVERAGE):
        total = editor.op("MatMul", editor.cast(reached, dtype), editor.const(spread))
        if how == SUM:
            return total
        return editor.op("Div", total, editor.scalar(float(trees.max() + 1), dtype))
    worst = np.finfo(dtype).max if how == MIN else np.finfo(dtype).min
    open_ = np.full((len(weights), count), worst, dtype)
    open_[np.arange(len(weights)), owner] = weights
    each = editor.op(
        "Where",
        editor.op("Unsqueeze", reached, editor.const(np.asarray([2], np.int64))),
        editor.const(open_),
        editor.scalar(float(worst), dtype),
    )
    return editor.op(
        "Squeeze",
        editor.reduce("ReduceMin" if how == MIN else "ReduceMax", each, 1),
        editor.const(np.asarray([1], np.int64)),
    )


def _leaf_order(values: dict[str, Any]) -> NDArray[np.int64]:
    """Numbers of the leaves in the order of :func:`_paths`."""
    return _paths(values)[1]
