"""Compile models of the tests to plans, run them here, and compare with ONNX Runtime."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from edgepack.compiler.frontend.base import ImportedModel
from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.frontend.onnx.output_facts import tolerances
from edgepack.compiler.graph.forms import Forms
from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.graph.lower import Lowered, lower_with_graphs
from edgepack.compiler.kernels.preferred_forms import preferred_forms
from edgepack.compiler.kernels.schedule import Given
from edgepack.compiler.planner.build import Built, lay_out, select_kernels
from edgepack.compiler.planner.build_gpu import lay_out_on_gpu, select_on_gpu
from edgepack.compiler.planner.measured import Measured, all_ahead
from edgepack.compiler.planner.program import read_program
from edgepack.compiler.reporter import Reporter
from edgepack.errors import EdgepackError
from edgepack.plan.gpu_speed import GpuSpeed
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.target import CpuTarget
from edgepack.plan.targets import Target
from edgepack.plan.types import Plan
from workbench.executor import Executor, host_target
from workbench.models.evaluate import random_inputs, run_onnxruntime

__all__ = [
    "FREE_COPIES",
    "REGISTER_FILES",
    "SWEPT",
    "Compiled",
    "Library",
    "assert_close",
    "groups_of",
    "lowered_model",
    "on_register_files",
    "plan_of",
    "target_with",
]

#: Vector width in bits and number of registers: no vectors, SSE, NEON, AVX2, AVX-512. All run on this machine
#: whatever its CPU, because LLVM splits vectors that are too wide.
REGISTER_FILES = {
    "scalar": (0, 16),
    "128x16": (128, 16),
    "128x32": (128, 32),
    "256x16": (256, 16),
    "512x32": (512, 32),
}

#: Those on which every case of a kernel is tried: the fewest and narrowest registers, the most and widest.
SWEPT = ("128x16", "512x32")

#: Of the environment: "all" for every case on all of them in large files of tests too.
_REGISTERS = "EDGEPACK_TEST_REGISTERS"

#: A GPU on which everything is for which it has kernels, also in the smallest model.
FREE_COPIES = GpuSpeed(bandwidth=1e9, peak=1e9, launch=0, copy=0, link=1e9)

#: Bytes of the largest model that is kept imported and lowered; networks are compiled once.
KEPT = 1 << 20

#: No schedules.
NOTHING: Given = MappingProxyType({})

_lowered: dict[str, tuple[ImportedModel, Lowered]] = {}


def on_register_files(
    names: Iterable[str],
    sentinels: Iterable[str],
    *,
    swept: Iterable[str] = SWEPT,
    others: Iterable[str] = ("128x32", "256x16"),
    both: Iterable[str] | None = None,
) -> list[tuple[str, str]]:
    """Pairs of a register file and a case: every case on those of ``swept``, and each sentinel on one of the
    others in turn; with ``EDGEPACK_TEST_REGISTERS=all`` on each of them.

    Args:
        both: where there are many cases, those that are on all of ``swept`` beside the sentinels; the others
            are on one of them in turn, and on all with ``EDGEPACK_TEST_REGISTERS=all``.
    """
    names, sentinels, swept, others = list(names), list(sentinels), list(swept), list(others)
    everything = os.environ.get(_REGISTERS) == "all"
    everywhere = {*sentinels, *(names if both is None or everything else both)}
    assert everywhere <= set(names)
    first = [
        (registers, name)
        for turn, registers in enumerate(swept)
        for number, name in enumerate(names)
        if name in everywhere or number % len(swept) == turn
    ]
    return first + [
        (registers, name)
        for turn, registers in enumerate(others)
        for number, name in enumerate(sentinels)
        if everything or number % len(others) == turn
    ]


def target_with(register_file: str, *, threads: int = 3, **options: Any) -> CpuTarget:
    """A CPU with these registers; ``options`` are fields of the target."""
    bits, registers = REGISTER_FILES[register_file]
    return CpuTarget(
        "x86_64-unknown-linux-gnu",
        "x86-64",
        vector_bits=bits,
        vector_registers=registers,
        threads=threads,
        **options,
    )


def plan_of(
    model: onnx.ModelProto,
    name: str = "m",
    target: Target | None = None,
    maxima: Mapping[str, int] | None = None,
    given: Given = NOTHING,
    schedules: Callable[..., Given] | None = None,
    ahead: Callable[..., float] = all_ahead,
    selected: Callable[..., None] = lambda *what: None,
) -> Built:
    """The plan of a model whose input shapes are static.

    Args:
        maxima: those of ``--max``.
        given: schedules of all fused groups by rule, in place of those that the rules would propose.
        schedules: those of each fused group (``Schedules``, on a GPU ``GpuSchedules``), instead of ``given``.
        ahead: which part of the weights of groups is fetched ahead, of what the planner would.
        selected: is told of the program and of the selector, or for a GPU of what was selected, when its
            kernels are.
    """
    imported, lowered = lowered_model(model, maxima or {}, preferred_forms(target or host_target()))
    signature, prefix = imported.signature, f"{name}_"
    decide = schedules or (lambda *group: given)
    if isinstance(target, GpuTarget):
        measured = Measured(on_gpu=decide)
        on_gpu = select_on_gpu(lowered, signature, target, prefix, Reporter(), measured)
        selected(on_gpu)
        return lay_out_on_gpu(on_gpu, name)
    program = select_kernels(
        lowered,
        signature,
        target or host_target(),
        symbol_prefix=prefix,
        measured=Measured(schedules=decide, ahead=ahead),
    )
    selected(*program)
    return lay_out(*program, signature, name)


def groups_of(model: onnx.ModelProto, target: CpuTarget) -> list[tuple[FusedGroup, frozenset[int]]]:
    """The fused groups of a model, each with the parameters that are constant."""
    _, lowered = lowered_model(model, {}, preferred_forms(target))
    calls = read_program(lowered).calls
    return [(c.fused, frozenset(i for i, a in enumerate(c.arguments) if a.kind == "constant")) for c in calls]


def lowered_model(
    model: onnx.ModelProto, maxima: Mapping[str, int], forms: Forms
) -> tuple[ImportedModel, Lowered]:
    """Imported and lowered, in which no target has another part: a small model once for all targets."""
    content = model.SerializeToString(deterministic=True)
    key = hashlib.sha256(content + f"{maxima} {forms}".encode()).hexdigest()
    if key in _lowered:
        return _lowered[key]
    imported = import_model(model, maxima)
    result = imported, lower_with_graphs(imported.module, imported.graphs, forms)
    if len(content) <= KEPT:
        _lowered[key] = result
    return result


class Compiled:
    """Models compiled into one library: one link instead of many. What cannot be compiled fails when used.

    Args:
        models: by name, of static shapes.
        folder: where the library is made.
        target: the CPU that the kernels are chosen for; None: this machine's.
        machine: the CPU that they are compiled for, if another.
        maxima: those of ``--max``, by name of the model.
        given: schedules in place of those that the rules would propose, by name of the model, then by rule.
        optimised: by LLVM, as in bundles. Schedules are not its work: without it results are the same after a
            third of the time, and slower to compute.
    """

    def __init__(
        self,
        models: Mapping[str, onnx.ModelProto],
        folder: Path,
        target: CpuTarget | None = None,
        *,
        machine: CpuTarget | None = None,
        maxima: Mapping[str, Mapping[str, int]] | None = None,
        given: Mapping[str, Given] | None = None,
        optimised: bool = False,
    ) -> None:
        self.models = dict(models)
        self._errors: dict[str, EdgepackError] = {}
        built: dict[str, Built] = {}
        for number, (name, model) in enumerate(models.items()):
            try:
                schedules = (given or {}).get(name, NOTHING)
                built[name] = plan_of(model, f"m{number}", target, (maxima or {}).get(name), schedules)
            except EdgepackError as error:
                self._errors[name] = error
        self._executor = Executor(built, folder, machine or target, optimised=optimised)

    def built(self, name: str) -> Built:
        """The plan of a model and its kernels."""
        if name in self._errors:
            raise self._errors[name]
        return self._executor.built[name]

    def plan(self, name: str) -> Plan:
        """The plan of a model."""
        return self.built(name).plan

    def run(self, name: str, inputs: Mapping[str, np.ndarray], **how: Any) -> dict[str, np.ndarray]:
        """Outputs by name; ``how`` is that of the executor."""
        plan = self.plan(name)
        arrays = [np.asarray(inputs[spec.name]) for spec in plan.inputs]
        results = self._executor.run(name, arrays, **how)
        return dict(zip((spec.name for spec in plan.outputs), results, strict=True))

    def expected(self, name: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, as ONNX Runtime computes them."""
        model = self.models[name]
        outputs = (output.name for output in model.graph.output)
        return dict(zip(outputs, run_onnxruntime(model, inputs), strict=True))

    def check(self, name: str, *, seed: int = 5, poison: int = 0xFF) -> None:
        """Fails if outputs for random inputs are not what ONNX Runtime gives."""
        inputs = random_inputs(self.models[name], seed)
        got = self.run(name, inputs, seed=seed, poison=poison)
        assert_close(self.models[name], got, self.expected(name, inputs))


class Library:
    """What a file of tests compiles for several register files, each when it is first asked for.

    Args:
        models: by name.
        pairs: of a register file and a model, as :func:`on_register_files` gives them.
        folder: where the libraries are made.
        target: the CPU with a register file.
    """

    def __init__(
        self,
        models: Mapping[str, onnx.ModelProto],
        pairs: Iterable[tuple[str, str]],
        folder: Path,
        target: Callable[[str], CpuTarget] = target_with,
    ) -> None:
        self._models, self._pairs = models, list(pairs)
        self._folder, self._target = folder, target
        self._compiled: dict[str, Compiled] = {}

    def __call__(self, registers: str) -> Compiled:
        """Those of the models that are paired with this register file."""
        if registers not in self._compiled:
            models = {name: self._models[name] for on, name in self._pairs if on == registers}
            self._compiled[registers] = Compiled(models, self._folder / registers, self._target(registers))
        return self._compiled[registers]


def assert_close(
    model: onnx.ModelProto,
    got: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    rounded: str | None = None,
) -> None:
    """Compares outputs under the tolerance that a bundle of this model records, whose tensors may be
    ``rounded`` to a type between its kernels."""
    allowed = tolerances(model, rounded)
    for name, reference in expected.items():
        value, limit = got[name], allowed[name]
        assert (value.shape, value.dtype) == (reference.shape, reference.dtype), name
        if isinstance(limit, int):
            assert np.abs(value.astype(np.int64) - reference.astype(np.int64)).max(initial=0) <= limit, name
            continue
        finite = np.isfinite(reference)
        scale = np.abs(reference[finite]).max(initial=0)
        np.testing.assert_allclose(
            value,
            reference,
            rtol=limit.relative_each,
            atol=max(limit.relative * scale, limit.floor),
            err_msg=name,
        )
