"""What a report shows of a plan: its arena over time, operators, what was measured, a table of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgepack.bundle.live_memory import arena_uses
from edgepack.bundle.manifest import KernelRecord, Manifest, VariantRecord
from edgepack.errors import ConfigError
from edgepack.render.formatting import human_bytes, human_count
from edgepack.report.figures import (
    BarChart,
    BarRow,
    MemoryMap,
    Value,
    bar_chart,
    memory_map,
)
from edgepack.report.results import BenchResult
from edgepack.runners.instructions import StepInstructions, step_instructions
from edgepack.runners.profile import ProfileEntry, profile_entries
from edgepack.text.operators import plain_operators

__all__ = ["KernelRow", "Kernels", "duration", "threads_text"]

#: Rows of a chart; the rest becomes one row.
_MOST_ROWS = 14


@dataclass(frozen=True)
class KernelRow:
    """A kernel in the table: how often it runs, and for which nodes of the model."""

    record: KernelRecord
    uses: int
    parameters: str
    nodes: tuple[str, ...]


class Kernels:
    """The plan of one kind of CPU, or of a GPU."""

    def __init__(
        self, key: str, name: str, record: Manifest | VariantRecord, bench: BenchResult | None
    ) -> None:
        self.key, self.name, self.record, self.bench = key, name, record, bench
        self.kernels = {kernel.symbol: kernel for kernel in record.kernels}
        for step in record.steps:
            if step.kernel and step.kernel not in self.kernels:
                raise ConfigError(
                    f"The manifest's steps name the kernel {step.kernel[:60]!r}, which it has not.",
                    hint="Pack the model again.",
                )

    @property
    def memory(self) -> list[MemoryMap]:
        """The arena, and that of the GPU; without those that are empty or of an older bundle."""
        memory = self.record.memory
        makers = [
            f"made by {', '.join(step.nodes[:3]) or step.kernel or 'a copy'}" for step in self.record.steps
        ]
        found = []
        for use in arena_uses(self.record):
            buffers = memory.gpu_buffers if use.gpu else memory.buffers
            title = "The GPU's arena over a run" if use.gpu else "The arena over a run"
            description = (
                f"{len(buffers)} buffers in {human_bytes(use.arena)}, placed by when they are in use, in "
                f"{len(makers)} steps."
            )
            found.append(memory_map(buffers, makers, use.arena, title, description))
        return found

    @property
    def operators(self) -> BarChart | None:
        """Operations and bytes by fused operator."""
        sums: dict[str, list[int]] = {}
        for step in self.record.steps:
            if not step.kernel:
                continue
            kernel = self.kernels[step.kernel]
            total = sums.setdefault(" + ".join(plain_operators(kernel.ops)) or kernel.rule, [0, 0, 0])
            for index, value in enumerate((kernel.flops, kernel.bytes_moved, 1)):
                total[index] += value
        if not sums:
            return None
        ordered = sorted(sums.items(), key=lambda item: (-item[1][0], -item[1][1], item[0]))
        flops, moved = (sum(total[i] for total in sums.values()) or 1 for i in (0, 1))
        rows = []
        for name, total in _folded(ordered):
            values = (
                Value(total[0], f"{human_count(total[0])}FLOP, {_share(total[0] / flops)}"),
                Value(total[1], f"{human_bytes(total[1])}, {_share(total[1] / moved)}"),
            )
            note = f"{total[2]} steps" if total[2] != 1 else "1 step"
            rows.append(BarRow(name, values, note, others=name not in sums))
        return bar_chart(
            "Work by operator",
            "Floating point operations of direct computation, and the least bytes that are read and written.",
            "operator",
            ("operations", "bytes moved"),
            rows,
        )

    @property
    def times(self) -> BarChart | None:
        """Measured times, the longest first; None where none were measured."""
        if self.bench is None or not self.bench.steps_us:
            return None
        entries = profile_entries(self.record, self.bench.steps_us)
        slowest = sorted(entries, key=lambda entry: (-entry.us, entry.first_step))
        rows = [_timed(entry) for entry in slowest[:_MOST_ROWS]]
        if rest := slowest[_MOST_ROWS:]:
            us = sum(entry.us for entry in rest)
            text = f"{duration(us)}, {sum(entry.share for entry in rest):.1%}"
            rows.append(BarRow(f"{len(rest)} others", (Value(us, text),), others=True))
        runs, where = len(self.bench.runs_ms), self.bench.where
        return bar_chart(
            "Time by kernel",
            f"Median of each step in {runs} runs with {threads_text(self.bench)} on {where}.",
            "nodes",
            ("time",),
            rows,
        )

    @property
    def instructions(self) -> BarChart | None:
        """Counted instructions, the most first; None where none were counted."""
        if self.bench is None or self.bench.instructions is None or not self.bench.instructions.steps:
            return None
        steps = step_instructions(self.record, self.bench.instructions.steps)
        most = sorted(steps, key=lambda step: (-step.instructions, step.step))
        rows = [_counted(step) for step in most[:_MOST_ROWS]]
        if rest := most[_MOST_ROWS:]:
            count, share = sum(step.instructions for step in rest), sum(step.share for step in rest)
            rows.append(
                BarRow(f"{len(rest)} others", (Value(count, f"{count:,}, {share:.1%}"),), others=True)
            )
        return bar_chart(
            "Instructions by step",
            f"Exact counts of one run on {self.bench.where}; they are no times.",
            "nodes",
            ("instructions",),
            rows,
        )

    @property
    def table(self) -> list[KernelRow]:
        """All kernels, the most work first."""
        uses: dict[str, list[str]] = {}
        count: dict[str, int] = {}
        for step in self.record.steps:
            uses.setdefault(step.kernel, []).extend(step.nodes)
            count[step.kernel] = count.get(step.kernel, 0) + 1
        ordered = sorted(
            self.record.kernels, key=lambda one: (-one.flops * count.get(one.symbol, 0), one.symbol)
        )
        return [
            KernelRow(
                one,
                count.get(one.symbol, 0),
                " ".join(f"{key}={value}" for key, value in one.parameters.items()),
                tuple(dict.fromkeys(uses.get(one.symbol, ()))),
            )
            for one in ordered
        ]


def _folded(ordered: Sequence[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """The first rows, and the sums of the rest as one."""
    if len(ordered) <= _MOST_ROWS:
        return list(ordered)
    rest = ordered[_MOST_ROWS - 1 :]
    sums = [sum(total[i] for _, total in rest) for i in range(3)]
    return [*ordered[: _MOST_ROWS - 1], (f"{len(rest)} others", sums)]


def _timed(entry: ProfileEntry) -> BarRow:
    speed = f", {entry.gflops:.1f} GFLOP/s" if entry.gflops is not None else ""
    label = ", ".join(entry.nodes) or " + ".join(plain_operators(entry.ops)) or entry.rule
    value = Value(entry.us, f"{duration(entry.us)}, {entry.share:.1%}")
    return BarRow(label, (value,), f"{entry.rule}{speed}")


def _counted(step: StepInstructions) -> BarRow:
    label = ", ".join(step.nodes) or " + ".join(plain_operators(step.ops)) or step.rule
    value = Value(step.instructions, f"{step.instructions:,}, {step.share:.1%}")
    return BarRow(label, (value,), f"step {step.step}, {step.rule}")


def threads_text(bench: BenchResult) -> str:
    return f"{bench.threads} thread" + ("s" if bench.threads != 1 else "")


def _share(fraction: float) -> str:
    return f"{fraction:.0%}" if fraction >= 0.005 or fraction == 0 else "< 1%"


def duration(us: float) -> str:
    return f"{us / 1000:.2f} ms" if us >= 1000 else f"{us:.1f} µs"
