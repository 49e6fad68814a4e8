"""The jobs that a user's options ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgepack.config.custom import load_custom
from edgepack.errors import ConfigError
from edgepack.options import CompareOptions, PackOptions, PathLike, QuantizeOptions
from edgepack.pipeline.job import CheckJob, CompareJob, DrawJob, ImportJob, LayersJob, QuantiseJob
from edgepack.pipeline.suggested_cuts import names_of
from edgepack.plan.comparison import Side
from edgepack.plan.quantisation import SYNTHETIC, QuantiseSettings
from edgepack.plan.targets import Target
from edgepack.plan.tuned import TunedChoice
from edgepack.system.files import is_file

__all__ = ["check_job", "compare_jobs", "import_job", "layers_job", "quantise_job"]

#: Of a constant that is given in the place of an input.
_MOST_NUMBERS = 4096


def import_job(model: Path, options: PackOptions) -> ImportJob:
    """Raises ConfigError for a file that there is not."""
    return ImportJob(
        **_of_model(model, options),
        seed=options.seed,
        inputs=_files("input", options.inputs),
        expected=_files("output", options.expected),
    )


def check_job(
    model: Path, options: PackOptions, target: Target, tuned: Sequence[TunedChoice] = ()
) -> CheckJob:
    """``target``: what the kernels would be for; ``tuned``: schedules that were measured for it."""
    return CheckJob(**_of_model(model, options), target=target, tuned=tuned)


def quantise_job(model: Path, options: QuantizeOptions, pack: PackOptions | None = None) -> QuantiseJob:
    """The job whose result is the quantised model's file.

    Args:
        pack: what is taken of the model, where it is quantised on the way to a bundle.
    """
    given = options.calibrate
    if pack is None:
        pack = PackOptions(shapes=options.shapes, dims=options.dims, const=options.const)
    return QuantiseJob(
        **_of_model(model, pack),
        settings=QuantiseSettings(
            method=options.method,
            percentile=float(options.percentile),
            symmetric=options.symmetric,
            dynamic=options.dynamic,
            exclude=tuple(options.exclude),
            min_sqnr=_float(options.min_sqnr),
            min_accuracy=_float(options.min_accuracy),
            max_drop=_float(options.max_drop),
            bias_correction=options.bias_correction,
            reduce_range=options.reduce_range,
            activation_tables=options.activation_tables,
            samples=int(options.samples),
            seed=int(options.seed),
        ),
        calibration=None if given is None or given == SYNTHETIC else Path(given),
        accuracy=None if options.accuracy is None else Path(options.accuracy),
        like=None if options.like is None else Path(options.like),
    )


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def layers_job(model: Path, options: PackOptions) -> LayersJob:
    """What lists the tensors that a pack with these options has between its kernels."""
    return LayersJob(**_of_model(model, options))


def compare_jobs(sides: Sequence[Side], options: CompareOptions) -> tuple[DrawJob, CompareJob]:
    """What draws the inputs of both sides, and what compares their results."""
    sizes = PackOptions(shapes=options.shapes, dims=options.dims, const=options.const)
    common = {**_of_model(Path(sides[0].name), sizes), "sides": sides}
    inputs = None if options.inputs is None else Path(options.inputs)
    drawn = DrawJob(**common, inputs=inputs, seed=int(options.seed), samples=int(options.samples))
    return drawn, CompareJob(**common)


def _of_model(model: Path, options: PackOptions) -> dict[str, Any]:
    """What all jobs have that read a model."""
    return {
        "model": model,
        "shapes": {key: tuple(int(n) for n in shape) for key, shape in (options.shapes or {}).items()},
        "dims": {key: int(size) for key, size in (options.dims or {}).items()},
        "cut_inputs": names_of(options.cut_inputs),
        "cut_outputs": names_of(options.cut_outputs),
        "batch": int(options.set_batch or 0),
        "custom": load_custom(Path(options.custom)) if options.custom is not None else (),
        "weights": options.weights,
        "precision": options.precision,
        "maxima": {key: int(size) for key, size in (options.maxima or {}).items()},
        "limits": options.limits,
        "strict_math": options.strict_math,
        "const": {name: _numbers(name, value) for name, value in (options.const or {}).items()},
    }


def _numbers(name: str, value: Any) -> tuple[float, ...]:
    """The numbers of a constant, in row-major order, as Python's own."""
    if not isinstance(value, Iterable):
        plain = value.item() if hasattr(value, "item") else value  # NumPy's
        return (plain,)
    found = tuple(number for one in value for number in _numbers(name, one))
    if not 0 < len(found) <= _MOST_NUMBERS:
        raise ConfigError(
            f"--const {name}: {len(found)} numbers; an input can be pinned to 1 to {_MOST_NUMBERS}.",
            hint="Make larger ones initialisers of the model.",
        )
    return found


def _files(role: str, given: Mapping[str, PathLike] | None) -> dict[str, Path]:
    paths = {name: Path(path) for name, path in (given or {}).items()}
    for name, path in paths.items():
        if not is_file(path):
            raise ConfigError(f"The file {path} for {role} {name} does not exist.", hint="Give a .npy file.")
    return paths
