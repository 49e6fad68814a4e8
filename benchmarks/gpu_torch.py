"""A network of ``gpu.py pack`` as a module of PyTorch, by the operators of ``onnx_torch.py``: no ONNX is
needed, and torch.compile sees no data on which a shape would depend."""

from __future__ import annotations

from typing import Any

import torch
from onnx_torch import OPERATORS

__all__ = ["Network", "inputs_of"]


class Numbers:
    """A constant that decides about shapes: numbers of Python's, which a compiler may look at."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def tolist(self) -> Any:
        """As a tensor's."""
        return self.values

    def dim(self) -> int:
        """0 for a single number, else 1."""
        return int(isinstance(self.values, list))

    def __int__(self) -> int:
        return int(self.values[0] if isinstance(self.values, list) else self.values)

    def __float__(self) -> float:
        return float(self.values[0] if isinstance(self.values, list) else self.values)


#: Which inputs of operators decide about shapes, or are bounds.
NUMBERS = {"Reshape": {1}, "Unsqueeze": {1}, "Clip": {1, 2}, "Gather": {1}}


class Network(torch.nn.Module):
    """The network.

    Args:
        described: what ``graph_of`` of ``gpu_graph.py`` returns.
        dtype: of its weights and activations; weights are drawn at random, integers are the model's.
    """

    def __init__(self, described: dict[str, Any], dtype: torch.dtype) -> None:
        super().__init__()
        self.nodes, self.outputs = described["nodes"], described["outputs"]
        self.inputs = [one["name"] for one in described["inputs"]]
        self.opset, self.dtype = described["opset"], dtype
        self.numbers: dict[str, Numbers] = {}
        self.places: dict[str, str] = {}
        asked = {
            name
            for kind, names, _, _ in self.nodes
            for position, name in enumerate(names)
            if position in NUMBERS.get(kind, ())
        }
        generator = torch.Generator().manual_seed(0)
        for number, (name, constant) in enumerate(described["constants"].items()):
            values = constant.get("values")
            if name in asked and values is not None and (len(constant["shape"]) < 2):
                self.numbers[name] = Numbers(values)
            if constant["dtype"].startswith("float"):
                drawn = torch.randn(constant["shape"], generator=generator) * 0.02
                tensor = (drawn if values is None else torch.tensor(values)).to(dtype)
                tensor = tensor.reshape(constant["shape"])
            else:
                tensor = torch.tensor(values, dtype=getattr(torch, constant["dtype"]))
            if tensor.dim() == 4 and tensor.is_floating_point():
                tensor = tensor.contiguous(memory_format=torch.channels_last)
            self.places[name] = f"constant{number}"
            self.register_buffer(self.places[name], tensor)

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """The outputs, in order."""
        values: dict[str, Any] = dict(zip(self.inputs, inputs, strict=True))
        for kind, names, results, attributes in self.nodes:
            wanted = NUMBERS.get(kind, ())
            arguments = [
                self.numbers[name]
                if position in wanted and name in self.numbers
                else self._value(name, values)
                for position, name in enumerate(names)
            ]
            if kind == "Cast":
                to = getattr(torch, attributes["to"])
                values[results[0]] = arguments[0].to(self.dtype if to.is_floating_point else to)
            else:
                values[results[0]] = OPERATORS[kind]({**attributes, "opset": self.opset}, *arguments)
        return [values[name] for name in self.outputs]

    def _value(self, name: str, values: dict[str, Any]) -> Any:
        if not name:
            return None
        return values[name] if name in values else getattr(self, self.places[name])


def inputs_of(described: dict[str, Any], dtype: torch.dtype) -> list[torch.Tensor]:
    """Random inputs in pinned memory; integers are 1."""
    made = []
    for one in described["inputs"]:
        if one["integer"]:
            tensor = torch.ones(one["shape"], dtype=getattr(torch, one["dtype"]))
        else:
            tensor = torch.randn(one["shape"]).to(dtype)
        if tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        made.append(tensor.pin_memory() if torch.cuda.is_available() else tensor)
    return made
