"""Makes the report: gathers what a manifest and results say, has it drawn, and writes one HTML file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack.bundle.manifest import BufferRecord, KernelRecord, Manifest, VariantRecord
from edgepack.errors import ConfigError
from edgepack.render.formatting import human_bytes, human_count
from edgepack.render.templates import render_html
from edgepack.report.figures import (
    BarChart,
    BarRow,
    MemoryMap,
    Scale,
    Value,
    bar_chart,
    error_scale,
    memory_map,
    shortened,
)
from edgepack.report.results import BenchResult, OutputResult, VerifyResult
from edgepack.runners.profile import ProfileEntry, profile_entries
from edgepack.system.atomic import replace_file
from edgepack.system.disk_errors import refusal, writing_to
from edgepack.system.temporary import remove_dead, temporary_folder

__all__ = ["render_report", "write_report"]

#: Rows of a chart; the rest becomes one row.
_MOST_ROWS = 14


def write_report(
    manifest: Manifest,
    output: Path,
    bench: BenchResult | None = None,
    verification: VerifyResult | None = None,
    *,
    force: bool = False,
) -> None:
    """Write the report: all of the file, or nothing.

    Args:
        bench, verification: results of the same bundle.
        force: replace a file at ``output``.

    Raises:
        ConfigError: the file is there already, cannot be written, or the manifest contradicts itself.
    """
    if os.path.lexists(output) and (not force or not output.is_file()):
        raise ConfigError(f"{output} exists.", hint="Replace it with --force, or choose another --output.")
    text = render_report(manifest, bench, verification)
    folder = output.resolve().parent
    with writing_to({"output folder": folder}):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            remove_dead(folder)
            with temporary_folder(folder, prefix=".report.") as place:
                made = place / "report.html"
                made.write_text(text, encoding="utf-8", newline="\n")
                made.chmod(0o644)
                replace_file(made, output)
        except OSError as error:
            raise refusal(error) or ConfigError(
                f"{output} cannot be written: {error.strerror or error}.", hint="Choose another --output."
            ) from error


def render_report(
    manifest: Manifest, bench: BenchResult | None = None, verification: VerifyResult | None = None
) -> str:
    """The HTML of a report. The same bundle and results give the same text."""
    records: list[Manifest | VariantRecord] = [manifest, *manifest.variants]
    kinds = [
        _Kernels(
            f"k{number}",
            record.device.name if isinstance(record, Manifest) else record.name,
            record,
            bench if bench is not None and manifest.code(bench.variant) is record else None,
        )
        for number, record in enumerate(records)
    ]
    values = {
        "m": manifest,
        "kinds": kinds,
        "bench": bench,
        "verification": verification,
        "errors": _errors(verification),
        "sizes": _sizes(manifest),
        "footprint": _footprint(manifest),
        "tiles": _tiles(manifest, bench, verification),
    }
    return render_html("report/report.html.j2", values)


@dataclass(frozen=True)
class KernelRow:
    """A kernel in the table: how often it runs, and for which nodes of the model."""

    record: KernelRecord
    uses: int
    parameters: str
    nodes: tuple[str, ...]


class _Kernels:
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
        for title, buffers, size in (
            ("The arena over a run", memory.buffers, memory.arena),
            ("The GPU's arena over a run", memory.gpu_buffers, memory.gpu_arena),
        ):
            if not buffers or not size:
                continue
            if any(b.last_step >= len(makers) or not _placed(b, size) for b in buffers):
                raise ConfigError(
                    "The manifest's arena has a buffer outside of it, or of steps that there are not.",
                    hint="Pack the model again.",
                )
            description = (
                f"{len(buffers)} buffers in {human_bytes(size)}, placed by when they are in use, in "
                f"{len(makers)} steps."
            )
            found.append(memory_map(buffers, makers, size, title, description))
        return found

    @property
    def operators(self) -> BarChart | None:
        """Operations and bytes by fused operator."""
        sums: dict[str, list[int]] = {}
        for step in self.record.steps:
            if not step.kernel:
                continue
            kernel = self.kernels[step.kernel]
            total = sums.setdefault(" + ".join(kernel.ops) or kernel.rule, [0, 0, 0])
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
            text = f"{_time(us)}, {sum(entry.share for entry in rest):.1%}"
            rows.append(BarRow(f"{len(rest)} others", (Value(us, text),), others=True))
        runs, where = len(self.bench.runs_ms), self.bench.where
        return bar_chart(
            "Time by kernel",
            f"Median of each step in {runs} runs with {_threads(self.bench)} on {where}.",
            "nodes",
            ("time",),
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


def _placed(buffer: BufferRecord, arena: int) -> bool:
    """Whether it lies in the arena, and ends after it begins."""
    return buffer.first_step <= buffer.last_step and buffer.offset + buffer.nbytes <= arena


def _folded(ordered: Sequence[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """The first rows, and the sums of the rest as one."""
    if len(ordered) <= _MOST_ROWS:
        return list(ordered)
    rest = ordered[_MOST_ROWS - 1 :]
    sums = [sum(total[i] for _, total in rest) for i in range(3)]
    return [*ordered[: _MOST_ROWS - 1], (f"{len(rest)} others", sums)]


def _timed(entry: ProfileEntry) -> BarRow:
    speed = f", {entry.gflops:.1f} GFLOP/s" if entry.gflops is not None else ""
    label = ", ".join(entry.nodes) or " + ".join(entry.ops) or entry.rule
    value = Value(entry.us, f"{_time(entry.us)}, {entry.share:.1%}")
    return BarRow(label, (value,), f"{entry.rule}{speed}")


def _threads(bench: BenchResult) -> str:
    return f"{bench.threads} thread" + ("s" if bench.threads != 1 else "")


def _share(fraction: float) -> str:
    return f"{fraction:.0%}" if fraction >= 0.005 or fraction == 0 else "< 1%"


def _time(us: float) -> str:
    return f"{us / 1000:.2f} ms" if us >= 1000 else f"{us:.1f} µs"


def _sizes(manifest: Manifest) -> BarChart:
    """What a device holds, and what a session takes."""
    rows = [
        BarRow(artifact.path, (Value(artifact.nbytes, human_bytes(artifact.nbytes)),), artifact.kind)
        for artifact in manifest.artifacts
    ]
    params, memory = manifest.params, manifest.memory
    where = params.file or "params, inside the library"
    rows.append(
        BarRow(where, (Value(params.nbytes, human_bytes(params.nbytes)),), f"{params.tensors} tensors")
    )
    rows.append(BarRow("arena of a session, in memory", (Value(memory.arena, human_bytes(memory.arena)),)))
    if memory.gpu_arena:
        text = human_bytes(memory.gpu_arena)
        rows.append(BarRow("arena on the GPU", (Value(memory.gpu_arena, text),)))
    return bar_chart(
        "Files and memory",
        "Files that a device needs, and the memory of a session.",
        "what",
        ("bytes",),
        rows,
    )


def _footprint(manifest: Manifest) -> BarChart | None:
    """Flash and RAM of firmware."""
    if manifest.footprint is None:
        return None
    rows = [
        BarRow(
            part.name,
            (Value(part.flash, human_bytes(part.flash)), Value(part.ram, human_bytes(part.ram))),
            part.note,
        )
        for part in manifest.footprint.parts
    ]
    return bar_chart(
        "Flash and RAM",
        "What the model takes in firmware, of a linked image with nothing else in it.",
        "part",
        ("flash", "RAM"),
        rows,
    )


@dataclass(frozen=True)
class ErrorRow:
    """An output's largest error, at its place on the axis; None where it is not to be drawn."""

    label: str
    short: str
    output: OutputResult
    at: float | None
    text: str


@dataclass(frozen=True)
class ErrorChart:
    """Errors of all outputs on one axis."""

    scale: Scale
    rows: tuple[ErrorRow, ...]
    height: int


def _errors(verification: VerifyResult | None) -> ErrorChart | None:
    if verification is None or not verification.checks:
        return None
    checks = verification.checks
    fractions = [output.of_tolerance for _, output in checks]
    scale = error_scale([fraction for fraction in fractions if fraction is not None])
    rows = []
    for (variant, output), fraction in zip(checks, fractions, strict=True):
        if output.mismatches:
            text = f"{output.mismatches} of {output.elements} wrong"
        elif fraction is None:
            text = "equal" if output.max_abs_err == 0 else f"{output.max_abs_err}"
        else:
            text = f"{fraction:.1%} of it" if fraction >= 0.0005 else f"{fraction:.1e} of it"
        label = f"{output.name} ({variant})" if variant else output.name
        at = scale.at(fraction) if fraction is not None else None
        rows.append(ErrorRow(label, shortened(label, 40), output, at, text))
    return ErrorChart(scale, tuple(rows), 34 + 26 * len(rows) + 8)


@dataclass(frozen=True)
class Tile:
    """A number at the top of the page."""

    label: str
    number: str
    note: str


def _tiles(manifest: Manifest, bench: BenchResult | None, verification: VerifyResult | None) -> list[Tile]:
    shared = manifest.artifact("shared") or manifest.artifact("static") or manifest.artifact("program")
    memory = manifest.memory
    tiles = []
    if bench is not None and bench.real_speed:
        tiles.append(Tile("latency", f"{bench.median_ms:.3g} ms", f"median, {_threads(bench)}"))
    if shared is not None:
        tiles.append(
            Tile(shared.kind + " library" * (shared.kind != "program"), human_bytes(shared.nbytes), "")
        )
    tiles.append(Tile("params", human_bytes(manifest.params.nbytes), manifest.params.mode))
    above = memory.arena / memory.lower_bound - 1 if memory.lower_bound else 0
    note = f"{above:.1%} above the least" if above >= 0.0005 else "the least possible"
    tiles.append(Tile("arena", human_bytes(memory.arena), note))
    tiles.append(Tile("work of a run", f"{human_count(manifest.flops)}FLOP", f"{len(manifest.steps)} steps"))
    if verification is not None:
        count = len(verification.outputs)
        outputs = f"{count} output" + ("s" if count != 1 else "")
        tiles.append(Tile("verified", "ok" if verification.ok else "FAILED", f"{outputs}"))
    return tiles
