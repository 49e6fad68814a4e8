"""Which of a model's values are beyond float16 in the recorded run: with ``--precision fp16`` they stay
float32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.reference_run import run_reference
from edgepack.compiler.frontend.shapes import infer_shapes
from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["LARGEST", "large_nodes", "note_large_values"]

#: The largest number of float16.
LARGEST = 65504.0

_FILE = "large_values.json"

#: Ends the names of what is added to the graph.
_MOST = "/largest"


def note_large_values(model: onnx.ModelProto, folder: Path) -> tuple[str, ...]:
    """Runs a model on the recorded inputs, and leaves the names of the nodes whose float32 results exceed
    float16 in ``folder``.

    Args:
        model: normalised, its weights loaded. Changed: each result's largest magnitude becomes an output.
        folder: with ``recorded/``.

    Returns:
        Warnings: the node with the largest value, or why there was nothing to see.
    """
    most: dict[str, float] = {}
    try:
        most = _largest(model, _recorded_inputs(folder / "recorded"))
        (folder / _FILE).write_text(json.dumps(sorted(most)) + "\n", encoding="utf-8", newline="\n")
    except (ModelError, TypeError) as error:
        why = str(getattr(error, "detail", "") or error).splitlines()[0]
        return (
            "The model's own values could not be looked at, so one beyond 65504 would become infinite in "
            f"float16: {why}",
        )
    if not most:
        return ()
    first = max(most, key=lambda name: most[name])
    more = f", and so do {len(most) - 1} more" if len(most) > 1 else ""
    return (
        f"The result of {first!r} reaches {most[first]:.3g} on the recorded inputs, beyond float16 (65504), "
        f"so it stays float32{more}.",
    )


def large_nodes(folder: Path) -> frozenset[str]:
    """Names of the nodes that :func:`note_large_values` found; none where it did not look."""
    file = folder / _FILE
    return frozenset(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else frozenset()


def _recorded_inputs(folder: Path) -> dict[str, NDArray[Any]]:
    import numpy as np

    inputs = json.loads((folder / "recorded.json").read_text(encoding="utf-8"))["inputs"]
    return {
        i["name"]: np.frombuffer((folder / i["file"]).read_bytes(), np.dtype(i["dtype"])).reshape(i["shape"])
        for i in inputs
    }


def _largest(model: onnx.ModelProto, arrays: dict[str, NDArray[Any]]) -> dict[str, float]:
    """The largest magnitude of the float32 results of each node that has one beyond float16, by its name."""
    import onnx

    typed = infer_shapes(model).graph
    floats = {
        value.name
        for value in (*typed.value_info, *typed.output)
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    nodes = {name: node.name for node in model.graph.node for name in node.output if name in floats}
    del model.graph.output[:]
    for name in nodes:
        magnitude = onnx.helper.make_node("Abs", [name], [f"{name}/magnitude"])
        reduced = onnx.helper.make_node("ReduceMax", [f"{name}/magnitude"], [name + _MOST], keepdims=0)
        model.graph.node.extend([magnitude, reduced])
        model.graph.output.append(
            onnx.helper.make_tensor_value_info(name + _MOST, onnx.TensorProto.FLOAT, [])
        )
    if not nodes:
        return {}
    found: dict[str, float] = {}
    for name, array in run_reference(model, arrays).items():
        node, value = nodes[name.removesuffix(_MOST)], float(array)
        if not value <= LARGEST:  # no number either
            found[node] = max(found.get(node, 0.0), value)
    return found
