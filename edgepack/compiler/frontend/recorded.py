"""The recorded data of a bundle, of a model of any format: inputs, reference outputs, their tolerances."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "RECORDED",
    "DifferentModelError",
    "compare_outputs",
    "judged",
    "read_inputs",
    "replace_outputs",
    "write_recorded",
]

#: The folder, in that of a prepared model.
RECORDED = "recorded"


def write_recorded(
    directory: Path,
    inputs: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, NDArray[Any]],
    limits: Mapping[str, Mapping[str, float]],
    source: str,
    about: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Writes ``input_<i>.bin`` and ``output_<i>.bin`` (raw, little-endian, C order), and ``recorded.json``.

    Args:
        directory: is made if it is missing.
        inputs, outputs: by name, in the signature's order.
        limits: of each output, by :func:`edgepack.compiler.frontend.tolerances.limits_of`.
        source: what computed the outputs.
        about: what else is said of them: ``drawn``, how the inputs were, and ``noise_of``, what shows how
            far off the outputs are themselves; ``corners``, folders in this one with runs on corner data, and
            ``corners_left_out``, why there is none of a name.
    """
    directory.mkdir(parents=True, exist_ok=True)
    recorded: dict[str, Any] = {
        kind: [
            {**_write(directory / f"{kind[:-1]}_{index}.bin", name, array), **more.get(name, {})}
            for index, (name, array) in enumerate(values.items())
        ]
        for kind, values, more in (("inputs", inputs, {}), ("outputs", outputs, limits))
    }
    text = json.dumps({**recorded, "reference": source, **about}, indent=1)
    (directory / "recorded.json").write_text(text + "\n", encoding="utf-8", newline="\n")


def _write(file: Path, name: str, array: NDArray[Any]) -> dict[str, Any]:
    import numpy as np

    dense = np.ascontiguousarray(array)
    file.write_bytes(dense.astype(dense.dtype.newbyteorder("<")).tobytes())
    return {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "file": file.name}


class DifferentModelError(ValueError):
    """Outputs that another program computed differ from the recorded ones; the text says which, and by how
    much."""


def read_inputs(directory: Path) -> dict[str, NDArray[Any]]:
    """The recorded inputs, by name."""
    recorded = json.loads((directory / "recorded.json").read_text(encoding="utf-8"))
    return {one["name"]: _read(directory, one) for one in recorded["inputs"]}


def replace_outputs(directory: Path, results: Mapping[str, NDArray[Any]], source: str) -> None:
    """Put what another program computes of the recorded inputs in the place of the recorded outputs, whose
    tolerances stay.

    Args:
        results: of all outputs, by name.
        source: what computed them.

    Raises:
        DifferentModelError: they differ from the recorded ones by more than an output may be off by.
    """
    recorded = json.loads((directory / "recorded.json").read_text(encoding="utf-8"))
    limits: dict[str, dict[str, float]] = {}
    for one in recorded["outputs"]:
        limits[one["name"]] = {k: v for k, v in one.items() if k not in {"name", "dtype", "shape", "file"}}
    outputs = compare_outputs(directory, results)
    about = {
        name: value for name, value in recorded.items() if name not in {"inputs", "outputs", "reference"}
    }
    write_recorded(directory, read_inputs(directory), outputs, limits, source, about)


def compare_outputs(
    directory: Path, results: Mapping[str, NDArray[Any]], relative: float = 0.0
) -> dict[str, NDArray[Any]]:
    """Compare what another program computes of the recorded inputs with the recorded outputs.

    Args:
        results: of all outputs, by name.
        relative: what they may be off by beside an output's tolerance, of its largest magnitude.

    Returns:
        the results, of the recorded types and shapes.

    Raises:
        DifferentModelError: they differ by more.
    """
    import numpy as np

    recorded = json.loads((directory / "recorded.json").read_text(encoding="utf-8"))
    outputs: dict[str, NDArray[Any]] = {}
    for one in recorded["outputs"]:
        name, reference = one["name"], _read(directory, one)
        if results[name].size != reference.size:
            shapes = f"{list(results[name].shape)} there and {list(reference.shape)} here"
            raise DifferentModelError(f"output {name!r} has the shape {shapes}")
        found = results[name].astype(reference.dtype).reshape(reference.shape)
        most = one["atol"] + relative * one["max_abs"]
        allowed = most + one["rtol"] * np.abs(found.astype(np.float64))
        off = np.abs(found.astype(np.float64) - reference.astype(np.float64))
        same = (found == reference) | (np.isnan(off) & np.isnan(found.astype(np.float64)))
        if not (same | (off <= allowed)).all():
            worst = np.nanmax(np.where(same, 0, off))
            raise DifferentModelError(f"output {name!r} differs by {worst:.3g}")
        outputs[name] = found
    return outputs


def _read(directory: Path, one: Mapping[str, Any]) -> NDArray[Any]:
    import numpy as np

    if one["dtype"] == "bfloat16":
        import ml_dtypes

        kind: Any = ml_dtypes.bfloat16
    else:
        kind = np.dtype(one["dtype"])
    data = np.frombuffer((directory / one["file"]).read_bytes(), kind)
    return data.reshape(one["shape"]).copy()


def judged(name: str, array: NDArray[Any]) -> list[str]:
    """Warnings of an output that proves little: it is not finite, or all of it is one number."""
    import numpy as np

    if not np.isfinite(array.astype(np.float64)).all():
        return [f"Output {name!r} of the recorded run is not finite everywhere: it proves little."]
    if array.size > 1 and (array == array.flat[0]).all():
        return [f"All elements of output {name!r} are equal in the recorded run: it proves little."]
    return []
