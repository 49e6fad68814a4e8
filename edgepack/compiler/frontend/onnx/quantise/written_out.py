"""Folds what is written out behind a convolution, constants that are added to its channels or multiply them,
into its weights and bias: a batch normalisation that an exporter did not fold.

Left as they are, each of these would be rounded for itself, and a layer's result four times instead of once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.cut import node_reads

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["fold_written_out"]

#: What is folded, where one operand is a constant.
_FOLDED = {"Add", "Div", "Mul", "Sub"}

#: The end of the names of changed weights and biases.
_WEIGHT, _BIAS = "/folded_weight", "/folded_bias"


def fold_written_out(model: onnx.ModelProto) -> None:
    """Folds them, in place; results keep their names.

    Args:
        model: its constants folded, its nodes named.
    """
    import numpy as np
    from onnx import numpy_helper

    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    ends = {value.name for value in graph.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in {*node_reads(node)}:
            readers.setdefault(name, []).append(node)
    gone: set[str] = set()
    for node in graph.node:
        if node.op_type != "Conv" or node.input[1] not in constants:
            continue
        if len(node.input) > 2 and node.input[2] and node.input[2] not in constants:
            continue
        behind = _behind(node, readers, ends, constants)
        if not behind:
            continue
        scale, shift = _affine(node, behind, constants)
        weight = numpy_helper.to_array(constants[node.input[1]])
        folded = (weight * scale.reshape(-1, *[1] * (weight.ndim - 1))).astype(weight.dtype)
        if not (np.isfinite(folded).all() and np.isfinite(shift).all()):
            continue
        for array, name in ((folded, node.name + _WEIGHT), (shift, node.name + _BIAS)):
            graph.initializer.append(numpy_helper.from_array(array.astype(folded.dtype), name))
        del node.input[1:]
        node.input.extend([node.name + _WEIGHT, node.name + _BIAS])
        node.output[0] = behind[-1].output[0]
        gone |= {one.name for one in behind}
    if gone:
        _remove(graph, gone)


def _behind(
    node: onnx.NodeProto,
    readers: Mapping[str, list[onnx.NodeProto]],
    ends: set[str],
    constants: Mapping[str, onnx.TensorProto],
) -> list[onnx.NodeProto]:
    """The nodes behind a convolution that can become a part of it, in their order."""
    found: list[onnx.NodeProto] = []
    channels = constants[node.input[1]].dims[0]
    rank = len(constants[node.input[1]].dims)
    name = node.output[0]
    while name not in ends and len(reading := readers.get(name, [])) == 1:
        (reader,) = reading
        if reader.op_type not in _FOLDED or len({*reader.input}) != 2:
            break
        other = next(one for one in reader.input if one != name)
        reversed_division = reader.op_type == "Div" and reader.input[0] != name
        if other not in constants or reversed_division or not _of_channels(constants[other], channels, rank):
            break
        found.append(reader)
        name = reader.output[0]
    return found


def _of_channels(tensor: onnx.TensorProto, channels: int, rank: int) -> bool:
    """Whether a constant has one number for each channel of a result of this rank, or one for all."""
    dims = list(tensor.dims)
    if len(dims) > rank or tensor.data_type != tensor.FLOAT:
        return False
    wide = [1] * (rank - len(dims)) + dims
    return wide[1] in (1, channels) and all(size == 1 for axis, size in enumerate(wide) if axis != 1)


def _affine(
    node: onnx.NodeProto, behind: list[onnx.NodeProto], constants: Mapping[str, onnx.TensorProto]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """What the nodes multiply each channel by, and the bias with all of them."""
    import numpy as np
    from onnx import numpy_helper

    channels = constants[node.input[1]].dims[0]
    scale, shift = np.ones(channels), np.zeros(channels)
    if len(node.input) > 2 and node.input[2]:
        shift = shift + numpy_helper.to_array(constants[node.input[2]]).astype(np.float64)
    name = node.output[0]
    for one in behind:
        other = next(read for read in one.input if read != name)
        value = numpy_helper.to_array(constants[other]).astype(np.float64).reshape(-1)
        if one.op_type in ("Mul", "Div"):
            with np.errstate(divide="ignore", invalid="ignore"):  # such is not folded
                factor = value if one.op_type == "Mul" else 1 / value
                scale, shift = scale * factor, shift * factor
        elif one.op_type == "Add":
            shift = shift + value
        elif one.input[0] == name:
            shift = shift - value
        else:
            scale, shift = -scale, value - shift
        name = one.output[0]
    return scale, shift


def _remove(graph: onnx.GraphProto, gone: set[str]) -> None:
    """Takes nodes out of a graph, and constants that nothing reads."""
    kept = [node for node in graph.node if node.name not in gone]
    read = {name for node in kept for name in node_reads(node)} | {value.name for value in graph.output}
    constants = [tensor for tensor in graph.initializer if tensor.name in read]
    for field, values in ((graph.node, kept), (graph.initializer, constants)):
        copies = list(values)
        del field[:]
        field.extend(copies)
