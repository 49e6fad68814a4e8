"""The programs of a tuner: a model packed with schedules that were chosen, in one program as many versions of
it as are measured in turns."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from edgepack.bundle.assemble import assemble
from edgepack.bundle.layout import default_name
from edgepack.bundle.manifest import KernelRecord, Manifest, StepRecord
from edgepack.bundle.manifest_builder import code_of
from edgepack.bundle.recipe import Compiled
from edgepack.bundle.writer import workplace
from edgepack.commands.compiled_targets import plan_of, targets_of
from edgepack.commands.packing import Packing
from edgepack.commands.tune_rounds import Candidate, Group, Nodes
from edgepack.commands.tuned_choices import TakenChoices
from edgepack.config.device import Device
from edgepack.config.host_gpu import require_gpu
from edgepack.config.tuned import tuned_digest
from edgepack.errors import ConfigError, EdgepackError, ModelError
from edgepack.objectfiles.audit import load_in_background
from edgepack.options import DEFAULT_TIMEOUT, PackOptions
from edgepack.pipeline.compile import Compiler, Imported
from edgepack.pipeline.compile_job import ChoicesJob, CompileJob
from edgepack.pipeline.requested import import_job
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.targets import Target
from edgepack.plan.tuned import TunedChoice
from edgepack.system.confinement import Access
from edgepack.system.deadline import OutOfTimeError, time_limit
from edgepack.system.process import side_by_side
from edgepack.system.progress import Stages

__all__ = ["MOST_VERSIONS", "Choices", "Program", "Programs", "step_nodes"]

#: Versions of the model in one program at most, and bytes of params that they may have together: a board has
#: to take them, and to hold them in memory.
MOST_VERSIONS, MOST_PARAMS = 8, 1 << 29

#: Processes that compile versions beside each other, at most: each has the model's weights in memory.
MOST_WORKERS = 4

#: A version with candidates is given up that takes so many seconds, and so many times as long to compile as
#: another one did: LLVM may need hours for a kernel that nobody would have written.
COMPILES, TIMES_USUAL = 60.0, 10.0

_R = TypeVar("_R")

#: By which schedules a version of the model is computed; the rules decide what is not among them.
Choices = tuple[TunedChoice, ...]


@dataclass(frozen=True)
class Program:
    """A bundle of one or more versions of the model.

    Attributes:
        root: its folder.
        versions: the names of its variants, in the order in which versions were asked for; "" for one that
            could not be compiled. ``("",)`` for a bundle of one version, which has no names.
        gpu: the name of the kernels for the GPU, which are measured; "" for a CPU's.
    """

    root: Path
    manifest: Manifest
    versions: tuple[str, ...] = ("",)
    gpu: str = ""

    def nodes(self, variant: str) -> list[Nodes]:
        """By what each step of a variant is known."""
        code = self.manifest.code(variant)
        return step_nodes(code.steps, code.kernels, gpu=bool(self.gpu))

    def discard(self) -> None:
        """Deletes a program that is not run any more."""
        shutil.rmtree(self.root)


def step_nodes(steps: Sequence[StepRecord], kernels: Sequence[KernelRecord], *, gpu: bool) -> list[Nodes]:
    """By what each step is known, in any version: the nodes that it computes; on a GPU with its operators,
    for a node and what moves its tensors have kernels of their own there."""
    if not gpu:
        return [tuple(step.nodes) for step in steps]
    operators = {kernel.symbol: kernel.ops for kernel in kernels}
    return [(*step.nodes, *operators.get(step.kernel, ())) for step in steps]


@dataclass(frozen=True)
class _Compiled:
    """The results of a compile job: their folder, and how the symbols of its kernels begin."""

    folder: Path
    prefix: str


class Programs:
    """Makes programs of one model for one device. A context: it holds the processes that compile.

    Args:
        options: how the model is packed.
        folder: for the bundles, and what they are made of.

    Attributes:
        target: what is tuned: the GPU where the device has one, else the CPU.
        gpu: the name of its kernels in a bundle; "" for a CPU.
        beside: schedules that are not searched for, of the CPU beside a GPU: all programs have them.
        workers: processes that compile, a version each.
        cut_short: whether there was no time for all candidates when they were made last.
    """

    def __init__(self, model: Path, device: Device, options: PackOptions, folder: Path) -> None:
        self.device, self.folder = device, folder
        name = options.name or default_name(model)
        self._options = replace(options, name=name, formats=())
        self._targets = targets_of([device], self._options)
        ((_, self.target), *_) = self._targets
        self.gpu = self.target.api if isinstance(self.target, GpuTarget) else ""
        self.beside: Sequence[TunedChoice] = ()
        if device.variants:
            raise ConfigError(
                f"{device.name} has kernels for several kinds of CPU, which are tuned one by one.",
                hint=f"Tune for each, into one file: {', '.join(device.variants)}.",
            )
        self.cut_short = False
        self._model, self._name = model, name
        self._numbers = count(1)
        self.workers = min(MOST_WORKERS, os.cpu_count() or 1)
        self._kept: dict[tuple[str, str], _Compiled] = {}
        self._usual = 0.0
        self._open = ExitStack()
        self._workers: SimpleQueue[Worker] = SimpleQueue()
        self._of_model: tuple[Packing, Imported, str] | None = None

    def __enter__(self) -> Programs:
        access = import_job(self._model, self._options).access | Access(writes=(self.folder.absolute(),))
        for _ in range(self.workers):
            self._workers.put(self._open.enter_context(Worker(access=access)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def most_versions(self) -> int:
        """How many versions one program may have: what is in turns is measured by its own clock; instructions
        need no turns, and a GPU's kernels are one variant."""
        if self.gpu or self.device.bare_metal:
            return 1
        params = max((one.folder / "params.bin").stat().st_size for one in self._kept.values())
        return max(1, min(MOST_VERSIONS, MOST_PARAMS // max(1, params)))

    def built(self, versions: Sequence[Choices]) -> Program:
        """A program of versions of the model, the first of which is the device's own. EdgepackError as for a
        pack; where a later version cannot be compiled it has none."""
        load_in_background()
        packing, imported, toolchain = self._prepared()
        own, *found = side_by_side(self._compiled_or_not, versions)
        if isinstance(own, EdgepackError):
            raise own
        names = ["" if isinstance(one, EdgepackError) else f"version{i}" for i, one in enumerate(found, 1)]
        compiled = [
            replace(one, device=self.device.model_copy(update={"name": name}))
            for name, several in zip(names, found, strict=True)
            if not isinstance(several, EdgepackError)
            for one in several
        ]
        root = self.folder / f"program{next(self._numbers)}"
        with workplace(root) as place:
            every = [*compiled, *own]
            recipe = packing.recipe(imported, every, place, version=toolchain, tuned=TakenChoices())
            manifest = assemble(recipe, Stages(None))
            place.publish(force=False)
        self._forget(versions)
        own_name = self.device.name if compiled else ""
        return Program(root, manifest, (own_name, *names), self.gpu)

    def groups(
        self,
        choices: Choices,
        wanted: Collection[str] = (),
        tried: Mapping[str, Collection[str]] | None = None,
        seconds: float | None = None,
    ) -> list[Group]:
        """The groups of a version's kernels that have schedules, with what may be tried for each.

        Args:
            choices: by which the version is computed.
            wanted: the keys of those whose candidates are asked for; of the others they are none. By default
                all that take more than a little of a run.
            tried: by group, digests of schedules that need not be among them.
            seconds: that making candidates may take, beyond a few of each group.
        """
        kept = self._kernels(self.target, choices)
        plain = self._job(self._prepared()[1], self.target, choices, kept.prefix)
        of_all = {one.name: getattr(plain, one.name) for one in fields(plain)}
        of_all |= {"wanted": sorted(wanted), "seconds": seconds}
        of_all["tried"] = {group: sorted(digests) for group, digests in (tried or {}).items()}
        parts = 1 if self.gpu else self.workers
        jobs = [ChoicesJob(**of_all, part=part, parts=parts) for part in range(parts)]
        # Each part lists all groups, and has cycles and candidates for its own.
        listed: dict[str, dict[str, Any]] = {}
        for one in (one for part in side_by_side(self._listed, jobs) for one in part):
            known = listed.setdefault(one["group"], one)
            listed[one["group"]] = max(known, one, key=lambda it: (it["cycles"], len(it["candidates"])))
        self.cut_short = any(one["more"] for one in listed.values())
        code = code_of(plan_of(kept.folder))
        nodes = step_nodes(code["steps"], code["kernels"], gpu=bool(self.gpu))
        kernels = [step.kernel for step in code["steps"]]

        def steps(one: Mapping[str, Any]) -> frozenset[Nodes]:
            if "nodes" in one:
                return frozenset(map(tuple, one["nodes"]))
            return frozenset(n for n, kernel in zip(nodes, kernels, strict=True) if kernel in one["symbols"])

        return [
            Group(
                one["group"],
                one["title"],
                steps(one),
                [Candidate(**other) for other in one["candidates"]],
                Candidate(one["rule"], one["schedule"], one["cycles"]),
                between="nodes" in one,
            )
            for one in listed.values()
        ]

    def _listed(self, job: ChoicesJob) -> list[dict[str, Any]]:
        """What a job finds."""
        place = self.folder / f"choices{next(self._numbers)}"
        place.mkdir()
        self._with_worker(lambda worker: worker.run(job, place))
        found: list[dict[str, Any]] = json.loads((place / "choices.json").read_text(encoding="utf-8"))
        shutil.rmtree(place)
        return found

    # What a program is made of ------------------------------------------------------------------------------

    def _prepared(self) -> tuple[Packing, Imported, str]:
        """What packs the model, the model prepared, and the toolchain's version."""
        if self._of_model is None:
            require_gpu(self.device.gpu, self.device.name)
            packing = Packing.of(self._model, self._name, self.device, self._options)
            version = packing.toolchain.version()
            self._open.enter_context(packing.toolchain.preparation())
            place = self.folder / "import"
            imported = self._with_worker(
                lambda worker: Compiler(worker, packing.cache).import_model(packing.job, place)
            )
            self._of_model = packing, imported, version
        return self._of_model

    def _compiled_or_not(self, choices: Choices) -> list[Compiled] | EdgepackError:
        try:
            return self._compiled(choices)
        except EdgepackError as error:
            return error

    def _compiled(self, choices: Choices) -> list[Compiled]:
        """A version's kernels: the GPU's, and those of the CPU beside it."""
        found = []
        for device, target in self._targets:
            gpu = target.api if isinstance(target, GpuTarget) else ""
            found.append(Compiled(device, self._kernels(target, choices).folder, gpu))
        return found

    def _kernels(self, target: Target, choices: Choices) -> _Compiled:
        """Those of the rules come from the cache, and go there; thousands of others do not."""
        key = self._key(target, choices)
        if key not in self._kept:
            packing, imported, _ = self._prepared()
            number = next(self._numbers)
            place = self.folder / f"compiled{number}"
            by_rules = not self._tuned(target, choices)
            cache = packing.cache if by_rules else None
            job = self._job(imported, target, choices, self._prefix(target, 0 if by_rules else number))
            limited = nullcontext() if by_rules else self._in_time()

            def compiled(worker: Worker) -> None:
                with limited:
                    Compiler(worker, cache).compile_model(job, imported, place)

            self._with_worker(compiled)
            self._kept[key] = _Compiled(place, job.symbol_prefix)
        return self._kept[key]

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """The body compiles a version with candidates. ModelError where it is given up."""
        limit = COMPILES + TIMES_USUAL * self._usual if self._usual else DEFAULT_TIMEOUT
        started = time.monotonic()
        try:
            with time_limit(limit):
                yield
        except OutOfTimeError:
            raise ModelError(
                f"A version of {self._model.name} was not compiled in {limit:.0f} s.",
                hint="Tune into another file, which begins with the schedules of the rules.",
            ) from None
        self._usual = max(self._usual, time.monotonic() - started)

    def _prefix(self, target: Target, number: int) -> str:
        """Of the symbols of a version, each one's own; 0 for that of the rules, as a pack has it."""
        return f"edgepack_{self._name}_{f'v{number}_' if number or target.kind != 'cpu' else ''}"

    def _job(self, imported: Imported, target: Target, choices: Choices, prefix: str) -> CompileJob:
        model, folder, frontend = imported.model, imported.folder, imported.frontend
        return CompileJob(
            model, folder, frontend, self._name, target, prefix, tuned=self._tuned(target, choices)
        )

    def _tuned(self, target: Target, choices: Choices) -> Choices:
        """Of the choices and of those beside them what is for a target; whatever they gained, which changes
        nothing of the kernels."""
        every = (*self.beside, *choices)
        return tuple(replace(one, gain=1.0) for one in every if one.cpu in target.tuned_kinds)

    def _key(self, target: Target, choices: Choices) -> tuple[str, str]:
        return target.kind, tuned_digest(self._tuned(target, choices))

    def _forget(self, versions: Sequence[Choices]) -> None:
        """Deletes what was compiled for other programs than the last, but for the rules'."""
        needed = {self._key(target, choices) for _, target in self._targets for choices in (*versions, ())}
        for key in [key for key in self._kept if key not in needed]:
            shutil.rmtree(self._kept.pop(key).folder)

    def _with_worker(self, do: Callable[[Worker], _R]) -> _R:
        """What ``do`` returns, given one of the processes, which no one else uses meanwhile."""
        worker = self._workers.get()
        try:
            return do(worker)
        finally:
            self._workers.put(worker)
