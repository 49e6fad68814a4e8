"""How far off the reference is itself: what rounding does to a model's outputs on recorded inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.double_precision import DRAWS, in_double, with_draw
from edgepack.compiler.frontend.onnx.flipped_steps import rounds_to_steps
from edgepack.compiler.frontend.onnx.reference_run import run_each
from edgepack.compiler.frontend.onnx.shapes import all_nodes
from edgepack.compiler.frontend.tolerances import LITTLE, share_of
from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["Noise", "little", "measure", "proof"]

#: What noise is compared with, as a part of an output's largest magnitude: below this one run says enough.
#: It is a tenth of the least that an output of float32 may be off by.
QUIET = 1e-5

#: Runs with inputs moved by a unit in the last place, where there is no float64.
MOVES = 3


@dataclass(frozen=True)
class Noise:
    """The outputs of other runs of the reference, which differ from its own by rounding alone.

    Attributes:
        source: what they were computed with, as a noun; empty if there are none.
        runs: outputs by name, of each run.
    """

    source: str = ""
    runs: Sequence[Mapping[str, NDArray[Any]]] = ()


def measure(
    model: onnx.ModelProto | None, arrays: Mapping[str, NDArray[Any]], results: Mapping[str, NDArray[Any]]
) -> Noise:
    """Run a model in float64, and, where that differs much, also with all that it computes moved by half a
    unit in the last place; with moved inputs where there is no float64.

    Args:
        model: as ONNX Runtime ran it; None if it did not: nothing is measured then. Nor is it of a model that
            rounds to steps, where other steps (``flipped_steps.py``) tell more.
        arrays: the recorded inputs.
        results: what they gave.
    """
    if model is None or any(rounds_to_steps(node.op_type) for node in all_nodes(model.graph)):
        return Noise()
    exact = _in_double(model, arrays, everywhere=False)
    if exact and not _is_loud(results, exact[0]):
        return Noise("a run in float64", exact)
    if exact:
        return Noise("runs in float64", [*exact, *_in_double(model, arrays, everywhere=True)])
    try:
        moved = run_each(model, runs) if (runs := list(_moved(arrays))) else []
    except ModelError:
        moved = []
    return Noise("runs on inputs moved by a unit in the last place", moved) if moved else Noise()


def proof(name: str, array: NDArray[Any], limits: Mapping[str, float], noise: Noise) -> float:
    """Which part of an output's elements' differences its tolerance is, for noise (:func:`share_of`); 0 where
    it is not wider for noise; infinite where rounding alone decides whether it is a number.
    """
    import numpy as np

    if array.dtype.kind == "f":
        finite = np.isfinite(array)
        if any(not np.isfinite(run[name][finite]).all() for run in noise.runs):
            return float("inf")
    return share_of(array, limits) if limits.get("noisy") else 0.0


def little(name: str, share: float, limits: Mapping[str, float], noise: Noise) -> list[str]:
    """Says so where a run proves little of an output for noise."""
    if share <= LITTLE:
        return []
    return [
        f"The reference's own rounding moves output {name!r} by up to {limits['noise']:.2g} of "
        f"{limits['max_abs']:.2g} ({noise.source}), on these and on other inputs: it proves little."
    ]


def _in_double(
    model: onnx.ModelProto, arrays: Mapping[str, NDArray[Any]], *, everywhere: bool
) -> list[dict[str, NDArray[Any]]]:
    """The outputs of a run in float64, or of all that are moved everywhere; none if that cannot be."""
    doubled = in_double(model, everywhere=everywhere)
    try:
        runs = [with_draw(arrays, draw) for draw in range(DRAWS if everywhere else 1)]
        return [] if doubled is None else run_each(doubled, runs)
    except ModelError:
        return []


def _is_loud(results: Mapping[str, NDArray[Any]], exact: Mapping[str, NDArray[Any]]) -> bool:
    """Whether an output differs by more than QUIET of its largest magnitude."""
    import numpy as np

    for name, array in results.items():
        values = array.astype(np.float64)
        finite = np.isfinite(values)
        if not finite.any():
            continue
        off = np.abs(exact[name].astype(np.float64)[finite] - values[finite])
        if not (off <= QUIET * np.abs(values[finite]).max()).all():
            return True
    return False


def _moved(arrays: Mapping[str, NDArray[Any]]) -> Iterator[dict[str, NDArray[Any]]]:
    """The inputs with about two thirds of all floats moved by a unit in the last place; nothing without."""
    import numpy as np

    if not any(array.dtype.kind == "f" for array in arrays.values()):
        return
    for number in range(MOVES):
        rng = np.random.default_rng(number)
        yield {
            name: np.nextafter(array, array + array * rng.integers(-1, 2, array.shape).astype(array.dtype))
            if array.dtype.kind == "f"
            else array
            for name, array in arrays.items()
        }
