"""What decides on how far each output of an ONNX model may be off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.classical.texts import DOMAIN, FLOATS
from edgepack.compiler.frontend.onnx.flipped_steps import rounds_to_steps
from edgepack.compiler.frontend.onnx.shapes import infer_shapes
from edgepack.compiler.frontend.onnx.storage_types import storage_name
from edgepack.compiler.frontend.tolerances import TOLERANCES, OutputFacts, Tolerance, tolerance_of

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["output_facts", "tolerances", "tolerances_of_results"]


def tolerances(model: onnx.ModelProto, rounded: str | None = None) -> dict[str, Tolerance | int]:
    """What each output may be off by, by :func:`edgepack.compiler.frontend.tolerances.tolerance_of`."""
    return {name: tolerance_of(facts, rounded) for name, facts in output_facts(model).items()}


def tolerances_of_results(
    facts: Mapping[str, OutputFacts], results: Mapping[str, NDArray[Any]], rounded: str | None = None
) -> dict[str, Tolerance | int]:
    """What each output may be off by, where a run says which have floats: a model need not say it of what
    operators beside the standard compute, and ONNX does not infer it."""
    return {name: tolerance_of(_with_type(one, results.get(name)), rounded) for name, one in facts.items()}


def _with_type(facts: OutputFacts, result: NDArray[Any] | None) -> OutputFacts:
    dtype = "" if result is None else str(result.dtype)
    if facts.is_float or facts.stored_as_bytes or dtype not in TOLERANCES:
        return facts
    return replace(facts, is_float=True, arithmetic=facts.arithmetic | {dtype})


def output_facts(model: onnx.ModelProto) -> dict[str, OutputFacts]:
    """By output, what it is computed from and in which types."""
    import onnx

    graph = infer_shapes(model).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        types[value.name] = value.type.tensor_type.elem_type
    for node in graph.node:  # of ai.onnx.ml ONNX infers few
        if node.domain == DOMAIN and node.op_type in FLOATS and not types.get(node.output[-1]):
            types[node.output[-1]] = onnx.TensorProto.FLOAT
    producers = {name: node for node in graph.node for name in node.output}
    floats = {
        onnx.TensorProto.FLOAT: "float32",
        onnx.TensorProto.FLOAT16: "float16",
        onnx.TensorProto.BFLOAT16: "bfloat16",
        onnx.TensorProto.DOUBLE: "float64",
    }
    found: dict[str, OutputFacts] = {}
    for value in graph.output:
        ancestors = _ancestors(value.name, producers)
        exact = {name for name in ancestors if name in producers and types.get(name) not in floats}
        found[value.name] = OutputFacts(
            is_float=types.get(value.name) in floats,
            arithmetic=frozenset(floats[types[name]] for name in ancestors if types.get(name) in floats),
            rounds_to_steps=any(_rounds(producers[name]) for name in exact),
            stored_as_bytes=bool(storage_name(types.get(value.name, 0))),
        )
    return found


def _rounds(node: onnx.NodeProto) -> bool:
    """Whether a node rounds to steps, or sums up integers as floats: an integer output may be off by one."""
    return node.op_type == "Resize" or rounds_to_steps(node.op_type)


def _ancestors(name: str, producers: Mapping[str, onnx.NodeProto]) -> set[str]:
    todo, found = [name], set()
    while todo:
        value = todo.pop()
        if value in found:
            continue
        found.add(value)
        if value in producers:
            todo += [source for source in producers[value].input if source]
    return found
