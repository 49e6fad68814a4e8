"""Records what a model must compute: seeded inputs, ONNX Runtime's outputs, and how far off one may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.binding import EXPORT_DYNAMIC
from edgepack.compiler.frontend.onnx.bounded_shapes.apply import Padding
from edgepack.compiler.frontend.onnx.bounded_shapes.prepare import padded_results, warn_of_counts, with_counts
from edgepack.compiler.frontend.onnx.corners import (
    LARGEST_WEIGHTS,
    Corners,
    is_small,
    no_corners,
    record_corners,
)
from edgepack.compiler.frontend.onnx.custom import declare
from edgepack.compiler.frontend.onnx.custom_reference import check_references
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.compiler.frontend.onnx.flipped_steps import draws, flip_steps
from edgepack.compiler.frontend.onnx.noise import Noise, little, measure, proof
from edgepack.compiler.frontend.onnx.onnxruntime_session import Level
from edgepack.compiler.frontend.onnx.output_facts import output_facts, tolerances_of_results
from edgepack.compiler.frontend.onnx.per_sample_reference import per_sample_outputs
from edgepack.compiler.frontend.onnx.reference_run import run_custom, run_drawn, run_each, run_reference
from edgepack.compiler.frontend.onnx.reordered_sums import reorder_sums
from edgepack.compiler.frontend.onnx.rounded_factors import round_factors
from edgepack.compiler.frontend.onnx.sampling import drawn_inputs
from edgepack.compiler.frontend.onnx.standard_regions import end_loops, with_standard_regions
from edgepack.compiler.frontend.onnx.user_arrays import user_input, user_outputs
from edgepack.compiler.frontend.recorded import judged, write_recorded
from edgepack.compiler.frontend.tolerances import LITTLE, TOLERANCES, Tolerance, limits_of
from edgepack.errors import EdgepackError, ModelError
from edgepack.plan.types import TensorSpec

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["Changed", "record"]


#: What is said to have computed outputs that the user gave.
GIVEN = "the given outputs"

#: What is drawn instead where rounding decides on the outputs, one after the other: a number that is added to
#: the seed, and how many times as large floats are. Small ones keep a recurrence from running apart, large
#: ones have differences beside a bias.
OTHERS = ((1, 1.0), (0, 0.1), (0, 10.0), (0, 0.01))


@dataclass(frozen=True)
class Changed:
    """What makes the outputs of a bundle others than those of the model as it is.

    Attributes:
        rounded: the normalised model with rounded weights, where these are asked for: its outputs are then
            the reference, so that the comparison stays as tight as without rounding.
        padding: what the outputs are where results have a maximum: the model's, cut or padded with 0.
    """

    rounded: Path | None = None
    padding: Padding | None = None


def record(
    path: Path,
    model_inputs: Sequence[TensorSpec],
    options: ImportOptions,
    *,
    seed: int,
    inputs: Mapping[str, Path],
    directory: Path,
    changed: Changed | None = None,
) -> tuple[str, ...]:
    """Runs the original model with ONNX Runtime, unoptimised, or with ONNX's own evaluator; writes inputs,
    outputs and tolerances (:func:`edgepack.compiler.frontend.recorded.write_recorded`).

    Args:
        path: an ``.onnx`` file; external data lies beside it.
        model_inputs: the model's inputs, with static shapes.
        options: what gives them these shapes, and where the model is cut.
        seed: seed of the random inputs.
        inputs: ``.npy`` files to use instead, by input name. With ``options.expected`` nothing is run.
        directory: where to write; is made if it is missing.
        changed: what the user asked for that makes the outputs others than the model's.

    Returns:
        Warnings: outputs that prove little, or that rounding the weights moves far.

    Raises:
        ConfigError: a given input does not fit.
        ModelError: ONNX Runtime cannot run the model.
    """
    task = _Task(path, model_inputs, options, inputs, changed or Changed(), seed)
    best = task.run()
    if best.share > LITTLE:
        for more, magnitude in OTHERS if task.draws_floats() else OTHERS[:1]:
            try:
                other = task.run(more, magnitude)
            except EdgepackError:
                continue
            best = other if other.share < best.share else best
            if best.share <= LITTLE:
                break
    corners = task.corners(best)
    for name, one in corners.runs.items():
        write_recorded(directory / name, one.inputs, one.outputs, one.limits, best.source)
    about = {**best.about, "corners": list(corners.runs), "corners_left_out": dict(corners.left_out)}
    write_recorded(directory, best.inputs, best.outputs, best.limits, best.source, about)
    return best.warnings


@dataclass(frozen=True)
class _Run:
    """A run that may be recorded.

    Attributes:
        share: the greatest one of an output, by :func:`edgepack.compiler.frontend.onnx.noise.proof`.
        about: what is written of it beside that, by name.
        allowed: what each output may be off by, without what was measured.
        prepared: the model that ONNX Runtime ran, if it ran one and that is small enough to be run again.
    """

    inputs: Mapping[str, NDArray[Any]]
    outputs: Mapping[str, NDArray[Any]]
    limits: Mapping[str, Mapping[str, float]]
    source: str
    share: float
    about: Mapping[str, str]
    warnings: tuple[str, ...]
    allowed: Mapping[str, Tolerance | int]
    prepared: onnx.ModelProto | None


@dataclass(frozen=True)
class _Task:
    """What :func:`record` was asked for."""

    path: Path
    model_inputs: Sequence[TensorSpec]
    options: ImportOptions
    inputs: Mapping[str, Path]
    changed: Changed
    seed: int

    def draws_floats(self) -> bool:
        """Whether not all floats are given."""
        return any("float" in spec.dtype and spec.name not in self.inputs for spec in self.model_inputs)

    def run(self, more: int = 0, magnitude: float = 1.0) -> _Run:
        """The run with a seed that is so much larger, and with floats so many times as large as usual."""
        options, rounded, padding = self.options, self.changed.rounded, self.changed.padding
        model = _opened(self.path, options, padding)
        given = {name: user_input(name, file, self.model_inputs) for name, file in self.inputs.items()}
        drawn = drawn_inputs(model, self.seed + more, given, magnitude)
        facts = output_facts(model)
        if options.expected:
            arrays, prepared, source = next(drawn), None, GIVEN
            results = user_outputs(model, options.expected, self.inputs, self.model_inputs)
        else:
            arrays, (results, prepared, source) = run_drawn(
                with_counts(model, padding), drawn, options.custom
            )
        allowed = tolerances_of_results(facts, results, _rounded(options, rounded))
        if options.batch > 1 and not options.custom and not options.expected:
            results = _singly(self.path, options, arrays, results, allowed)
            source += f", {options.batch} runs with a batch of 1"
        del model, drawn  # which hold another copy of the weights than ``prepared``
        warnings: list[str] = []
        if rounded is not None and not options.expected:
            results, prepared, warnings = _with_rounded_weights(rounded, arrays, options, results)
        small = prepared if prepared is not None and is_small(prepared) else None
        runs = _roundings(prepared, arrays, options)
        noise = measure(prepared, arrays, results)
        prepared = prepared and reorder_sums(prepared)  # the same order on any machine
        runs.insert(0, _if_it_runs(prepared, arrays, "extended"))
        if padding is not None:
            warnings += warn_of_counts(results, padding)
            noise = replace(noise, runs=[padded_results(r, padding, list(allowed)) for r in noise.runs])
            results, *runs = (padded_results(r, padding, list(allowed)) if r else r for r in (results, *runs))
            allowed |= dict.fromkeys(padding.counts, 0)
        limits = {n: limits_of(x, allowed[n], *_of_output(n, runs, noise)) for n, x in results.items()}
        shares = {n: proof(n, x, limits[n], noise) for n, x in results.items()}
        warnings += [text for n in results for text in little(n, shares[n], limits[n], noise)]
        warnings += [text for name, array in results.items() for text in judged(name, array)]
        about = {"noise_of": noise.source} if noise.source else {}
        if more or magnitude != 1:
            about["drawn"] = f"seed {self.seed + more} and floats {magnitude:g} times as large as usual"
        arrays = {spec.name: arrays[spec.name] for spec in self.model_inputs}
        share = max(shares.values(), default=0.0)
        return _Run(arrays, results, limits, source, share, about, tuple(warnings), allowed, small)

    def corners(self, run: _Run) -> Corners:
        """What is recorded of corners beside a run."""
        options = self.options
        for reason, holds in (
            ("the outputs are given", options.expected),
            ("the model has operators of your own", options.custom),
            ("the batch is set, and each sample run alone", options.batch > 1),
            ("results have a maximum", self.changed.padding is not None),
            (f"it is packed with --precision {options.precision}", options.precision in ("fp16", "tf32")),
            ("rounding decides on the usual run already", run.share > LITTLE),
        ):
            if holds:
                return no_corners(reason)
        if run.prepared is None:
            return no_corners(
                f"it has more than {LARGEST_WEIGHTS >> 20} MiB of weights, or does not run again"
            )
        return record_corners(
            run.prepared, run.inputs, run.allowed, tuple(self.inputs), exact=options.strict_math
        )


def _of_output(
    name: str, runs: Sequence[Mapping[str, NDArray[Any]]], noise: Noise
) -> tuple[NDArray[Any] | None, NDArray[Any] | None, list[NDArray[Any]], list[NDArray[Any]]]:
    """What sums in another order, rounded factors, other steps, and rounding alone make of an output."""
    other, coarse, *flipped = runs
    of_noise = [run[name] for run in noise.runs]
    return other.get(name), coarse.get(name), [run[name] for run in flipped], of_noise


def _roundings(
    model: onnx.ModelProto | None, arrays: Mapping[str, NDArray[Any]], options: ImportOptions
) -> list[dict[str, NDArray[Any]]]:
    """The outputs with rounded factors, empty if these are not asked for; then those of several runs with
    values rounded to other steps, none if that cannot be.

    Args:
        model: as ONNX Runtime ran it; None if it did not.
    """
    tf32 = options.precision == "tf32"
    coarse = _if_it_runs(round_factors(model) if model is not None and tf32 else None, arrays, "none")
    try:
        moved = None if model is None else flip_steps(model)
        return [coarse] if moved is None else [coarse, *run_each(moved, draws(arrays))]
    except ModelError:
        return [coarse]


def _with_rounded_weights(
    path: Path, arrays: Mapping[str, NDArray[Any]], options: ImportOptions, exact: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, NDArray[Any]], onnx.ModelProto | None, list[str]]:
    """The outputs of the model with rounded weights, that model, and warnings where they are far off."""
    import onnx

    model = with_standard_regions(onnx.load(str(path)))
    results, prepared, _ = run_custom(model, arrays, options.custom)
    return results, prepared, [text for name in exact for text in _moved(name, exact[name], results[name])]


def _rounded(options: ImportOptions, model: Path | None) -> str | None:
    """What the bundle's tensors, or the factors of its products ("tf32"), are rounded to, where the reference
    has exact ones; ``model`` has rounded weights."""
    if options.precision == "fp16" or (model is not None and options.expected):
        return "float16"
    return "tf32" if options.precision == "tf32" else None


def _opened(path: Path, options: ImportOptions, padding: Padding | None) -> onnx.ModelProto:
    if not options.expected:
        check_references(options.custom)
    model = open_model(path, options)
    declare(model, options.custom)
    end_loops(model, options.limits.trips, {} if padding is None else padding.totals)
    return model


def _singly(
    path: Path,
    options: ImportOptions,
    arrays: Mapping[str, NDArray[Any]],
    results: Mapping[str, NDArray[Any]],
    allowed: Mapping[str, Tolerance | int],
) -> dict[str, NDArray[Any]]:
    """The results of a batch sample by sample; refuses a model whose samples do not stay apart in one."""
    import numpy as np

    shapes = {name: array.shape for name, array in results.items()}
    singly = per_sample_outputs(path, options, arrays, shapes, run_reference)
    for name, array in singly.items():
        limits = limits_of(array, allowed[name], None)
        one, all_at_once = array.astype(np.float64), results[name].astype(np.float64)
        near = np.isclose(all_at_once, one, rtol=limits["rtol"], atol=limits["atol"], equal_nan=True)
        if not near.all():
            raise ModelError(
                f"--set-batch {options.batch}: the output {name!r} of a batch is not that of its samples "
                "one by one.",
                hint=f"{EXPORT_DYNAMIC}.",
            )
    return singly


def _if_it_runs(
    model: onnx.ModelProto | None, arrays: Mapping[str, NDArray[Any]], level: Level
) -> dict[str, NDArray[Any]]:
    """The outputs of a changed model, with a level of ONNX Runtime's fusions; empty if there is none, or it
    cannot run it."""
    try:
        return {} if model is None else run_reference(model, arrays, level)
    except ModelError:
        return {}


def _moved(name: str, exact: NDArray[Any], rounded: NDArray[Any]) -> list[str]:
    """Says so if rounding the weights moves an output further than float16's own tolerance."""
    import numpy as np

    if exact.dtype.kind != "f":
        percent = 100 * float((exact != rounded).mean()) if exact.size else 0.0
        text = f"Weights in float16 change {percent:.2g} % of the elements of output {name!r}."
        return [text] if percent > 1 else []
    before, after = (np.nan_to_num(a.astype(np.float64), posinf=0.0, neginf=0.0) for a in (exact, rounded))
    largest, moved = (float(np.abs(a).max(initial=0.0)) for a in (before, after - before))
    if moved <= TOLERANCES["float16"].relative * largest:
        return []
    percent = 100 * moved / largest if largest else 100.0
    return [f"Weights in float16 move output {name!r} by {percent:.2g} % of its largest recorded value."]
