"""What a frontend is: a package that reads the models of one format and makes Relax modules of them.

Each package of this folder is a frontend, under the name of its format, and is found by being there; another
package brings one by an entry point (``edgepack.frontends``). What all formats share are the modules beside
these packages: ``choose.py`` (which frontend reads a model), ``tolerances.py`` (what an output may be off by,
from facts that the frontend finds), ``recorded.py`` (recorded data), and what this module defines.

A frontend runs in the worker's process, and is always given a file. A model that is an object in memory, an
``onnx.ModelProto`` say, is written to one first by the process that has it: a format whose models are such
objects has a :class:`edgepack.pipeline.model_objects.ModelObject` too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from edgepack.plan.calibration import NOT_CALIBRATED, CalibrationRanges
from edgepack.plan.custom import CustomOperator
from edgepack.plan.gpu_target import Precision
from edgepack.plan.limits import DEFAULT_LIMITS, Limits
from edgepack.plan.model_summary import ModelSummary
from edgepack.plan.types import Signature, WeightsDtype

if TYPE_CHECKING:
    import tvm

    from edgepack.compiler.graph.layout import Layout

__all__ = ["Float16Weights", "Frontend", "ImportOptions", "ImportedModel"]

Float16Weights = Literal["always", "where it is fast", "never"]


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """What the user says about how a model is imported: shapes that it leaves open, where it is cut, how
    precise its weights stay, and how much may become of it.

    Attributes:
        shapes: whole shapes of inputs, by input name (``--shape``).
        dims: sizes of named dimensions (``--dim``).
        inputs: tensors that become inputs (``--inputs``), by name; empty for the model's own.
        outputs: tensors that become the outputs (``--outputs``), by name; empty for the model's own.
        custom: operators that the user computes in C (``--custom``).
        expected: ``.npy`` files with the outputs, by name, where the user knows them (``--expected``).
        batch: what a batch of 1, written in the model, is changed to (``--set-batch``); 0 leaves it.
        weights: "float16" rounds them to that (``--weights``), "float32" does not; None: as the model has
            them.
        precision: of the kernels (``--precision``), which decides what outputs may be off by.
        maxima: by name of a result whose size the data decide, the entries that there is room for
            (``--max``).
        limits: how much may become of the model.
        strict_math: denormal numbers are computed with, not taken for zeros (``--strict-math``).
        const: numbers of inputs that become constants, by input name (``--const``).
        examples: ``.npy`` files for inputs, by name (``--input``): a format that says nothing of sizes takes
            them from there.
    """

    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    batch: int = 0
    custom: Sequence[CustomOperator] = ()
    expected: Mapping[str, Path] = field(default_factory=dict)
    weights: WeightsDtype | None = None
    maxima: Mapping[str, int] = field(default_factory=dict)
    limits: Limits = DEFAULT_LIMITS
    precision: Precision | None = None
    strict_math: bool = False
    const: Mapping[str, Sequence[float]] = field(default_factory=dict)
    examples: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class ImportedModel:
    """A model as the graph passes take it.

    Attributes:
        module: one Relax function ``main``; its parameters are the signature's inputs in order, its result
            one tensor or a tuple of tensors, the outputs in order. Weights are constants inside.
        signature: names as in the file (not necessarily identifiers), static shapes.
        operators: how often each of the format's operators occurs, after normalisation.
        layout: of the images that the module's convolutions and poolings take: "NCHW", channels first, or
            "NHWC"; of signals and volumes likewise.
        float16_weights: whether weights that are float16 numbers are stored as such: "always", "where it is
            fast" (the target has instructions that convert them), or "never".
        calibration: how large its values were in the recorded run, where that was asked for.
        graphs: modules of the graphs inside its Ifs and loops, also of those inside these, by the names that
            the operators ``region`` (``graph/opaque.py``) have for them. The names of their variables lead to
            ``signature.nodes`` too.
    """

    module: tvm.IRModule
    signature: Signature
    operators: dict[str, int]
    layout: Layout
    float16_weights: Float16Weights = "never"
    calibration: CalibrationRanges = NOT_CALIBRATED
    graphs: Mapping[str, tvm.IRModule] = field(default_factory=dict)


class Frontend(Protocol):
    """The functions of a frontend's package, in the order in which they are called.

    All raise ModelError for a file that cannot be read or compiled. Only :meth:`load` may import TVM, and
    importing the package imports nothing that takes long: all of them are imported where the suffix of a
    model's file says nothing.

    More names are optional. ``SUFFIXES``: the suffixes of the format's files (``(".pt2",)``), beside
    its name. ``recognises(model: Path) -> bool``: whether a file of another suffix is of the format, by its
    first bytes; it does not raise. ``quantise(model, options, folder, settings, files, stage)``: writes
    the quantised model as ``folder / "quantised.onnx"`` (``onnx/quantise/command.py``). ``draw`` and
    ``compare``: what ``edgepack compare`` does with models of the format (``onnx/compare/command.py``).
    ``explained(model, options, error, compiles)``: a ModelError with sizes of inputs that work, where these
    are wrong; ``check_run(model, options)``: raises one where the reference cannot run the model with the
    user's sizes (``onnx/tried_sizes.py``).
    ``tensors_inside(folder)``: what can be looked at inside of the model that :meth:`prepare` left there.
    """

    def model_files(self, model: Path) -> tuple[Path, ...]:
        """The model's file and those that belong to it, whose contents decide on all that follows."""
        ...

    def summarise(self, model: Path) -> ModelSummary:
        """What is in the model's file."""
        ...

    def prepare(self, model: Path, options: ImportOptions, folder: Path) -> tuple[str, ...]:
        """Check the model, give it static shapes, normalise it, and leave in ``folder`` what :meth:`load`
        needs: nothing there depends on a target.

        Returns:
            Warnings, a sentence each: what was chosen for the user, and what is lost.

        Raises:
            ConfigError: ``options`` do not fit the model.
        """
        ...

    def record(
        self, model: Path, options: ImportOptions, folder: Path, *, seed: int, inputs: Mapping[str, Path]
    ) -> tuple[str, ...]:
        """Write recorded inputs, reference outputs and their tolerances to ``folder / "recorded"``.

        Args:
            folder: that of :meth:`prepare`, which was called before.
            seed: of the random inputs.
            inputs: ``.npy`` files to use instead, by input name.

        Returns:
            Warnings, a sentence each.
        """
        ...

    def load(self, folder: Path) -> ImportedModel:
        """The module of what :meth:`prepare` left in ``folder``."""
        ...
