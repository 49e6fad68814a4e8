"""LinearClassifier and LinearRegressor, and what stands before them: Scaler and Normalizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.classical.refusals import check_lengths, refuse
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.rewrites.scores import (
    TRANSFORMS,
    as_rows,
    best,
    chosen,
    in_float32,
    label_numbers,
    labels_of,
    probit,
    side_by_side,
    transformed,
)

if TYPE_CHECKING:
    import onnx

__all__ = ["linear_classifier", "linear_regressor", "normalizer", "scaler"]


def transform_of(node: onnx.NodeProto, values: dict[str, Any]) -> str:
    """A node's post transform."""
    name = str(values.get("post_transform", "NONE"))
    if name not in TRANSFORMS:
        refuse(node, f"has the post_transform {name!r}, which ONNX does not know")
    return name


def _products(
    editor: Editor, node: onnx.NodeProto, x: str, features: int, columns: int, intercepts: Sequence[float]
) -> str:
    """x times the coefficients, and the intercepts added: [rows, columns]."""
    import numpy as np

    coefficients = np.asarray(attributes(node).get("coefficients", ()), np.float32)
    if len(coefficients) != columns * features:
        refuse(node, f"has {len(coefficients)} coefficients for {columns} columns of {features} features")
    weights = editor.const(np.ascontiguousarray(coefficients.reshape(columns, features).T))
    product = editor.op("MatMul", x, weights)
    if not len(intercepts):
        return product
    return editor.op("Add", product, editor.const(np.asarray(intercepts, np.float32)))


def linear_regressor(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """[rows, targets], float32."""
    found = as_rows(editor, node.input[0])
    if found is None:
        return None
    x, (_, features) = found
    values = attributes(node)
    targets = int(values.get("targets", 1))
    intercepts = values.get("intercepts", ())
    if targets < 1:
        refuse(node, f"has {targets} targets")
    if len(intercepts) not in (0, targets):
        refuse(node, f"has {targets} targets, and {len(intercepts)} intercepts")
    scores = _products(editor, node, in_float32(editor, x), features, targets, intercepts)
    transform = transform_of(node, values)
    if targets > 1:
        return [transformed(editor, scores, transform)]
    return [probit(editor, scores) if transform == "PROBIT" else scores]


def linear_classifier(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """The label, and the scores, float32."""
    import numpy as np

    found = as_rows(editor, node.input[0])
    if found is None:
        return None
    x, (rows, features) = found
    values = attributes(node)
    labels, intercepts = label_numbers(values), values.get("intercepts", ())
    columns = len(intercepts) or len(values.get("coefficients", ())) // max(features, 1)
    if columns > 1 and len(labels) != columns:
        refuse(node, f"has {len(labels)} labels for {columns} columns of scores")
    if columns < 1:
        refuse(node, "has no coefficients")
    scores = _products(editor, node, in_float32(editor, x), features, columns, intercepts)
    transform = transform_of(node, values)
    if columns > 1:
        label = labels_of(editor, best(editor, scores), values)
        return [label, editor.op("Identity", transformed(editor, scores, transform))]
    no, yes = labels if len(labels) == 2 else (0, 1)
    zero = editor.scalar(0.0, np.dtype(np.float32))
    label = chosen(editor, editor.op("Greater", scores, zero), yes, no, rows)
    if len(labels) != 2:
        return [label, probit(editor, scores) if transform == "PROBIT" else editor.op("Identity", scores)]
    if transform == "PROBIT":
        refuse(node, "has the post_transform PROBIT for one column of scores of two classes")
    if transform == "LOGISTIC":
        pair = editor.op("Sigmoid", editor.op("Neg", scores)), editor.op("Sigmoid", scores)
        return [label, side_by_side(editor, *pair)]
    one = editor.scalar(1.0, np.dtype(np.float32))
    return [label, side_by_side(editor, editor.op("Sub", one, scores), scores)]


def scaler(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """(x - offset) * scale, float32."""
    import numpy as np

    shape = editor.shape(node.input[0])
    if shape is None or not shape:
        return None
    values = attributes(node)
    offset, scale = (np.asarray(values.get(name, ()), np.float32) for name in ("offset", "scale"))
    check_lengths(node, {"scale": scale, "offset": offset})
    stride = shape[0] if len(shape) == 1 else shape[1]
    if len(scale) not in (1, stride):
        refuse(node, f"has {len(scale)} scales for {stride} features")
    double = editor.dtype(node.input[0]) == np.float64
    dtype = np.dtype(np.float64 if double else np.float32)
    x = str(node.input[0]) if double else in_float32(editor, node.input[0])
    if len(shape) > 2:  # ONNX Runtime takes the elements as rows of the second extent
        x = editor.reshape(x, [-1, stride])
    if len(scale) == 1:
        offset, scale = offset[0], scale[0]
    moved = editor.op("Sub", x, editor.const(np.asarray(offset, dtype)))
    result = editor.op("Mul", moved, editor.const(np.asarray(scale, dtype)))
    result = editor.cast(result, np.dtype(np.float32)) if double else result
    return [editor.reshape(result, shape) if len(shape) > 2 else result]


def normalizer(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Each row divided by its greatest number, by the sum of magnitudes, or by its length, where that is not
    0; float32."""
    import numpy as np

    found = as_rows(editor, node.input[0])
    if found is None:
        return None
    norm = str(attributes(node).get("norm", "MAX"))
    if norm not in ("MAX", "L1", "L2"):
        refuse(node, f"has the norm {norm!r}, which ONNX does not know")
    x = in_float32(editor, found[0])
    if norm == "MAX":
        size = editor.reduce("ReduceMax", x, 1)
    elif norm == "L1":
        size = editor.reduce("ReduceSum", editor.op("Abs", x), 1)
    else:
        size = editor.op("Sqrt", editor.reduce("ReduceSum", editor.op("Mul", x, x), 1))
    dtype = np.dtype(np.float32)
    nothing = editor.op("Equal", size, editor.scalar(0.0, dtype))
    divisor = editor.op("Where", nothing, editor.scalar(1.0, dtype), size)
    result = editor.op("Div", x, divisor)
    shape = editor.shape(node.input[0])
    return [editor.reshape(result, shape) if shape is not None and len(shape) == 1 else result]
