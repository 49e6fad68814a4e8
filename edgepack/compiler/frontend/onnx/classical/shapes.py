"""Shapes and types of the results of ai.onnx.ml's operators, of which ONNX infers few."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.classical.texts import DOMAIN
from edgepack.compiler.frontend.onnx.shapes import infer_shapes, static_shape

if TYPE_CHECKING:
    import onnx

__all__ = ["declare_results"]

_SAME = {"Binarizer", "Imputer", "LabelEncoder", "Normalizer", "Scaler"}
_CLASSIFIERS = {"LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"}


def declare_results(model: onnx.ModelProto) -> None:
    """Declares what these operators give, in place, as far as the shapes of their operands are known."""
    import onnx

    graph = model.graph
    waiting = [node for node in graph.node if node.domain == DOMAIN]
    if not waiting:
        return
    # Trees have millions of numbers, which inference would copy each time.
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(_bare(model))
    while waiting:
        inferred = infer_shapes(skeleton).graph
        values = {v.name: v for v in (*inferred.value_info, *inferred.input, *inferred.output)}
        shapes = {name: static_shape(value) for name, value in values.items()}
        shapes |= {t.name: tuple(t.dims) for t in graph.initializer}
        types = {name: value.type.tensor_type.elem_type for name, value in values.items()}
        types |= {t.name: t.data_type for t in graph.initializer}
        ready = [n for n in waiting if all(shapes.get(name) is not None for name in n.input)]
        if not ready:
            return
        for node in ready:
            for name, (element, shape) in zip(node.output, _results(node, shapes, types), strict=False):
                value = onnx.helper.make_tensor_value_info(name, element, shape)
                for where in (graph, skeleton.graph):
                    where.value_info.append(value)
        names = {id(node) for node in ready}
        waiting = [node for node in waiting if id(node) not in names]


def _bare(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without ai.onnx.ml's operators, and without large constants."""
    import onnx

    from edgepack.compiler.frontend.onnx.shapes import INFERENCE_LIMIT

    bare = onnx.ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import)
    graph, source = bare.graph, model.graph
    graph.name = source.name
    graph.node.extend(node for node in source.node if node.domain != DOMAIN)
    constants = {tensor.name for tensor in source.initializer}
    graph.input.extend(value for value in source.input if value.name not in constants)
    for tensor in source.initializer:
        if prod(tensor.dims) <= INFERENCE_LIMIT:
            graph.initializer.append(tensor)
        else:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    graph.value_info.extend(source.value_info)
    graph.output.extend(source.output)
    return bare


def _results(
    node: onnx.NodeProto, shapes: dict[str, Any], types: dict[str, int]
) -> list[tuple[int, tuple[int, ...]]]:
    """Element type and shape of each output."""
    import onnx

    given = {one.name: one for one in node.attribute}
    number, decimal = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
    shape = shapes[node.input[0]]
    element = types.get(node.input[0], decimal)
    rows = shape[0] if len(shape) > 1 else 1
    if node.op_type in _CLASSIFIERS:
        return [(number, (rows,)), (decimal, (rows, _classes(node.op_type, given)))]
    if node.op_type in _SAME:
        if node.op_type == "LabelEncoder":
            element = _encoded(given, element)
        return [(decimal if node.op_type in ("Normalizer", "Scaler") else element, shape)]
    if node.op_type == "OneHotEncoder":
        return [(decimal, (*shape, len(given["cats_int64s"].ints) if "cats_int64s" in given else 0))]
    if node.op_type == "FeatureVectorizer":
        return [(decimal, (rows, sum(given["inputdimensions"].ints)))]
    if node.op_type == "ArrayFeatureExtractor":
        outer = shape[:-1] if len(shape) > 1 else (1,)
        return [(element, (*outer, prod(shapes[node.input[1]])))]
    if node.op_type == "TreeEnsemble":
        return [(element, (rows, given["n_targets"].i if "n_targets" in given else 1))]
    name = {"LinearRegressor": "targets", "TreeEnsembleRegressor": "n_targets"}.get(node.op_type)
    columns = given[name].i if name in given else 1
    return [(decimal, (rows, columns))]


def _classes(op_type: str, given: dict[str, Any]) -> int:
    """Columns of a classifier's scores."""
    lists = [given[name] for name in ("classlabels_int64s", "classlabels_ints") if name in given]
    labels = len(lists[0].ints) if lists else 0
    if op_type == "LinearClassifier" and "intercepts" in given:
        columns = len(given["intercepts"].floats)
        return 2 if columns == 1 and labels == 2 else columns
    pairs = labels * (labels - 1) // 2
    vectors = sum(given["vectors_per_class"].ints) if "vectors_per_class" in given else 0
    if op_type == "SVMClassifier" and vectors and "prob_a" not in given and labels > 2:
        return pairs
    return labels


def _encoded(given: dict[str, Any], element: int) -> int:
    """Element type of a LabelEncoder's values."""
    import onnx

    if "values_tensor" in given:
        return int(given["values_tensor"].t.data_type)
    if "values_floats" in given:
        return int(onnx.TensorProto.FLOAT)
    return int(onnx.TensorProto.INT64) if "values_int64s" in given else element
