"""Makes the report: gathers what a manifest and results say, has it drawn, and writes one HTML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgepack.bundle.manifest import Manifest, VariantRecord
from edgepack.bundle.output_file import beside, check_output_file
from edgepack.bundle.quantised_record import QuantisedRecord
from edgepack.errors import ConfigError
from edgepack.render.formatting import human_bytes, human_count, human_ms
from edgepack.render.templates import render_html
from edgepack.report.figures import (
    BarChart,
    BarRow,
    Scale,
    Value,
    bar_chart,
    error_scale,
    shortened,
)
from edgepack.report.kernels import Kernels, threads_text
from edgepack.report.results import BenchResult, OutputResult, VerifyResult
from edgepack.system.atomic import replace_file
from edgepack.system.disk_errors import refusal, writing_to
from edgepack.system.temporary import remove_dead, temporary_folder

__all__ = ["check_report_file", "render_report", "write_report"]

#: What a report is known by: its document type.
_BEGINS = b"<!DOCTYPE html>"


def write_report(
    manifest: Manifest,
    output: Path,
    bench: BenchResult | None = None,
    verification: VerifyResult | None = None,
    not_run: str = "",
    *,
    force: bool = False,
) -> None:
    """Write the report: all of the file, or nothing.

    Args:
        bench, verification: results of the same bundle.
        not_run: why one of these is missing, in a sentence.
        force: replace a file at ``output``.

    Raises:
        ConfigError: the file is there already, cannot be written, or the manifest contradicts itself.
    """
    text = render_report(manifest, bench, verification, not_run)
    check_report_file(output, force=force)
    folder = beside(output)
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


def check_report_file(output: Path, *, force: bool) -> None:
    """ConfigError if a report may not be written there."""
    check_output_file(output, force=force, what="a report", begins=_BEGINS)


def render_report(
    manifest: Manifest,
    bench: BenchResult | None = None,
    verification: VerifyResult | None = None,
    not_run: str = "",
) -> str:
    """The HTML of a report. The same bundle and results give the same text."""
    records: list[Manifest | VariantRecord] = [manifest, *manifest.variants]
    kinds = [
        Kernels(
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
        "not_run": not_run,
        "errors": _errors(verification),
        "quantised": _quantised(manifest),
        "sizes": _sizes(manifest),
        "footprint": _footprint(manifest),
        "tiles": _tiles(manifest, bench, verification),
    }
    return render_html("report/report.html.j2", values)


@dataclass(frozen=True)
class Quantised:
    """How the model was quantised on the way to the bundle, in a sentence, and what became of it."""

    record: QuantisedRecord
    about: str


def _quantised(manifest: Manifest) -> Quantised | None:
    record = manifest.model.quantised
    if record is None or not record.outputs:
        return None
    weights = "7 bits" if record.reduce_range else "8 bits"
    if record.mode == "dynamic":
        how = f"Dynamically: ranges are computed when it runs; weights of {weights}."
    else:
        data = (
            "random inputs, which say nothing about real ones" if record.calibration is None else "the user's"
        )
        how = f"With {record.samples} samples of calibration data ({data}); weights of {weights}."
        if record.activation_tables is not None:
            before = (
                "before their activations too" if record.activation_tables else "behind their activations"
            )
            how += f" Products are rounded {before}."
    kept = f" For the sake of the outputs these stayed float: {', '.join(record.kept_float)}."
    return Quantised(record, how + (kept if record.kept_float else ""))


def _sizes(manifest: Manifest) -> BarChart:
    """What a device holds, and what a session takes."""
    rows = [
        BarRow(artifact.path, (Value(artifact.nbytes, human_bytes(artifact.nbytes)),), artifact.kind)
        for artifact in manifest.binaries
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
    others = [one.name for one in manifest.footprint.memories if one.used]
    rows = [
        BarRow(
            part.name,
            tuple(
                Value(nbytes, human_bytes(nbytes))
                for nbytes in (part.flash, part.ram, *(part.memories.get(name, 0) for name in others))
            ),
            part.note,
        )
        for part in manifest.footprint.parts
    ]
    return bar_chart(
        "Flash and RAM",
        "What the model takes in firmware, of a linked image with nothing else in it.",
        "part",
        ("flash", "RAM", *others),
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
    if bench is not None and bench.instructions is not None:
        tiles.append(Tile("instructions of a run", human_count(bench.instructions.run).strip(), "counted"))
    elif bench is not None and bench.real_speed:
        tiles.append(Tile("latency", human_ms(bench.median_ms), f"median, {threads_text(bench)}"))
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
