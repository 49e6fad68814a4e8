"""What prepares features, of ai.onnx.ml: chosen, coded, filled in, joined; numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.classical.refusals import check_lengths, refuse
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.rewrites.scores import in_float32

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = [
    "array_feature_extractor",
    "binarizer",
    "feature_vectorizer",
    "imputer",
    "label_encoder",
    "one_hot_encoder",
]

TEXTS = "Encode texts in your program, and make the numbers an input of the model (--inputs)."


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


def imputer(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Replaces a value, which may be NaN, by one for all features or by one for each."""
    import numpy as np

    shape, dtype = editor.shape(node.input[0]), editor.dtype(node.input[0])
    if not shape:
        return None
    values = attributes(node)
    kind = "float" if dtype.kind == "f" else "int64"
    imputed = np.asarray(values.get(f"imputed_value_{kind}s", ()), dtype)
    stride = shape[0] if len(shape) == 1 else shape[1]
    if not len(imputed):
        refuse(node, f"has no imputed_value_{kind}s for an input of {dtype}")
    replaced = np.asarray(values.get(f"replaced_value_{kind}", 0), dtype)
    x = str(node.input[0])
    if len(shape) > 2:
        x = editor.reshape(x, [-1, stride])
    missing = (
        editor.op("Not", editor.op("Equal", x, x))
        if np.isnan(replaced)
        else editor.op("Equal", x, editor.const(replaced))
    )
    instead = imputed if len(imputed) == stride else imputed[0]
    result = editor.op("Where", missing, editor.const(np.asarray(instead, dtype)), x)
    return [editor.reshape(result, shape) if len(shape) > 2 else result]


def one_hot_encoder(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """1 at the category's place, 0 elsewhere, float32, in a new last axis. A number that is no category gives
    zeros, also where ONNX Runtime ends with an error (``zeros=0``)."""
    import numpy as np

    shape = editor.shape(node.input[0])
    if shape is None:
        return None
    values = attributes(node)
    categories = np.asarray(values.get("cats_int64s", ()), np.int64)
    if not len(categories):
        refuse(node, "has categories that are texts" if values.get("cats_strings") else "has none", TEXTS)
    wide = np.dtype(np.int64)
    x = str(node.input[0]) if editor.dtype(node.input[0]) == wide else editor.cast(node.input[0], wide)
    same = editor.op("Equal", editor.reshape(x, [*shape, 1]), editor.const(categories))
    return [editor.cast(same, np.dtype(np.float32))]


def feature_vectorizer(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Rows of all inputs side by side, float32, each cut or padded with zeros to its ``inputdimensions``."""
    import numpy as np

    extents = [int(n) for n in attributes(node).get("inputdimensions", ())]
    check_lengths(node, {"inputs": list(node.input), "inputdimensions": extents})
    parts = []
    for name, extent in zip(node.input, extents, strict=True):
        shape = editor.shape(name)
        if not shape:
            return None
        rows = 1 if len(shape) == 1 else shape[0]
        own = int(np.prod(shape)) // max(rows, 1)
        part = editor.reshape(in_float32(editor, name), [rows, own])
        if own > extent:
            part = editor.op("Gather", part, editor.const(np.arange(extent, dtype=np.int64)), axis=1)
        parts.append(part)
        if own < extent:
            parts.append(editor.const(np.zeros((rows, extent - own), np.float32)))
    return [editor.op("Concat", *parts, axis=1)]


def label_encoder(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Numbers instead of numbers; what is no key becomes a default."""
    import numpy as np

    shape = editor.shape(node.input[0])
    if shape is None:
        return None
    keys, values, default = _encoding(node)
    check_lengths(node, {"keys": keys, "values": values})
    if not len(keys):
        refuse(node, "has no keys")
    if keys.dtype != editor.dtype(node.input[0]):
        refuse(node, f"has keys of {keys.dtype}, and its input is {editor.dtype(node.input[0])}")
    _, first = np.unique(keys, return_index=True)
    first = np.sort(first)
    keys, values = keys[first], values[first]
    column = editor.reshape(node.input[0], [*shape, 1])
    same = editor.op("Equal", column, editor.const(keys))
    versions = [one.version for one in editor.model.opset_import if one.domain == node.domain]
    if np.isnan(keys).any() and max(versions, default=1) >= 4:  # before, NaN was no key that is found
        unequal = editor.op("Not", editor.op("Equal", column, column))
        same = editor.op("Or", same, editor.op("And", unequal, editor.const(np.isnan(keys))))
    # Behind the keys stands the default, which each number is equal to.
    matches = editor.op(
        "Concat", editor.cast(same, np.dtype(np.int32)), _ones(editor, shape), axis=len(shape)
    )
    place = editor.op("ArgMax", matches, axis=len(shape), keepdims=0)
    table = np.append(values, np.asarray(default, values.dtype))
    return [editor.op("Gather", editor.const(table), place)]


def _ones(editor: Editor, shape: Sequence[int]) -> str:
    import numpy as np

    return editor.const(np.ones((*shape, 1), np.int32))


def _encoding(node: onnx.NodeProto) -> tuple[NDArray[Any], NDArray[Any], Any]:
    """Keys, values and the default of a LabelEncoder."""
    import numpy as np
    from onnx import numpy_helper

    given = attributes(node)
    kinds: dict[str, Any] = {"int64s": np.int64, "floats": np.float32}
    found: dict[str, NDArray[Any]] = {}
    for side in ("keys", "values"):
        if f"{side}_tensor" in given:
            found[side] = numpy_helper.to_array(given[f"{side}_tensor"]).reshape(-1)
        for kind, dtype in kinds.items():
            if given.get(f"{side}_{kind}"):
                found[side] = np.asarray(given[f"{side}_{kind}"], dtype)
        if side not in found or found[side].dtype == object:
            refuse(node, f"has {side} that are texts", TEXTS)
    values = found["values"]
    if "default_tensor" in given:
        return found["keys"], values, numpy_helper.to_array(given["default_tensor"]).reshape(-1)[0]
    if values.dtype.kind == "f":
        return found["keys"], values, given.get("default_float", -0.0)
    return found["keys"], values, given.get("default_int64", -1)
