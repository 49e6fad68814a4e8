"""The recorded data of a bundle, of a model of any format: inputs, reference outputs, their tolerances."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RECORDED", "judged", "write_recorded"]

#: The folder, in that of a prepared model.
RECORDED = "recorded"


def write_recorded(
    directory: Path,
    inputs: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, NDArray[Any]],
    limits: Mapping[str, Mapping[str, float]],
    source: str,
) -> None:
    """Writes ``input_<i>.bin`` and ``output_<i>.bin`` (raw, little-endian, C order), and ``recorded.json``.

    Args:
        directory: is made if it is missing.
        inputs, outputs: by name, in the signature's order.
        limits: of each output, by :func:`edgepack.compiler.frontend.tolerances.limits_of`.
        source: what computed the outputs.
    """
    directory.mkdir(parents=True, exist_ok=True)
    recorded: dict[str, Any] = {
        kind: [
            {**_write(directory / f"{kind[:-1]}_{index}.bin", name, array), **more.get(name, {})}
            for index, (name, array) in enumerate(values.items())
        ]
        for kind, values, more in (("inputs", inputs, {}), ("outputs", outputs, limits))
    }
    text = json.dumps({**recorded, "reference": source}, indent=1)
    (directory / "recorded.json").write_text(text + "\n", encoding="utf-8", newline="\n")


def _write(file: Path, name: str, array: NDArray[Any]) -> dict[str, Any]:
    import numpy as np

    dense = np.ascontiguousarray(array)
    file.write_bytes(dense.astype(dense.dtype.newbyteorder("<")).tobytes())
    return {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "file": file.name}


def judged(name: str, array: NDArray[Any]) -> list[str]:
    """Warnings of an output that proves little: it is not finite, or all of it is one number."""
    import numpy as np

    if not np.isfinite(array.astype(np.float64)).all():
        return [f"Output {name!r} of the recorded run is not finite everywhere: it proves little."]
    if array.size > 1 and (array == array.flat[0]).all():
        return [f"All elements of output {name!r} are equal in the recorded run: it proves little."]
    return []
