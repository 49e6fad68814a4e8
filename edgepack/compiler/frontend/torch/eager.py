"""The reference of a program: its eager module, in the place of ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.recorded import DifferentModelError, read_inputs, replace_outputs
from edgepack.errors import ModelError

if TYPE_CHECKING:
    from edgepack.compiler.frontend.torch.to_onnx import Exported

__all__ = ["record_eager"]


def record_eager(exported: Exported, directory: Path, where: str) -> None:
    """Put what PyTorch computes of the recorded inputs in the place of the recorded outputs.

    Args:
        directory: recorded data (:mod:`edgepack.compiler.frontend.recorded`), with ONNX Runtime's outputs.

    Raises:
        ModelError: the two differ by more than an output may be off by: the exporter made another model.
    """
    import torch

    recorded = json.loads((directory / "recorded.json").read_text(encoding="utf-8"))
    inputs = read_inputs(directory)
    if list(inputs) != list(exported.inputs):
        return
    results = exported.eager(inputs)
    if list(results) != [one["name"] for one in recorded["outputs"]]:
        return
    try:
        version = torch.__version__.partition("+")[0]
        replace_outputs(directory, results, f"PyTorch {version}, eager")
    except DifferentModelError as error:
        raise ModelError(
            f"{where}: PyTorch's exporter made another model: {error} from what the eager module computes.",
            hint="Report it to PyTorch, or leave out the layer that is exported wrongly (--outputs).",
        ) from error
