"""From fused TIR to the Plan: select kernels, order steps, lay out constants and the arena."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from edgepack.compiler.graph.lower import Lowered
from edgepack.compiler.planner.built import Built
from edgepack.compiler.planner.concat_in_place import concat_in_place
from edgepack.compiler.planner.float16_products import mark_float16_products
from edgepack.compiler.planner.float16_weights import mark_float16_weights
from edgepack.compiler.planner.float_calls import describe_float_calls, float_work
from edgepack.compiler.planner.fuse_pairs import fuse_pairs
from edgepack.compiler.planner.layout import Layout
from edgepack.compiler.planner.measured import NOTHING_MEASURED, Measured
from edgepack.compiler.planner.narrow_constants import mark_narrow_constants
from edgepack.compiler.planner.program import Program, read_program
from edgepack.compiler.planner.ram_budget import arena_limit, fit_ram
from edgepack.compiler.planner.regions import linked
from edgepack.compiler.planner.select import KernelSelector
from edgepack.compiler.planner.shared_kernels import share_kernels
from edgepack.compiler.planner.single_iterations import without_single_iterations
from edgepack.compiler.planner.slow_kernels import describe_slow_kernels
from edgepack.compiler.planner.split import select_or_split
from edgepack.compiler.planner.weight_prefetch import plan_weight_prefetch
from edgepack.compiler.reporter import Reporter
from edgepack.plan.opt_level import ALL, TILED, describe_level
from edgepack.plan.target import CpuTarget
from edgepack.plan.types import Signature

__all__ = ["Built", "build_plan", "lay_out", "select_kernels"]

#: Measured with SSE2: notes/2026-11-22-float16.md.
WITHOUT_INSTRUCTION = (
    "This CPU has no instruction that converts float16: products take 3 to 6 times as long with weights in "
    "float16 as in float32."
)

#: Kernels of plain loops read what the model computes with.
OF_PLAIN_LOOPS = "Below --opt-level 2 weights of float16 are stored as float32, in twice the space."


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
    selected = select_kernels(
        lowered, signature, target, symbol_prefix=symbol_prefix, reporter=reporter, measured=measured
    )
    return lay_out(*selected, signature, name)


def select_kernels(
    lowered: Lowered,
    signature: Signature,
    target: CpuTarget,
    *,
    symbol_prefix: str,
    reporter: Reporter | None = None,
    measured: Measured = NOTHING_MEASURED,
) -> tuple[Program, KernelSelector]:
    """The program, whose calls have kernels, and what selected them; arguments as for :func:`build_plan`."""
    program = read_program(lowered)
    programs = list(program.programs())
    for one in programs:
        if target.float16_weights:
            mark_float16_weights(one)
        if target.freestanding and not target.steady_params:
            mark_narrow_constants(one, short=target.optimize == "size")
    kept = (
        mark_float16_products(program, signature.nodes, measured.calibration)
        if target.float16_products and target.opt_level >= TILED
        else ()
    )
    selector = KernelSelector(program, target, symbol_prefix, reporter or Reporter(), measured)
    for text in (*lowered.warnings, *kept, *_of_options(target)):
        selector.warn(text)
    for one in programs:
        if target.opt_level >= ALL:
            concat_in_place(one, selector.try_select_as)
            fuse_pairs(one, selector.try_select)
        select_or_split(one, selector)
        if target.opt_level >= ALL:
            for call in plan_weight_prefetch(one.calls, target, measured.ahead):
                selector.add_prefetch(call)
    return program, selector


def lay_out(program: Program, selector: KernelSelector, signature: Signature, name: str) -> Built:
    """The plan of a program whose kernels are selected, ``name`` being the model's."""
    target = selector.target
    # Scratch in the arena of several threads is now memory of the one thread, now of the other, and to write
    # what another core has read takes eight times as long as the own: notes/2026-11-21-threads.md.
    threads = 1 if target.optimize == "latency" else target.threads
    calls = program.kernel_calls()
    floats = float_work(calls, target)
    if text := describe_float_calls(floats, target):
        selector.warn(text)
    slow = describe_slow_kernels(calls, signature.nodes, target) if target.opt_level >= ALL else ()
    for text in slow:
        selector.warn(text)

    regions = linked(program)

    def laid_out(program: Program) -> Built:
        return Layout(program, signature, selector, threads=threads, regions=regions).finish(name, slow)

    if (limit := arena_limit(target, signature)) and target.opt_level >= ALL and not regions:
        built = fit_ram(program, selector, limit, laid_out)
    else:
        built = laid_out(program)
    counted = None if target.computes_floats else floats.count
    built = replace(built, plan=replace(built.plan, float_calls=counted))
    if not target.freestanding or target.optimize != "size":
        return built
    return without_single_iterations(share_kernels(built))


def _of_options(target: CpuTarget) -> Iterator[str]:
    """What the user is told of the options, whatever the model."""
    if target.opt_level < ALL:
        yield describe_level(target.opt_level)
    if target.opt_level < TILED:
        if target.float16_weights:
            yield OF_PLAIN_LOOPS
    elif target.float16_weights and not target.converts_float16:
        yield WITHOUT_INSTRUCTION
