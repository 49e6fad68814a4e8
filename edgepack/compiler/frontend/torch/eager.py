"""The reference of a program: its eager module, in the place of ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.recorded import write_recorded
from edgepack.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgepack.compiler.frontend.torch.to_onnx import Exported

__all__ = ["record_eager"]


def record_eager(exported: Exported, directory: Path, where: str) -> None:
    """Put what PyTorch computes of the recorded inputs in the place of the recorded outputs.

    Args:
        directory: recorded data (:mod:`edgepack.compiler.frontend.recorded`), with ONNX Runtime's outputs.

    Raises:
        ModelError: the two differ by more than an output may be off by: the exporter made another model.
    """
    import numpy as np
    import torch

    text = (directory / "recorded.json").read_text(encoding="utf-8")
    recorded = json.loads(text)
    inputs = {one["name"]: _read(directory, one) for one in recorded["inputs"]}
    if list(inputs) != list(exported.inputs):
        return
    results = exported.eager(inputs)
    if list(results) != [one["name"] for one in recorded["outputs"]]:
        return
    limits: dict[str, dict[str, float]] = {}
    for one in recorded["outputs"]:
        name, reference = one["name"], _read(directory, one)
        limits[name] = {k: v for k, v in one.items() if k not in {"name", "dtype", "shape", "file"}}
        found = results[name].astype(reference.dtype).reshape(reference.shape)
        allowed = limits[name]["atol"] + limits[name]["rtol"] * np.abs(found.astype(np.float64))
        off = np.abs(found.astype(np.float64) - reference.astype(np.float64))
        same = (found == reference) | (np.isnan(off) & np.isnan(found.astype(np.float64)))
        if not (same | (off <= allowed)).all():
            worst = np.nanmax(np.where(same, 0, off))
            raise ModelError(
                f"{where}: PyTorch's exporter made another model: output {name!r} differs by {worst:.3g} "
                "from what the eager module computes.",
                hint="Report it to PyTorch, or leave out the layer that is exported wrongly (--outputs).",
            )
        results[name] = found
    write_recorded(
        directory, inputs, results, limits, f"PyTorch {torch.__version__.partition('+')[0]}, eager"
    )


def _read(directory: Path, one: dict[str, Any]) -> NDArray[Any]:
    import numpy as np

    if one["dtype"] == "bfloat16":
        import ml_dtypes

        kind: Any = ml_dtypes.bfloat16
    else:
        kind = np.dtype(one["dtype"])
    data = np.frombuffer((directory / one["file"]).read_bytes(), kind)
    return data.reshape(one["shape"]).copy()
