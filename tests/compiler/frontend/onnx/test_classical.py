"""Operators of ai.onnx.ml but trees compute what ONNX Runtime computes, or are refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.frontend.onnx.classical.texts import with_numbers
from edgepack.compiler.frontend.onnx.frontend import load, prepare, record
from edgepack.compiler.frontend.onnx.onnxruntime_session import create_session
from edgepack.compiler.frontend.onnx.summary import summarise
from edgepack.compiler.frontend.onnx.support import RefusedNodesError
from workbench.compiled import Compiled, assert_close
from workbench.models.classical import forest, ml_model, old_ensemble

ROWS, FEATURES = 7, 5
NUMBERS = np.random.default_rng(3).normal(size=400).astype(np.float32)
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _of(
    op_type: str,
    *,
    dtype: str = "float32",
    shape: Sequence[int] = (ROWS, FEATURES),
    out: str = "float32",
    version: int = 3,
    **attributes: Any,
) -> onnx.ModelProto:
    outputs = ["label", "y"] if op_type.endswith("Classifier") else ["y"]
    node = helper.make_node(op_type, ["x"], outputs, name="node", domain="ai.onnx.ml", **attributes)
    types = {"y": out} | ({"label": "int64"} if len(outputs) > 1 else {})
    return ml_model([node], {"x": (dtype, shape)}, types, opsets=(18, version))


def _linear(op_type: str, columns: int, **more: Any) -> onnx.ModelProto:
    given: dict[str, Any] = {
        "coefficients": NUMBERS[: columns * FEATURES] / 8,
        "intercepts": 0.5 + NUMBERS[100 : 100 + columns] / 16,
    }
    given |= (
        {"targets": columns} if op_type == "LinearRegressor" else {"classlabels_ints": list(range(columns))}
    )
    return _of(op_type, **given | more)


#: What an SVM's kernels take: gamma, coef0, degree.
KERNELS = {
    "LINEAR": [0.3, 0.1, 3.0],
    "POLY": [0.3, 1.5, 3.0],
    "RBF": [0.3, 0.0, 3.0],
    "SIGMOID": [0.2, 0.1, 3.0],
}


def _svc(classes: int, kernel: str = "RBF", *, proba: bool = False, **more: Any) -> onnx.ModelProto:
    counts = [4, 2, 3, 1][:classes]
    total, pairs = sum(counts), classes * (classes - 1) // 2
    given: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": KERNELS[kernel],
        "support_vectors": NUMBERS[: total * FEATURES],
        "vectors_per_class": counts,
        "coefficients": NUMBERS[200 : 200 + (classes - 1) * total],
        "rho": NUMBERS[300 : 300 + pairs],
        "classlabels_ints": [5, 3, 9, 0][:classes],
    }
    if proba:
        given |= {"prob_a": -np.abs(NUMBERS[310 : 310 + pairs]) - 0.5, "prob_b": NUMBERS[330 : 330 + pairs]}
    return _of("SVMClassifier", **given | more)


def _svr(kernel: str, **more: Any) -> onnx.ModelProto:
    given: dict[str, Any] = {
        "kernel_type": kernel,
        "kernel_params": KERNELS[kernel],
        "support_vectors": NUMBERS[: 6 * FEATURES],
        "coefficients": NUMBERS[100:106],
        "n_supports": 6,
        "rho": [0.25],
    }
    return _of("SVMRegressor", **given | more)


def _extracted() -> onnx.ModelProto:
    """Shapes that ONNX does not infer, one behind the other."""
    scaled = helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[0.5], scale=[2.0])
    chosen = helper.make_node("ArrayFeatureExtractor", ["s", "places"], ["c"], domain="ai.onnx.ml")
    both = helper.make_node("Concat", ["c", "s"], ["b"], axis=1)
    normal = helper.make_node("Normalizer", ["b"], ["n"], domain="ai.onnx.ml", norm="L2")
    made = helper.make_node(
        "LinearRegressor", ["n"], ["y"], domain="ai.onnx.ml", targets=1, coefficients=NUMBERS[: FEATURES + 2]
    )
    places = {"places": np.asarray([3, 1])}
    nodes = [scaled, chosen, both, normal, made]
    return ml_model(nodes, {"x": ("float32", [ROWS, FEATURES])}, constants=places)


def _joined(dtype: str) -> onnx.ModelProto:
    node = helper.make_node(
        "FeatureVectorizer", ["a", "b", "c"], ["y"], domain="ai.onnx.ml", inputdimensions=[4, 2, 3]
    )
    given = {"a": (dtype, [3, 3]), "b": (dtype, [3, 2]), "c": (dtype, [3, 5])}
    return ml_model([node], given)


def _tensors(keys: Any, values: Any, default: Any) -> dict[str, onnx.TensorProto]:
    named = {"keys_tensor": keys, "values_tensor": values, "default_tensor": default}
    return {name: numpy_helper.from_array(np.asarray(value)) for name, value in named.items()}


CASES: dict[str, Callable[[], onnx.ModelProto]] = {
    **{
        f"scaler_{t}": lambda t=t: _of("Scaler", dtype=t, offset=NUMBERS[:5], scale=NUMBERS[5:10])
        for t in ("float32", "float64", "int64")
    },
    "scaler_one": lambda: _of("Scaler", offset=[0.5], scale=[2.0]),
    "scaler_vector": lambda: _of("Scaler", shape=[4], offset=NUMBERS[:4], scale=NUMBERS[5:9]),
    **{f"normalizer_{n}": lambda n=n: _of("Normalizer", norm=n) for n in ("MAX", "L1", "L2")},
    "normalizer_double": lambda: _of("Normalizer", dtype="float64", norm="L2"),
    "normalizer_int64": lambda: _of("Normalizer", dtype="int64", norm="L1"),
    "normalizer_vector": lambda: _of("Normalizer", shape=[4], norm="L1"),
    "imputer_nan": lambda: _of(
        "Imputer", imputed_value_floats=NUMBERS[:5], replaced_value_float=float("nan")
    ),
    "imputer_one": lambda: _of("Imputer", imputed_value_floats=[9.0], replaced_value_float=1.0),
    "imputer_int64": lambda: _of(
        "Imputer", dtype="int64", out="int64", imputed_value_int64s=[1, 2, 3, 4, 5], replaced_value_int64=2
    ),
    "one_hot_int64": lambda: _of("OneHotEncoder", dtype="int64", cats_int64s=[2, 0, -1], zeros=1),
    "one_hot_float32": lambda: _of("OneHotEncoder", cats_int64s=[2, 0, -1], zeros=1),
    "one_hot_vector": lambda: _of("OneHotEncoder", shape=[6], cats_int64s=[2, 0], zeros=1),
    "encoder_ints": lambda: _of(
        "LabelEncoder", dtype="int64", out="int64", keys_int64s=[2, -1, 2], values_int64s=[7, 8, 9]
    ),
    "encoder_ints_floats": lambda: _of(
        "LabelEncoder", dtype="int64", keys_int64s=[2, 0], values_floats=[0.5, 2.5], default_float=-1.5
    ),
    **{
        f"encoder_floats_ints_{v}": lambda v=v: _of(
            "LabelEncoder",
            out="int64",
            version=v,
            keys_floats=[2.0, float("nan")],
            values_int64s=[7, 8],
            default_int64=3,
        )
        for v in (3, 4)
    },
    "encoder_doubles": lambda: _of(
        "LabelEncoder", dtype="float64", out="float64", version=4, **_tensors([2.0, 1.0], [0.5, 0.25], [9.0])
    ),
    "binarizer": lambda: _of("Binarizer", threshold=0.25),
    "extracted": _extracted,
    **{f"joined_{t}": lambda t=t: _joined(t) for t in ("float32", "float64", "int64")},
    **{
        f"regressor_{t.lower()}": lambda t=t: _linear("LinearRegressor", 3, post_transform=t)
        for t in TRANSFORMS[:4]
    },
    "regressor_one": lambda: _linear("LinearRegressor", 1),
    "regressor_vector": lambda: _linear("LinearRegressor", 2, shape=[FEATURES]),
    **{
        f"classifier_{t.lower()}": lambda t=t: _linear("LinearClassifier", 3, post_transform=t)
        for t in TRANSFORMS[:4]
    },
    "classifier_labels": lambda: _linear("LinearClassifier", 3, classlabels_ints=[4, -2, 9]),
    "classifier_double": lambda: _linear("LinearClassifier", 3, dtype="float64"),
    "classifier_int64": lambda: _linear("LinearClassifier", 3, dtype="int64"),
    "classifier_binary": lambda: _linear("LinearClassifier", 1, classlabels_ints=[4, 7]),
    "classifier_binary_logistic": lambda: _linear(
        "LinearClassifier", 1, classlabels_ints=[4, 7], post_transform="LOGISTIC"
    ),
    **{f"svr_{k.lower()}": lambda k=k: _svr(k) for k in KERNELS},
    "svr_square": lambda: _svr("POLY", kernel_params=[0.3, 1.5, 2.0]),
    "svr_one_class": lambda: _svr("RBF", one_class=1),
    "svr_linear_model": lambda: _of(
        "SVMRegressor", n_supports=0, kernel_params=[0.0] * 3, coefficients=NUMBERS[:FEATURES], rho=[0.5]
    ),
    **{f"svc_{k.lower()}": lambda k=k: _svc(3, k) for k in KERNELS},
    **{
        f"svc_two_{t.lower()}": lambda t=t: _svc(2, post_transform=t) for t in ("NONE", "LOGISTIC", "SOFTMAX")
    },
    **{f"svc_proba_{n}": lambda n=n: _svc(n, proba=True) for n in (2, 3, 4)},
    "svc_softmax": lambda: _svc(4, post_transform="SOFTMAX"),
    "svc_double": lambda: _svc(3, dtype="float64"),
    "svc_int64": lambda: _svc(3, dtype="int64"),
    "svc_linear_model": lambda: _of(
        "SVMClassifier",
        kernel_params=[0.0] * 3,
        coefficients=NUMBERS[: 3 * FEATURES],
        rho=[0.25],
        classlabels_ints=[4, 2, 8],
    ),
    "svc_linear_model_two": lambda: _of(
        "SVMClassifier",
        kernel_params=[0.0] * 3,
        coefficients=NUMBERS[: 2 * FEATURES],
        rho=[0.25],
        classlabels_ints=[4, 2],
    ),
    "no_standard_domain": lambda: ml_model(
        [old_ensemble("TreeEnsembleRegressor", forest(3, 3, FEATURES), n_targets=1)],
        {"x": ("float32", [ROWS, FEATURES])},
        opsets=(0, 1),
    ),
}


def _numbered(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without texts, as it is opened."""
    with_numbers(model)
    return model


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {name: _numbered(make()) for name, make in CASES.items()}
    return Compiled(models, tmp_path_factory.mktemp("classical"))


def _inputs(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Small numbers, integers among them; where something is filled in, NaN too."""
    rng, found = np.random.default_rng(1), {}
    fills = any(node.op_type in ("Imputer", "LabelEncoder") for node in model.graph.node)
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        whole = rng.integers(-2, 4, shape)
        x = np.where(rng.random(shape) < 0.5, whole, rng.normal(size=shape)) if dtype != np.int64 else whole
        found[value.name] = (
            np.where((rng.random(shape) < 0.2) & fills, np.nan, x) if fills and dtype != np.int64 else x
        )
        found[value.name] = found[value.name].astype(dtype)
    return found


@pytest.mark.parametrize("name", CASES)
def test_operators_compute_what_onnxruntime_computes(compiled: Compiled, name: str) -> None:
    model = compiled.models[name]
    inputs = _inputs(model)
    assert_close(model, compiled.run(name, inputs), compiled.expected(name, inputs))


def test_a_row_of_zeros_is_not_divided(tmp_path: Path) -> None:
    model = _of("Normalizer", norm="L2", shape=[2, 3])
    got = Compiled({"m": model}, tmp_path).run("m", {"x": np.asarray([[0, 0, 0], [3, 0, 4]], np.float32)})
    np.testing.assert_allclose(got["y"], [[0, 0, 0], [0.6, 0, 0.8]])


# Texts and maps --------------------------------------------------------------------------------------------


def _zip_map(scores: str, **labels: Any) -> onnx.NodeProto:
    return helper.make_node("ZipMap", [scores], ["maps"], domain="ai.onnx.ml", **labels)


def _with_maps(classifier: onnx.NodeProto, labels: dict[str, Any]) -> onnx.ModelProto:
    """A classifier whose label is text, and whose scores are maps."""
    model = ml_model(
        [classifier, _zip_map("y", **labels)], {"x": ("float32", [2, FEATURES])}, {"maps": "float32"}
    )
    graph = model.graph
    graph.output.insert(0, helper.make_tensor_value_info("label", TensorProto.STRING, None))
    value = helper.make_map_type_proto(
        TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
    graph.output[1].CopyFrom(helper.make_value_info("maps", helper.make_sequence_type_proto(value)))
    return model


TEXTS = ["ab", "cd", "ef"]


def _text_classifiers() -> dict[str, onnx.ModelProto]:
    trees = old_ensemble(
        "TreeEnsembleClassifier", forest(4, 3, FEATURES, targets=[range(3)]), classlabels_strings=TEXTS
    )
    (linear,) = _linear("LinearClassifier", 3, classlabels_strings=TEXTS).graph.node
    (svm,) = _svc(3, classlabels_strings=TEXTS, proba=True).graph.node
    for node in (linear, svm):
        kept = [one for one in node.attribute if one.name != "classlabels_ints"]
        del node.attribute[:]
        node.attribute.extend(kept)
    return {node.op_type: _with_maps(node, {"classlabels_strings": TEXTS}) for node in (trees, linear, svm)}


@pytest.mark.parametrize("name", ["TreeEnsembleClassifier", "LinearClassifier", "SVMClassifier"])
def test_texts_are_indices_and_maps_are_scores(tmp_path: Path, name: str) -> None:
    model = _text_classifiers()[name]
    x = np.random.default_rng(0).normal(size=(2, FEATURES)).astype(np.float32)
    labels, maps = create_session(model).run(["label", "maps"], {"x": x})
    told = with_numbers(model)
    assert told == (
        "Output 'label' is text in the model, and an index here: 0 ab, 1 cd, 2 ef.",
        "Output 'maps' is the tensor of scores that ZipMap reads; its columns are ab, cd, ef.",
    )
    got = Compiled({"m": model}, tmp_path).run("m", {"x": x})
    assert [TEXTS[i] for i in got["label"]] == list(labels)
    np.testing.assert_allclose(
        got["maps"], [[row[text] for text in TEXTS] for row in maps], rtol=1e-4, atol=1e-6
    )


def test_texts_that_are_chosen_by_an_index_are_indices(tmp_path: Path) -> None:
    """As scikit-learn's networks give their classes."""
    best = helper.make_node("ArgMax", ["x"], ["i"], axis=1, keepdims=0)
    chosen = helper.make_node("ArrayFeatureExtractor", ["words", "i"], ["c"], domain="ai.onnx.ml")
    cast = helper.make_node("Cast", ["c"], ["d"], to=TensorProto.STRING)
    flat = helper.make_node("Reshape", ["d", "shape"], ["label"])
    constants = {"words": np.asarray(TEXTS, object), "shape": np.asarray([-1])}
    model = ml_model(
        [best, chosen, cast, flat], {"x": ("float32", [4, 3])}, {"label": "int64"}, constants=constants
    )
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    assert with_numbers(model) == (
        "Output 'label' is text in the model, and an index here: 0 ab, 1 cd, 2 ef.",
    )
    x = np.eye(3, dtype=np.float32)[[2, 0, 1, 1]]
    assert list(Compiled({"m": model}, tmp_path).run("m", {"x": x})["label"]) == [2, 0, 1, 1]


@pytest.mark.parametrize("version", [1, 2])
def test_numbers_that_become_texts_become_indices(tmp_path: Path, version: int) -> None:
    texts = (
        {"classes_strings": TEXTS} if version == 1 else {"keys_int64s": [0, 1, 2], "values_strings": TEXTS}
    )
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", default_string="none", **texts)
    model = ml_model([node], {"x": ("int64", [4])}, {"y": "int64"}, opsets=(18, version))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    (told,) = with_numbers(model)
    assert told.endswith("0 ab, 1 cd, 2 ef, 3 none.")
    got = Compiled({"m": model}, tmp_path).run("m", {"x": np.asarray([2, 0, 7, 1])})
    assert list(got["y"]) == [2, 0, 3, 1]


def test_what_becomes_of_texts_is_told_when_a_model_is_packed(tmp_path: Path) -> None:
    file = tmp_path / "classifier.onnx"
    onnx.save(_text_classifiers()["TreeEnsembleClassifier"], file)
    assert not summarise(file).unsupported
    told = prepare(file, ImportOptions(), tmp_path)
    assert told[0].startswith("Output 'label' is text in the model") and len(told) == 2
    record(file, ImportOptions(), tmp_path, seed=0, inputs={})
    assert [spec.dtype for spec in load(tmp_path).signature.outputs] == ["int64", "float32"]


# Refusals --------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "scales": (lambda: _of("Scaler", offset=NUMBERS[:3], scale=NUMBERS[:3]), "3 scales for 5 features"),
    "offsets": (lambda: _of("Scaler", offset=NUMBERS[:5], scale=NUMBERS[:4]), "4 scale, and 5 offset"),
    "norm": (lambda: _of("Normalizer", norm="L3"), "the norm 'L3'"),
    "imputed": (lambda: _of("Imputer", imputed_value_int64s=[1]), "no imputed_value_floats"),
    "keys": (
        lambda: _of("LabelEncoder", out="int64", keys_floats=[1.0], values_int64s=[1, 2]),
        "1 keys, and 2 values",
    ),
    "coefficients": (
        lambda: _linear("LinearRegressor", 2, coefficients=NUMBERS[:9]),
        "9 coefficients for 2 columns",
    ),
    "intercepts": (lambda: _linear("LinearRegressor", 2, intercepts=NUMBERS[:3]), "3 intercepts"),
    "labels": (lambda: _linear("LinearClassifier", 3, classlabels_ints=[1, 2]), "2 labels for 3 columns"),
    "transform": (lambda: _linear("LinearRegressor", 2, post_transform="HALF"), "'HALF'"),
    "vectors": (lambda: _svr("RBF", support_vectors=NUMBERS[:7]), "7 numbers for 6 support vectors"),
    "kernel": (lambda: _svr("RBF", kernel_type="WAVE"), "'WAVE'"),
    "pairs": (lambda: _svc(3, rho=[0.5]), "1 rho for 3 pairs"),
    "prob": (lambda: _svc(3, prob_a=[0.5], prob_b=[0.5]), "1 prob_a"),
    "per_class": (lambda: _svc(3, vectors_per_class=[4, 5]), "2 vectors_per_class"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_attributes_that_do_not_fit_are_refused(name: str) -> None:
    make, said = REFUSED[name]
    with pytest.raises(RefusedNodesError) as info:
        import_model(make())
    assert info.value.message.startswith("The ") and "cannot be compiled: it has" in info.value.message
    assert said in info.value.message and info.value.hint
