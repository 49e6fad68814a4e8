"""A float model that is quantised on the way to a bundle (``pack --quantize``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from math import isfinite
from pathlib import Path
from typing import Any, get_args

from edgepack.bundle.quantised_record import QuantisedLayerRecord, QuantisedOutputRecord, QuantisedRecord
from edgepack.commands.quantize import check_quantize
from edgepack.errors import ConfigError, EdgepackError
from edgepack.options import PackOptions, QuantizeOptions
from edgepack.pipeline.compile import Imported, Quantised
from edgepack.pipeline.job import ImportJob, QuantiseJob
from edgepack.pipeline.requested import quantise_job
from edgepack.plan.quantisation import Quantize

__all__ = ["job_before_pack", "naming_model", "packed_job", "quantised_record"]


def job_before_pack(model: Path, options: PackOptions) -> QuantiseJob | None:
    """The job that quantises ``model`` before it is packed; None where the user does not ask for it.

    Raises:
        ConfigError: the options do not go together.
    """
    if options.quantize is None:
        how = {
            "--calibrate": options.calibrate is not None,
            "--exclude": bool(options.exclude),
            "--min-sqnr": options.min_sqnr is not None,
            "--reduce-range": options.reduce_range,
            "--activation-tables": options.activation_tables is True,
            "--no-activation-tables": options.activation_tables is False,
        }
        if any(how.values()):
            raise ConfigError(
                f"{next(name for name in how if how[name])} says how to quantise, which was not asked for.",
                hint="Give --quantize int8 too, or leave them out.",
            )
        return None
    if options.quantize not in get_args(Quantize):
        raise ConfigError(
            f"A model cannot be quantised to {options.quantize!r}.", hint="Use int8 or dynamic."
        )
    for given, name in (
        (options.custom, "--custom"),
        (options.maxima, "--max"),
        (options.expected, "--expected"),
    ):
        if given:
            raise ConfigError(
                f"--quantize does not go with {name}.", hint="Quantise the model first (edgepack quantize)."
            )
    chosen = QuantizeOptions(
        calibrate=options.calibrate,
        dynamic=options.quantize == "dynamic",
        exclude=options.exclude,
        min_sqnr=options.min_sqnr,
        reduce_range=options.reduce_range,
        activation_tables=options.activation_tables,
        seed=options.seed,
    )
    check_quantize(chosen, "--quantize dynamic")
    return quantise_job(model, chosen, options)


def packed_job(job: ImportJob, made: Quantised) -> ImportJob:
    """The job that imports the quantised model, whose sizes are static and which is cut already."""
    return replace(job, model=made.file, shapes={}, dims={}, const={}, cut_inputs=(), cut_outputs=(), batch=0)


def quantised_record(job: QuantiseJob, made: Quantised, imported: Imported) -> QuantisedRecord:
    """What the manifest says of it."""
    settings, figures = job.settings, made.figures
    return QuantisedRecord(
        mode="dynamic" if settings.dynamic else "int8",
        sha256=imported.digest,
        calibration=made.calibration_digest or None,
        samples=figures.samples,
        exclude=settings.exclude,
        min_sqnr=settings.min_sqnr,
        reduce_range=settings.reduce_range,
        activation_tables=settings.activation_tables,
        kept_float=figures.kept_float,
        sqnr={one.name: one.sqnr for one in figures.outputs},
        outputs=tuple(QuantisedOutputRecord(**_shortened(asdict(one))) for one in figures.outputs),
        layers=tuple(QuantisedLayerRecord(**_shortened(asdict(one))) for one in figures.layers),
    )


def _shortened(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures with the digits that tell something."""
    return {
        name: float(f"{value:.5g}") if isinstance(value, float) and isfinite(value) else value
        for name, value in figures.items()
    }


@contextmanager
def naming_model(model: Path, folder: Path) -> Iterator[None]:
    """In errors that leave the block, the quantised model in the private ``folder`` has the float model's
    name."""
    try:
        yield
    except EdgepackError as error:
        private = str(folder / "quantise" / "quantised.onnx")
        for text in ("message", "hint", "detail"):
            setattr(error, text, getattr(error, text).replace(private, f"{model} (quantised)"))
        raise
