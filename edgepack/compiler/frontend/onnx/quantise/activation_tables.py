"""Products that are rounded before their activation too, which is a table then.

What lies between two quantised tensors elementwise is a table of 256 bytes (``byte_tables.py``). SiLU, GELU
or hard-swish behind a product are so if the product is rounded before them, as ONNX Runtime's quantiser and
TensorFlow Lite do: much less to compute, at the price of a second rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.byte_tables import Chains, evaluated, needed
from edgepack.compiler.frontend.onnx.quantise.kept_scales import Steps
from edgepack.compiler.frontend.onnx.quantise.ranges import Range
from edgepack.compiler.frontend.onnx.quantise.structure import PRODUCTS

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["with_activation_tables"]

#: Points of a range at which an activation is looked at, to find where it is flat.
POINTS = 1025

#: Operators that take several times as long to compute as a result is looked up.
EXPENSIVE = frozenset(
    {
        *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp"),
        *("Gelu", "Log", "Mish", "Pow", "Selu", "Sigmoid", "Sin", "Sinh", "Softplus", "Softsign", "Swish"),
        *("Tan", "Tanh"),
    }
)


def with_activation_tables(
    model: onnx.ModelProto,
    ranges: Mapping[str, Range],
    *,
    symmetric: bool,
    cheap: bool,
    kept: Mapping[str, Steps] | None = None,
) -> onnx.ModelProto:
    """Rounds products of integers before elementwise operators that end in a quantised tensor, in place.

    A product's range ends where the activation is flat: its ends are such that what lies beyond them makes no
    difference of more than half a step of the result.

    Args:
        model: with QuantizeLinear and DequantizeLinear, nodes in order.
        ranges: of the float model's tensors.
        symmetric: the zero point is 0, of int8.
        cheap: also before activations that are computed almost as fast as they are looked up (hard-swish).
        kept: what products are rounded, and by which scales; None: as follows from the others.
    """
    products = _products(model) & ranges.keys()
    chains = Chains(model, products)
    ends: dict[str, list[onnx.NodeProto]] = {}
    for node in chains.found:
        if (root := chains.roots[node.output[0]]) in products:
            ends.setdefault(root, []).append(node)
    readers, outputs = _readers(model), {value.name for value in model.graph.output}
    for name, quantisers in ends.items():
        inside = all(chains.roots.get(reader.output[0]) == name for reader in readers[name])
        if not inside or name in outputs or len(quantisers) != 1:
            continue
        if kept is not None:
            if name in kept:
                _round(model, name, kept[name], readers[name])
        elif cheap or any(
            node.op_type in EXPENSIVE for node in _chain(model, chains, quantisers[0].input[0])
        ):
            useful = _useful(model, chains, quantisers[0], ranges[name])
            _round(model, name, _steps_of(useful, symmetric=symmetric), readers[name])
    return model


def _products(model: onnx.ModelProto) -> set[str]:
    """The results, with their biases, of products of dequantised tensors."""
    constants = {tensor.name for tensor in model.graph.initializer}
    dequantised: dict[str, str] = {}
    found: dict[str, None] = {}
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear":
            dequantised[node.output[0]] = node.input[0]
        elif node.op_type in PRODUCTS and dequantised.keys() >= {*node.input[:2]}:
            found[node.output[0]] = None
        elif node.op_type == "Add" and len(node.input) == 2:
            for sums, bias in (tuple(node.input), tuple(node.input)[::-1]):
                if sums in found and ({bias, dequantised.get(bias, "")} & constants):
                    del found[sums]
                    found[node.output[0]] = None
                    break
    return set(found)


def _readers(model: onnx.ModelProto) -> dict[str, list[onnx.NodeProto]]:
    """The nodes that read a tensor, by its name."""
    found: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in dict.fromkeys(node.input):
            found.setdefault(name, []).append(node)
    return found


def _useful(model: onnx.ModelProto, chains: Chains, quantiser: onnx.NodeProto, given: Range) -> Range:
    """The part of a product's range outside of which the activation is flat.

    Args:
        quantiser: rounds what the chain ends in.
    """
    import numpy as np
    from onnx import numpy_helper

    name = quantiser.input[0]
    points = np.linspace(given.low, given.high, POINTS, dtype=np.float32)
    computed = evaluated(model, _chain(model, chains, name), {chains.roots[name]: points}, [name])
    values = computed[name].astype(np.float64)
    half = float(numpy_helper.to_array(chains.constants[quantiser.input[1]]).reshape(())) / 2
    low, high = (_flat_until(side, half) for side in (values, values[::-1]))
    if not np.isfinite(values).all() or low + high >= POINTS - 1:
        return given
    return Range(float(points[low]), float(points[POINTS - 1 - high]))


def _flat_until(values: NDArray[Any], half: float) -> int:
    """The last point before which all values are within ``half`` of its own."""
    import numpy as np

    low, high = np.minimum.accumulate(values), np.maximum.accumulate(values)
    return int(np.flatnonzero(np.maximum(values - low, high - values) <= half).max(initial=0))


def _chain(model: onnx.ModelProto, chains: Chains, name: str) -> list[onnx.NodeProto]:
    """The nodes between a tensor's root and the tensor."""
    root = chains.roots[name]
    inside = [n for n in model.graph.node if chains.roots.get(n.output[0]) == root and n.output[0] != root]
    return needed(inside, [name])


def _steps_of(given: Range, *, symmetric: bool) -> Steps:
    """What integers mean that stand for a range."""
    import numpy as np

    low, high = min(given.low, 0.0), max(given.high, 0.0)
    if symmetric:
        scale, zero = max(-low, high) / 127, np.array(0, np.int8)
    else:
        scale = (high - low) / 255
        zero = np.clip(np.rint(-low / scale) if scale else 0, 0, 255).astype(np.uint8)
    return Steps(np.asarray(np.float32(scale or 1.0)), np.asarray(zero))


def _round(model: onnx.ModelProto, name: str, numbers: Steps, readers: Iterable[onnx.NodeProto]) -> None:
    """Puts QuantizeLinear and DequantizeLinear between a tensor and its readers."""
    import numpy as np
    import onnx
    from onnx import numpy_helper

    steps = [f"{name}_scale", f"{name}_zero_point"]
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(number), step)
        for number, step in zip(numbers[:2], steps, strict=True)
    )
    whole, floats = f"{name}_QuantizeLinear_Output", f"{name}_DequantizeLinear_Output"
    for node in readers:
        node.input[:] = [floats if operand == name else operand for operand in node.input]
    at = next(i for i, node in enumerate(model.graph.node) if name in node.output)
    made = (("QuantizeLinear", name, whole), ("DequantizeLinear", whole, floats))
    for number, (kind, source, result) in enumerate(made):
        node = onnx.helper.make_node(kind, [source, *steps], [result], name=f"{name}_{kind}")
        model.graph.node.insert(at + 1 + number, node)
