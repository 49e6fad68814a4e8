"""From fused TIR to the Plan of a GPU and the CPU beside it.

What the GPU computes stays in its memory. Inputs are copied there before their first use, outputs back when
all is computed; where the CPU computes an operator in between, what it reads is copied back and what it
computed is copied there when a kernel of the GPU reads it. Which of the two computes what is decided by
``placement.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from edgepack.compiler.graph.lower import Lowered
from edgepack.compiler.kernels.contract import Array, Packing
from edgepack.compiler.kernels.cpu.generic.copy import copy
from edgepack.compiler.planner.arena import Request, aligned, plan_arena
from edgepack.compiler.planner.build import Built
from edgepack.compiler.planner.constants import ConstantPool
from edgepack.compiler.planner.half_gpu import HalfTensors, half_tensors
from edgepack.compiler.planner.placement import describe_placement, place
from edgepack.compiler.planner.program import Call, Program, Value, read_program
from edgepack.compiler.planner.select import KernelSelector
from edgepack.compiler.planner.select_gpu import GpuSelector
from edgepack.compiler.planner.split import select_or_split
from edgepack.compiler.reporter import Reporter
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.types import AnyStep, Argument, Copy, Launch, Plan, Signature, Step

__all__ = ["GPU_ALIGNMENT", "build_gpu_plan"]

#: Alignment of buffers in the GPU's arena, in bytes: the most that a driver is known to ask of a part of a
#: buffer (NVIDIA's OpenCL). ``templates/runtime/gpu/gpu.h`` has the same number.
GPU_ALIGNMENT = 512

Side = Literal["gpu", "cpu"]


def build_gpu_plan(
    lowered: Lowered,
    signature: Signature,
    target: GpuTarget,
    *,
    name: str,
    symbol_prefix: str,
    reporter: Reporter | None = None,
    large: Collection[str] = (),
) -> Built:
    """Selects kernels for every call and lays everything out. Arguments and errors as for
    :func:`edgepack.compiler.planner.build.build_plan`.

    Args:
        large: names of nodes whose results float16 does not hold.
    """
    reporter = reporter or Reporter()
    program = read_program(lowered)
    gpu = GpuSelector(target, symbol_prefix, reporter)
    cpu = KernelSelector(program, target.host, symbol_prefix, reporter)
    for call in program.calls:
        reason = gpu.select(call, HalfTensors().of_call(call))
        if reason:
            cpu.warn(f"kernel {call.fused.title}: the CPU computes it, for the GPU has no kernel ({reason})")
    place(program, signature, target, cpu)
    half = half_tensors(program, target, signature.nodes, large)
    for text in half.warnings:
        cpu.warn(text)
    for call in program.calls:
        if call.gpu is not None and half.of_call(call) != HalfTensors().of_call(call):
            gpu.select(call, half.of_call(call))
    select_or_split(program, cpu)
    for text in describe_placement(program, signature, target):
        cpu.warn(text)
    return _Layout(program, cpu, gpu, signature, half).finish(name)


def _as_half(array: Array) -> Array:
    return array.astype(np.float16)


class _Layout:
    """Steps, constants and both arenas of a program whose kernels are selected.

    Arguments of kind "arena" and "device" have an index into :attr:`requests` until these are placed.
    """

    def __init__(
        self,
        program: Program,
        cpu: KernelSelector,
        gpu: GpuSelector,
        signature: Signature,
        half: HalfTensors,
    ) -> None:
        self.program, self.cpu, self.gpu, self.signature, self.half = program, cpu, gpu, signature, half
        self.pool = ConstantPool(program.constants, flush=not cpu.target.strict_math)
        self.steps: list[AnyStep] = []
        self.requests: dict[Side, list[Request]] = {"gpu": [], "cpu": []}
        self.scratch_bytes = 0
        self._places: dict[tuple[Side, str, int], Argument] = {}
        self._outputs = {
            value.index: i
            for i, value in reversed(list(enumerate(program.outputs)))
            if value.kind == "buffer"
        }
        for call in program.calls:
            if call.gpu is not None:
                self._launches(call)
            else:
                self._host_steps(call)
        for index, value in enumerate(program.outputs):
            self._deliver(value, index)

    # Memory ----------------------------------------------------------------------------------------------

    def _request(self, side: Side, name: str, nbytes: int) -> Argument:
        """A new buffer in an arena, in use from the step that comes next."""
        requests, at = self.requests[side], len(self.steps)
        size = -(-nbytes // GPU_ALIGNMENT) * GPU_ALIGNMENT if side == "gpu" else nbytes
        requests.append(Request(f"{name}_{len(requests)}", max(size, 1), at, at))
        return Argument("device" if side == "gpu" else "arena", len(requests) - 1, 0, nbytes)

    def _used(self, argument: Argument, step: int) -> None:
        """Notes that a buffer is in use at a step."""
        if argument.kind in {"device", "arena"}:
            requests = self.requests["gpu" if argument.kind == "device" else "cpu"]
            request = requests[argument.index]
            last, first = max(request.last_step, step), min(request.first_step, step)
            requests[argument.index] = replace(request, first_step=first, last_step=last)

    def _nbytes(self, value: Value) -> int:
        if value.kind == "input":
            return self.signature.inputs[value.index].nbytes
        nbytes = self.program.buffers[value.index].nbytes
        return nbytes // 2 if self.half.holds(value) else nbytes

    def _new(self, side: Side, value: Value) -> Argument:
        """Where a call's result goes; on the CPU that is the caller's memory, for an output."""
        if side == "cpu" and value.index in self._outputs:
            place = Argument("output", self._outputs[value.index])
        else:
            place = self._request(side, f"buffer{value.index}", self._nbytes(value))
        self._places[(side, value.kind, value.index)] = place
        return place

    def _on(self, side: Side, value: Value) -> Argument:
        """Where a tensor is on one side; it is copied there if it is on the other only."""
        if value.kind == "constant":
            narrow = side == "gpu" and self.half.holds(value)
            constant = self.pool.add(value.index, *(("float16", _as_half) if narrow else ()))
            return Argument("constant", constant, 0, self.pool.constants[constant].nbytes)
        if side == "cpu" and value.kind == "input":
            return Argument("input", value.index)
        key = (side, value.kind, value.index)
        if key not in self._places:
            other = self._on("cpu" if side == "gpu" else "gpu", value)
            place = self._new(side, value)
            host, device = (other, place) if side == "gpu" else (place, other)
            self._add(Copy(side == "gpu", host, device), (host, device))
        return self._places[key]

    def _add(self, step: AnyStep, arguments: Sequence[Argument]) -> None:
        for argument in arguments:
            self._used(argument, len(self.steps))
        self.steps.append(step)

    # Steps -----------------------------------------------------------------------------------------------

    def _launches(self, call: Call) -> None:
        assert call.gpu is not None
        read = {o.index for stage in call.gpu.stages for o in stage.operands if o.kind == "param"}
        params = {i: self._on("gpu", value) for i, value in enumerate(call.arguments) if i in read}
        outputs = [self._new("gpu", value) for value in call.results]
        temps = [self._request("gpu", "temp", nbytes) for nbytes in call.gpu.temps]
        for stage, symbol in zip(call.gpu.stages, call.symbols, strict=True):
            packed = [self._packed(call, packing) for packing in stage.packed]
            others = {"output": outputs, "temp": temps, "packed": packed}
            arguments = tuple(
                params[o.index] if o.kind == "param" else others[o.kind][o.index] for o in stage.operands
            )
            launch = Launch(
                symbol, arguments, stage.groups, stage.threads, stage.local_bytes, self._names(call.nodes)
            )
            self._add(launch, (*arguments, *outputs))

    def _host_steps(self, call: Call) -> None:
        implementation = call.implementation
        assert implementation is not None
        params = [self._on("cpu", value) for value in call.arguments]
        outputs = [self._new("cpu", value) for value in call.results]
        temps = [self._request("cpu", "temp", nbytes) for nbytes in implementation.temps]
        sizes = [aligned(nbytes) for nbytes in implementation.scratch]
        for stage, symbol in zip(implementation.stages, call.symbols, strict=True):
            arguments = []
            for operand in stage.operands:
                match operand.kind:
                    case "param" | "output":
                        place = (params if operand.kind == "param" else outputs)[operand.index]
                        arguments.append(replace(place, offset=place.offset + operand.offset))
                    case "packed":
                        arguments.append(self._packed(call, implementation.packed[operand.index]))
                    case "temp":
                        arguments.append(temps[operand.index])
                    case _:
                        arguments.append(Argument("scratch", 0, sum(sizes[: operand.index])))
            used = any(operand.kind == "scratch" for operand in stage.operands)
            scratch = sum(sizes) if used else 0
            if scratch:
                self.scratch_bytes = max(self.scratch_bytes, scratch)
                step = len(self.steps)
                self.requests["cpu"].append(Request(f"scratch{step}", scratch, step, step))
            made = Step(symbol, stage.tasks, tuple(arguments), self._names(call.nodes), scratch)
            self._add(made, (*arguments, *outputs))

    def _packed(self, call: Call, packing: Packing) -> Argument:
        """A constant in a kernel's own layout."""
        index = self.pool.add(call.arguments[packing.param].index, packing.key, packing.transform)
        return Argument("constant", index, 0, self.pool.constants[index].nbytes)

    def _names(self, nodes: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.signature.nodes[i] for i in nodes if i < len(self.signature.nodes))

    def _deliver(self, value: Value, index: int) -> None:
        """Puts a result into the caller's memory, unless it was computed there."""
        place = Argument("output", index)
        device = self._places.get(("gpu", value.kind, value.index))
        if device is not None and value.kind == "buffer":
            if self._places.get(("cpu", value.kind, value.index)) != place:
                self._add(Copy(False, place, device), (device,))
            return
        source = self._on("cpu", value)
        if source == place:
            return
        nbytes = self.signature.outputs[index].nbytes
        implementation = copy(nbytes)
        (symbol,) = self.cpu.add(implementation, ("copy",), 2 * nbytes)
        self._add(Step(symbol, implementation.stages[0].tasks, (source, place)), (source,))

    # The plan --------------------------------------------------------------------------------------------

    def finish(self, name: str) -> Built:
        """The plan, with both arenas placed."""
        arenas = {
            "arena": plan_arena(self.requests["cpu"], threads=1, scratch_bytes=self.scratch_bytes),
            "device": plan_arena(self.requests["gpu"], threads=1, scratch_bytes=0),
        }
        offsets = {
            kind: {buffer.name: buffer.offset for buffer in arena.buffers} for kind, arena in arenas.items()
        }

        def placed(argument: Argument) -> Argument:
            if argument.kind not in offsets:
                return argument
            requests = self.requests["gpu" if argument.kind == "device" else "cpu"]
            at = offsets[argument.kind][requests[argument.index].name]
            assert argument.kind == "arena" or at % GPU_ALIGNMENT == 0
            return replace(argument, index=0, offset=at + argument.offset)

        def moved(index: int, step: AnyStep) -> AnyStep:
            if isinstance(step, Copy):
                return replace(step, host=placed(step.host), device=placed(step.device))
            arguments = tuple(placed(a) for a in step.arguments)
            if isinstance(step, Launch):
                return replace(step, arguments=arguments)
            scratch = offsets["arena"].get(f"scratch{index}", 0)
            return replace(step, arguments=arguments, scratch_offset=scratch)

        steps = tuple(moved(index, step) for index, step in enumerate(self.steps))
        used = {step.kernel for step in steps if not isinstance(step, Copy)}
        kernels = {**self.cpu.kernels, **self.gpu.kernels}
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
            gpu_api=self.gpu.target.api,
            gpu_arena=arenas["device"],
        )
        functions = {s: f for s, f in self.cpu.functions.items() if s in used}
        texts = {s: t for s, t in self.gpu.texts.items() if s in used}
        return Built(plan, functions, tuple(self.pool.arrays), texts)
