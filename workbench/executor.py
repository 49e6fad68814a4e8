"""Runs plans in this process, step by step: the reference executor for tests of everything left of the Plan.

Kernels are linked into one library. Arena, scratch and outputs are poisoned before each run, tasks are cut
into ranges at random and done in random order, so memory that is read before it is written, or tasks that
depend on each other, show. Each tensor has pages beside it that cannot be read: a kernel that reads outside
of it ends the process.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import tvm
import tvm_ffi

from edgepack.compiler import tvm_target
from edgepack.compiler.backends import defined, llvm
from edgepack.compiler.backends.llvm import compile_object
from edgepack.compiler.planner.build import Built
from edgepack.config.device import load_device
from edgepack.pipeline.cache import Cache, objects_key
from edgepack.plan.branch import Branch
from edgepack.plan.cascade import Cascade
from edgepack.plan.target import CpuTarget
from edgepack.plan.types import ALIGNMENT, Argument, Kernel, Plan, Step
from edgepack.system.files import sha256_file
from edgepack.toolchains import resolve
from workbench.guarded import between_pages

__all__ = ["Executor", "Memory", "address", "host_target", "memories", "steps_of_run"]

#: Of the environment: "all" for what LLVM optimises, as in bundles, in all tests and not only in some.
_OPTIMISED = "EDGEPACK_TEST_OPTIMISED"


@cache
def host_target() -> CpuTarget:
    """The CPU that runs the tests."""
    return load_device("host").cpu_target()


def _opt_level(target: CpuTarget) -> int:
    """LLVM's for a target of the tests: 3, as in bundles, unless its registers are not its CPU's.

    Vectors of 512 bits that LLVM cuts into four for SSE2 are in no bundle; it takes three times as long to
    optimise them.
    """
    registers = target.vector_bits, target.vector_registers
    return 0 if target.cpu == "x86-64" and registers != (128, 16) else 3


def _compile(functions: Mapping[str, Any], target: CpuTarget, folder: Path, level: int) -> None:
    """Makes ``kernels.o`` in the folder, or takes what an earlier run made of TIR with the same hashes."""
    passes = sorted(Path(defined.__file__).parent.glob("*.py"))
    back_end = [sha256_file(file) for file in (Path(llvm.__file__), Path(tvm_target.__file__), *passes)]
    command = [*back_end, repr(target), str(level)]
    texts = {name: f"{tvm_ffi.structural_hash(f):x}" for name, f in functions.items()}
    key = objects_key(f"tvm {tvm.__version__}", command, {"kernels.o": texts})
    cache = Cache()
    with tempfile.TemporaryDirectory() as name:
        made = Path(name)
        if not cache.fetch(key, made):
            compile_object(functions, target, made / "kernels.o", opt_level=level)
            cache.store(key, made)
        shutil.copyfile(made / "kernels.o", folder / "kernels.o")


class Memory:
    """Bytes of a run: what is beside them on their pages must stay as it is, and no other page can be read.

    Args:
        nbytes: how many.
        poison: what they hold.
        alignment: of their address.
        at_start: whether the page that cannot be read is the one before, or the one behind.
    """

    def __init__(
        self, nbytes: int, poison: int, *, alignment: int = ALIGNMENT, at_start: bool = False
    ) -> None:
        self.pages, self.begin = between_pages(nbytes, alignment, at_start=at_start)
        self.pages[:] = 0x5A
        self.bytes = self.pages[self.begin : self.begin + nbytes]
        self.bytes[:] = poison

    def check(self, what: str) -> None:
        beside = self.pages[: self.begin], self.pages[self.begin + len(self.bytes) :]
        assert all((part == 0x5A).all() for part in beside), f"a kernel wrote outside of {what}"

    def pointer(self, offset: int) -> int:
        return self.bytes.ctypes.data + offset


class Executor:
    """Links the kernels of several plans and runs them.

    Args:
        built: the plans by name.
        folder: where the library is made.
        target: the CPU that the kernels are compiled for; None: this machine's.
        optimised: whether by LLVM, as in bundles; without it compiles take a third of the time, and results
            are the same.
    """

    def __init__(
        self,
        built: Mapping[str, Built],
        folder: Path,
        target: CpuTarget | None = None,
        *,
        optimised: bool = False,
    ) -> None:
        self.built = dict(built)
        functions: dict[str, Any] = {}
        for one in self.built.values():
            assert not functions.keys() & one.functions.keys(), "symbols of two plans collide"
            functions.update(one.functions)
        folder.mkdir(parents=True, exist_ok=True)
        cpu = target or host_target()
        optimised = optimised or os.environ.get(_OPTIMISED) == "all"
        _compile(functions, cpu, folder, _opt_level(cpu) if optimised else 0)
        toolchain = resolve(load_device("host"))
        toolchain.link_shared(
            [folder / "kernels.o"], folder / "kernels.so", exported=sorted(functions), soname="kernels.so"
        )
        self.library = ctypes.CDLL(str(folder / "kernels.so"))

    def run(
        self,
        name: str,
        inputs: Sequence[np.ndarray[Any, Any]],
        *,
        seed: int = 0,
        poison: int = 0xFF,
        at_start: bool | None = None,
    ) -> list[np.ndarray[Any, Any]]:
        """Outputs of the plan ``name`` for arrays in the order of its inputs.

        Args:
            at_start: see :class:`Memory`; None for one of both, which follows from name and seed.
        """
        built = self.built[name]
        plan = built.plan
        rng = np.random.default_rng(seed)
        if at_start is None:
            at_start = bool((crc32(name.encode()) + seed) % 2)
        of_run = memories(plan, built.constants, inputs, poison, at_start=at_start)
        before = {kind: [m.bytes.copy() for m in of_run[kind]] for kind in ("input", "constant")}
        branches = any(kernel.branch for kernel in plan.kernels)
        for at in steps_of_run(plan, of_run):
            if branches:
                _poison_unused(plan, at, of_run["arena"][0], poison)
            step = plan.steps[at]
            assert isinstance(step, Step)
            self.call(plan, step, of_run, rng, poison)
        for kind, contents in before.items():
            for i, (content, memory) in enumerate(zip(contents, of_run[kind], strict=True)):
                assert (content == memory.bytes).all(), f"a kernel wrote to {kind} {i} of {name}"
        return self.outputs(name, of_run)

    def call(
        self,
        plan: Plan,
        step: Step,
        of_run: Mapping[str, list[Memory]],
        rng: np.random.Generator,
        poison: int,
    ) -> None:
        """One step, its tasks in ranges at random; nothing for a branch."""
        kernel = plan.kernel(step.kernel)
        if kernel.branch is not None:
            return
        for lo, hi in _ranges(step.tasks, rng):
            thread = int(rng.integers(plan.arena.threads))
            scratch = step.scratch_offset + thread * step.scratch_bytes
            of_run["arena"][0].bytes[scratch : scratch + step.scratch_bytes] = poison
            pointers = [address(a, of_run, scratch) for a in step.arguments]
            if kernel.cascade is None:
                self._tasks(kernel, pointers, lo, hi)
            elif lo < hi:
                self._cascade(plan, kernel.cascade, pointers)

    def _tasks(self, kernel: Kernel, pointers: Sequence[int], lo: int, hi: int) -> None:
        """Tasks [lo, hi) of a kernel."""
        function = getattr(self.library, kernel.function or kernel.symbol)
        given: list[Any] = [ctypes.c_void_p(pointer) for pointer in pointers]
        given += [(ctypes.c_int32 * len(kernel.numbers))(*kernel.numbers)] if kernel.numbers else []
        assert function(*given, ctypes.c_int32(lo), ctypes.c_int32(hi)) == 0, kernel.symbol

    def _cascade(self, plan: Plan, cascade: Cascade, pointers: Sequence[int]) -> None:
        """Layers by rows. What leaves a window is gone, and what comes is poisoned first."""
        low = [0] * len(cascade.layers)

        def row(layer: int, number: int) -> int:
            one = cascade.layers[layer]
            return pointers[0] + one.offset + (number - low[layer]) * one.row_bytes

        for visit in cascade.visits():
            layer, at = cascade.layers[visit.layer], visit.layer
            if layer.window:
                kept = ctypes.string_at(row(at, visit.low), (visit.begin - visit.low) * layer.row_bytes)
                low[at] = visit.low
                ctypes.memset(row(at, visit.low), 0xA5, layer.window * layer.row_bytes)
                ctypes.memmove(row(at, visit.low), kept, len(kept))
            given = [pointers[i] if i >= 0 else row(-1 - i, 0) for i in layer.pointers]
            tasks = visit.begin * layer.tasks, visit.end * layer.tasks
            self._tasks(plan.kernel(layer.kernel), given, *tasks)

    def outputs(self, name: str, of_run: Mapping[str, list[Memory]]) -> list[np.ndarray[Any, Any]]:
        """What a run left, after a look at what it must not write to."""
        for kind, all_of_kind in of_run.items():
            for i, memory in enumerate(all_of_kind):
                memory.check(f"{kind} {i} of {name}")
        return [
            memory.bytes.view(spec.dtype).reshape(spec.shape).copy()
            for spec, memory in zip(self.built[name].plan.outputs, of_run["output"], strict=True)
        ]


def memories(
    plan: Plan,
    constants: Sequence[np.ndarray[Any, Any]],
    inputs: Sequence[np.ndarray[Any, Any]],
    poison: int,
    *,
    at_start: bool = False,
) -> dict[str, list[Memory]]:
    """What a run works on, by kind of argument; all but inputs and constants poisoned. What is the caller's
    is aligned to an element, all else to a line of the cache."""

    def holding(array: np.ndarray[Any, Any], alignment: int) -> Memory:
        memory = Memory(array.nbytes, 0, alignment=alignment, at_start=at_start)
        memory.bytes[:] = np.frombuffer(array.tobytes(), np.uint8)
        return memory

    for spec, array in zip(plan.inputs, inputs, strict=True):
        assert (array.shape, str(array.dtype)) == (spec.shape, spec.dtype), spec.name
    return {
        "input": [holding(array, array.itemsize) for array in inputs],
        "constant": [holding(array, ALIGNMENT) for array in constants],
        "output": [
            Memory(prod(spec.shape) * item, poison, alignment=item, at_start=at_start)
            for spec in plan.outputs
            for item in (np.dtype(spec.dtype).itemsize,)
        ],
        "arena": [Memory(plan.arena.nbytes, poison, at_start=at_start)],
    }


def address(argument: Argument, of_run: Mapping[str, list[Memory]], scratch: int) -> int:
    """Where an argument is in this process; ``scratch`` is where the thread's begins in the arena."""
    if argument.kind == "scratch":
        return of_run["arena"][0].pointer(scratch + argument.offset)
    return of_run[argument.kind][argument.index].pointer(argument.offset)


def steps_of_run(plan: Plan, of_run: Mapping[str, list[Memory]]) -> Iterator[int]:
    """The numbers of a run's steps, in order: what a branch decides is asked when the one who gets its number
    has done the step."""
    at = 0
    while at < len(plan.steps):
        yield at
        step = plan.steps[at]
        branch = plan.kernel(step.kernel).branch if isinstance(step, Step) else None
        taken = branch is not None and isinstance(step, Step) and _is_taken(branch, step, of_run)
        at = step.target if taken and isinstance(step, Step) else at + 1


def _poison_unused(plan: Plan, step: int, arena: Memory, poison: int) -> None:
    """Overwrites what of the arena no buffer holds that is in use at a step: what one trip of a loop leaves
    there is not for the next one."""
    held = np.zeros(len(arena.bytes), bool)
    for buffer in plan.arena.buffers:
        if buffer.first_step <= step <= buffer.last_step:
            held[buffer.offset : buffer.offset + buffer.nbytes] = True
    arena.bytes[~held] = poison


def _is_taken(branch: Branch, step: Step, of_run: Mapping[str, list[Memory]]) -> bool:
    """What ``templates/runtime/branch/branch.h`` decides."""
    pointers = iter([address(argument, of_run, 0) for argument in step.arguments])
    if branch.kind == "always":
        return True
    if branch.kind in {"unless", "require", "forbid"}:
        condition = bool(ctypes.c_uint8.from_address(next(pointers)).value)
        assert branch.kind == "unless" or condition == (branch.kind == "require"), "an impossible branch"
        return branch.kind == "unless" and not condition
    counter = ctypes.c_int64.from_address(next(pointers))
    counter.value = 0 if branch.kind == "begin" else counter.value + 1
    more = counter.value < branch.most
    if branch.trips:
        more = counter.value < ctypes.c_int64.from_address(next(pointers)).value and more
    if branch.condition:
        more = bool(ctypes.c_uint8.from_address(next(pointers)).value) and more
    return more == (branch.kind == "again")


def _ranges(tasks: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """[0, tasks) cut into up to four ranges, in random order."""
    cuts = sorted({0, tasks, *(int(c) for c in rng.integers(0, tasks + 1, 3))})
    ranges = list(pairwise(cuts))
    rng.shuffle(ranges)
    return ranges
