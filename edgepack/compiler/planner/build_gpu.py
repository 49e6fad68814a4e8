"""From fused TIR to the Plan of a GPU and the CPU beside it.

What the GPU computes stays in its memory. Inputs are copied there before their first use, outputs back when
all is computed; where the CPU computes an operator in between, what it reads is copied back and what it
computed is copied there when a kernel of the GPU reads it. Which of the two computes what is decided by
``placement.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgepack.compiler.graph.lower import Lowered
from edgepack.compiler.planner.built import Built
from edgepack.compiler.planner.float16_gpu import HalfTensors, half_tensors
from edgepack.compiler.planner.layout import Layout
from edgepack.compiler.planner.measured import NOTHING_MEASURED, Measured
from edgepack.compiler.planner.placement import describe_placement, place
from edgepack.compiler.planner.program import Program, read_program
from edgepack.compiler.planner.regions import linked
from edgepack.compiler.planner.select import KernelSelector
from edgepack.compiler.planner.select_gpu import GpuSelector
from edgepack.compiler.planner.split import select_or_split
from edgepack.compiler.reporter import Reporter
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.opt_level import describe_level
from edgepack.plan.types import Signature

__all__ = ["SelectedOnGpu", "build_gpu_plan", "lay_out_on_gpu", "select_on_gpu"]


@dataclass(frozen=True)
class SelectedOnGpu:
    """A program whose kernels are selected.

    Attributes:
        gpu, cpu: what selected them.
        half: which tensors are float16 in the GPU's memory.
    """

    program: Program
    signature: Signature
    gpu: GpuSelector
    cpu: KernelSelector
    half: HalfTensors


def build_gpu_plan(
    lowered: Lowered,
    signature: Signature,
    target: GpuTarget,
    *,
    name: str,
    symbol_prefix: str,
    reporter: Reporter | None = None,
    measured: Measured = NOTHING_MEASURED,
) -> Built:
    """Selects kernels for every call and lays everything out. Arguments and errors as for
    :func:`edgepack.compiler.planner.build.build_plan`.

    Args:
        measured: of the model and its kernels, which decides with the rules.
    """
    reporter = reporter or Reporter()
    selected = select_on_gpu(lowered, signature, target, symbol_prefix, reporter, measured)
    return lay_out_on_gpu(selected, name)


def select_on_gpu(
    lowered: Lowered,
    signature: Signature,
    target: GpuTarget,
    symbol_prefix: str,
    reporter: Reporter,
    measured: Measured = NOTHING_MEASURED,
) -> SelectedOnGpu:
    """The kernels of a plan: which of the two computes what does not depend on schedules that are given."""
    program = read_program(lowered)
    gpu = GpuSelector(target, symbol_prefix, reporter, measured.on_gpu)
    cpu = KernelSelector(program, target.host, symbol_prefix, reporter, measured)
    for text in (*lowered.warnings, *filter(None, [describe_level(target.opt_level)])):
        cpu.warn(text)
    for call in program.calls:
        reason = "" if call.graphs else gpu.select(call, HalfTensors().of_call(call))
        if reason:
            cpu.warn(f"kernel {call.fused.title}: the CPU computes it, for the GPU has no kernel ({reason})")
    place(program, signature, target, cpu)
    half = half_tensors(program, target, signature.nodes, measured.calibration.large)
    for text in half.warnings:
        cpu.warn(text)
    for call in program.calls:
        if call.gpu is not None and half.of_call(call) != HalfTensors().of_call(call):
            gpu.select(call, half.of_call(call))
        if call.gpu is not None and (reason := gpu.apply_schedules(call, half.of_call(call))):
            cpu.warn(
                f"kernel {call.fused.title} was given a schedule that does not fit ({reason}); "
                "the GPU's rules have chosen one"
            )
    for one in list(program.programs()):
        select_or_split(one, cpu)
    for text in describe_placement(program, signature, target):
        cpu.warn(text)
    return SelectedOnGpu(program, signature, gpu, cpu, half)


def lay_out_on_gpu(selected: SelectedOnGpu, name: str) -> Built:
    """The plan of a program whose kernels are selected."""
    program, half = selected.program, selected.half
    regions = linked(program)
    layout = Layout(program, selected.signature, selected.cpu, gpu=selected.gpu, half=half, regions=regions)
    return layout.finish(name)
