"""Compares two models or bundles: runs both on the same inputs, with ONNX Runtime in the worker or by a
bundle's own program, and says how far apart their results are."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edgepack.bundle.checksums import check_sums
from edgepack.bundle.layout import MANIFEST, find_bundle
from edgepack.bundle.manifest import Manifest, load_manifest
from edgepack.bundle.paths import inside
from edgepack.errors import ConfigError, ModelError
from edgepack.options import DEFAULT_TIMEOUT, CompareOptions, RunOptions
from edgepack.pipeline.compile import data_files
from edgepack.pipeline.job import WARNINGS, DrawJob
from edgepack.pipeline.requested import compare_jobs
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.comparison import ComparedLayer, ComparedOutput, ComparisonFigures, Side, plain_number
from edgepack.plan.types import TensorSpec
from edgepack.runners.results import run_samples
from edgepack.system.confinement import Access
from edgepack.system.files import is_file
from edgepack.system.progress import Progress, Stages
from edgepack.system.temporary import temporary_folder
from edgepack.text.spelling import spelled

__all__ = ["Comparison", "compare_sides"]


@dataclass(frozen=True)
class Comparison:
    """Two models or bundles side by side on the same inputs.

    Attributes:
        first, second: the model's file or the bundle's folder.
        places: what ran each: ONNX Runtime, or where a bundle's program ran.
        samples: how many inputs both were run on.
        outputs: each with ``name``, ``dtype``, ``elements``, ``sqnr`` (signal-to-noise ratio in dB: the
            first's values against the differences; None where there are none), ``cosine`` (similarity),
            ``max_error``, ``mean_error``, ``largest`` (magnitude of the first's) and ``top1`` (share of rows
            whose largest element is the same, where it looks like scores of classes).
        layers: of two models, the tensors that both compute, by their names, in the first's order: each with
            ``name`` (of the node), ``operator``, ``tensor``, ``sqnr``, ``lost`` (decibels since what it is
            computed from), ``max_error`` and ``largest``.
        failures: a sentence for each output that is further off than was asked for.
        warnings: a sentence each.
    """

    first: str
    second: str
    places: tuple[str, str]
    samples: int
    outputs: tuple[ComparedOutput, ...]
    layers: tuple[ComparedLayer, ...] = ()
    failures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all outputs are as near as was asked for."""
        return not self.failures

    def to_json(self) -> dict[str, Any]:
        """Plain data; floats that JSON cannot hold become texts (``"inf"``)."""
        data = {"ok": self.ok, **asdict(self)}
        for key in ("outputs", "layers"):
            data[key] = [{name: plain_number(value) for name, value in one.items()} for one in data[key]]
        return data


def compare_sides(
    first: Path, second: Path, options: CompareOptions, progress: Progress | None
) -> Comparison:
    """Compare two models or bundles; arguments and errors as for :func:`edgepack.compare`."""
    opened = [_opened(first), _opened(second)]
    manifests = [manifest for _, manifest in opened]
    _check_sides(options, manifests)
    drawing, comparing = compare_jobs([side for side, _ in opened], options)
    stages = Stages(progress)
    seconds = DEFAULT_TIMEOUT if options.timeout is None else options.timeout
    run = RunOptions(options.runner, options.device, options.threads)
    with (
        stages.within(seconds, f"Comparing {first.name} with {second.name}"),
        temporary_folder() as folder,
        Worker(progress=stages, access=drawing.access | Access(writes=(folder,))) as worker,
    ):
        models = [Path(side.name) for side, manifest in opened if manifest is None]
        data = [file for model in models for file in data_files(model, worker, folder)]
        drawing, comparing = replace(drawing, data=data), replace(comparing, data=data)
        samples, order, warnings = _samples(drawing, manifests, folder, worker)
        sides, places = [], []
        for index, (side, manifest) in enumerate(opened):
            (results := folder / f"results{index}").mkdir()
            where = "ONNX Runtime"
            if manifest is not None:
                stages("run", manifest.name)
                check_sums(Path(side.name), manifest)
                where = run_samples(
                    Path(side.name), manifest, samples, results, run, order if index else None
                )
            sides.append(replace(side, folder=str(results)))
            places.append(where)
        (place := folder / "compare").mkdir()
        worker.run(replace(comparing, sides=sides, drawn=folder / "samples"), place)
        found = ComparisonFigures.from_json(json.loads((place / "comparison.json").read_text("utf-8")))
        warnings += found.warnings
    return Comparison(
        str(first),
        str(second),
        (places[0], places[1]),
        found.samples,
        found.outputs,
        found.layers,
        _failures(found.outputs, options),
        tuple(map(spelled, warnings)),
    )


def _opened(path: Path) -> tuple[Side, Manifest | None]:
    """What a path names: a model's file, or a bundle with its manifest."""
    if os.path.isdir(path) or path.name == MANIFEST:  # noqa: PTH112 (any text)
        root = find_bundle(path)
        manifest = load_manifest(root)
        inputs, outputs = (
            tuple(TensorSpec(one.name, one.dtype, one.shape) for one in tensors)
            for tensors in (manifest.inputs, manifest.outputs)
        )
        return Side(str(root), True, inputs, outputs), manifest
    if not is_file(path):
        raise ModelError(
            f"{path} does not exist.", hint="Give the path of an ONNX file, or the folder of a bundle."
        )
    return Side(str(path.absolute())), None


def _check_sides(options: CompareOptions, manifests: Sequence[Manifest | None]) -> None:
    """Raise ConfigError for options that tell neither side anything."""
    sizes = {"--shape": options.shapes, "--dim": options.dims, "--const": options.const}
    runs = {"--runner": options.runner, "--device": options.device, "--threads": options.threads}
    if None not in manifests and (given := [name for name, value in sizes.items() if value]):
        raise ConfigError(
            f"{given[0]} is of models, and both sides are bundles, whose sizes are fixed.",
            hint="Leave it out, or pack the model with it.",
        )
    if not any(manifests) and (given := [name for name, value in runs.items() if value is not None]):
        raise ConfigError(
            f"{given[0]} says how a bundle is run, and both sides are models, which ONNX Runtime runs.",
            hint="Leave it out, or give the folder of a bundle.",
        )


def _samples(
    job: DrawJob, manifests: Sequence[Manifest | None], folder: Path, worker: Worker
) -> tuple[list[Path], list[int], list[str]]:
    """The folders of the inputs in ``folder / "samples"``, which of these is each input of the second side,
    and what is said of them."""
    first, second = manifests
    worker.run(job, folder)
    drawn = json.loads((folder / "samples" / "samples.json").read_text(encoding="utf-8"))
    warned = json.loads((folder / WARNINGS).read_text(encoding="utf-8"))
    if job.inputs is None and first is not None and second is not None:
        (place := folder / "samples" / "0").mkdir()
        for index, tensor in enumerate(first.recorded.inputs):
            recorded = inside(Path(job.sides[0].name), tensor.file).read_bytes()
            (place / f"input_{index}.bin").write_bytes(recorded)
    elif job.inputs is None:
        warned = [*warned, "The inputs are random: how far apart results on real ones are is not known."]
    places = [folder / "samples" / str(number) for number in range(int(drawn["count"]))]
    return places, drawn["order"], [*drawn["notes"], *warned]


def _failures(outputs: Sequence[ComparedOutput], options: CompareOptions) -> tuple[str, ...]:
    """A sentence for each output that is not as near as ``options`` ask for."""
    found = []
    if options.min_top1 is not None and all(one.top1 is None for one in outputs):
        raise ConfigError(
            "--min-top1 was given, and no output looks like scores of classes (rows of floats).",
            hint="Use --min-sqnr or --max-error.",
        )
    for one in outputs:
        sqnr = math.inf if one.sqnr is None else one.sqnr
        if math.isinf(one.max_error):
            sqnr = -math.inf
        if options.min_sqnr is not None and sqnr < options.min_sqnr:
            found.append(f"{one.name} has {sqnr:.1f} dB, less than --min-sqnr {options.min_sqnr:g}")
        if options.max_error is not None and one.max_error > options.max_error:
            found.append(
                f"{one.name} is {one.max_error:.3g} off, more than --max-error {options.max_error:g}"
            )
        if options.min_top1 is not None and one.top1 is not None and one.top1 < options.min_top1:
            found.append(
                f"{one.name} has the same largest element in {100 * one.top1:.4g} % of the rows, less than "
                f"--min-top1 {options.min_top1:g}"
            )
    return tuple(map(spelled, found))
