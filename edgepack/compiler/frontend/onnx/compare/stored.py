"""Arrays in raw files (little-endian, C order): what both sides are run on, and what a bundle computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.plan.types import TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["read_arrays", "write_samples"]


def write_samples(
    folder: Path, samples: Iterator[Mapping[str, NDArray[Any]]], specs: Sequence[TensorSpec]
) -> None:
    """Writes ``<sample>/input_<index>.bin`` for each input of each sample."""
    import numpy as np

    for number, arrays in enumerate(samples):
        (place := folder / str(number)).mkdir()
        for index, spec in enumerate(specs):
            dense = np.ascontiguousarray(arrays[spec.name])
            data = dense.astype(dense.dtype.newbyteorder("<")).tobytes()
            (place / f"input_{index}.bin").write_bytes(data)


def read_arrays(folder: Path, kind: str, specs: Sequence[TensorSpec]) -> dict[str, NDArray[Any]]:
    """The arrays of a sample's folder by name.

    Args:
        kind: ``input`` or ``output``.
        specs: of the arrays, in the order of the files.
    """
    import ml_dtypes
    import numpy as np

    found = {}
    for index, spec in enumerate(specs):
        wide = np.dtype(ml_dtypes.bfloat16 if spec.dtype == "bfloat16" else spec.dtype)
        data = (folder / f"{kind}_{index}.bin").read_bytes()
        found[spec.name] = np.frombuffer(data, wide.newbyteorder("<")).astype(wide).reshape(spec.shape)
    return found
