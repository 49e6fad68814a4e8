"""What the worker is asked for: one class for each of its tasks, and the files that it leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from edgepack.plan.comparison import Side
from edgepack.plan.custom import CustomOperator
from edgepack.plan.gpu_target import Precision
from edgepack.plan.limits import DEFAULT_LIMITS, Limits
from edgepack.plan.quantisation import QuantiseSettings
from edgepack.plan.target import CpuTarget
from edgepack.plan.targets import Target
from edgepack.plan.tuned import TunedChoice
from edgepack.plan.tvm_library import DESCRIBED
from edgepack.plan.types import WeightsDtype
from edgepack.system.confinement import Access

__all__ = [
    "UNCONFINED",
    "WARNINGS",
    "CheckJob",
    "CompareJob",
    "DrawJob",
    "ExecutableJob",
    "ExportJob",
    "ImportJob",
    "Job",
    "LayersJob",
    "QuantiseJob",
    "ReadJob",
    "SummariseJob",
    "absolute_paths",
]

#: What a worker may read in which Python of the user's own runs: that may need any file.
_ANYTHING = (Path("/"),)

#: The warnings of a job, a JSON list beside its results: those from the cache come with the same ones.
WARNINGS = "warnings.json"
#: Why the worker was not confined, a text beside a job's results; there is no such file where it was.
UNCONFINED = "unconfined.txt"


class Job(Protocol):
    """One thing that the worker does.

    Attributes:
        task: what the worker calls it.
        results: files that must lie in the job's folder when it is done.
        model: the file that it is about, for messages.
    """

    task: ClassVar[str]
    results: ClassVar[tuple[str, ...]]

    @property
    def model(self) -> Path: ...

    @property
    def access(self) -> Access:
        """What the worker may open for it, by absolute paths, besides the job's own folder."""
        ...

    def to_json(self) -> dict[str, Any]:
        """What the worker needs to know, as plain data with absolute paths."""
        ...


@dataclass(frozen=True)
class ReadJob:
    """Which files does a model consist of, and what reads them? The answer is
    ``{"frontend": name, "files": [path, ...]}``.

    Attributes:
        model: the model's file, whose suffix or contents say what format it has.
        data: other files of the model.
    """

    model: Path
    data: Sequence[Path] = ()

    task: ClassVar[str] = "read"
    results: ClassVar[tuple[str, ...]] = ()

    @property
    def access(self) -> Access:
        return Access(absolute_paths(self.model, *self.data))

    def to_json(self) -> dict[str, Any]:
        return {"frontend": "", "model": str(self.model.absolute())}


@dataclass(frozen=True)
class SummariseJob(ReadJob):
    """What is in a model's file? The answer is that of :meth:`ModelSummary.to_json`."""

    task: ClassVar[str] = "summarise"


@dataclass(frozen=True)
class ExecutableJob(ReadJob):
    """Compile a model with TVM alone. What is left is a :class:`~edgepack.plan.tvm_library.TvmObjects`.

    Attributes:
        target: the CPU.
    """

    target: CpuTarget = field(kw_only=True)

    task: ClassVar[str] = "executable"
    results: ClassVar[tuple[str, ...]] = (DESCRIBED,)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "target": self.target.to_json()}


@dataclass(frozen=True)
class ExportJob(ReadJob):
    """Export a file of TorchScript with the example inputs in :attr:`examples`, a file in the job's folder.

    Attributes:
        dims: its open sizes (:func:`edgepack.programs.examples.encoded_dims`).
    """

    dims: Any = field(kw_only=True)

    task: ClassVar[str] = "export"
    results: ClassVar[tuple[str, ...]] = ("exported.pt2",)
    examples: ClassVar[str] = "examples.pt"

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "examples": self.examples, "dims": self.dims}


@dataclass(frozen=True)
class _OfModel:
    """What of a model is taken, whatever is done with it.

    Attributes:
        frontend: name of what reads the model's format; "" for what its file says.
        shapes: whole shapes of inputs, by name.
        dims: sizes of named dimensions.
        batch: what a batch of 1, written in the model, is changed to; 0 leaves it.
        cut_inputs, cut_outputs: tensors of the model to cut it at; empty for the model's own.
        custom: operators that the user computes in C.
        weights: what they are rounded to; None as the model has them.
        precision: of the GPU's kernels, which decides what outputs may be off by.
        maxima: room for entries of results whose size the data decide, by name.
        limits: how much may become of the model.
        strict_math: denormal numbers are computed with, not taken for zeros.
        const: numbers of inputs that become constants, by input name.
        data: files that belong to the model besides its own.
    """

    model: Path
    frontend: str = ""
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    cut_inputs: Sequence[str] = ()
    cut_outputs: Sequence[str] = ()
    custom: Sequence[CustomOperator] = ()
    batch: int = 0
    weights: WeightsDtype | None = None
    precision: Precision | None = None
    maxima: Mapping[str, int] = field(default_factory=dict)
    limits: Limits = DEFAULT_LIMITS
    strict_math: bool = False
    const: Mapping[str, Sequence[float]] = field(default_factory=dict)
    data: Sequence[Path] = ()

    @property
    def access(self) -> Access:
        own_python = any(one.reference for one in self.custom)
        return Access((*absolute_paths(self.model, *self.data), *(_ANYTHING if own_python else ())))

    def to_json(self) -> dict[str, Any]:
        return {
            "frontend": self.frontend,
            "model": str(self.model.absolute()),
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "dims": dict(self.dims),
            "cut_inputs": list(self.cut_inputs),
            "cut_outputs": list(self.cut_outputs),
            "custom": [one.to_json() for one in self.custom],
            "batch": self.batch,
            "weights": self.weights,
            "precision": self.precision,
            "maxima": dict(self.maxima),
            "limits": self.limits.to_json(),
            "strict_math": self.strict_math,
            "const": {name: list(values) for name, values in self.const.items()},
        }


@dataclass(frozen=True)
class ImportJob(_OfModel):
    """Prepare a model for any target, and record what it computes.

    Attributes:
        seed: of the recorded inputs.
        inputs: an input's name to a .npy file with its value for the recorded data.
        expected: an output's name to a .npy file with its value for the recorded data; empty to compute them.
    """

    seed: int = 0
    inputs: Mapping[str, Path] = field(default_factory=dict)
    expected: Mapping[str, Path] = field(default_factory=dict)

    task: ClassVar[str] = "import"
    results: ClassVar[tuple[str, ...]] = ("recorded/recorded.json",)

    @property
    def access(self) -> Access:
        return super().access | Access(absolute_paths(*self.inputs.values(), *self.expected.values()))

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "seed": self.seed,
            "inputs": {name: str(path.absolute()) for name, path in self.inputs.items()},
            "expected": {name: str(path.absolute()) for name, path in self.expected.items()},
        }


@dataclass(frozen=True)
class CheckJob(_OfModel):
    """Plan a model for one target, without recording anything. For a microcontroller there is ``kernels.o``
    too, whose code has to fit its flash.

    Attributes:
        target: what the kernels would be for.
        tuned: schedules that were measured, in place of what the rules would propose.
    """

    target: Target = field(kw_only=True)
    tuned: Sequence[TunedChoice] = ()

    task: ClassVar[str] = "check"
    results: ClassVar[tuple[str, ...]] = ("plan.json",)

    def to_json(self) -> dict[str, Any]:
        tuned = [choice.to_json() for choice in self.tuned]
        return {**super().to_json(), "target": self.target.to_json(), "tuned": tuned}


@dataclass(frozen=True)
class QuantiseJob(_OfModel):
    """Make a quantised model of a float one. ``figures.json`` has what
    :meth:`~edgepack.plan.quantisation.QuantisationFigures.to_json` says of it.

    Attributes:
        settings: how it is quantised.
        calibration: file or folder of the calibration data; None for random ones.
        accuracy: the script that measures a model; None for none. It runs in this process's working folder,
            and may read any file.
        like: a quantised model whose scales are kept; None for none.
    """

    settings: QuantiseSettings = field(default_factory=QuantiseSettings)
    calibration: Path | None = None
    accuracy: Path | None = None
    like: Path | None = None

    task: ClassVar[str] = "quantise"
    results: ClassVar[tuple[str, ...]] = ("quantised.onnx", "figures.json")

    @property
    def access(self) -> Access:
        given = absolute_paths(*(path for path in (self.calibration, self.like) if path is not None))
        return super().access | Access((*given, *(() if self.accuracy is None else _ANYTHING)))

    def to_json(self) -> dict[str, Any]:
        calibration = "" if self.calibration is None else str(self.calibration.absolute())
        return {
            **super().to_json(),
            "settings": self.settings.to_json(),
            "calibration": calibration,
            "accuracy": "" if self.accuracy is None else str(self.accuracy.absolute()),
            "folder": "" if self.accuracy is None else str(Path.cwd()),
            "like": "" if self.like is None else str(self.like.absolute()),
        }


@dataclass(frozen=True)
class LayersJob(_OfModel):
    """Which tensors of a model can be looked at between its kernels? ``tensors.json`` lists them:
    :class:`~edgepack.plan.layers.InnerTensor`."""

    task: ClassVar[str] = "layers"
    results: ClassVar[tuple[str, ...]] = ("tensors.json",)


@dataclass(frozen=True)
class DrawJob(_OfModel):
    """Draw what two models or bundles are compared on.

    Attributes:
        model: the first of them, for messages.
        sides: both.
        inputs: the user's files; None for random inputs, of ``seed``.
        samples: how many at most.
    """

    sides: Sequence[Side] = ()
    inputs: Path | None = None
    seed: int = 0
    samples: int = 128

    task: ClassVar[str] = "draw"
    results: ClassVar[tuple[str, ...]] = ("samples/samples.json",)

    @property
    def access(self) -> Access:
        given = () if self.inputs is None else absolute_paths(self.inputs)
        return super().access | Access((*_models(self.sides), *given))

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "sides": [side.to_json() for side in self.sides],
            "inputs": "" if self.inputs is None else str(self.inputs.absolute()),
            "seed": self.seed,
            "samples": self.samples,
        }


@dataclass(frozen=True)
class CompareJob(_OfModel):
    """Compare what two models or bundles compute. ``comparison.json`` has what
    :meth:`~edgepack.plan.comparison.ComparisonFigures.to_json` says of it.

    Attributes:
        sides: both, with the results of those that are bundles.
        drawn: folder with the inputs, ``samples`` of a :class:`DrawJob`.
    """

    sides: Sequence[Side] = ()
    drawn: Path = Path()

    task: ClassVar[str] = "compare"
    results: ClassVar[tuple[str, ...]] = ("comparison.json",)

    @property
    def access(self) -> Access:
        results = (Path(side.folder) for side in self.sides if side.folder)
        return super().access | Access((*_models(self.sides), *absolute_paths(self.drawn, *results)))

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "sides": [side.to_json() for side in self.sides],
            "drawn": str(self.drawn.absolute()),
        }


def absolute_paths(*paths: Path) -> tuple[Path, ...]:
    """Paths from the root on."""
    return tuple(path.absolute() for path in paths)


def _models(sides: Sequence[Side]) -> tuple[Path, ...]:
    """The files of what is compared and is a model."""
    return absolute_paths(*(Path(side.name) for side in sides if not side.bundle))
