"""Which tensors inside two models are the same, by name: those of a quantised one stand for those of the
float one that it was made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.quantise.quantised_tensors import QuantisedTensors
from edgepack.compiler.frontend.onnx.quantise.runs import runner

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["NamedTensors", "shared_tensors"]

#: Activations that a quantiser takes into the range of the integers in front of them.
_CLIPS = ("Clip", "Relu")

#: What ONNX Runtime's quantiser puts behind the name of a tensor of integers, where no float stands for it.
_QUANTISED, _SCALE, _ZERO = "_quantized", "_scale", "_zero_point"

#: Their result is what they read, in another order or shape: nothing is lost in them.
_MOVES = {
    *("Cast", "DequantizeLinear", "Expand", "Flatten", "Identity", "QuantizeLinear", "Reshape", "Squeeze"),
    *("Transpose", "Unsqueeze"),
}


@dataclass(frozen=True)
class _Value:
    """Where the values of a tensor are: in another one, perhaps as integers of a scale and a zero point."""

    tensor: str
    scale: NDArray[Any] | None = None
    zero: NDArray[Any] | None = None


class NamedTensors:
    """The tensors that a model computes, by the names that they have in the float model.

    Attributes:
        origins: the node that computes each, in the graph's order.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        seen = QuantisedTensors(model)
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.origins: dict[str, onnx.NodeProto] = {}
        self._values: dict[str, _Value] = {}
        for node in model.graph.node:
            if node.op_type in ("DequantizeLinear", "QuantizeLinear"):
                continue
            for made in filter(None, node.output):
                value = self._integers(made)
                name = made.removesuffix(_QUANTISED) if value else seen.float_name(made)
                self.origins[name] = node
                self._values[name] = value or _Value(seen.value_of(name))
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for read in node.input:
                self._readers.setdefault(read, []).append(node)
        self._names = {value.tensor: name for name, value in self._values.items()}

    def name_of(self, tensor: str) -> str:
        """The float model's name of a tensor that a node reads."""
        return self._names.get(tensor, tensor)

    def clipped(self, name: str, other: NamedTensors) -> str:
        """The name of a tensor behind its Relu or Clip, where ``other`` has taken that into the integers that
        have the tensor's own name; otherwise the name."""
        readers = self._readers.get(name, [])
        if len(readers) != 1 or readers[0].op_type not in _CLIPS:
            return name
        behind = readers[0].output[0]
        return name if behind in other.origins or other.has_clip(name) else behind

    def has_clip(self, name: str) -> bool:
        """Whether a Relu or Clip reads a tensor."""
        value = self._values.get(name)
        readers = self._readers.get(value.tensor if value else name, [])
        return any(node.op_type in _CLIPS for node in readers)

    def _integers(self, made: str) -> _Value | None:
        """A tensor of integers with the scale that its name says."""
        from onnx import numpy_helper

        name = made.removesuffix(_QUANTISED)
        steps = [self.constants.get(name + end) for end in (_SCALE, _ZERO)]
        if name == made or any(one is None or len(one.dims) > 1 for one in steps):
            return None
        scale, zero = (numpy_helper.to_array(one) for one in steps if one is not None)
        return _Value(made, scale, zero) if scale.size == zero.size == 1 else None

    def runner(self, names: list[str], what: str) -> Callable[..., dict[str, NDArray[Any]]]:
        """What runs the model for tensors of these names, as floats where they are integers of a scale.

        Args:
            names: of :attr:`origins`, or of the model's outputs.
            what: is run, for messages.
        """
        values = {name: self._values.get(name) or _Value(name) for name in names}
        run = runner(self._model, [value.tensor for value in values.values()], what)

        def named(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            found = run(arrays)
            return {name: _real(found[value.tensor], value) for name, value in values.items()}

        return named


def _real(array: NDArray[Any], value: _Value) -> NDArray[Any]:
    import numpy as np

    if value.scale is None or value.zero is None:
        return array
    steps = array.astype(np.float32) - value.zero.astype(np.float32).reshape(())
    return np.asarray(steps * value.scale.reshape(()), np.float32)


def shared_tensors(first: NamedTensors, second: NamedTensors) -> dict[str, str]:
    """The names of the tensors that both compute, in the order of the first, and what the second calls each;
    without those of operators that compute nothing."""
    found = {}
    for name, node in first.origins.items():
        if name in second.origins and node.op_type not in _MOVES:
            found[first.clipped(name, second)] = second.clipped(name, first)
    return found
