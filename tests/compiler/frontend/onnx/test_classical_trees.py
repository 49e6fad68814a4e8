"""Decision trees compute what ONNX Runtime computes; trees that are none are refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.frontend.onnx.classical.tables import intervals, keys_of
from edgepack.compiler.frontend.onnx.support import RefusedNodesError
from workbench.compiled import Compiled, Library, assert_close, on_register_files, target_with
from workbench.models.classical import GRID, Forest, forest, ml_model, modern_ensemble, old_ensemble

FEATURES = 5
ALL_MODES = tuple(f"BRANCH_{mode}" for mode in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ"))
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _regressor(
    rows: int = 5, *, dtype: str = "float32", targets: int = 1, trees: Forest | None = None, **more: Any
) -> onnx.ModelProto:
    made = trees or forest(11, 4, FEATURES, targets=[range(targets)])
    node = old_ensemble("TreeEnsembleRegressor", made, double=dtype == "float64", n_targets=targets, **more)
    return ml_model([node], {"x": (dtype, [rows, FEATURES])})


def _classifier(
    rows: int = 6, *, classes: int = 3, dtype: str = "float32", trees: Forest | None = None, **more: Any
) -> onnx.ModelProto:
    made = trees or forest(9, 4, FEATURES, targets=[range(classes)], positive=True)
    more = {"classlabels_int64s": list(range(classes))} | more
    node = old_ensemble("TreeEnsembleClassifier", made, double=dtype == "float64", **more)
    return ml_model([node], {"x": (dtype, [rows, FEATURES])})


def _modern(dtype: str = "float32", **changes: Any) -> onnx.ModelProto:
    return ml_model(
        [modern_ensemble(dtype, **changes)], {"x": (dtype, [40, 3])}, {"y": dtype}, opsets=(18, 5)
    )


def _one(targets: int, **more: Any) -> Forest:
    """Trees each of which has weights for one target."""
    return forest(7, 3, FEATURES, targets=[[t] for t in range(targets)], **more)


#: Whose scores lie between 0 and 1, as PROBIT wants.
SMALL = forest(1, 3, FEATURES, targets=[range(3)], positive=True)

CASES: dict[str, Callable[[], onnx.ModelProto]] = {
    "one_row": lambda: _regressor(1),
    "blocks_of_rows": lambda: _regressor(150),
    "rows_of_one_block": lambda: _regressor(16),
    "few_trees": lambda: _regressor(3, trees=forest(2, 5, FEATURES)),
    "leaf_alone": lambda: _regressor(trees=forest(3, 0, FEATURES)),
    "deep": lambda: _regressor(9, trees=forest(2, 11, FEATURES, seed=3)),
    "all_modes": lambda: _regressor(40, trees=forest(12, 5, FEATURES, modes=ALL_MODES)),
    "missing": lambda: _regressor(40, trees=forest(12, 5, FEATURES, modes=ALL_MODES, tracks=True)),
    "missing_leq": lambda: _regressor(40, trees=forest(12, 5, FEATURES, tracks=True)),
    "double": lambda: _regressor(40, dtype="float64", trees=forest(12, 5, FEATURES, tracks=True)),
    "double_rows": lambda: _regressor(targets=3, dtype="float64"),
    "targets_of_trees": lambda: _regressor(targets=3, trees=_one(3)),
    "targets_without_trees": lambda: _regressor(targets=5, trees=_one(3)),
    "base": lambda: _regressor(base_values=[0.5]),
    "bases": lambda: _regressor(targets=3, base_values=[0.5, -1.0, 2.0]),
    **{
        f"{how.lower()}_{targets}": lambda how=how, targets=targets: _regressor(
            targets=targets, aggregate_function=how
        )
        for how in ("AVERAGE", "MIN", "MAX")
        for targets in (1, 3)
    },
    "min_of_trees": lambda: _regressor(targets=4, trees=_one(3), aggregate_function="MIN"),
    **{
        f"regressor_{name.lower()}": lambda name=name: _regressor(targets=3, trees=SMALL, post_transform=name)
        for name in TRANSFORMS
    },
    "regressor_probit_1": lambda: _regressor(
        trees=forest(1, 3, FEATURES, positive=True), post_transform="PROBIT"
    ),
    "regressor_logistic_1": lambda: _regressor(post_transform="LOGISTIC"),
    **{
        f"classifier_{name.lower()}": lambda name=name: _classifier(trees=SMALL, post_transform=name)
        for name in TRANSFORMS
    },
    "labels": lambda: _classifier(70, classlabels_int64s=[7, -3, 20]),
    "classes_of_trees": lambda: _classifier(70, trees=_one(3)),
    "classes_and_bases": lambda: _classifier(trees=_one(3), base_values=[0.5, -1.0, 2.0]),
    "classes_without_weights": lambda: _classifier(40, classes=4, trees=_one(3)),
    "classes_of_some_leaves": lambda: _classifier(
        40, classes=4, trees=forest(2, 3, FEATURES, targets=[[0, 2], [1]], seed=5)
    ),
    "classifier_double": lambda: _classifier(40, dtype="float64"),
    "classifier_int64": lambda: _classifier(dtype="int64"),
    "one_class": lambda: _classifier(classes=1),
    "binary_both": lambda: _classifier(40, classes=2, classlabels_int64s=[4, 9]),
    **{
        f"binary_{sign}_{target}_{name.lower()}": lambda sign=sign, target=target, name=name: _classifier(
            40,
            classes=2,
            trees=forest(2, 4, FEATURES, targets=[[target]], positive=sign == "positive", seed=4),
            post_transform=name,
            classlabels_int64s=[4, 9],
        )
        for sign in ("positive", "mixed")
        for target in (0, 1)
        for name in ("NONE", "LOGISTIC", "SOFTMAX")
    },
    "binary_base": lambda: _classifier(
        40, classes=2, trees=_one(1), base_values=[0.25], post_transform="LOGISTIC"
    ),
    "binary_bases": lambda: _classifier(40, classes=2, trees=_one(1), base_values=[0.25, 0.5]),
    "binary_both_bases": lambda: _classifier(40, classes=2, base_values=[0.25, 0.5]),
    "modern": _modern,
    "modern_double": lambda: _modern("float64"),
    "modern_average": lambda: _modern(aggregate_function=0),
    "modern_min": lambda: _modern(aggregate_function=2),
    "modern_max": lambda: _modern(aggregate_function=3),
    "modern_softmax": lambda: _modern(post_transform=1),
}

PAIRS = on_register_files(CASES, ["blocks_of_rows"], swept=("scalar", "512x32"), both=["missing", "one_row"])


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(
        {name: make() for name, make in CASES.items()}, PAIRS, tmp_path_factory.mktemp("trees"), target_with
    )


def _inputs(model: onnx.ModelProto, seed: int = 1) -> dict[str, np.ndarray]:
    """Numbers that thresholds are too, and others, with NaN, infinities and the least of all numbers."""
    (value,) = model.graph.input
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    rng = np.random.default_rng(seed)
    if dtype == np.int64:
        return {value.name: rng.integers(-3, 4, shape)}
    x = np.where(rng.random(shape) < 0.6, rng.choice(GRID, shape), rng.normal(size=shape)).astype(dtype)
    rare = np.asarray([np.nan, np.inf, -np.inf], dtype)
    return {value.name: np.where(rng.random(shape) < 0.1, rng.choice(rare, shape), x)}


@pytest.mark.parametrize(("registers", "name"), PAIRS)
def test_trees_compute_what_onnxruntime_computes(compiled: Library, registers: str, name: str) -> None:
    library = compiled(registers)
    inputs = _inputs(library.models[name])
    assert_close(library.models[name], library.run(name, inputs), library.expected(name, inputs))


def test_more_features_than_16_bits_hold(tmp_path: Path) -> None:
    trees = forest(3, 4, 70_000)
    node = old_ensemble("TreeEnsembleRegressor", trees, n_targets=1)
    model = ml_model([node], {"x": ("float32", [2, 70_000])})
    library = Compiled({"wide": model}, tmp_path)
    inputs = _inputs(model)
    assert_close(model, library.run("wide", inputs), library.expected("wide", inputs))


def test_keys_are_ordered_as_numbers_are() -> None:
    for dtype in (np.float32, np.float64):
        numbers = np.asarray([-np.inf, -1, -1e-40, -0.0, 0.0, 1e-40, 1, np.inf], dtype)
        keys = keys_of(numbers)
        assert (np.diff(keys)[[0, 1, 2, 4, 5, 6]] > 0).all() and keys[3] == keys[4] == 0
        assert keys_of(np.asarray([np.nan], dtype))[0] == np.iinfo(keys.dtype).max


@pytest.mark.parametrize("mode", ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER"])
def test_intervals_say_what_the_mode_asks(mode: str) -> None:
    members = np.asarray([1.0, -2.0, np.nan, np.nextafter(np.float32(1), np.float32(2))], np.float32)
    values = members if mode == "MEMBER" else members[:1]
    asked = {
        "LEQ": "__le__",
        "LT": "__lt__",
        "GTE": "__ge__",
        "GT": "__gt__",
        "EQ": "__eq__",
        "NEQ": "__ne__",
    }
    bounds, answers = intervals(mode, values)
    for x in np.asarray([-3, -2, 0, 1, members[3], 2], np.float32):
        wanted = x in members if mode == "MEMBER" else getattr(x, asked[mode])(members[0])
        place = np.searchsorted(bounds, int(keys_of(np.asarray([x]))[0]))
        assert answers[int(place)] == wanted, x


def _damaged(change: Callable[[Forest], object]) -> onnx.ModelProto:
    trees = forest(2, 3, FEATURES)
    change(trees)
    return _regressor(trees=trees)


def _chain(depth: int) -> Forest:
    """A tree each of whose nodes has a leaf as its true branch."""
    trees = forest(1, 0, FEATURES)
    for level in range(depth):
        leaf, other = 2 * level + 1, 2 * level + 2
        trees.modes[-1], trees.true_ids[-1], trees.false_ids[-1] = "BRANCH_LEQ", leaf, other
        for node in (leaf, other):
            trees.trees.append(0)
            trees.ids.append(node)
            trees.modes.append("LEAF")
            for numbers in (trees.features, trees.values, trees.true_ids, trees.false_ids, trees.tracks):
                numbers.append(0)
            trees.weights.append((0, node, 0, float(node)))
    return trees


def _without_nodes() -> onnx.ModelProto:
    model = _regressor()
    (node,) = model.graph.node
    kept = [one for one in node.attribute if not one.name.startswith(("nodes_", "target_"))]
    del node.attribute[:]
    node.attribute.extend(kept)
    return model


def _set(name: str, at: int, value: Any) -> Callable[[Forest], object]:
    return lambda trees: getattr(trees, name).__setitem__(at, value)


REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "lengths": (lambda: _damaged(lambda t: t.values.pop()), "nodes_values"),
    "modes": (lambda: _damaged(_set("modes", 0, "BRANCH_ODD")), "'BRANCH_ODD'"),
    "tracks": (lambda: _damaged(lambda t: t.tracks.pop()), "nodes_missing_value_tracks_true"),
    "next_node": (lambda: _damaged(_set("true_ids", 0, 99)), "node 99 of tree 0, which does not exist"),
    "weight": (lambda: _damaged(_set("weights", 0, (5, 0, 0, 1.0))), "of tree 5, which does not exist"),
    "twice": (lambda: _damaged(_set("ids", 1, 0)), "node 0 of tree 0 twice"),
    "itself": (lambda: _damaged(_set("false_ids", 0, 0)), "leads from a node back to itself"),
    "feature": (lambda: _damaged(_set("features", 0, FEATURES)), f"its input has {FEATURES}"),
    "negative_feature": (lambda: _damaged(_set("features", 0, -1)), "reads the feature -1"),
    "target": (lambda: _damaged(_set("weights", 0, (0, 2, 4, 1.0))), "a weight for the target 4"),
    "targets": (lambda: _regressor(targets=0, trees=forest(1, 2, FEATURES)), "has no targets"),
    "bases": (lambda: _regressor(base_values=[1.0, 2.0]), "2 base_values"),
    "aggregate": (lambda: _regressor(aggregate_function="MEDIAN"), "aggregate_function"),
    "empty": (_without_nodes, "has no tree"),
    "deep": (lambda: _regressor(trees=_chain(1001)), "depth 1001"),
    "modern_leaf": (lambda: _modern(nodes_truenodeids=[1, 9, 2, 4, 4]), "the leaf 9, which does not exist"),
    "modern_root": (lambda: _modern(tree_roots=[0, 8]), "tree_roots"),
    "modern_cycle": (lambda: _modern(nodes_falsenodeids=[0, 1, 3, 1, 5]), "back to itself"),
    "modern_shared": (lambda: _modern(nodes_truenodeids=[1, 0, 2, 1, 4]), "belongs to two trees"),
    "modern_sets": (
        lambda: _modern(nodes_modes=onnx.numpy_helper.from_array(np.full(5, 6, np.uint8))),
        "1 sets",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_tree_is_refused(name: str) -> None:
    make, said = REFUSED[name]
    with pytest.raises(
        RefusedNodesError, match=r"The TreeEnsemble\w* node trees cannot be compiled: it"
    ) as info:
        import_model(make())
    assert said in info.value.message
    assert info.value.hint and info.value.message.count(". ") == 0
