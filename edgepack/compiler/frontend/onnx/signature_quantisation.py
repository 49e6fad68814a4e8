"""What the integers of a quantised model's inputs and outputs mean, for whoever fills and reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.quantisation_checks import QUANTISED_PLACES
from edgepack.compiler.frontend.onnx.shapes import all_nodes
from edgepack.plan.types import LinearQuantisation, TensorSpec

if TYPE_CHECKING:
    import onnx

__all__ = ["signature_quantisation", "with_quantisation"]


def signature_quantisation(model: onnx.ModelProto) -> dict[str, LinearQuantisation]:
    """What the integers of inputs and outputs mean, by name.

    It is known of an input that all who read it take with one constant scale and zero point
    (DequantizeLinear, QLinearConv, ...), and of an output that QuantizeLinear or its like makes.
    """
    constants = _constants(model.graph)
    said: dict[str, set[LinearQuantisation | None]] = {}
    for node in all_nodes(model.graph):
        known = dict(_quantities(node, constants))
        for name in filter(None, node.input):
            said.setdefault(name, set()).add(known.get(name))
    found = {one.name: said.get(one.name, set()) for one in model.graph.input}
    for node in model.graph.node:
        found |= {name: {meaning} for name, meaning in _quantities(node, constants) if name in node.output}
    ends = {one.name for one in (*model.graph.input, *model.graph.output)}
    single = {name: next(iter(each)) for name, each in found.items() if name in ends and len(each) == 1}
    return {name: meaning for name, meaning in single.items() if meaning is not None}


def with_quantisation(
    specs: Iterable[TensorSpec], known: Mapping[str, LinearQuantisation]
) -> tuple[TensorSpec, ...]:
    """Tensors with what is known of their integers, by name; others than integers have no such meaning."""
    return tuple(
        replace(spec, quantisation=known.get(spec.name)) if "int" in spec.dtype else spec for spec in specs
    )


def _quantities(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]
) -> Iterator[tuple[str, LinearQuantisation | None]]:
    """Names of integers that a node reads or makes, with what they mean; None where no constant says it."""
    if node.domain not in ("", "ai.onnx", "com.microsoft"):
        return
    for place, scale, zero in QUANTISED_PLACES.get(node.op_type, ()):
        names = [node.input[i] if i < len(node.input) else "" for i in (scale, zero)]
        if place < len(node.input):
            yield (node.output[0] if place < 0 else node.input[place]), _meaning(names, constants)


def _meaning(names: list[str], constants: Mapping[str, onnx.TensorProto]) -> LinearQuantisation | None:
    import numpy as np
    from onnx import numpy_helper

    tensors = [constants.get(name) for name in names]
    if tensors[0] is None or (names[1] and tensors[1] is None):
        return None
    scale, zero = (None if one is None else numpy_helper.to_array(one).reshape(-1) for one in tensors)
    if scale is None or scale.size != 1 or (zero is not None and zero.size != 1):
        return None
    step = float(scale[0])
    if not 0 < step < np.inf or float(np.float32(step)) != step:
        return None
    return LinearQuantisation(step, 0 if zero is None else int(zero[0]))


def _constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Constants of the outermost graph whose numbers are in it."""
    import onnx

    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            values = [item.t for item in node.attribute if item.name == "value"]
            found.update(dict.fromkeys(node.output, values[0]) if values else {})
    external = onnx.TensorProto.EXTERNAL
    return {name: tensor for name, tensor in found.items() if tensor.data_location != external}
