"""From fused TIR to the Plan: select kernels, order steps, lay out constants and the arena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tvm.tirx import PrimFunc

from edgepack.compiler.graph.lower import Lowered
from edgepack.compiler.kernels.contract import Array, Implementation, Operand, Stage
from edgepack.compiler.kernels.cpu.generic.copy import copy
from edgepack.compiler.planner.arena import Request, aligned, plan_arena
from edgepack.compiler.planner.concat_in_place import concat_in_place
from edgepack.compiler.planner.constants import ConstantPool
from edgepack.compiler.planner.fuse_pairs import fuse_pairs
from edgepack.compiler.planner.half_products import mark_half_products
from edgepack.compiler.planner.half_weights import mark_half_weights
from edgepack.compiler.planner.measured import NOTHING_MEASURED, Measured
from edgepack.compiler.planner.program import Call, Program, Value, read_program
from edgepack.compiler.planner.select import KernelSelector
from edgepack.compiler.planner.slow_kernels import describe_slow_kernels
from edgepack.compiler.planner.split import select_or_split
from edgepack.compiler.planner.weight_prefetch import plan_weight_prefetch
from edgepack.compiler.reporter import Reporter
from edgepack.plan.target import CpuTarget
from edgepack.plan.types import Argument, Plan, Signature, Step

__all__ = ["Built", "build_plan"]

#: Measured with SSE2: docs/lab-book.md.
WITHOUT_INSTRUCTION = (
    "This CPU has no instruction that converts float16: products take 3 to 6 times as long with weights in "
    "float16 as in float32."
)


@dataclass(frozen=True)
class Built:
    """A plan, its kernels' TIR by symbol, and the constants' bytes in the order of ``plan.constants``.

    Attributes:
        gpu_kernels: the text of the GPU's kernels, by symbol.
    """

    plan: Plan
    functions: Mapping[str, PrimFunc]
    constants: tuple[Array, ...]
    gpu_kernels: Mapping[str, str] = field(default_factory=dict)


def build_plan(
    lowered: Lowered,
    signature: Signature,
    target: CpuTarget,
    *,
    name: str,
    symbol_prefix: str,
    reporter: Reporter | None = None,
    measured: Measured = NOTHING_MEASURED,
) -> Built:
    """Selects kernels for every call and lays everything out.

    Args:
        lowered: fused TIR; its main takes the signature's inputs and returns its outputs, in order.
        name: the model's name, a C identifier.
        symbol_prefix: C identifier that starts every kernel's symbol.
        reporter: is told of each kernel and warning.
        measured: of the model and its kernels, which decides with the rules.

    Raises:
        ModelError: for what a static plan cannot hold.
    """
    program = read_program(lowered)
    if target.half_weights:
        mark_half_weights(program)
    kept = mark_half_products(program, signature.nodes, measured.calibration) if target.half_products else ()
    selector = KernelSelector(program, target, symbol_prefix, reporter or Reporter(), measured.schedules)
    for text in kept:
        selector.warn(text)
    if target.half_weights and not target.converts_float16:
        selector.warn(WITHOUT_INSTRUCTION)
    concat_in_place(program, selector.try_select_as)
    fuse_pairs(program, selector.try_select)
    select_or_split(program, selector)
    for call in plan_weight_prefetch(program.calls, target):
        selector.add_prefetch(call)
    # Scratch in the arena of several threads is now memory of the one thread, now of the other, and to write
    # what another core has read takes eight times as long as the own: docs/lab-book.md.
    threads = 1 if target.optimize == "latency" else target.threads
    slow = describe_slow_kernels(program.calls, signature.nodes, target)
    for text in slow:
        selector.warn(text)
    layout = _Layout(program, selector, signature, threads)
    return layout.finish(name, slow)


class _Layout:
    """Steps, constants and arena of a program whose kernels are selected."""

    def __init__(
        self,
        program: Program,
        selector: KernelSelector,
        signature: Signature,
        threads: int,
    ) -> None:
        self.program, self.selector, self.signature, self.threads = program, selector, signature, threads
        self.steps: list[Step] = []
        self.pool = ConstantPool(program.constants, flush=not selector.target.strict_math)
        self.scratch_bytes = 0
        self.requests: list[Request] = []
        self._lifetimes: dict[int, tuple[int, int]] = {}
        self._request_index: dict[int, int] = {}
        self._output_of: dict[int, int] = {}
        copies = self._assign_outputs()
        for call in program.calls:
            self._emit(call)
        for value, index in copies:
            self._emit_copy(value, index, signature.outputs[index].nbytes)
        self._close_lifetimes()

    def _assign_outputs(self) -> list[tuple[Value, int]]:
        """Results that are outputs are computed in the caller's memory; returns what has to be copied
        there."""
        copies = []
        for index, value in enumerate(self.program.outputs):
            if value.kind == "buffer" and value.index not in self._output_of:
                self._output_of[value.index] = index
            else:
                copies.append((value, index))
        return copies

    def _emit(self, call: Call) -> None:
        implementation = call.implementation
        assert implementation is not None
        first_step = len(self.steps)
        temps = self._temps(implementation, first_step)
        offsets = [
            sum(aligned(n) for n in implementation.scratch[:i]) for i in range(len(implementation.scratch))
        ]
        for stage, symbol in zip(implementation.stages, call.symbols, strict=True):
            arguments = tuple(self._argument(o, call, implementation, temps, offsets) for o in stage.operands)
            scratch = self._scratch(implementation, stage)
            self.steps.append(Step(symbol, stage.tasks, arguments, self._names(call.nodes), scratch))
        for value in call.results:  # written by some stage; conservatively live through all of them
            self._touch(value, first_step)
            self._touch(value, len(self.steps) - 1)
        for value in call.arguments:
            if value.kind == "buffer":
                self._touch(value, len(self.steps) - 1)

    def _scratch(self, implementation: Implementation, stage: Stage) -> int:
        """Scratch of one thread in this stage; the arena gets room for all threads', while it runs."""
        used = any(operand.kind == "scratch" for operand in stage.operands)
        nbytes = sum(aligned(n) for n in implementation.scratch) if used else 0
        if nbytes:
            step = len(self.steps)
            self.requests.append(Request(f"scratch{step}", self.threads * nbytes, step, step))
            self.scratch_bytes = max(self.scratch_bytes, nbytes)
        return nbytes

    def _names(self, nodes: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.signature.nodes[i] for i in nodes if i < len(self.signature.nodes))

    def _temps(self, implementation: Implementation, first_step: int) -> list[int]:
        """Requests for the arena buffers between the stages; their indices."""
        indices = []
        for number, nbytes in enumerate(implementation.temps):
            used = [i for i, s in enumerate(implementation.stages) if Operand("temp", number) in s.operands]
            span = (first_step + min(used, default=0), first_step + max(used, default=0))
            indices.append(len(self.requests))
            self.requests.append(Request(f"temp{len(self.requests)}", nbytes, *span))
        return indices

    def _argument(
        self,
        operand: Operand,
        call: Call,
        implementation: Implementation,
        temps: Sequence[int],
        scratch: Sequence[int],
    ) -> Argument:
        if operand.kind in {"param", "output"}:
            values = call.arguments if operand.kind == "param" else call.results
            argument = self._value(values[operand.index])
            return replace(argument, offset=argument.offset + operand.offset)
        if operand.kind == "packed":
            packing = implementation.packed[operand.index]
            source = call.arguments[packing.param].index
            return Argument("constant", self.pool.add(source, packing.key, packing.transform))
        if operand.kind == "prefetch":
            assert call.prefetch is not None
            assert call.prefetch.call.implementation is not None
            packing = call.prefetch.call.implementation.packed[0]
            source = call.prefetch.call.arguments[packing.param].index
            constant = self.pool.add(source, packing.key, packing.transform)
            return Argument("constant", constant, call.prefetch.offset)
        if operand.kind == "temp":
            return Argument("arena", temps[operand.index])  # an index into the requests until they are placed
        return Argument("scratch", 0, scratch[operand.index])

    def _value(self, value: Value) -> Argument:
        if value.kind == "input":
            return Argument("input", value.index)
        if value.kind == "constant":
            return Argument("constant", self.pool.add(value.index))
        if value.index in self._output_of:
            return Argument("output", self._output_of[value.index], value.offset)
        if value.index not in self._request_index:
            self._request_index[value.index] = len(self.requests)
            nbytes = self.program.buffers[value.index].nbytes
            self.requests.append(Request(f"buffer{value.index}", nbytes, 0, 0))
        return Argument("arena", self._request_index[value.index], value.offset)

    def _emit_copy(self, value: Value, output: int, nbytes: int) -> None:
        implementation = copy(nbytes)
        matching = [
            s for s, k in self.selector.kernels.items() if k.rule == "copy" and k.bytes_moved == 2 * nbytes
        ]
        symbol = matching[0] if matching else self.selector.add(implementation, ("copy",), 2 * nbytes)[0]
        self.steps.append(
            Step(symbol, implementation.stages[0].tasks, (self._value(value), Argument("output", output)))
        )
        if value.kind == "buffer":
            self._touch(value, len(self.steps) - 1)

    def _touch(self, value: Value, step: int) -> None:
        first, last = self._lifetimes.get(value.index, (step, step))
        self._lifetimes[value.index] = (min(first, step), max(last, step))

    def _close_lifetimes(self) -> None:
        for index, request in self._request_index.items():
            first, last = self._lifetimes[index]
            self.requests[request] = replace(self.requests[request], first_step=first, last_step=last)

    def finish(self, name: str, slow: tuple[str, ...]) -> Built:
        """The plan, with its arena placed; nothing is added after that.

        Args:
            slow: what the plan says of slow kernels.
        """
        arena = plan_arena(self.requests, threads=self.threads, scratch_bytes=self.scratch_bytes)
        offsets = {buffer.name: buffer.offset for buffer in arena.buffers}

        def placed(argument: Argument) -> Argument:
            if argument.kind != "arena":
                return argument
            return Argument("arena", 0, offsets[self.requests[argument.index].name] + argument.offset)

        steps = tuple(
            replace(
                step,
                arguments=tuple(placed(a) for a in step.arguments),
                scratch_offset=offsets.get(f"scratch{index}", 0),
            )
            for index, step in enumerate(self.steps)
        )
        used = {s.kernel for s in steps}
        plan = Plan(
            name=name,
            inputs=self.signature.inputs,
            outputs=self.signature.outputs,
            constants=tuple(self.pool.constants),
            params_bytes=self.pool.nbytes,
            arena=arena,
            steps=steps,
            kernels=tuple(k for k in self.selector.kernels.values() if k.symbol in used),
            warnings=(*self.selector.warnings, *self.pool.warnings()),
            params_growth=self.pool.growth,
            slow_kernels=slow,
        )
        functions = {s: f for s, f in self.selector.functions.items() if s in used}
        return Built(plan, functions, tuple(self.pool.arrays))
