"""Which of a model's values are beyond float16 in the recorded run: with ``--precision fp16`` they stay
float32. And how large those are that its nodes read, which says what the sums of products may reach."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.reference_run import run_reference
from edgepack.compiler.frontend.onnx.shapes import infer_shapes
from edgepack.compiler.frontend.recorded import RECORDED
from edgepack.errors import ModelError
from edgepack.plan.calibration import LARGEST_FLOAT16, NOT_CALIBRATED, CalibrationRanges

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["calibrate", "calibration_ranges"]

_FILE = "calibration.json"

#: Ends the names of what is added to the graph.
_MOST = "/largest"


def calibrate(model: onnx.ModelProto, folder: Path) -> tuple[str, ...]:
    """Runs a model on the recorded inputs, and leaves its :class:`CalibrationRanges` in ``folder``.

    Args:
        model: normalised, its weights loaded. Changed: each result's largest magnitude becomes an output.
        folder: with ``recorded/``.

    Returns:
        Warnings: the node with the largest value, or why there was nothing to see.
    """
    most: dict[str, float] = {}
    try:
        inputs = _recorded_inputs(folder / RECORDED)
        reads = {node.name: list(node.input) for node in model.graph.node}
        values = _largest(model, inputs)
        most = _beyond(model, values)
        read = {
            node: max((values[name] for name in names if name in values), default=0.0)
            for node, names in reads.items()
        }
        ranges = {"large": sorted(most), "read": read}
        (folder / _FILE).write_text(json.dumps(ranges) + "\n", encoding="utf-8", newline="\n")
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


def calibration_ranges(folder: Path) -> CalibrationRanges:
    """What :func:`calibrate` found; nothing where it did not look."""
    file = folder / _FILE
    if not file.is_file():
        return NOT_CALIBRATED
    found = json.loads(file.read_text(encoding="utf-8"))
    return CalibrationRanges(frozenset(found["large"]), found["read"])


def _recorded_inputs(folder: Path) -> dict[str, NDArray[Any]]:
    import numpy as np

    inputs = json.loads((folder / "recorded.json").read_text(encoding="utf-8"))["inputs"]
    return {
        i["name"]: np.frombuffer((folder / i["file"]).read_bytes(), np.dtype(i["dtype"])).reshape(i["shape"])
        for i in inputs
    }


def _largest(model: onnx.ModelProto, arrays: dict[str, NDArray[Any]]) -> dict[str, float]:
    """The largest magnitude of each float32 value that is an input or computed, by its name."""
    import numpy as np
    import onnx

    typed = infer_shapes(model).graph
    floats = {
        value.name
        for value in (*typed.value_info, *typed.output)
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    found = {name: float(np.abs(a).max()) for name, a in arrays.items() if a.dtype == np.float32 and a.size}
    names = [name for node in model.graph.node for name in node.output if name in floats]
    del model.graph.output[:]
    for name in names:
        magnitude = onnx.helper.make_node("Abs", [name], [f"{name}/magnitude"])
        reduced = onnx.helper.make_node("ReduceMax", [f"{name}/magnitude"], [name + _MOST], keepdims=0)
        model.graph.node.extend([magnitude, reduced])
        model.graph.output.append(
            onnx.helper.make_tensor_value_info(name + _MOST, onnx.TensorProto.FLOAT, [])
        )
    if not names:
        return found
    results = run_reference(model, arrays)
    return found | {name.removesuffix(_MOST): float(array) for name, array in results.items()}


def _beyond(model: onnx.ModelProto, values: Mapping[str, float]) -> dict[str, float]:
    """The largest magnitude of the results of each node that has one beyond float16, by its name."""
    found: dict[str, float] = {}
    for node in model.graph.node:
        for name in node.output:
            value = values.get(name, 0.0)
            if not value <= LARGEST_FLOAT16:  # no number either
                found[node.name] = max(found.get(node.name, 0.0), value)
    return found
