"""The results of a model of another batch (``--set-batch``): a run of the model as it was for each sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.compiler.frontend.onnx.machine_independent import machine_independent

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["per_sample_outputs"]

_Arrays = Mapping[str, "NDArray[Any]"]


def per_sample_outputs(
    path: Path,
    options: ImportOptions,
    arrays: _Arrays,
    shapes: Mapping[str, tuple[int, ...]],
    run: Callable[[onnx.ModelProto, _Arrays], _Arrays],
) -> dict[str, NDArray[Any]]:
    """What the model in ``path`` gives for each sample, put together as that of ``options.batch`` has it.

    Args:
        arrays: the inputs of a whole batch.
        shapes: of the whole batch's outputs, by name. The axis that is another than in one sample's is the
            batch's; an output without one is that of the first sample.
        run: runs a model.
    """
    import numpy as np

    model = open_model(path, replace(options, batch=0))
    single = {value.name for value in model.graph.input if _first(value) == 1}
    model = machine_independent(model)
    runs = [
        run(model, {name: x[i : i + 1] if name in single else x for name, x in arrays.items()})
        for i in range(options.batch)
    ]
    results = {}
    for name, first in runs[0].items():
        axes = [i for i, (a, b) in enumerate(zip(first.shape, shapes[name], strict=True)) if a != b]
        parts = [np.asarray(one[name]) for one in runs]
        results[name] = np.concatenate(parts, axis=axes[0]) if axes else parts[0]
    return results


def _first(value: onnx.ValueInfoProto) -> int:
    dims = value.type.tensor_type.shape.dim
    return int(dims[0].dim_value) if dims else 0
