"""What is left to do when the kernels of a program are selected: its steps in order, its constants, and the
arenas in which the rest lies.

A tensor lies on the side that computes it, the CPU's or the GPU's, and is copied to the other one when
something there reads it. A plan for a CPU has one side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Literal, assert_never

import numpy as np

from edgepack.compiler.kernels.contract import Array, Implementation, Operand, Packing, Stage
from edgepack.compiler.kernels.cpu.generic.copy import copy
from edgepack.compiler.kernels.narrow_integers import as_narrow, as_words
from edgepack.compiler.planner.arena import Request, Shared, aligned, plan_arena
from edgepack.compiler.planner.arena_banks import plan_banks
from edgepack.compiler.planner.built import Built
from edgepack.compiler.planner.constants import ConstantPool
from edgepack.compiler.planner.float16_gpu import HalfTensors
from edgepack.compiler.planner.program import Call, Program, Value
from edgepack.compiler.planner.region_steps import RegionSteps
from edgepack.compiler.planner.regions import Region
from edgepack.compiler.planner.select import KernelSelector
from edgepack.compiler.planner.select_gpu import GpuSelector
from edgepack.plan.types import AnyStep, Argument, Copy, Launch, Plan, Signature, Step

__all__ = ["GPU_ALIGNMENT", "Layout"]

#: Alignment of buffers in the GPU's arena, in bytes: the most that a driver is known to ask of a part of a
#: buffer (NVIDIA's OpenCL). ``templates/runtime/gpu/gpu.h`` has the same number.
GPU_ALIGNMENT = 512

Side = Literal["gpu", "cpu"]


class Layout:
    """Steps, constants and arenas of a program whose kernels are selected.

    Arguments of kind "arena" and "device" have an index into :attr:`requests` until these are placed.

    Args:
        threads: for how many the CPU's arena has room for scratch.
        gpu: the GPU's kernels; None for a plan of the CPU alone.
        half: what is float16 in the GPU's memory.
        regions: the program's Ifs and loops (:func:`edgepack.compiler.planner.regions.linked`).
    """

    def __init__(
        self,
        program: Program,
        signature: Signature,
        cpu: KernelSelector,
        *,
        threads: int = 1,
        gpu: GpuSelector | None = None,
        half: HalfTensors | None = None,
        regions: Mapping[int, Region] = MappingProxyType({}),
    ) -> None:
        self.program, self.signature, self.cpu, self.gpu = program, signature, cpu, gpu
        self.threads, self.half = threads, half or HalfTensors()
        self.pool = ConstantPool(
            program.constants,
            flush=not cpu.target.strict_math,
            alignment=cpu.target.data_alignment,
        )
        self.steps: list[AnyStep] = []
        self.requests: dict[Side, list[Request]] = {"gpu": [], "cpu": []}
        self.shared: list[Shared] = []
        self.scratch_bytes = 0
        self._places: dict[tuple[Side, str, int], Argument] = {}
        # Results that are outputs are computed in the caller's memory; the second output of one is a copy.
        self._outputs = {
            value.index: i
            for i, value in reversed(list(enumerate(program.outputs)))
            if value.kind == "buffer"
        }
        self._regions = RegionSteps(self, regions)
        for call in program.calls:
            self._steps(call)
        for index, value in enumerate(program.outputs):
            self._deliver(value, index)

    # Memory ----------------------------------------------------------------------------------------------

    def request(self, side: Side, name: str, nbytes: int) -> Argument:
        """A new buffer in an arena, in use from the step that comes next."""
        requests, at = self.requests[side], len(self.steps)
        size = max(-(-nbytes // GPU_ALIGNMENT) * GPU_ALIGNMENT, 1) if side == "gpu" else nbytes
        requests.append(Request(name, size, at, at))
        return Argument("device" if side == "gpu" else "arena", len(requests) - 1, 0, nbytes)

    def numbered(self, side: Side, name: str) -> str:
        """A name for a buffer of which there may be more."""
        return f"{name}{'' if self.gpu is None else '_'}{len(self.requests[side])}"

    def nbytes(self, value: Value) -> int:
        """Of a tensor of the program, as the CPU has it."""
        if value.kind == "input":
            return self.signature.inputs[value.index].nbytes
        if value.kind == "constant":
            return self.program.constants[value.index].nbytes
        return self.program.buffers[value.index].nbytes

    def alias(self, value: Value, place: Argument) -> None:
        """Has a tensor that no step has computed yet computed at a place that there is."""
        self._places[("cpu", value.kind, value.index)] = place

    def touch(self, argument: Argument, step: int) -> None:
        """Notes that a buffer is in use at a step."""
        if argument.kind in {"device", "arena"}:
            requests = self.requests["gpu" if argument.kind == "device" else "cpu"]
            request = requests[argument.index]
            last, first = max(request.last_step, step), min(request.first_step, step)
            requests[argument.index] = replace(request, first_step=first, last_step=last)

    def _nbytes(self, value: Value) -> int:
        """Of a tensor that is no constant, as the GPU has it."""
        nbytes = self.nbytes(value)
        return nbytes // 2 if value.kind == "buffer" and self.half.holds(value) else nbytes

    def _new(self, side: Side, value: Value) -> Argument:
        """A place for a tensor; on the CPU that is the caller's memory, for an output."""
        if side == "cpu" and value.index in self._outputs:
            place = Argument("output", self._outputs[value.index])
        else:
            name = f"buffer{value.index}"
            name = name if self.gpu is None else self.numbered(side, name)
            place = self.request(side, name, self._nbytes(value))
        self._places[(side, value.kind, value.index)] = place
        return place

    def on(self, side: Side, value: Value) -> Argument:
        """Where a tensor is on one side: a new place if it is on none, and a copy if it is on the other."""
        if value.kind == "constant":
            narrow = side == "gpu" and self.half.holds(value)
            return self._constant(self.pool.add(value.index, *(("float16", _as_half) if narrow else ())))
        if side == "cpu" and value.kind == "input":
            return Argument("input", value.index)
        key = (side, value.kind, value.index)
        if key not in self._places:
            across: Side = "cpu" if side == "gpu" else "gpu"
            if value.kind == "input" or (across, value.kind, value.index) in self._places:
                other = self.on(across, value)
                place = self._new(side, value)
                host, device = (other, place) if side == "gpu" else (place, other)
                self.add(Copy(side == "gpu", host, device), (host, device))
            else:
                self._new(side, value)
        place = self._places[key]
        return replace(place, offset=place.offset + value.offset)

    def _constant(self, index: int, offset: int = 0) -> Argument:
        return Argument("constant", index, offset, self.pool.constants[index].nbytes)

    def _packed(self, call: Call, packing: Packing, offset: int = 0) -> Argument:
        """A constant in a kernel's own layout."""
        source = call.arguments[packing.param].index
        return self._constant(self.pool.add(source, packing.key, packing.transform), offset)

    # Steps -----------------------------------------------------------------------------------------------

    def _steps(self, call: Call) -> None:
        if call.gpu is not None:
            self._launches(call)
        elif call.graphs:
            self._regions.add(call)
        else:
            self.host_steps(call)

    def add(self, step: AnyStep, arguments: Sequence[Argument]) -> None:
        for argument in arguments:
            self.touch(argument, len(self.steps))
        self.steps.append(step)

    def names(self, nodes: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.signature.nodes[i] for i in nodes if i < len(self.signature.nodes))

    def _launches(self, call: Call) -> None:
        assert call.gpu is not None
        read = {o.index for stage in call.gpu.stages for o in stage.operands if o.kind == "param"}
        params = {i: self.on("gpu", value) for i, value in enumerate(call.arguments) if i in read}
        outputs = [self._new("gpu", value) for value in call.results]
        temps = [self.request("gpu", self.numbered("gpu", "temp"), nbytes) for nbytes in call.gpu.temps]
        for stage, symbol in zip(call.gpu.stages, call.symbols, strict=True):
            packed = [self._packed(call, packing) for packing in stage.packed]
            others = {"output": outputs, "temp": temps, "packed": packed}
            arguments = tuple(
                params[o.index] if o.kind == "param" else others[o.kind][o.index] for o in stage.operands
            )
            launch = Launch(
                symbol, arguments, stage.groups, stage.threads, stage.local_bytes, self.names(call.nodes)
            )
            self.add(launch, (*arguments, *outputs))

    def host_steps(self, call: Call) -> None:
        """The steps of a call of kernels on the CPU."""
        implementation = call.implementation
        assert implementation is not None
        read = [self.on("cpu", value) for value in call.arguments if value.kind != "constant"]
        first = len(self.steps)
        temps = self._temps(implementation, first)
        for stage, symbol in zip(implementation.stages, call.symbols, strict=True):
            arguments = tuple(self._argument(o, call, implementation, temps) for o in stage.operands)
            scratch = self._scratch(implementation, stage)
            self.steps.append(Step(symbol, stage.tasks, arguments, self.names(call.nodes), scratch))
        last = len(self.steps) - 1
        for value in call.results:  # written by some stage; conservatively live through all of them
            self.touch(self.on("cpu", value), first)
            self.touch(self.on("cpu", value), last)
        for argument in read:
            self.touch(argument, last)
        self._share(call, implementation)

    def _share(self, call: Call, implementation: Implementation) -> None:
        """Notes what a result may lie over, should nothing read that afterwards, where memory is short."""
        if not self.cpu.target.freestanding:
            return
        for overlap in implementation.overlaps:
            value = call.arguments[overlap.param]
            again = sum(other is value for other in call.arguments) > 1
            assert overlap.most is None or [stage.tasks for stage in implementation.stages] == [1]
            if value.kind != "buffer" or again or len(call.results) != 1:
                continue
            read, written = self.on("cpu", value), self.on("cpu", call.results[0])
            if {read.kind, written.kind} == {"arena"} and read.offset == written.offset == 0:
                self.shared.append(Shared(read.index, written.index, overlap.most))

    def _temps(self, implementation: Implementation, first: int) -> list[Argument]:
        """Buffers in the arena between the stages, each in use from the first to the last that names it."""
        temps = []
        named = [{o.index for o in s.operands if o.kind == "temp"} for s in implementation.stages]
        for number, nbytes in enumerate(implementation.temps):
            used = [i for i, numbers in enumerate(named) if number in numbers]
            temp = self.request("cpu", self.numbered("cpu", "temp"), nbytes)
            begin, end = first + min(used, default=0), first + max(used, default=0)
            request = self.requests["cpu"][temp.index]
            self.requests["cpu"][temp.index] = replace(request, first_step=begin, last_step=end)
            temps.append(temp)
        return temps

    def _scratch(self, implementation: Implementation, stage: Stage) -> int:
        """Scratch of one thread in this stage; the arena gets room for all threads', while it runs."""
        used = any(operand.kind == "scratch" for operand in stage.operands)
        nbytes = sum(aligned(n) for n in implementation.scratch) if used else 0
        if nbytes:
            self.request("cpu", f"scratch{len(self.steps)}", self.threads * nbytes)
            self.scratch_bytes = max(self.scratch_bytes, nbytes)
        return nbytes

    def _argument(
        self, operand: Operand, call: Call, implementation: Implementation, temps: Sequence[Argument]
    ) -> Argument:
        match operand.kind:
            case "param" | "output":
                values = call.arguments if operand.kind == "param" else call.results
                value = values[operand.index]
                if operand.beside:
                    other, least = values[operand.beside[0]].index, operand.beside[1]
                    words = partial(as_words, others=self.program.constants[other], least=least)
                    return self._constant(self.pool.add(value.index, f"words:{other}:{least}", words))
                if operand.narrowed:
                    transform = partial(as_narrow, dtype=operand.narrowed)
                    return self._constant(self.pool.add(value.index, operand.narrowed, transform))
                place = self.on("cpu", value)
                return replace(place, offset=place.offset + operand.offset)
            case "packed":
                return self._packed(call, implementation.packed[operand.index])
            case "prefetch":
                assert call.prefetch is not None
                later = call.prefetch.call
                assert later.implementation is not None
                return self._packed(later, later.implementation.packed[0], call.prefetch.offset)
            case "temp":
                return replace(temps[operand.index], offset=operand.offset)
            case "scratch":
                return Argument(
                    "scratch", 0, sum(aligned(n) for n in implementation.scratch[: operand.index])
                )
            case _:
                assert_never(operand.kind)

    def _deliver(self, value: Value, index: int) -> None:
        """Puts a result into the caller's memory, unless it was computed there."""
        place = Argument("output", index)
        device = self._places.get(("gpu", value.kind, value.index))
        if device is not None and value.kind == "buffer":
            if self._places.get(("cpu", value.kind, value.index)) != place:
                self.add(Copy(False, place, device), (device,))
            return
        if value.kind == "buffer" and self._outputs[value.index] == index:
            return
        self.copy(self.on("cpu", value), place, self.signature.outputs[index].nbytes)

    def copy(self, source: Argument, target: Argument, nbytes: int) -> None:
        """A step that copies bytes in the CPU's memory."""
        self.kernel(copy(nbytes), 2 * nbytes, (source, target))

    def kernel(
        self, implementation: Implementation, bytes_moved: int, arguments: tuple[Argument, ...]
    ) -> None:
        """A step of a kernel that is no operator of the model's: one of a rule that moves so many bytes is
        made once."""
        rule, kernels = implementation.rule, self.cpu.kernels.items()
        made = rule, implementation.chosen, bytes_moved
        known = [s for s, k in kernels if (k.rule, k.parameters, k.bytes_moved) == made]
        symbol = known[0] if known else self.cpu.add(implementation, (rule,), bytes_moved)[0]
        self.add(Step(symbol, implementation.stages[0].tasks, arguments), arguments)

    # The plan --------------------------------------------------------------------------------------------

    def finish(self, name: str, slow: tuple[str, ...] = ()) -> Built:
        """The plan, with its arenas placed; nothing is added after that.

        Args:
            slow: what the plan says of slow kernels.
        """
        arenas = {
            "arena": plan_banks(
                self.requests["cpu"],
                self._room(),
                shared=self._shared(),
                alignment=self.cpu.target.data_alignment,
                threads=self.threads,
                scratch_bytes=self.scratch_bytes,
            ),
            "device": plan_arena(self.requests["gpu"]),
        }
        offsets = {kind: {b.name: b.offset for b in arena.buffers} for kind, arena in arenas.items()}
        steps = tuple(self._placed(index, step, offsets) for index, step in enumerate(self.steps))
        used = {step.kernel for step in steps if not isinstance(step, Copy)}
        cascades = (self.cpu.kernels[s].cascade for s in list(used) if s in self.cpu.kernels)
        used |= {layer.kernel for cascade in cascades if cascade for layer in cascade.layers}
        kernels = {**self.cpu.kernels, **(self.gpu.kernels if self.gpu else {})}
        plan = Plan(
            name=name,
            inputs=self.signature.inputs,
            outputs=self.signature.outputs,
            constants=tuple(self.pool.constants),
            params_bytes=self.pool.nbytes,
            arena=arenas["arena"],
            steps=steps,
            kernels=tuple(kernel for symbol, kernel in kernels.items() if symbol in used),
            warnings=(*self.cpu.warnings, *self.pool.warnings()),
            params_growth=self.pool.growth,
            slow_kernels=slow,
        )
        if self.gpu:
            plan = replace(plan, gpu_api=self.gpu.target.api, gpu_arena=arenas["device"])
        functions = {s: f for s, f in self.cpu.functions.items() if s in used}
        texts = {s: t for s, t in self.gpu.texts.items() if s in used} if self.gpu else {}
        return Built(plan, functions, tuple(self.pool.arrays), texts)

    def _room(self) -> list[int]:
        """What each memory has room for of the arena, beside inputs and outputs."""
        target = self.cpu.target
        tensors = sum(one.nbytes for one in (*self.signature.inputs, *self.signature.outputs))
        return [
            max(0, nbytes - tensors) if index == target.tensors_beside else nbytes
            for index, nbytes in enumerate(target.arena_room)
        ]

    def _shared(self) -> list[Shared]:
        """Pairs of buffers of which one is read for the last time where the other is written first."""
        requests = self.requests["cpu"]
        return [
            pair for pair in self.shared if requests[pair.read].last_step == requests[pair.written].first_step
        ]

    def _placed(self, index: int, step: AnyStep, offsets: Mapping[str, Mapping[str, int]]) -> AnyStep:
        """A step whose arguments say where in the arenas they lie."""

        def placed(argument: Argument) -> Argument:
            if self.gpu is None:  # nobody has to know sizes
                argument = replace(argument, nbytes=0)
            if argument.kind not in offsets:
                return argument
            requests = self.requests["gpu" if argument.kind == "device" else "cpu"]
            at = offsets[argument.kind][requests[argument.index].name]
            assert argument.kind == "arena" or at % GPU_ALIGNMENT == 0
            return replace(argument, index=0, offset=at + argument.offset)

        if isinstance(step, Copy):
            return replace(step, host=placed(step.host), device=placed(step.device))
        arguments = tuple(placed(a) for a in step.arguments)
        if isinstance(step, Launch):
            return replace(step, arguments=arguments)
        scratch = offsets["arena"].get(f"scratch{index}", 0)
        return replace(step, arguments=arguments, scratch_offset=scratch)


def _as_half(array: Array) -> Array:
    return array.astype(np.float16)
