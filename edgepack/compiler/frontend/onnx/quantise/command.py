"""Quantises a model: from its file and the calibration data to the quantised file and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.error_attribution import attributed_errors
from edgepack.compiler.frontend.onnx.extents import stored_bytes
from edgepack.compiler.frontend.onnx.quantise.accuracy import AccuracyScript
from edgepack.compiler.frontend.onnx.quantise.bias_correction import mean_errors
from edgepack.compiler.frontend.onnx.quantise.comparison import compared, compared_outputs, least
from edgepack.compiler.frontend.onnx.quantise.float_model import float_model
from edgepack.compiler.frontend.onnx.quantise.kept_scales import KeptScales
from edgepack.compiler.frontend.onnx.quantise.quantiser import DYNAMIC, dynamically_quantised, quantised
from edgepack.compiler.frontend.onnx.quantise.ranges import Range, measured_ranges
from edgepack.compiler.frontend.onnx.quantise.samples import (
    Samples,
    given_samples,
    input_specs,
    random_samples,
)
from edgepack.compiler.frontend.onnx.quantise.sensitivity import Choice, Goal
from edgepack.compiler.frontend.onnx.quantise.structure import Structure
from edgepack.errors import CheckFailedError, ConfigError, ModelError
from edgepack.plan.quantisation import QuantisationFigures, QuantiseSettings, UserFiles

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["quantise"]

#: The file that is left in the job's folder.
QUANTISED = "quantised.onnx"

#: Samples by which it is found out whether corrected biases take an output further off, and by how many dB
#: they may: what they do on average is more than what these few say.
COMPARED, TOLERATED = 8, 1.0

_RANDOM_RANGES = (
    "The calibration data were random: the ranges may not be those of real inputs, and the figures say "
    "nothing about the accuracy on them."
)
_RANDOM_FIGURES = "The figures are of random inputs, and say nothing about the accuracy on real ones."
_MOSTLY_FLOAT = "Most of the model's weights stay float: they are in layers that are not quantised."

#: Names that a message lists.
_MOST_NAMES = 8


def quantise(
    path: Path,
    options: ImportOptions,
    folder: Path,
    settings: QuantiseSettings,
    files: UserFiles,
    stage: Callable[[str, str], None],
) -> QuantisationFigures:
    """Write the quantised model to ``folder / "quantised.onnx"``.

    Args:
        path: the float model.
        options: what gives its inputs static shapes.
        files: the user's calibration data and script, if there are any.
        stage: is told what is being done, and with what of the model.

    Raises:
        ModelError: the model cannot be read, or not be quantised.
        ConfigError: options or data do not fit it, or the script fails.
        CheckFailedError: the outputs cannot be as near, or as accurate, as ``settings`` ask for.
    """
    stage("prepare", "")
    notes: list[str] = []
    calibration = files.calibration
    script = None if files.accuracy is None else AccuracyScript(files.accuracy, files.folder)
    with attributed_errors(path):
        model = float_model(path, options, notes)
        samples = _samples(model, calibration, settings)
        kept = None if files.like is None else KeptScales(files.like)
        if kept is not None:
            settings = replace(settings, symmetric=kept.symmetric, reduce_range=kept.reduced)
        work = _Work(model, samples, settings, script, stage, kept)
        made, figures = work.dynamic() if settings.dynamic else work.static()
    data = made.SerializeToString(deterministic=True)
    (folder / QUANTISED).write_bytes(data)
    if samples.unused:
        notes.append(
            f"{samples.unused} more samples of the calibration data were not used "
            "(`edgepack quantize --samples`)."
        )
    if calibration is None:
        notes.append(_RANDOM_FIGURES if settings.dynamic else _RANDOM_RANGES)
    before, after = stored_bytes(model), stored_bytes(made)
    if after > before / 2 and not settings.exclude and not figures.kept_float:
        notes.append(
            _MOSTLY_FLOAT
            + ("" if settings.dynamic else " `edgepack quantize --dynamic` quantises LSTMs and embeddings.")
        )
    return replace(
        figures,
        samples=samples.count,
        weight_bytes_before=before,
        weight_bytes_after=after,
        warnings=(*notes, *figures.warnings),
    )


def _samples(model: onnx.ModelProto, calibration: Path | None, settings: QuantiseSettings) -> Samples:
    if calibration is None:
        return random_samples(model, settings.seed, settings.samples)
    return given_samples(calibration, input_specs(model), settings.samples)


@dataclass
class _Work:
    """One model that is quantised."""

    model: onnx.ModelProto
    samples: Samples
    settings: QuantiseSettings
    script: AccuracyScript | None
    stage: Callable[[str, str], None]
    kept: KeptScales | None = None
    exact_accuracy: float | None = None

    def static(self) -> tuple[onnx.ModelProto, QuantisationFigures]:
        structure = Structure(self.model)
        self._measure_float()
        excluded = self._excluded(structure.layers)
        self.stage("calibrate", "")
        ranges = measured_ranges(self.model, structure.floats, self.samples, self.settings)
        infinite, warnings = _not_finite(structure, ranges)
        excluded |= infinite
        if self.kept is not None:
            excluded |= self.kept.float_layers(structure)
        self.stage("quantise", "")

        def rounded(also_float: set[str]) -> onnx.ModelProto:
            return quantised(structure, ranges, self.settings, excluded | also_float, means, self.kept)

        means: dict[str, NDArray[Any]] = {}
        made = rounded(set())
        if self.kept.corrected if self.kept is not None else self.settings.bias_correction:
            means = mean_errors(structure, made, self.samples)
            corrected = rounded(set())
            if self.kept or self._nearness(corrected) > self._nearness(made) - TOLERATED:
                made = corrected
            else:
                means = {}
        kept: tuple[str, ...] = ()
        if goals := self._goals():
            self.stage("choose layers", "")
            note = partial(self.stage, "choose layers")
            choice = Choice(structure, rounded, self.samples, note, excluded)
            for goal in goals:
                kept += choice.kept_float(goal, kept)
            made = rounded({*kept})
        self.stage("compare", "")
        layers, outputs = compared(structure, made, self.samples, excluded | {*kept})
        if self.kept is not None:
            self.kept.check(made)
            warnings += self.kept.warnings(structure, layers)
        figures = QuantisationFigures(layers, outputs, self.samples.count, kept, warnings=warnings)
        return made, self._with_accuracy(figures, made)

    def _measure_float(self) -> None:
        """What the script says of the float model.

        Raises:
            CheckFailedError: that is less than the quantised model is to have.
        """
        if self.script is None:
            return
        self.stage("accuracy", "")
        self.exact_accuracy = found = self.script.measured(self.model)
        if (bar := self.settings.min_accuracy) is not None and found < bar:
            raise CheckFailedError(
                f"--min-accuracy {bar:g}: that of the float model itself is {found:.6g}.",
                hint="Ask for less, or look whether the script feeds the model what it was trained on.",
            )

    def _goals(self) -> list[Goal]:
        """What layers return to float for."""
        goals = []
        if (bar := self.settings.min_sqnr) is not None:

            def ratio(made: onnx.ModelProto) -> float:
                return least(compared_outputs(self.model, made, self.samples))

            missed = "outputs come no nearer than {:.1f} dB".format
            goals.append(Goal(bar, ratio, f"--min-sqnr {bar:g}", missed))
        if (accuracy := self._accuracy_goal()) is not None:
            goals.append(accuracy)
        return goals

    def _accuracy_goal(self) -> Goal | None:
        if self.script is None or self.exact_accuracy is None:
            return None
        missed = "the accuracy is no better than {:.6g}".format
        if (bar := self.settings.min_accuracy) is not None:
            return Goal(bar, self.script.measured, f"--min-accuracy {bar:g}", missed)
        if (drop := self.settings.max_drop) is not None:
            bar = self.exact_accuracy - drop
            said = f"--max-drop {drop:g} of the float model's {self.exact_accuracy:.6g}"
            return Goal(bar, self.script.measured, said, missed)
        return None

    def _with_accuracy(self, figures: QuantisationFigures, made: onnx.ModelProto) -> QuantisationFigures:
        if self.script is None:
            return figures
        found, goal = self.script.measured(made), self._accuracy_goal()
        if goal is not None and found < goal.bar:
            raise goal.refusal(found)
        return replace(figures, accuracy=found, float_accuracy=self.exact_accuracy)

    def dynamic(self) -> tuple[onnx.ModelProto, QuantisationFigures]:
        constants = {tensor.name for tensor in self.model.graph.initializer}
        served = [
            node
            for node in self.model.graph.node
            if node.op_type in DYNAMIC and not constants.isdisjoint(node.input[:2])
        ]
        if not any(node.op_type != "Gather" for node in served):
            raise ModelError(
                "There is nothing to quantise dynamically: the model has neither matrix products with "
                "constant weights nor LSTMs.",
                hint="Convolutions are quantised with calibration data (--calibrate FOLDER), not so.",
            )
        self._measure_float()
        self.stage("quantise", "")
        made = dynamically_quantised(
            self.model, self._excluded(served), reduce_range=self.settings.reduce_range
        )
        self.stage("compare", "")
        outputs = compared_outputs(self.model, made, self.samples)
        return made, self._with_accuracy(QuantisationFigures((), outputs, self.samples.count), made)

    def _nearness(self, made: onnx.ModelProto) -> float:
        """The signal-to-noise ratio of the output that is worst off, on some of the samples."""
        return least(compared_outputs(self.model, made, islice(self.samples, COMPARED)))

    def _excluded(self, layers: list[onnx.NodeProto]) -> set[str]:
        """Names of the layers that the user's patterns say; ConfigError for one that says none, or where all
        are."""
        found: set[str] = set()
        for pattern in self.settings.exclude:
            hit = {n.name for n in layers if fnmatchcase(n.name, pattern) or fnmatchcase(n.op_type, pattern)}
            if not hit:
                names = ", ".join([f"{n.name} ({n.op_type})" for n in layers[:_MOST_NAMES]])
                more = f" and {len(layers) - _MOST_NAMES} more" if len(layers) > _MOST_NAMES else ""
                raise ConfigError(
                    f"--exclude {pattern}: no layer that would be quantised has such a name or operator.",
                    hint=f"The layers are {names}{more}.",
                )
            found |= hit
        if len(found) == len(layers):
            raise ConfigError("--exclude leaves no layer to quantise.", hint="Exclude fewer layers.")
        return found


def _not_finite(structure: Structure, ranges: dict[str, Range]) -> tuple[set[str], tuple[str, ...]]:
    """Layers that read or compute values that are not finite on the calibration data, and a warning."""
    names = {
        node.name
        for node in structure.layers
        for name in (*node.input, structure.result(node))
        if name in structure.floats and name not in ranges
    }
    if not names:
        return names, ()
    first = next(node.name for node in structure.layers if node.name in names)
    more = f" and {len(names) - 1} more layers stay" if len(names) > 1 else " stays"
    return names, (f"Values of {first} are not finite on the calibration data: it{more} float.",)
