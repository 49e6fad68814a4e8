"""Records runs on corner data beside the usual one: what a bundle must compute of special values, of ends of
ranges and of equal numbers, as far as it is well defined.

A run is recorded where ONNX Runtime computes the same in float32, in float32 added up in another order, and
in float64, and, of a small model, ONNX's own evaluator too: infinities and NaN in the same places, and
numbers that differ by no more than a tolerance that proves something. What is not recorded is said, and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.corner_inputs import CORNERS, corner_inputs
from edgepack.compiler.frontend.onnx.double_precision import in_double, with_draw
from edgepack.compiler.frontend.onnx.extents import stored_bytes
from edgepack.compiler.frontend.onnx.flipped_steps import draws, flip_steps, rounds_to_steps
from edgepack.compiler.frontend.onnx.onnxruntime_session import Level, create_session
from edgepack.compiler.frontend.onnx.reference_run import run_each
from edgepack.compiler.frontend.onnx.reordered_sums import reorder_sums
from edgepack.compiler.frontend.onnx.shapes import all_nodes
from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from edgepack.compiler.frontend.tolerances import LITTLE, Tolerance, limits_of, share_of, tightened

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["LARGEST_DATA", "LARGEST_WEIGHTS", "Corner", "Corners", "is_small", "no_corners", "record_corners"]

_Arrays = Mapping[str, "NDArray[Any]"]

#: Bytes of the largest weights of a model that is run so, and of the largest inputs and outputs of a run.
LARGEST_WEIGHTS, LARGEST_DATA = 16 << 20, 1 << 20

#: Nodes, and elements of all inputs, of a model that ONNX's own evaluator is asked about too. It has to be
#: about NaN and infinities, of which the kernels of ONNX Runtime make what their instructions happen to.
_SMALL = (512, 1 << 16)

#: What else may compute a run.
_STANDARD = "ONNX's own evaluator"

#: The least part of an output's elements that are numbers, in a run that proves something.
_NUMBERS = 0.1

#: Operators that compute windows of images together, where one that is no number may reach others.
_TOGETHER = {"Conv", "ConvTranspose"}

#: Operators whose result of NaN or of an infinity ONNX leaves open, or reads memory by in ONNX Runtime.
_OPEN = {
    *("ArgMax", "ArgMin", "Bernoulli", "DeformConv", "GridSample", "Hardmax", "MaxRoiPool", "MaxUnpool"),
    *("Multinomial", "NonMaxSuppression", "NonZero", "QuantizeLinear", "DynamicQuantizeLinear", "Range"),
    *("Resize", "RoiAlign", "TopK", "Unique", "Upsample", "AffineGrid"),
}


@dataclass(frozen=True)
class Corner:
    """A run on corner data.

    Attributes:
        limits: what its outputs may be off by.
    """

    inputs: _Arrays
    outputs: _Arrays
    limits: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Corners:
    """What is recorded beside the usual run.

    Attributes:
        runs: by name, one of ``CORNERS``.
        left_out: why others are not, by name.
    """

    runs: Mapping[str, Corner]
    left_out: Mapping[str, str]


def record_corners(
    model: onnx.ModelProto,
    arrays: _Arrays,
    allowed: Mapping[str, Tolerance | int],
    kept: Sequence[str],
    *,
    exact: bool,
) -> Corners:
    """The runs of a model on corner data.

    Args:
        model: as ONNX Runtime runs it.
        arrays: the recorded inputs, of which the corner data are made.
        allowed: by output, what it may be off by.
        kept: names of inputs that stay as they are.
        exact: whether a bundle computes in the model's own order, without fast convolutions.
    """
    nodes = list(all_nodes(model.graph))
    if sum(array.nbytes for array in arrays.values()) > LARGEST_DATA:
        return no_corners(f"the inputs have more than {LARGEST_DATA >> 20} MiB")
    together = not exact and any(node.op_type in _TOGETHER for node in nodes)
    judge = _Judge(model, allowed, steps=any(rounds_to_steps(node.op_type) for node in nodes))
    foreign = sorted({node.op_type for node in nodes if node.domain not in ("", "ai.onnx")})
    runs: dict[str, Corner] = {}
    left_out: dict[str, str] = {}
    open_ended = sorted({node.op_type for node in nodes if node.op_type in _OPEN})
    for name in CORNERS:
        if judge.steps and name != "ends":
            left_out[name] = "the model rounds to steps, which have ends"
        elif name == "special" and foreign:
            left_out[name] = f"what {foreign[0]} makes of NaN is not defined by ONNX"
        elif name == "special" and together:
            left_out[name] = "fast convolutions compute several places together (not with --strict-math)"
        elif name == "special" and open_ended:
            left_out[name] = f"what {open_ended[0]} makes of NaN is not defined"
        elif name == "special" and not judge.asks_standard(arrays):
            left_out[name] = "the model is too large for ONNX's own evaluator to say what NaN becomes"
        else:
            reason = "there is no input to put them into"
            for inputs in corner_inputs(model, arrays, kept, name, denormal=exact):
                corner, reason = judge.judged(
                    inputs, tight=name != "large" and not together, asked=name == "special"
                )
                if corner is not None:
                    runs[name] = corner
                    break
            else:
                left_out[name] = reason
    return Corners(runs, left_out)


def is_small(model: onnx.ModelProto) -> bool:
    """Whether a model has no more weights than one that is run on corner data may have."""
    return stored_bytes(model) <= LARGEST_WEIGHTS


def no_corners(reason: str) -> Corners:
    """Nothing is recorded, and why."""
    return Corners({}, dict.fromkeys(CORNERS, reason))


class _Judge:
    """Runs a model in several ways, each of which is prepared when it is first needed.

    Attributes:
        steps: whether it rounds to steps, by which right outputs may differ.
    """

    def __init__(
        self, model: onnx.ModelProto, allowed: Mapping[str, Tolerance | int], *, steps: bool
    ) -> None:
        self._model, self._allowed, self.steps = model, allowed, steps
        self._names = [value.name for value in model.graph.output]
        self._sessions: dict[str, Any] = {}

    def judged(self, inputs: _Arrays, *, tight: bool, asked: bool) -> tuple[Corner | None, str]:
        """A run that can be recorded, or None and the reason.

        Args:
            tight: whether a few large numbers leave the others compared as closely as without; an
                approximation may be off by as much as these say, and a fast convolution.
            asked: whether ONNX's own evaluator has to agree, where it is small enough for that.
        """
        import numpy as np

        try:
            outputs = self._run("float32", inputs)
        except Exception:  # onnxruntime's errors share no base class of their own
            return None, "ONNX Runtime cannot run the model on them"
        if sum(array.nbytes for array in outputs.values()) > LARGEST_DATA:
            return None, f"the outputs have more than {LARGEST_DATA >> 20} MiB"
        parts = [np.isfinite(a.astype(np.float64)).mean() for a in outputs.values() if a.size]
        if max(parts, default=1.0) < _NUMBERS:
            return None, "all outputs are NaN or infinite then"
        others: list[dict[str, NDArray[Any]]] = []
        for how in self._ways(inputs):
            try:
                others += self._runs(how, inputs)
            except Exception:  # as above
                if how == _STANDARD and not asked:
                    continue
                return None, f"they cannot be computed in another way too ({how})"
            if not self.steps and not all(_alike(outputs[name], others[-1][name]) for name in self._names):
                return None, f"rounding decides on the outputs ({how})"
        limits = self._limits(outputs, others, tight=tight)
        if limits is None:
            return None, "rounding decides on the outputs, or as much is allowed as they differ by"
        return Corner(inputs, outputs, limits), ""

    def _limits(
        self, outputs: _Arrays, others: Sequence[_Arrays], *, tight: bool
    ) -> dict[str, Mapping[str, float]] | None:
        """What outputs may be off by; None if that is so much that they prove little."""
        limits: dict[str, Mapping[str, float]] = {}
        for name, array in outputs.items():
            allowed, runs = self._allowed[name], [other[name] for other in others]
            if self.steps:
                limits[name] = limits_of(array, allowed, None, flipped=runs)
            else:
                found = limits_of(array, allowed, None, noise=runs)
                if found["noisy"]:
                    return None
                limits[name] = tightened(array, allowed, found, runs) if tight else found
            if share_of(array, limits[name]) > LITTLE:
                return None
        return limits

    def _ways(self, inputs: _Arrays) -> Iterator[str]:
        yield "added up in another order"
        if self.steps:
            yield "other steps"
            return
        if not any(node.op_type in _TOGETHER for node in self._model.graph.node):  # which have no float64
            yield "float64"
        if self.asks_standard(inputs):
            yield _STANDARD

    def asks_standard(self, inputs: _Arrays) -> bool:
        """Whether ONNX's own evaluator, which takes its time, is asked about these inputs."""
        nodes, elements = _SMALL
        asked = {node.op_type for node in all_nodes(self._model.graph)}
        if asked & _TOGETHER or sum(1 for _ in all_nodes(self._model.graph)) > nodes:
            return False
        return sum(array.size for array in inputs.values()) <= elements

    def _runs(self, how: str, inputs: _Arrays) -> list[dict[str, NDArray[Any]]]:
        if how != "other steps":
            return [self._run(how, inputs)]
        moved = flip_steps(self._model)
        return [] if moved is None else run_each(moved, draws(inputs))

    def _run(self, how: str, inputs: _Arrays) -> dict[str, NDArray[Any]]:
        import numpy as np

        if how == _STANDARD:
            return dict(zip(self._names, evaluate(self._model, inputs), strict=True))
        if how not in self._sessions:
            self._sessions[how] = self._session(how)
        session, doubled = self._sessions[how]
        results = session.run(self._names, with_draw(inputs, 0) if doubled else dict(inputs))
        return {name: np.asarray(array) for name, array in zip(self._names, results, strict=True)}

    def _session(self, how: str) -> tuple[Any, bool]:
        """A session, and whether it is one of a model in float64."""
        level: Level = "none" if how == "float32" else "extended"
        if how == "float64" and (doubled := in_double(self._model)) is not None:
            return create_session(doubled), True
        return create_session(self._model if level == "none" else reorder_sums(self._model), level), False


def _alike(reference: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two outputs have NaN and infinities in the same places, and integers are the same."""
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        cast = other.astype(reference.dtype)
    if reference.shape != cast.shape:
        return False
    if reference.dtype.kind != "f":
        return bool((reference == cast).all())
    odd = ~np.isfinite(reference) | ~np.isfinite(cast)
    return bool(np.array_equal(reference[odd], cast[odd], equal_nan=True))
