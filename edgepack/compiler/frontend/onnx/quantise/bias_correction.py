"""Takes the mean error that rounded weights make off the biases (M. Nagel et al., "Data-Free Quantization
Through Weight Equalization and Bias Correction", 2019, arXiv:1906.04721, section 4.2; the means are measured
on the calibration data instead of derived)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.quantise.quantised_tensors import QuantisedTensors
from edgepack.compiler.frontend.onnx.quantise.runs import runner
from edgepack.compiler.frontend.onnx.quantise.structure import Structure

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["CORRECTED", "add_to_biases", "mean_errors"]

#: The end of the names of what is added to the graph, or in the place of a bias.
_ERROR, CORRECTED = "/weight_error", "/corrected_bias"


def mean_errors(
    structure: Structure, made: onnx.ModelProto, samples: Iterable[Mapping[str, NDArray[Any]]]
) -> dict[str, NDArray[Any]]:
    """What the float weights of a layer give more than the rounded ones, on average, for each channel of its
    result, by its name; of layers that have a bias, or can have one.

    Args:
        made: the quantised model, with the rounded weights.

    Raises:
        ModelError: the model does not run on the samples.
    """
    import numpy as np

    weights = QuantisedTensors(made).weights
    layers = {n.name: n for n in structure.layers if _has_rounded_weight(n, structure, weights)}
    results = {f"{name}{_ERROR}/result": node for name, node in layers.items()}
    run = runner(_with_twins(structure, results.values(), weights), results)
    sums: dict[str, NDArray[Any]] = {}
    count = 0
    for arrays in samples:
        count += 1
        for name, array in run(arrays).items():
            node = results[name]
            channel = 1 if node.op_type in ("Conv", "ConvTranspose") else array.ndim - 1
            mean = array.mean(axis=tuple(axis for axis in range(array.ndim) if axis != channel))
            sums[node.name] = sums.get(node.name, 0) + mean
    return {name: np.asarray(total / count, np.float32) for name, total in sums.items()}


def _with_twins(
    structure: Structure, layers: Iterable[onnx.NodeProto], weights: Mapping[str, NDArray[Any]]
) -> onnx.ModelProto:
    """The float model in which each layer has a twin, whose weights are the errors of the rounded ones."""
    import numpy as np
    import onnx
    from onnx import numpy_helper

    model = onnx.ModelProto()
    model.CopyFrom(structure.model)
    for node in layers:
        exact = numpy_helper.to_array(structure.constants[node.input[1]])
        error = np.asarray(exact - weights[node.input[1]], np.float32)
        model.graph.initializer.append(numpy_helper.from_array(error, node.name + _ERROR))
        twin = onnx.NodeProto()
        twin.CopyFrom(node)
        del twin.input[1:]
        twin.input.append(node.name + _ERROR)
        twin.name = twin.output[0] = f"{node.name}{_ERROR}/result"
        model.graph.node.append(twin)
    return model


def add_to_biases(
    model: onnx.ModelProto, structure: Structure, means: Mapping[str, NDArray[Any]], but: set[str]
) -> None:
    """Gives layers biases with their :func:`mean_errors` added, in place.

    Args:
        model: a copy of the structure's.
        but: names of layers that are left as they are.
    """
    nodes = {node.name: node for node in model.graph.node}
    for name, mean in means.items():
        if name not in but:
            _add_to_bias(model.graph, nodes, structure, name, mean)


def _has_rounded_weight(
    node: onnx.NodeProto, structure: Structure, weights: Mapping[str, NDArray[Any]]
) -> bool:
    """Whether a layer has rounded constant weights, and a bias that can be changed."""
    name = node.input[1] if len(node.input) > 1 else ""
    if name not in structure.constants or name not in weights:
        return False
    if node.op_type == "MatMul":
        return node.name in structure.biased and len(structure.constants[name].dims) == 2
    if node.op_type == "Gemm":
        beta = next((a.f for a in node.attribute if a.name == "beta"), 1.0)
        return len(node.input) == 3 and beta == 1 and _is_vector(node.input[2], structure)
    return node.op_type in ("Conv", "ConvTranspose") and (
        len(node.input) < 3 or not node.input[2] or node.input[2] in structure.constants
    )


def _is_vector(name: str, structure: Structure) -> bool:
    return name in structure.constants and len(structure.constants[name].dims) == 1


def _add_to_bias(
    graph: onnx.GraphProto,
    nodes: Mapping[str, onnx.NodeProto],
    structure: Structure,
    name: str,
    mean: NDArray[Any],
) -> None:
    """Gives a layer a bias of its own, with ``mean`` added."""
    import numpy as np
    from onnx import numpy_helper

    node = nodes[structure.biased[name].name if name in structure.biased else name]
    if node.op_type == "Add":
        index = next(i for i, one in enumerate(node.input) if one in structure.constants)
    else:
        index = 2
    before = node.input[index] if len(node.input) > index else ""
    bias = numpy_helper.to_array(structure.constants[before]) if before else np.float32(0)
    graph.initializer.append(numpy_helper.from_array(np.asarray(bias + mean, np.float32), name + CORRECTED))
    if len(node.input) > index:
        node.input[index] = name + CORRECTED
    else:
        node.input.append(name + CORRECTED)
