"""Which calls the GPU computes and which the CPU, where the CPU has to compute some: by estimated time.

The least sum over all calls and all copies between them is a minimum cut (Stone, "Multiprocessor Scheduling
with the Aid of Network Flow Algorithms", 1977). A tensor is copied once in each direction, however many calls
read it there. The user asked for the GPU: a program that it can compute as a whole is computed by it, and the
CPU gets nothing that has no tensor in common with what it has to compute.

Times are in microseconds. The GPU's are its rates and launches (plan/gpu_speed.py), the CPU's those of one
core (kernels/estimate.py): small operators gain nothing from more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import inf, prod

from edgepack.compiler.kernels.estimate import (
    EFFICIENCY,
    STEP_CYCLES,
    Work,
    estimated_cycles,
    likely_cycles,
    work_of,
)
from edgepack.compiler.kernels.gpu.contract import GpuImplementation
from edgepack.compiler.planner.minimum_cut import FlowGraph
from edgepack.compiler.planner.program import Program, Value
from edgepack.compiler.planner.select import KernelSelector
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.types import Signature

__all__ = ["Costs", "computing", "describe_placement", "place"]

#: Cycles that a core does in a microsecond: no clock is known when compiling.
CYCLES = 2000

#: What the CPU computes, with the copies for it, is told if it is more than this part of the time.
WORTH_TELLING = 0.2

#: More nanoseconds than any placement takes.
_NEVER = 1 << 60


@dataclass(frozen=True)
class _Tensor:
    """A tensor of the program that changes hands.

    Attributes:
        producer: index of its call; None for an input of the model, which is in the process's memory.
        readers: indices of the calls that read it.
        delivered: whether it is an output of the model, which the process's memory gets.
        nbytes: its size.
    """

    producer: int | None
    readers: tuple[int, ...]
    delivered: bool
    nbytes: int


def place(program: Program, signature: Signature, target: GpuTarget, cpu: KernelSelector) -> None:
    """Takes the GPU's kernels from the calls that the CPU should compute with those that it has to.

    Args:
        program: changed in place: what the GPU can compute has its kernels.
        signature: of the model, for the sizes of its inputs.
        cpu: what the CPU's kernels are asked of.
    """
    fixed = {i for i, call in enumerate(program.calls) if call.gpu is None}
    if not fixed or len(fixed) == len(program.calls):
        return
    costs = Costs(program, signature, target)
    chosen = costs.connected(costs.cheapest(fixed, cpu), fixed)
    moved = sorted(chosen - fixed)
    if not moved:
        return
    more = costs.total(fixed) - costs.total(chosen)
    for i in moved:
        program.calls[i].gpu, program.calls[i].symbols = None, ()
    titles = list(dict.fromkeys(program.calls[i].fused.title for i in moved))
    named = ", ".join(titles[:3]) + (f" and {len(titles) - 3} more" if len(titles) > 3 else "")
    which = f"{len(moved)} kernels that the GPU has" if len(moved) > 1 else "1 kernel that the GPU has"
    cpu.warn(f"the CPU computes {which} too ({named}), which is estimated to save {_time(more)} of copies")


def computing(kernels: GpuImplementation, work: Work, target: GpuTarget) -> float:
    """Microseconds of kernels of a GPU: launches, and the longer of computing and moving bytes, at half of
    what it can and at less where their groups do not fill it."""
    speed = target.estimated_speed
    groups = max(prod(stage.groups) for stage in kernels.stages)
    busy = EFFICIENCY * min(1.0, groups / target.least_groups)
    moved = (work.nbytes + 2 * sum(kernels.temps)) / (1e3 * speed.bandwidth)
    computed = 2 * work.operations / (1e3 * speed.peak)
    return len(kernels.stages) * speed.launch + max(moved, computed) / busy


class Costs:
    """Estimated times of a program's calls and copies.

    Attributes:
        on_gpu: of each call; infinite where the GPU has no kernels for it.
        on_cpu: of each call, by kernels that are not slow.
    """

    def __init__(self, program: Program, signature: Signature, target: GpuTarget) -> None:
        self.program, self.target = program, target
        self.speed = target.estimated_speed
        works = [work_of(call.fused.function) for call in program.calls]
        self.on_cpu = [likely_cycles(work, target.host) / CYCLES for work in works]
        self.on_gpu = [
            inf if call.gpu is None else computing(call.gpu, work, target)
            for call, work in zip(program.calls, works, strict=True)
        ]
        self.tensors = list(_tensors(program, signature))

    def copying(self, tensor: _Tensor) -> float:
        """One copy of a tensor."""
        return self.speed.copy + tensor.nbytes / (1e3 * self.speed.link)

    def copied(self, tensor: _Tensor, on_cpu: Collection[int]) -> bool:
        """Whether a tensor that a call computes, or an input, is on both sides."""
        computed_there = tensor.producer is None or tensor.producer in on_cpu
        if computed_there:
            return any(reader not in on_cpu for reader in tensor.readers)
        return tensor.delivered or any(reader in on_cpu for reader in tensor.readers)

    def total(self, on_cpu: Collection[int]) -> float:
        """A run where the CPU computes the calls with these indices."""
        computing = sum(
            self.on_cpu[i] if i in on_cpu else self.on_gpu[i] for i in range(len(self.program.calls))
        )
        return computing + sum(self.copying(t) for t in self.tensors if self.copied(t, on_cpu))

    def cheapest(self, fixed: set[int], cpu: KernelSelector) -> set[int]:
        """What the CPU computes at the least cost, ``fixed`` being part of it.

        The CPU's kernels are asked for, and their time is known, only where it would compute a call: what was
        assumed before was not more, so what is the least in the end is the least of all. The GPU was asked
        for: where it would compute nothing, it keeps the call that it gains most by.
        """
        known = set(fixed)
        kept: set[int] = set()
        while True:
            found = self._cut(fixed, kept)
            if not found <= known:
                for i in found - known:
                    self.on_cpu[i] = cpu.cycles(self.program.calls[i].fused) / CYCLES
                known |= found
            elif len(found) < len(self.program.calls):
                return found
            else:
                kept = {max(found - fixed, key=lambda i: (self.on_cpu[i] - self.on_gpu[i], -i))}

    def connected(self, on_cpu: set[int], fixed: set[int]) -> set[int]:
        """The calls of ``on_cpu`` that share tensors with ``fixed``, directly or by others of them.
        What is apart is the GPU's: an input that it reads may be in its memory."""
        computed = (tensor for tensor in self.tensors if tensor.producer is not None)
        shared = [on_cpu.intersection((tensor.producer, *tensor.readers)) for tensor in computed]
        found, before = set(fixed), 0
        while len(found) > before:
            before = len(found)
            for calls in shared:
                if not found.isdisjoint(calls):
                    found |= calls
        return found

    def _cut(self, fixed: Collection[int], kept: Collection[int]) -> set[int]:
        """Indices of the calls on the CPU's side of a minimum cut."""
        calls = len(self.program.calls)
        gpu, host = calls, calls + 1
        graph = FlowGraph(calls + 2 + 2 * len(self.tensors))
        for i in range(calls):
            graph.connect(gpu, i, _NEVER if i in kept else _nanoseconds(self.on_cpu[i]))
            graph.connect(i, host, _NEVER if i in fixed else _nanoseconds(self.on_gpu[i]))
        for number, tensor in enumerate(self.tensors):
            cost = _nanoseconds(self.copying(tensor))
            producer = host if tensor.producer is None else tensor.producer
            # Nodes for the two copies: `down` is the CPU's where any reader is, `up` is the GPU's.
            down, up = calls + 2 + 2 * number, calls + 3 + 2 * number
            graph.connect(producer, down, cost)
            graph.connect(up, producer, cost)
            for reader in (*tensor.readers, *([host] if tensor.delivered else [])):
                graph.connect(down, reader, _NEVER)
                graph.connect(reader, up, _NEVER)
        return {i for i in graph.sink_side(gpu, host) if i < calls}


def _tensors(program: Program, signature: Signature) -> Iterator[_Tensor]:
    """The inputs and computed tensors that are read or delivered."""
    readers: dict[tuple[str, int], list[int]] = {}
    producers: dict[tuple[str, int], int] = {}
    values: dict[tuple[str, int], Value] = {}
    for i, call in enumerate(program.calls):
        for value in (*call.arguments, *call.results):
            if value.kind != "constant":
                values.setdefault((value.kind, value.index), value)
        for value in call.arguments:
            found = readers.setdefault((value.kind, value.index), [])
            if i not in found:
                found.append(i)
        producers.update({(value.kind, value.index): i for value in call.results})
    delivered = {(value.kind, value.index) for value in program.outputs}
    for key, value in values.items():
        nbytes = signature.inputs[value.index].nbytes if value.kind == "input" else value.nbytes
        out = key in delivered and key in producers
        yield _Tensor(producers.get(key), tuple(readers.get(key, ())), out, nbytes)


def describe_placement(program: Program, signature: Signature, target: GpuTarget) -> Iterator[str]:
    """What the user should know of a program whose kernels are selected: that the CPU alone is estimated to
    be faster, and that much of the time goes into what it computes beside the GPU."""
    costs = Costs(program, signature, target)
    on_cpu = {i for i, call in enumerate(program.calls) if call.gpu is None}
    if len(on_cpu) == len(program.calls):
        return
    for i in on_cpu:
        call = program.calls[i]
        assert call.implementation is not None
        cycles = estimated_cycles(call.implementation, work_of(call.fused.function), target.host)
        costs.on_cpu[i] = cycles / CYCLES
    step = STEP_CYCLES / CYCLES
    alone = sum(step + (time - step) / target.host.threads for time in costs.on_cpu)
    total = costs.total(on_cpu)
    if alone < total:
        yield (
            f"a run is estimated to take {_time(alone)} on the CPU alone, {_time(total)} with the GPU: "
            "compare them on the device (`edgepack bench --variant`)"
        )
    crossing = [t for t in costs.tensors if t.producer is not None and _crosses(t, on_cpu)]
    beside = sum(costs.on_cpu[i] for i in on_cpu) + sum(map(costs.copying, crossing))
    if beside <= WORTH_TELLING * total:
        return

    def blamed(i: int) -> float:
        return costs.on_cpu[i] + sum(costs.copying(t) for t in crossing if i in (t.producer, *t.readers))

    worst = max(sorted(on_cpu), key=blamed)
    nodes = [signature.nodes[n] for n in program.calls[worst].nodes if n < len(signature.nodes)]
    where = f" (node {nodes[0]})" if nodes else ""
    yield (
        f"what the CPU computes beside the GPU takes about {100 * beside / total:.0f} % of the estimated "
        f"{_time(total)} of a run, with {len(crossing)} tensors copied between them; most for "
        f"{program.calls[worst].fused.title}{where}: {_time(blamed(worst))}"
    )


def _crosses(tensor: _Tensor, on_cpu: Collection[int]) -> bool:
    """Whether a call on one side reads what one on the other computed."""
    return any((reader in on_cpu) != (tensor.producer in on_cpu) for reader in tensor.readers)


def _nanoseconds(time: float) -> int:
    return min(_NEVER, round(1e3 * time)) if time < inf else _NEVER


def _time(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.0f} us"
    return f"{microseconds / 1000:.1f} ms"
