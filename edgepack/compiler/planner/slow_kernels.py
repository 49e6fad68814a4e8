"""Which kernels of a plan are far slower than the CPU could be, and why: by estimate, for the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.estimate import Work, estimated_cycles, least_cycles, work_of
from edgepack.compiler.planner.program import Call
from edgepack.plan.target import CpuTarget

__all__ = ["describe_slow_kernels"]

#: A kernel is slow if it takes more than so many times the least that it could.
SLOW = 5

#: Slow kernels are told of if together they take more than this part of the time.
WORTH_TELLING = 0.1

#: Estimated cycles of a run below which nobody waits for it: some ten microseconds.
UNNOTICED = 30_000

#: Lines, at most; what is left is counted in one more.
MOST_LINES = 10


@dataclass
class _Slow:
    """A slow kernel: its symbol, a node that it computes, and cycles of all its calls."""

    symbol: str
    node: str
    implementation: Implementation
    cycles: float
    least: float


def describe_slow_kernels(calls: Sequence[Call], nodes: Sequence[str], target: CpuTarget) -> tuple[str, ...]:
    """One line for each kernel under a fifth of the roofline, the slowest first, where such kernels take more
    than a tenth of the plan's estimated time.

    Args:
        nodes: names of the model's nodes, by the index that calls have.
    """
    total = 0.0
    slow: dict[str, _Slow] = {}
    for call in calls:
        assert call.implementation is not None
        works = [work_of(group.function) for group in call.fused_groups]
        work = Work(
            sum(w.operations for w in works), sum(w.nbytes for w in works), any(w.reduces for w in works)
        )
        cycles = estimated_cycles(call.implementation, work, target)
        total += cycles
        least = least_cycles(work, target)
        if cycles <= SLOW * least:
            continue
        symbol = call.symbols[-1]
        if symbol not in slow:
            names = [nodes[i] for i in call.nodes if i < len(nodes)]
            slow[symbol] = _Slow(symbol, names[0] if names else "", call.implementation, 0, 0)
        slow[symbol].cycles += cycles
        slow[symbol].least += least
    lost = sum(kernel.cycles for kernel in slow.values())
    if lost <= max(UNNOTICED, WORTH_TELLING * total):
        return ()
    found = sorted(slow.values(), key=lambda kernel: -kernel.cycles)
    lines = [_line(kernel, total) for kernel in found[:MOST_LINES]]
    if len(found) > MOST_LINES:
        rest = sum(kernel.cycles for kernel in found[MOST_LINES:]) / total
        lines.append(f"{len(found) - MOST_LINES} more slow kernels take about {_percent(rest)} of the time")
    return tuple(lines)


def _line(kernel: _Slow, total: float) -> str:
    where = f" (node {kernel.node})" if kernel.node else ""
    share, times = _percent(kernel.cycles / total), f"{kernel.cycles / kernel.least:.0f} times"
    why = kernel.implementation.refused or "what it reads lies apart in memory"
    return (
        f"kernel {kernel.symbol}{where} by the rule {kernel.implementation.rule} takes about {share} of the "
        f"time, {times} what this CPU needs at least: {why}"
    )


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"
