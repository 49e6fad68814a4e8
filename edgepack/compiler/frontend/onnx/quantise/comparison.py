"""Runs the float and the quantised model side by side: how far apart their layers and outputs are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.quantise.difference import Difference, decibels
from edgepack.compiler.frontend.onnx.quantise.quantised_tensors import Ends, QuantisedTensors
from edgepack.compiler.frontend.onnx.quantise.runs import runner
from edgepack.compiler.frontend.onnx.quantise.structure import MOVES, Structure
from edgepack.plan.quantisation import QuantisedLayer, QuantisedOutput

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["compared", "compared_outputs", "least"]


def compared(
    structure: Structure,
    quantised: onnx.ModelProto,
    samples: Iterable[Mapping[str, NDArray[Any]]],
    kept_float: set[str],
) -> tuple[tuple[QuantisedLayer, ...], tuple[QuantisedOutput, ...]]:
    """Each layer and each output of the float model beside those of the quantised one.

    Args:
        quantised: the same model, quantised.
        kept_float: names of layers that were left float.
    """
    seen = QuantisedTensors(quantised)
    ends = {value.name: value.name for value in quantised.graph.output}
    shown = {node.name: _shown(structure, node, seen) for node in structure.layers}
    inner = {name: seen.value_of(name) for name in shown.values() if seen.value_of(name)}
    found = _differences(structure.model, quantised, {**inner, **ends}, samples, seen.ranges)
    layers = tuple(
        _layer(node, structure, seen, shown[node.name], found, node.name not in kept_float)
        for node in structure.layers
    )
    return layers, tuple(_output(name, found[name]) for name in ends)


def compared_outputs(
    model: onnx.ModelProto, quantised: onnx.ModelProto, samples: Iterable[Mapping[str, NDArray[Any]]]
) -> tuple[QuantisedOutput, ...]:
    """The outputs of the float model beside those of the quantised one."""
    ends = {value.name: value.name for value in model.graph.output}
    found = _differences(model, quantised, ends, samples, {})
    return tuple(_output(name, one) for name, one in found.items())


def _differences(
    model: onnx.ModelProto,
    quantised: onnx.ModelProto,
    tensors: Mapping[str, str],
    samples: Iterable[Mapping[str, NDArray[Any]]],
    ranges: Mapping[str, Ends],
) -> dict[str, Difference]:
    """How far apart tensors are, by the float model's name of each, to which ``tensors`` has the other's."""
    found = {name: Difference() for name in tensors}
    exact, rounded = runner(model, tensors), runner(quantised, tensors.values())
    for arrays in samples:
        results, others = exact(arrays), rounded(arrays)
        for name, difference in found.items():
            difference.add(results[name], others[tensors[name]])
            if name in ranges:
                low, high, half = ranges[name]
                far = (results[name] < low - half) | (results[name] > high + half)
                difference.outside += int(far.sum())
    return found


def _output(name: str, one: Difference) -> QuantisedOutput:
    return QuantisedOutput(name, one.sqnr, one.max_error, one.largest, one.top1)


def _shown(structure: Structure, node: onnx.NodeProto, seen: QuantisedTensors) -> str:
    """The tensor that is compared for a layer: its result, or behind the Relu or Clip that its range has."""
    name = structure.result(node)
    while name not in seen.ranges and len(structure.readers[name]) == 1:
        reader = structure.readers[name][0]
        if reader.op_type not in ("Relu", "Clip") or reader.op_type not in MOVES:
            break
        if seen.value_of(name) and not seen.ranges.get(reader.output[0]):
            break
        name = reader.output[0]
    return name


def _layer(
    node: onnx.NodeProto,
    structure: Structure,
    seen: QuantisedTensors,
    tensor: str,
    found: Mapping[str, Difference],
    quantised: bool,
) -> QuantisedLayer:
    difference = found.get(tensor)
    low, high, _ = seen.ranges.get(tensor, (None, None, None))
    return QuantisedLayer(
        name=node.name,
        operator=node.op_type,
        quantised=quantised,
        low=low,
        high=high,
        outside=difference.outside / difference.elements if difference and difference.elements else 0.0,
        weight_sqnr=_weight_sqnr(node, structure, seen) if quantised else None,
        sqnr=difference.sqnr if difference else None,
    )


def _weight_sqnr(node: onnx.NodeProto, structure: Structure, seen: QuantisedTensors) -> float | None:
    """Of all constant operands of a product but its bias."""
    import numpy as np
    from onnx import numpy_helper

    signal = noise = 0.0
    for name in node.input[:2]:
        if name in structure.constants and name in seen.weights:
            exact = numpy_helper.to_array(structure.constants[name]).astype(np.float64)
            signal += float(np.vdot(exact, exact))
            noise += float(((exact - seen.weights[name]) ** 2).sum())
    return decibels(signal, noise)


def least(outputs: Iterable[QuantisedOutput]) -> float:
    """The signal-to-noise ratio of the output that is worst off; infinite where all are exact."""
    return min((one.sqnr for one in outputs if one.sqnr is not None), default=inf)
