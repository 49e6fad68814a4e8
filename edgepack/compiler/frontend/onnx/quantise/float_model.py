"""The float model as it is quantised: static shapes, constants and batch normalisations folded, each node
with a name of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.compiler.frontend.onnx.extents import stored_bytes
from edgepack.compiler.frontend.onnx.model_file import default_opset
from edgepack.compiler.frontend.onnx.normalise import unrolled
from edgepack.compiler.frontend.onnx.quantise.written_out import fold_written_out
from edgepack.compiler.frontend.onnx.shapes import all_nodes, infer_shapes
from edgepack.compiler.frontend.onnx.support import node_name
from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = ["float_model", "is_quantised", "name_nodes"]

#: The first operator set whose quantisation has a scale for each channel.
_OPSET = 13

#: Operators of quantised models that are not called ``QLinear...`` or ``...Integer``.
_QUANTISED = {
    "DequantizeLinear",
    "DynamicQuantizeLSTM",
    "DynamicQuantizeLinear",
    "DynamicQuantizeMatMul",
    "MatMulIntegerToFloat",
    "MatMulNBits",
    "QAttention",
    "QEmbedLayerNormalization",
    "QGemm",
    "QuantizeLinear",
}

#: Bytes that protocol buffers end at.
_LARGEST = (1 << 31) - 1


def float_model(path: Path, options: ImportOptions, notes: list[str]) -> onnx.ModelProto:
    """The model in ``path``, ready to be quantised; inputs and outputs keep their names and types.

    Args:
        options: what gives its inputs static shapes.
        notes: gets a sentence for each dimension that is open and was taken for a batch of 1.

    Raises:
        ModelError: it cannot be read, is quantised already, or is too large.
        ConfigError: ``options`` do not fit the model.
    """
    model = open_model(path, options, notes)
    _refuse_quantised(path, model)
    model = unrolled(model, limits=options.limits)
    if stored_bytes(model) > _LARGEST:
        raise ModelError(
            f"{path} has more than 2 GB of weights, beyond what can be quantised here.",
            hint="Cut it into parts (edgepack pack --inputs, --outputs), or use a smaller model.",
        )
    if default_opset(model) < _OPSET:
        model = _converted(path, model)
    name_nodes(model.graph.node)
    fold_written_out(model)
    inferred = infer_shapes(model).graph
    del model.graph.value_info[:], model.graph.output[:]
    model.graph.value_info.extend(inferred.value_info)
    model.graph.output.extend(inferred.output)
    return model


def _refuse_quantised(path: Path, model: onnx.ModelProto) -> None:
    for index, node in enumerate(all_nodes(model.graph)):
        if _rounds(node):
            raise ModelError(
                f"{path} is quantised already: it has the operator {node.op_type} "
                f"({node_name(node, index)}).",
                hint="Pack it as it is, or quantise the float model that it was made from.",
            )


def is_quantised(model: onnx.ModelProto) -> bool:
    """Whether a model has operators of quantised models."""
    return any(map(_rounds, all_nodes(model.graph)))


def _rounds(node: onnx.NodeProto) -> bool:
    name = node.op_type
    return name in _QUANTISED or name.startswith(("QLinear", "QOrdered")) or name.endswith("Integer")


def _converted(path: Path, model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in the first operator set that can be quantised by channel."""
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, _OPSET)
    except MemoryError:
        raise
    except Exception as error:  # of the converter, which has no base class for its own
        raise ModelError(
            f"{path} has operator set {default_opset(model)}, and cannot be converted to {_OPSET}, which "
            "quantisation needs.",
            hint=f"Export the model with opset {_OPSET} or later.",
            detail=str(error).strip(),
        ) from error


def name_nodes(nodes: Sequence[onnx.NodeProto]) -> None:
    """Gives each node a name that no other has, in place: the quantiser tells them apart by it."""
    taken: set[str] = set()
    for index, node in enumerate(nodes):
        name = node.name or next(filter(None, node.output), f"{node.op_type}_{index}")
        if name in taken:
            name = next(other for n in range(2, len(nodes) + 2) if (other := f"{name}_{n}") not in taken)
        taken.add(name)
        node.name = name
