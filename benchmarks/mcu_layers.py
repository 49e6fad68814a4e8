"""A streaming network of int8 as data for mcu_layers.c, for mcu_instructions.py: convolutions whose window is
all of their input, depthwise and fully connected layers, and rows that are kept between runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgepack.compiler.frontend.tflite.convert import Converted, convert
from edgepack.compiler.frontend.tflite.fixed_point import activation_range, quantize_multiplier, zero_of
from edgepack.compiler.frontend.tflite.model import Operator, Tensor
from edgepack.compiler.frontend.tflite.model_file import read_model
from edgepack.compiler.frontend.tflite.operators.variables import State

#: Operators of the schema -> mcu_layers.h's kinds.
KINDS = {"CONV_2D": "CONVOLUTION", "DEPTHWISE_CONV_2D": "DEPTHWISE", "FULLY_CONNECTED": "FULLY_CONNECTED"}
#: What a table of 256 bytes serves, on both sides; it is left out behind the last layer.
TABLES = ("LOGISTIC", "QUANTIZE")


@dataclass(frozen=True)
class Layers:
    """A network's layers.

    Attributes:
        converted: the network.
        operators: of the layers, in order.
        states: what each keeps; None: nothing.
        outputs: by which tensors the network ends: the last layer's result, and the states.
    """

    converted: Converted
    operators: Sequence[Operator]
    states: Sequence[State | None]

    @property
    def outputs(self) -> list[str]:
        tensors, states = self.converted.subgraph.tensors, self.converted.states
        return [tensors[self.operators[-1].outputs[0]].name, *(state.returned_as for state in states)]


def layers_of(model: Path) -> Layers:
    """The layers of a file. ValueError for a network that is none of such layers."""
    converted = convert(read_model(model))
    graph = converted.subgraph
    by_input = {
        graph.inputs[len(graph.inputs) - len(converted.states) + i]: one
        for i, one in enumerate(converted.states)
    }
    kept: dict[int, State] = {}
    layers, states = [], []
    for one in graph.operators:
        if one.kind == "CONCATENATION" and one.inputs[0] in by_input:
            kept[one.outputs[0]] = by_input[one.inputs[0]]
        elif one.kind in KINDS:
            layers.append(one)
            states.append(kept.get(one.inputs[0]))
        elif one.kind not in ("RESHAPE", "STRIDED_SLICE", *TABLES):
            raise ValueError(f"{model.name}: {one.kind} is no layer that mcu_layers.c has")
    if len(kept) != len(converted.states):
        raise ValueError(f"{model.name}: not all states are rows before a layer's others")
    return Layers(converted, layers, states)


def written(found: Layers, folder: Path, inputs: dict[str, int], outputs: dict[str, int]) -> Path:
    """mcu_network.h in a folder.

    Args:
        inputs, outputs: where each lies among the bytes of all of them, by name.
    """
    tensors, arrays, rows, largest, most = found.converted.subgraph.tensors, [], [], 0, 0
    for number, (operator, state) in enumerate(zip(found.operators, found.states, strict=True)):
        data, weights, bias = (tensors[index] for index in operator.inputs[:3])
        result = tensors[operator.outputs[0]]
        window, channels = (data.shape[1], data.shape[-1]) if len(data.shape) == 4 else (1, data.shape[-1])
        whole = 1 if operator.kind == "FULLY_CONNECTED" else weights.shape[1]
        if window != whole or int(np.prod(result.shape[:-1])) != 1:
            raise ValueError(f"{result.name}: its window is not all of its input")
        low, high = activation_range(operator.options["fusedActivationFunction"], "int8", result.quantisation)
        multipliers, shifts = zip(*map(quantize_multiplier, _factors(data, weights, result)), strict=True)
        for kind, name, values in (
            ("int8_t", "weights", weights.data.reshape(-1)),
            ("int32_t", "bias", bias.data),
            ("int32_t", "multipliers", multipliers),
            ("int32_t", "shifts", shifts),
        ):
            arrays.append(f"static const {kind} {name}{number}[] = {{{_listed(values)}}};")
        kept = 0 if state is None else tensors[state.read].shape[1]
        at = (0, 0) if state is None else (inputs[state.name], outputs[state.returned_as])
        numbers = [window, channels, result.shape[-1], kept, window - kept, *at]
        numbers += [zero_of(data), zero_of(result), low, high]
        names = (f"{name}{number}" for name in ("weights", "bias", "multipliers", "shifts"))
        rows.append(f"    {{{KINDS[operator.kind]}, {_listed(numbers)}, {', '.join(names)}}},")
        largest, most = max(largest, window * channels), max(most, window)
    text = [*arrays, "static const layer layers[] = {", *rows, "};"]
    text += [f"enum {{ MOST_ROWS = {most}, MOST_BYTES = {largest} }};"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mcu_network.h").write_text("\n".join(text) + "\n")
    return folder / "mcu_network.h"


def places(tensors: Iterable[Any]) -> dict[str, int]:
    """Where each of these tensors lies behind the others, at a multiple of 16 bytes, and "" for the end."""
    found, at = {}, 0
    for one in tensors:
        found[one.name] = at
        at += (one.nbytes + 15) // 16 * 16
    return {**found, "": at}


def _factors(data: Tensor, weights: Tensor, result: Tensor) -> list[float]:
    assert data.quantisation is not None
    assert weights.quantisation is not None
    assert result.quantisation is not None
    scales = weights.quantisation.scale.astype(np.float64)
    return [
        float(data.quantisation.scale[0]) * float(s) / float(result.quantisation.scale[0]) for s in scales
    ]


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(str(int(value)) for value in values)
