"""Quantises a model: from options to the file in its place, with ONNX Runtime's quantiser in the worker."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, get_args

from edgepack.bundle.output_file import beside, check_output_file
from edgepack.commands.model_file import check_model_file
from edgepack.errors import ConfigError
from edgepack.options import DEFAULT_TIMEOUT, QuantizeOptions
from edgepack.pipeline.compile import identified, quantisation_figures
from edgepack.pipeline.requested import quantise_job
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.quantisation import CalibrationMethod, QuantisedLayer, QuantisedOutput
from edgepack.system.atomic import replace_file
from edgepack.system.confinement import Access
from edgepack.system.disk_errors import refusal, writing_to
from edgepack.system.progress import Progress, Stages
from edgepack.system.temporary import remove_dead, temporary_folder
from edgepack.text.spelling import spelled

__all__ = ["Quantized", "check_quantize", "quantize_model"]


@dataclass(frozen=True)
class Quantized:
    """A quantised model, and how far it is from the float model on the calibration data.

    Attributes:
        path: of the file.
        weight_bytes_before, weight_bytes_after: that the constants of the float and of the quantised model
            take.
        samples: how many inputs both were run on.
        outputs: each with ``name``, ``sqnr`` (signal-to-noise ratio in dB; None where it is exact),
            ``max_error``, ``largest`` (magnitude of the float model's) and ``top1`` (share of rows whose
            largest element is the same, where it looks like scores of classes).
        layers: each with ``name``, ``operator``, ``quantised`` (False where it stays float), ``low`` and
            ``high`` (ends of its result's range), ``outside`` (share of the values beyond them),
            ``weight_sqnr`` and ``sqnr`` (of its result, with the errors of all layers before).
        kept_float: names of layers that stay float for the sake of ``min_sqnr``, ``min_accuracy`` or
            ``max_drop``.
        accuracy, float_accuracy: of the quantised and the float model, where a script measured them.
        warnings: a sentence each.
    """

    path: Path
    weight_bytes_before: int
    weight_bytes_after: int
    samples: int
    outputs: tuple[QuantisedOutput, ...]
    layers: tuple[QuantisedLayer, ...]
    kept_float: tuple[str, ...] = ()
    accuracy: float | None = None
    float_accuracy: float | None = None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "path": str(self.path)}


def quantize_model(
    model: Path, output: Path, options: QuantizeOptions, progress: Progress | None
) -> Quantized:
    """Quantise ``model``; arguments and errors as for :func:`edgepack.quantize`."""
    check_model_file(model)
    check_quantize(options)
    like = None if options.like is None else Path(options.like)
    if like is not None:
        check_model_file(like)
    _check_output(output, model, like, force=options.force)
    job = quantise_job(model, options)
    folder = beside(output)
    stages = Stages(progress)
    seconds = DEFAULT_TIMEOUT if options.timeout is None else options.timeout
    with stages.within(seconds, f"Quantising {model.name}"), writing_to({"output folder": folder}):
        try:
            remove_dead(folder)
            with (
                temporary_folder(folder, prefix=".quantize.") as place,
                Worker(progress=stages, access=job.access | Access(writes=(place,))) as worker,
            ):
                worker.run(identified(job, worker, place), place)
                figures = quantisation_figures(place)
                file = place / "quantised.onnx"
                file.chmod(0o644)
                _check_output(output, model, like, force=options.force)  # it may have appeared meanwhile
                replace_file(file, output)
        except OSError as error:
            raise refusal(error) or ConfigError(
                f"{output} cannot be written: {error.strerror or error}.", hint="Choose another --output."
            ) from error
    return Quantized(
        path=output,
        weight_bytes_before=figures.weight_bytes_before,
        weight_bytes_after=figures.weight_bytes_after,
        samples=figures.samples,
        outputs=figures.outputs,
        layers=figures.layers,
        kept_float=figures.kept_float,
        accuracy=figures.accuracy,
        float_accuracy=figures.float_accuracy,
        warnings=tuple(map(spelled, figures.warnings)),
    )


def check_quantize(options: QuantizeOptions, dynamic: str = "--dynamic") -> None:
    """Raise ConfigError for options that are none, or do not go together.

    Args:
        options: what the user gives.
        dynamic: how the command asks for dynamic quantisation.
    """
    if options.method not in get_args(CalibrationMethod):
        raise ConfigError(
            f"There is no way {options.method!r} to choose ranges.", hint="Use minmax, entropy or percentile."
        )
    if not 50 < options.percentile <= 100:
        raise ConfigError(
            f"A range cannot hold {options.percentile} % of the values.",
            hint="Give --percentile more than 50 and at most 100.",
        )
    if options.samples < 1:
        raise ConfigError("Nothing can be calibrated with no samples.", hint="Give --samples 1 or more.")
    bars = {"--min-accuracy": options.min_accuracy, "--max-drop": options.max_drop}
    asked = [name for name, value in bars.items() if value is not None]
    if len(asked) > 1 or (asked and options.accuracy is None):
        raise ConfigError(
            f"{asked[0]} {'and --max-drop do not go together' if len(asked) > 1 else 'needs --accuracy'}.",
            hint="Give one of them, and a script that measures the accuracy: --accuracy FILE.py.",
        )
    if options.percentile != QuantizeOptions.percentile and options.method != "percentile":
        raise ConfigError(
            f"--percentile {options.percentile:g} says nothing to --method {options.method}.",
            hint="Give --method percentile too, or leave it out.",
        )
    if options.like is not None:
        _check_like(options, dynamic)
    if options.dynamic:
        static = {
            "--symmetric": options.symmetric,
            "--activation-tables": options.activation_tables is True,
            "--no-activation-tables": options.activation_tables is False,
            "--method": options.method != QuantizeOptions.method,
            "--no-bias-correction": not options.bias_correction,
        }
        wrong = [name for name, given in static.items() if given]
        wrong += ["--min-sqnr"] * (options.min_sqnr is not None) + asked
        if wrong:
            raise ConfigError(
                f"{dynamic} does not go with {wrong[0]}.",
                hint="Leave it out, or quantise with calibration data.",
            )
    elif options.calibrate is None:
        raise ConfigError(
            "Ranges of activations are measured on calibration data, and there are none.",
            hint="Give --calibrate FOLDER with .npz files of inputs, --calibrate synthetic for random ones, "
            f"or {dynamic}.",
        )


def _check_like(options: QuantizeOptions, dynamic: str) -> None:
    """Raise ConfigError for what is as it was in the model whose scales are kept."""
    default = QuantizeOptions()
    decided = {
        dynamic: options.dynamic,
        "--method": options.method != default.method,
        "--symmetric": options.symmetric,
        "--exclude": bool(options.exclude),
        "--min-sqnr": options.min_sqnr is not None,
        "--min-accuracy": options.min_accuracy is not None,
        "--max-drop": options.max_drop is not None,
        "--no-bias-correction": not options.bias_correction,
        "--reduce-range": options.reduce_range,
        "--activation-tables": options.activation_tables is True,
        "--no-activation-tables": options.activation_tables is False,
    }
    if wrong := next((name for name, given in decided.items() if given), None):
        raise ConfigError(
            f"--like does not go with {wrong}: that is as it was in {options.like}.",
            hint=f"Leave {wrong} out, or --like.",
        )


def _check_output(output: Path, model: Path, like: Path | None, *, force: bool) -> None:
    """Raise ConfigError where the file cannot go to ``output``."""
    if not output.parent.is_dir():
        raise ConfigError(
            f"{output} cannot be written: there is no folder {output.parent}.", hint="Make it first."
        )
    if (
        output.suffix != ".onnx" and not output.is_dir()
    ):  # what --force replaces is a model, not another one's weights or data
        raise ConfigError(f"{output} is not named as an ONNX file.", hint="Use --output FILE.onnx.")
    inputs = {model: "the model itself: the float model is needed"}
    if like is not None:
        inputs[like] = "the model whose scales are kept: it says what is in use"
    if force and output.is_file() and _names(model, output):
        inputs[output] = f"a file that {model.name} names, such as that of its weights"
    check_output_file(output, force=force, what="a model", inputs=inputs)


def _names(model: Path, other: Path) -> bool:
    """Whether a model's file has the name of another one in it: tensors' data may lie there."""
    with model.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return content.find(other.name.encode("utf-8", "surrogateescape")) >= 0
