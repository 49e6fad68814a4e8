"""The programs of a tuner: a model packed with schedules that were chosen, run where it will run."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from edgepack.bundle.layout import default_name
from edgepack.bundle.manifest import Manifest, load_manifest
from edgepack.commands.compiled_targets import targets_of
from edgepack.commands.pack import pack_model
from edgepack.commands.tune_rounds import Candidate, Comparison, Group, Nodes
from edgepack.config.device import Device
from edgepack.config.tuned import TunedFile, write_tuned
from edgepack.errors import ConfigError
from edgepack.options import PackOptions, RunOptions
from edgepack.pipeline.cache import Cache
from edgepack.pipeline.compile import Compiler
from edgepack.pipeline.job import CompileJob
from edgepack.pipeline.requested import import_job
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.tuned import TunedChoice
from edgepack.runners.bench import BenchOptions, Measurement, bench, percentile
from edgepack.runners.verify import verify

__all__ = ["Program", "Programs", "compared", "run_of"]

#: Milliseconds that the runs of a measurement take together, about; and how many there are.
MEASURED_MS, FEWEST, MOST = 1500.0, 5, 300


@dataclass(frozen=True)
class Program:
    """A bundle of the model.

    Attributes:
        root: its folder.
        choices: the schedules that it was packed with.
        gpu: the name of the kernels for the GPU, which are measured; "" for a CPU's.
    """

    root: Path
    manifest: Manifest
    choices: tuple[TunedChoice, ...]
    gpu: str = ""

    def nodes(self, variant: str) -> list[Nodes]:
        """By what each step is known: the nodes that it computes; on a GPU with its operators, for a node and
        what moves its tensors have kernels of their own there."""
        code = self.manifest.code(variant)
        if not self.gpu:
            return [tuple(step.nodes) for step in code.steps]
        operators = {kernel.symbol: kernel.ops for kernel in code.kernels}
        return [(*step.nodes, *operators.get(step.kernel, ())) for step in code.steps]

    def nodes_of(self, symbols: Collection[str]) -> frozenset[Nodes]:
        """The same of the steps that run kernels."""
        steps = self.manifest.code(self.gpu).steps
        pairs = zip(steps, self.nodes(self.gpu), strict=True)
        return frozenset(nodes for step, nodes in pairs if step.kernel in symbols)


class Programs:
    """Makes programs of one model for one device, and runs them.

    Args:
        options: how the model is packed.
        where: how and where programs are run.
        folder: for the bundles.

    Attributes:
        target: what is tuned: the GPU where the device has one, else the CPU.
        gpu: the name of its kernels in a bundle; "" for a CPU.
        beside: schedules that are not searched for, of the CPU beside a GPU: all programs have them.
        cut_short: whether there was no time for all candidates when they were made last.
    """

    def __init__(
        self, model: Path, device: Device, options: PackOptions, where: RunOptions, folder: Path
    ) -> None:
        self.model, self.device, self.where, self.folder = model, device, where, folder
        self.options = replace(options, name=options.name or default_name(model), formats=())
        ((_, self.target), *_) = targets_of([device], self.options)
        self.gpu = self.target.api if isinstance(self.target, GpuTarget) else ""
        self.beside: Sequence[TunedChoice] = ()
        if device.variants:
            raise ConfigError(
                f"{device.name} has kernels for several kinds of CPU, which are tuned one by one.",
                hint=f"Tune for each, into one file: {', '.join(device.variants)}.",
            )
        self.runs = FEWEST
        self.cut_short = False
        self._number = 0

    def packed(self, choices: Sequence[TunedChoice]) -> Program:
        """The model with these schedules. EdgepackError as for a pack."""
        self._number += 1
        root, file = self.folder / f"program{self._number}", self.folder / f"{self._number}.json"
        every = (*self.beside, *choices)
        write_tuned(file, TunedFile(every))
        options = replace(self.options, tuned=[file] if every else [], timeout=0)
        pack_model(self.model, self.device, root, options, None)
        return Program(root, load_manifest(root), tuple(choices), self.gpu)

    def groups(
        self, program: Program, wanted: Collection[str] = (), seconds: float | None = None
    ) -> list[Group]:
        """The groups of a program's kernels that have schedules, with what may be tried for each.

        Args:
            wanted: the keys of those whose candidates are asked for; of the others they are none. By default
                all that take more than a little of a run.
            seconds: that making candidates may take, beyond a few of each group.
        """
        self._number += 1
        place = self.folder / f"choices{self._number}"
        with Worker() as worker:
            work = Compiler(worker, Cache() if self.options.cache else None)
            imported = work.import_model(import_job(self.model, self.options), place / "import")
            job = CompileJob(
                imported.model,
                imported.folder,
                imported.frontend,
                program.manifest.name,
                self.target,
                f"edgepack_{program.manifest.name}_{'v0_' if self.gpu else ''}",
                tuned=(*self.beside, *program.choices),
                choices=sorted(wanted),
                choices_seconds=seconds,
            )
            worker.run(job, place)
        listed = json.loads((place / "choices.json").read_text(encoding="utf-8"))
        shutil.rmtree(place)
        self.cut_short = any(one["more"] for one in listed)
        return [
            Group(
                one["group"],
                one["title"],
                program.nodes_of(one["symbols"]),
                [Candidate(**other) for other in one["candidates"]],
                Candidate(one["rule"], one["schedule"], one["cycles"]),
            )
            for one in listed
        ]

    def discard(self, program: Program) -> None:
        """Deletes a program that is not run any more."""
        shutil.rmtree(program.root)

    def is_right(self, program: Program) -> bool:
        """Whether it computes what was recorded. EdgepackError where it cannot be run."""
        found = verify(program.root, program.manifest, self.where)
        for one in found.variants:
            if one.name == self.gpu and one.missing:
                raise ConfigError(
                    f"There is no {one.missing.removeprefix('a ')} to tune for on {found.where}.",
                    hint="`edgepack doctor` says what is missing; --runner names a device that has it.",
                )
        return found.ok

    def measured(self, program: Program, *, runs: int | None = None) -> Measurement:
        """Its runs and steps. EdgepackError where it cannot be run."""
        return bench(program.root, program.manifest, self._options(runs or self.runs))

    def _options(self, runs: int | None = None) -> BenchOptions:
        return BenchOptions(runs=runs, profile=True, variant=self.gpu or None, where=self.where)

    def settle(self, program: Program) -> Measurement:
        """The first measurement, by which it is decided how many runs one takes.

        Raises:
            ConfigError: an emulator would run it, whose times say nothing.
        """
        found = bench(program.root, program.manifest, self._options())
        if found.instructions is None and not found.real_speed:
            raise ConfigError(
                f"{found.runner} emulates {self.device.name}: its times say nothing about the device.",
                hint="Name a device that is at hand: --runner ssh:user@board, or adb; microcontrollers are "
                "counted under qemu.",
            )
        if found.instructions is None:
            each = max(median(found.runs_ms), 1e-3)
            self.runs = int(min(MOST, max(FEWEST, MEASURED_MS / each)))
        else:
            self.runs = 1
        return found


def times(program: Program, measurement: Measurement) -> dict[Nodes, float]:
    """What each step took by its nodes, those with the same nodes together; instructions where these were
    counted."""
    counted = measurement.instructions
    values = counted.steps if counted is not None else measurement.steps_us
    found: dict[Nodes, float] = defaultdict(float)
    for nodes, value in zip(program.nodes(measurement.variant), values, strict=True):
        found[nodes] += float(value)
    return dict(found)


def run_of(measurement: Measurement) -> float:
    """A run in milliseconds, or in instructions where these were counted."""
    if measurement.instructions is not None:
        return float(measurement.instructions.run)
    return percentile(measurement.runs_ms, 50)


def compared(
    before: tuple[Program, Sequence[Measurement]], after: tuple[Program, Sequence[Measurement]]
) -> Comparison:
    """Measurements of two programs, each one's in turns with the other's."""
    first, second = (
        [times(program, measurement) for measurement in measurements]
        for program, measurements in (before, after)
    )
    nodes = list(first[0])
    mean = {one: _mean(times_of[one] for times_of in first) for one in nodes}
    noise = {
        one: (max(t[one] for t in first) - min(t[one] for t in first)) / mean[one] if mean[one] else 0.0
        for one in nodes
    }
    others = {one: _mean(times_of[one] for times_of in second) for one in second[0]}
    counted = before[1][0].instructions is not None
    return Comparison(mean, others, noise, "instructions" if counted else "us")


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
