"""Operators in the forms of one recent operator set, which is then the model's: what rewrites write has these
forms, and the importer takes what an older one does not have for nothing (``Clip`` of three inputs in a model
of opset 10).

Forms are those of opset 18. Newer models keep their own: what rewrites write is the same there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.model_file import default_opset
from edgepack.compiler.frontend.onnx.node_forms import wrong_nodes
from edgepack.compiler.frontend.onnx.rewrites import forms, training
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, Rewrite, attributes
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, node_name

if TYPE_CHECKING:
    import onnx

__all__ = ["OPSET", "in_recent_forms"]

#: The operator set of which all models have the forms, unless theirs is newer.
OPSET = 18


def in_recent_forms(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, of the operator set 18 at least; changed in place.

    Raises:
        RefusedNodesError: a node has a form that is not known.
    """
    opset = default_opset(model)
    if opset >= OPSET:
        return model
    table: dict[tuple[str, str], Rewrite] = {
        ("", operator): form for operator, (until, form) in _FORMS.items() if opset < until
    }
    Editor(model).run(table)
    for one in model.opset_import:
        if one.domain in ("", "ai.onnx"):
            one.version = OPSET
    for node, why in wrong_nodes(model):
        raise _unknown(node, why)
    return model


def _numbers(editor: Editor, values: Sequence[int]) -> str:
    import numpy as np

    return editor.const(np.asarray(values, np.int64))


def _axes(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Axes as an input; none at all are all of them."""
    axes = attributes(node).get("axes")
    if axes is None:
        return None
    return editor.again(node, [node.input[0], _numbers(editor, axes) if axes else ""], axes=None)


def _clip(editor: Editor, node: onnx.NodeProto) -> Sequence[str]:
    """Bounds as inputs. Without one it is the largest finite float32, so that infinities become that."""
    import numpy as np

    dtype, most = editor.dtype(node.input[0]), float(np.finfo(np.float32).max)
    values = attributes(node)
    bounds = [values.get("min", -most), values.get("max", most)]
    if dtype == np.float16:
        bounds = [min(max(bound, -65504.0), 65504.0) for bound in bounds]
    scalars = [editor.scalar(bound, dtype) for bound in bounds]
    return editor.again(node, [node.input[0], *scalars], min=None, max=None)


def _pad(editor: Editor, node: onnx.NodeProto) -> Sequence[str]:
    values = attributes(node)
    value = editor.scalar(values.get("value", 0.0), editor.dtype(node.input[0]))
    return editor.again(node, [node.input[0], _numbers(editor, values["pads"]), value], pads=None, value=None)


def _slice(editor: Editor, node: onnx.NodeProto) -> Sequence[str]:
    values = attributes(node)
    axes = values.get("axes", range(len(values["starts"])))
    bounds = [_numbers(editor, item) for item in (values["starts"], values["ends"], axes)]
    return editor.again(node, [node.input[0], *bounds], starts=None, ends=None, axes=None)


def _split(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Sizes as an input, also where they are equal."""
    values, shape = attributes(node), editor.shape(node.input[0])
    if len(node.input) > 1 and node.input[1]:
        return None
    sizes, count = values.get("split"), len(node.output)
    if sizes is None:
        if shape is None:
            return editor.again(node, node.input[:1], num_outputs=count)
        sizes = [shape[values.get("axis", 0)] // count] * count
    return editor.again(node, [node.input[0], _numbers(editor, sizes)], split=None)


def _top_k(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    count = attributes(node).get("k")
    return None if count is None else editor.again(node, [node.input[0], _numbers(editor, [count])], k=None)


def _over_last_axes(editor: Editor, node: onnx.NodeProto) -> Sequence[str]:
    """A softmax over all axes from one on, as one over the last of two."""
    shape, values = editor.shape(node.input[0]), attributes(node)
    if shape is None:
        raise _unknown(node, "its shape is not known")
    axis = values.get("axis", 1)
    axis += len(shape) if axis < 0 else 0
    if axis == len(shape) - 1:
        return editor.again(node, node.input, axis=axis)
    flat = editor.reshape(node.input[0], [prod(shape[:axis]), prod(shape[axis:])])
    return [editor.reshape(editor.op(node.op_type, flat, axis=1), shape)]


def _roi_align(editor: Editor, node: onnx.NodeProto) -> Sequence[str]:
    return editor.again(node, node.input, coordinate_transformation_mode="output_half_pixel")


def _resize(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Upsample, and Resize as of opset 10, have positions without halves. The nearest element is the one
    before where an axis grows, and the one behind where it shrinks: Upsample stays where both happen."""
    values = attributes(node)
    mode = values.get("mode", "nearest")
    scales = editor.constant(node.input[1]) if len(node.input) > 1 else values.get("scales")
    if scales is None:
        raise _unknown(node, "its scales are not constant")
    import numpy as np

    numbers = np.asarray(scales, np.float32)
    shrinks, grows = bool((numbers < 1).any()), bool((numbers > 1).any())
    if mode == "nearest" and shrinks and grows:
        return [editor.op("Upsample", node.input[0], editor.const(numbers), mode=mode)]
    said = {"mode": {"bilinear": "linear"}.get(mode, mode), "nearest_mode": "ceil" if shrinks else "floor"}
    inputs = [node.input[0], "", editor.const(numbers)]
    return [editor.op("Resize", *inputs, coordinate_transformation_mode="asymmetric", **said)]


def _dropout(editor: Editor, node: onnx.NodeProto) -> Sequence[str]:
    """Nothing is dropped; the mask had the data's type before opset 10."""
    import numpy as np

    x, shape = str(node.input[0]), editor.shape(node.input[0])
    training.dropout(editor, node)  # which refuses one that is of training by its attribute
    if len(node.output) < 2 or not node.output[1]:
        return [x]
    if shape is None:
        raise _unknown(node, "its shape is not known")
    dtype = np.dtype(bool) if editor.opset >= 10 else editor.dtype(x)
    return [x, editor.const(np.ones(shape, dtype))]


def _batch_normalization(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """In inference, of which only the first output is something; by channels, or by each element."""
    values = attributes(node)
    if not values.get("spatial", 1):
        return [forms.for_each_element(editor, node, values.get("epsilon", 1e-5))]
    if "spatial" not in values and len(node.output) == 1:
        return None
    kept = {key: value for key, value in values.items() if key in ("epsilon", "momentum")}
    return [editor.op("BatchNormalization", *node.input, **kept)]


def _scatter(editor: Editor, node: onnx.NodeProto) -> Sequence[str]:
    return [editor.op("ScatterElements", *node.input, **attributes(node))]


def _unknown(node: onnx.NodeProto, why: str) -> RefusedNodesError:
    name = node_name(node, 0)
    return RefusedNodesError(
        f"The {node.op_type} node {name} cannot be compiled in the form of its old operator set: {why}.",
        hint="Export the model with a newer one (opset_version=18), or use onnx.version_converter.",
        refused=[{"operator": node.op_type, "nodes": [name], "reason": why}],
        tensors=[output for output in node.output if output],
    )


#: By operator: the operator set that has its form of today, and what makes that of an older one.
_FORMS: dict[str, tuple[int, Callable[[Editor, Any], Sequence[str] | None]]] = {
    "BatchNormalization": (14, _batch_normalization),
    "Clip": (11, _clip),
    "Dropout": (12, _dropout),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), (13, _over_last_axes)),
    "Pad": (11, _pad),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"), (18, _axes)),
    **dict.fromkeys(("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare"), (18, _axes)),
    "ReduceSum": (13, _axes),
    "Resize": (11, _resize),
    "RoiAlign": (16, _roi_align),
    "Scatter": (18, _scatter),
    "Slice": (10, _slice),
    "Split": (18, _split),
    **dict.fromkeys(("Squeeze", "Unsqueeze"), (13, _axes)),
    "TopK": (10, _top_k),
    "Upsample": (18, _resize),
}
