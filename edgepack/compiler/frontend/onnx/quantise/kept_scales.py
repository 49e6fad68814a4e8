"""The scales of an older quantised model, for one of the same network with other weights.

Kernels hold scales, zero points and look-up tables of activations as numbers; those of weights by channel,
and biases, are params. A model that is quantised with the activations' old scales therefore is new params
for the old one's library (``edgepack update``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edgepack.compiler.frontend.onnx.model_file import read_model
from edgepack.compiler.frontend.onnx.quantise.bias_correction import CORRECTED
from edgepack.compiler.frontend.onnx.quantise.quantised_tensors import DEQUANTISED, INPUT, constant_steps
from edgepack.compiler.frontend.onnx.quantise.structure import PRODUCTS, Structure
from edgepack.errors import ModelError
from edgepack.plan.quantisation import QuantisedLayer

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["KeptScales", "Steps"]

#: Share of a result's values beyond its old range from which on it is told.
_TOLD = 0.001
#: Largest magnitude of a weight of 7 bits.
_REDUCED = 64
_HINT = "Quantise it on its own (leave --like out), and ship the library too."


class Steps(NamedTuple):
    """What the integers of a tensor mean: ``(x - zero) * scale``; of weights along an axis, or none."""

    scale: NDArray[Any]
    zero: NDArray[Any]
    axis: int | None = None


class KeptScales:
    """What an older quantised model says of its tensors.

    Attributes:
        activations: by the float model's name.
        weights: constants that are integers there, by the float model's name.
        symmetric: its activations are int8.
        reduced: its weights have 7 bits.
        corrected: errors of its weights were taken off its biases.

    Raises:
        ModelError: it cannot be read, or has no activations with constant scales.
    """

    def __init__(self, path: Path) -> None:
        import numpy as np
        from onnx import numpy_helper

        self.path = path
        model = read_model(path)
        self._operators = _operators(model)
        self.activations = _activations(model)
        self.weights: dict[str, Steps] = {}
        constants = {tensor.name: tensor for tensor in model.graph.initializer}
        largest = 0
        for node in model.graph.node:
            if node.op_type != "DequantizeLinear" or node.input[0] not in constants:
                continue
            values, found = numpy_helper.to_array(constants[node.input[0]]), constant_steps(node, constants)
            if found is None or values.dtype != np.int8:  # a bias follows from the others
                continue
            axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
            name = node.output[0].removesuffix(DEQUANTISED)
            self.weights[name] = Steps(*found, axis if found[0].ndim else None)
            largest = max(largest, int(np.abs(values.astype(np.int64)).max(initial=0)))
        if not self.activations or not self.weights:
            raise ModelError(
                f"{path} is no quantised model whose scales could be kept: it has no QuantizeLinear with a "
                "constant scale, or no weights of int8.",
                hint="Give what `edgepack quantize` made of the same network before.",
            )
        self.symmetric = all(one.zero.dtype == np.int8 for one in self.activations.values())
        self.reduced = largest <= _REDUCED
        self.corrected = any(CORRECTED in name for name in constants)

    def float_layers(self, structure: Structure) -> set[str]:
        """Names of the layers of a float model that stay float, as they did before."""
        found = set()
        for node in structure.layers:
            weights = [name for name in node.input[:2] if name in structure.constants]
            known: Iterable[str] = self.activations
            names = [name for name in node.input if name in structure.floats]
            if node.op_type in PRODUCTS and weights:
                known, names = self.weights, weights
            if not any(name in known for name in names):
                found.add(node.name)
        return found

    def overrides(self, structure: Structure) -> dict[str, list[dict[str, Any]]]:
        """What ONNX Runtime's quantiser takes for the tensors whose scales are numbers of a kernel.

        Raises:
            ModelError: the float model has no such tensor.
        """
        alone = {name: one for name, one in self.weights.items() if one.scale.size == 1}
        there = structure.floats | structure.constants.keys()
        if missing := sorted((self.activations.keys() | alone.keys()) - there):
            raise ModelError(
                f"It is another network than {self.path} was made of: it has no tensor {missing[0]!r}.",
                hint=_HINT,
            )
        found = {}
        for name, one in {**self.activations, **alone}.items():
            numbers = {"scale": one.scale.reshape(()), "zero_point": one.zero.reshape(())}
            found[name] = [numbers if one.axis is None else {**numbers, "axis": one.axis}]
        return found

    def check(self, made: onnx.ModelProto) -> None:
        """Raise ModelError unless a quantised model differs from the older one in its weights alone."""
        now = _activations(made)
        if Counter(_operators(made)) != Counter(self._operators) or now.keys() != self.activations.keys():
            named = sorted(now.keys() ^ self.activations.keys())
            what = f"{named[0]!r} is rounded in one of them only" if named else "their operators are others"
            raise ModelError(f"It is not quantised as {self.path} is: {what}.", hint=_HINT)
        for name, one in self.activations.items():
            if (now[name].scale, now[name].zero) != (one.scale, one.zero):
                raise ModelError(f"The scale of {name!r} is not that of {self.path}.", hint=_HINT)

    def warnings(self, structure: Structure, layers: Iterable[QuantisedLayer]) -> tuple[str, ...]:
        """What new weights and results lose for the sake of old scales, in sentences."""
        import numpy as np
        from onnx import numpy_helper

        beyond = [f"{one.name} ({one.outside:.1%})" for one in layers if one.outside > _TOLD]
        clipped = []
        for name, one in self.weights.items():
            if one.scale.size == 1 and name in structure.constants:
                values = numpy_helper.to_array(structure.constants[name])
                if np.abs(values).max(initial=0) > 127.5 * float(one.scale.reshape(())):
                    clipped.append(name)
        found = []
        if beyond:
            found.append(f"Results are beyond the ranges of {self.path.name}: {', '.join(beyond[:8])}.")
        if clipped:
            found.append(f"Weights are beyond the ranges of {self.path.name}: {', '.join(clipped[:8])}.")
        return tuple(f"{text} They are clipped; new ranges need a new library." for text in found)


def _operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def _activations(model: onnx.ModelProto) -> dict[str, Steps]:
    """The tensors that QuantizeLinear rounds with one constant scale, by the float model's name."""
    constants: Mapping[str, onnx.TensorProto] = {tensor.name: tensor for tensor in model.graph.initializer}
    found = {}
    for node in model.graph.node:
        known = constant_steps(node, constants) if node.op_type == "QuantizeLinear" else None
        if known is not None and known[0].size == 1:
            scale, zero = (array.reshape(()) for array in known)
            found[node.input[0].removesuffix(INPUT)] = Steps(scale, zero)
    return found
