"""Operators that compute something else while a network is trained: Dropout and BatchNormalization.

Which of both a node does is said by an attribute, an operand, or how many results it has, in each opset by
another one of these. Training is computed where it is the same in every run, and refused where it is not:
never taken for inference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from edgepack.compiler.frontend.onnx.model_file import default_opset
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes, known_form
from edgepack.compiler.frontend.onnx.shapes import all_nodes, inner_graphs
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, node_name

if TYPE_CHECKING:
    import onnx

__all__ = ["check_training", "dropout", "remove_dropout"]

#: Opsets since which Dropout has its mode as an operand, and BatchNormalization as an attribute.
_DROPOUT_OPERAND, _NORM_ATTRIBUTE = 12, 14

#: The opset since which neither has the attribute ``is_test``.
_WITHOUT_IS_TEST = 7


def check_training(model: onnx.ModelProto) -> None:
    """Refuses normalisations by a batch of which only the attributes or the number of results say that they
    are of training, before an optimiser takes them for those of inference.

    Args:
        model: without functions.

    Raises:
        RefusedNodesError: there is one.
    """
    opset = default_opset(model)
    if opset >= _NORM_ATTRIBUTE:
        return
    for index, node in enumerate(model.graph.node):
        if node.op_type != "BatchNormalization" or node.domain not in ("", "ai.onnx"):
            continue
        with known_form(node, index):
            if opset < _WITHOUT_IS_TEST and not attributes(node).get("is_test", 0):
                _refuse(node, index, "its attribute is_test is 0")
            if any(node.output[1:]):
                _refuse(node, index, f"it has {len(node.output)} results, which are those of training")


def remove_dropout(model: onnx.ModelProto) -> bool:
    """Replaces, in place and in all graphs, each Dropout that is known to be one of inference and whose mask
    nobody reads; whether there was any. ONNX Runtime's optimiser, which would, takes one in a branch or a
    body whose mode is a constant outside of that for one of inference too.
    """
    nodes = [node for node in all_nodes(model.graph) if node.op_type == "Dropout"]
    return bool(nodes) and _remove(model.graph, default_opset(model), {})


def _remove(graph: onnx.GraphProto, opset: int, around: Mapping[str, onnx.TensorProto]) -> bool:
    constants = {**around, **{tensor.name: tensor for tensor in graph.initializer}}
    constants |= {
        node.output[0]: node.attribute[0].t
        for node in graph.node
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t")
    }
    found = False
    for node in graph.node:
        for inner in inner_graphs(node):
            found = _remove(inner, opset, constants) or found
        if node.op_type != "Dropout" or node.domain not in ("", "ai.onnx") or any(node.output[1:]):
            continue
        if _trains(node, opset, constants) is False:
            node.op_type, node.input[:], node.output[:] = "Identity", node.input[:1], node.output[:1]
            del node.attribute[:]
            found = True
    return found


def _trains(node: onnx.NodeProto, opset: int, constants: Mapping[str, onnx.TensorProto]) -> bool | None:
    """Whether a Dropout is in training mode; None where that is not known."""
    from onnx import numpy_helper

    if opset < _WITHOUT_IS_TEST:
        return not attributes(node).get("is_test", 0)
    if opset < _DROPOUT_OPERAND or len(node.input) < 3 or not node.input[2]:
        return False
    mode = constants.get(node.input[2])
    return None if mode is None else bool(numpy_helper.to_array(mode).any())


def dropout(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Dropout that drops nothing, in inference or by its ratio, and its mask.

    Raises:
        RefusedNodesError: it drops elements, others in each run, or a run decides whether it does.
    """
    import numpy as np

    values, x = attributes(node), str(node.input[0])
    trains = _trains(node, editor.opset, editor.constants)
    names = [*node.input[1:], "", ""][:2] if editor.opset >= _DROPOUT_OPERAND else ["", ""]
    ratio = editor.constant(names[0]) if names[0] else np.asarray(values.get("ratio", 0.5))
    if trains is not False and (ratio is None or ratio.any()):
        why = "which elements it drops is drawn anew in each run" if trains else ""
        _refuse(node, 0, why or f"a run decides by {names[1]!r} whether it drops elements, others each time")
    if len(node.output) < 2:
        return [x] if trains is not False else None
    shape = editor.shape(x)
    if shape is None:
        return None
    return [x, editor.const(np.ones(shape, bool if editor.opset >= 10 else editor.dtype(x)))]


def _refuse(node: onnx.NodeProto, index: int, why: str) -> NoReturn:
    raise RefusedNodesError(
        f"The {node.op_type} node {node_name(node, index)} is in training mode, which cannot be compiled: "
        f"{why}.",
        hint="Export the model for inference (PyTorch: model.eval(), and training=TrainingMode.EVAL).",
        tensors=[name for name in node.output if name],
    )
