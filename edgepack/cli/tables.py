"""Tables about a bundle that ``pack`` and ``inspect`` print."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from edgepack.bundle.manifest import Manifest, Tensor, ThreadsModule, VariantRecord
from edgepack.cli.output import table
from edgepack.render.formatting import float32_text, human_bytes, human_count, shape_text
from edgepack.text.operators import plain_operators
from edgepack.text.printable import printable

__all__ = [
    "audit_table",
    "files_table",
    "footprint_table",
    "kernels_table",
    "memory_table",
    "overview_table",
    "quantisation_text",
    "quantised_outputs_table",
    "signature_table",
]


def signature_table(manifest: Manifest) -> str:
    """Inputs and outputs."""

    def row(kind: str, tensor: Tensor) -> list[str]:
        shape = shape_text(tensor.shape)
        return [kind, tensor.name, tensor.dtype, shape, human_bytes(tensor.nbytes), *meaning(tensor)]

    def meaning(tensor: Tensor) -> list[str]:
        return [quantisation_text(tensor.quantisation)] if quantised else []

    quantised = any(tensor.quantisation for tensor in (*manifest.inputs, *manifest.outputs))
    rows = [row("input", tensor) for tensor in manifest.inputs]
    rows += [row("output", tensor) for tensor in manifest.outputs]
    header = ["", "name", "dtype", "shape", "size", *(["an integer x means"] if quantised else [])]
    return table(rows, header=header, right=[4])


class Quantisation(Protocol):
    """What a tensor's integers mean, of a bundle's manifest or of a model's summary."""

    @property
    def scale(self) -> float: ...
    @property
    def zero_point(self) -> int: ...


def quantisation_text(quantisation: Quantisation | None) -> str:
    """``(x - 83) * 0.584702909``; "" for None."""
    if quantisation is None:
        return ""
    scale, zero = float32_text(quantisation.scale), quantisation.zero_point
    shifted = f"(x {'-' if zero > 0 else '+'} {abs(zero)})" if zero else "x"
    return f"{shifted} * {scale}"


class QuantisedOutput(Protocol):
    """An output of a quantised model, of a pack's manifest or of what was quantised just now."""

    @property
    def name(self) -> str: ...
    @property
    def sqnr(self) -> float | None: ...
    @property
    def max_error(self) -> float: ...
    @property
    def largest(self) -> float: ...
    @property
    def top1(self) -> float | None: ...


def quantised_outputs_table(outputs: Iterable[QuantisedOutput]) -> str:
    """Outputs of a quantised model beside those of the float one; "" for none."""
    rows = [
        [
            one.name,
            "exact" if one.sqnr is None else f"{one.sqnr:.1f}",
            f"{one.max_error:.3g}",
            f"{one.largest:.3g}",
            "" if one.top1 is None else f"{100 * one.top1:.4g} %",
        ]
        for one in outputs
    ]
    header = ["output", "SQNR dB", "max error", "largest value", "same top-1"]
    return table(rows, header=header, right=[1, 2, 3, 4]) if rows else ""


def overview_table(manifest: Manifest) -> str:
    """What a device gets of the bundle, and what a session needs there."""
    rows: list[list[str]] = []
    for artifact in manifest.binaries:
        if artifact.kind == "program":
            note = "a program that runs, verifies and measures it"
        elif isinstance(artifact, ThreadsModule):
            note = f"kernels and runtime for threads that share memory, at most {artifact.threads}"
        else:
            note = f"{'the same' if rows else 'kernels and runtime'}, a {artifact.kind} library"
        rows.append([artifact.path, human_bytes(artifact.nbytes), note])
    params, memory = manifest.params, manifest.memory
    note = f"{params.tensors} tensors{_growth(manifest)}{_of_kinds(manifest)}"
    rows.append([params.file or "params, embedded", human_bytes(params.nbytes), note])
    note = f"intermediate results, least possible {human_bytes(memory.lower_bound)}"
    if memory.scratch_per_thread:
        beyond = f"each thread beyond {memory.scratch_threads}"
        note += f"; {human_bytes(memory.scratch_per_thread)} more for {beyond}"
    rows.append(["memory", human_bytes(memory.arena), note])
    steps = f"{len(manifest.steps)} steps, {len(manifest.kernels)} kernels"
    rows.append(["a run", f"{human_count(manifest.flops)}FLOP", steps])
    return table(rows, header=["for the device", "size", ""], right=[1])


def files_table(manifest: Manifest) -> str:
    """The files that a device needs, one by one, and the rest in sum."""
    mine = {artifact.path for artifact in manifest.binaries} | {manifest.params.file}
    rows = [[file.path, human_bytes(file.nbytes)] for file in manifest.files if file.path in mine]
    rest = [file for file in manifest.files if file.path not in mine]
    for folder in ("test", "src", "include"):
        part = [file for file in rest if file.path.startswith(f"{folder}/")]
        rest = [file for file in rest if file not in part]
        if part:
            rows.append([f"{folder}/ ({len(part)} files)", human_bytes(sum(file.nbytes for file in part))])
    rows.append([f"{len(rest)} other files", human_bytes(sum(file.nbytes for file in rest))])
    return table(rows, header=["file", "size"], right=[1])


def memory_table(manifest: Manifest) -> str:
    """What a session needs, against the lower bound, and how large the runtime is."""
    memory = manifest.memory
    peak = ""
    if not memory.buffers and 0 <= memory.peak_step < len(manifest.steps):
        step = manifest.steps[memory.peak_step]
        nodes = f" ({', '.join(step.nodes[:2])})" if step.nodes else ""
        peak = f"step {memory.peak_step} of {len(manifest.steps)}: {step.kernel}{nodes}"
    above = f" (+{memory.arena / memory.lower_bound - 1:.1%})" if memory.lower_bound else ""
    rows = [
        [
            "params",
            human_bytes(manifest.params.nbytes),
            f"{manifest.params.tensors} tensors, {manifest.params.mode}{_growth(manifest)}",
        ],
        ["arena", human_bytes(memory.arena), f"least possible {human_bytes(memory.lower_bound)}{above}"],
        ["peak", "", peak],
        [
            "scratch",
            human_bytes(memory.scratch_per_thread),
            f"beside the arena for each thread, if there are more than {memory.scratch_threads}",
        ],
    ]
    if manifest.runtime.text_bytes is not None:
        rows.append(["runtime", human_bytes(manifest.runtime.text_bytes), "machine code beside the kernels"])
    return table([row for row in rows if row[1] or row[2]], header=["memory", "size", ""], right=[1])


def kinds_table(manifest: Manifest) -> str:
    """What of the params each kind of CPU, or a GPU, reads; nothing for a bundle of one kind."""
    kinds = [(one.name, one.params_read, one.params_own) for one in manifest.variants]
    kinds.append((manifest.device.name, manifest.params.read, manifest.params.own))
    rows = [[printable(name), human_bytes(read), human_bytes(own)] for name, read, own in kinds]
    return table(rows, header=["kernels for", "params", "of them its own"], right=[1, 2]) if rows[1:] else ""


def gpu_table(manifest: Manifest) -> str:
    """What a run on a GPU is made of; nothing for a bundle without kernels for one."""
    rows = []
    for variant in manifest.variants:
        if not variant.gpu:
            continue
        backends = {kernel.symbol: kernel.backend for kernel in variant.kernels}
        copies = [step.copied for step in variant.steps if not step.kernel]
        on_cpu = sum(backends.get(step.kernel) == "cpu" for step in variant.steps)
        rows.append(
            [
                variant.name,
                manifest.options.precision or "fp32",
                str(len(variant.steps) - len(copies) - on_cpu),
                str(on_cpu),
                f"{len(copies)} ({human_bytes(sum(copies))})",
                human_bytes(variant.memory.gpu_arena),
            ]
        )
    header = ["GPU", "precision", "launches", "steps of the CPU", "copies", "memory beside params"]
    return table(rows, header=header, right=[2, 3, 4, 5]) if rows else ""


def footprint_table(manifest: Manifest) -> str:
    """Flash and RAM of firmware by part; nothing for other devices."""
    if manifest.footprint is None:
        return ""
    from edgepack.bundle.firmware.budget import footprint_rows

    header, *rows = footprint_rows(manifest.footprint)
    return table(rows, header=["firmware", *header[1:]], right=list(range(1, len(header) - 1)))


def _growth(manifest: Manifest) -> str:
    """What the params cost more than the model's constants, and how to do without."""
    params = manifest.params
    if params.growth * 100 < params.nbytes or manifest.variants:
        return ""
    return f"; {human_bytes(params.growth)} more for speed (none with --optimize size)"


def _of_kinds(manifest: Manifest) -> str:
    """What of the params a library for one kind of CPU alone would have, where this one is for several."""
    read = sorted({*(one.params_read for one in manifest.variants), manifest.params.read} - {0})
    if not manifest.variants or not read:
        return ""
    sizes = dict.fromkeys([human_bytes(read[0]), human_bytes(read[-1])])
    return f"; one of the {len(manifest.variants) + 1} kinds of CPU reads {' to '.join(sizes)}"


def kernels_table(manifest: Manifest | VariantRecord) -> str:
    """Kernels, the most work first: rule, what it chose, FLOPs, steps that use it."""
    uses: dict[str, int] = {}
    for step in manifest.steps:
        uses[step.kernel] = uses.get(step.kernel, 0) + 1
    kernels = sorted(
        manifest.kernels, key=lambda kernel: (-kernel.flops * uses.get(kernel.symbol, 0), kernel.symbol)
    )
    rows = [
        [
            kernel.symbol,
            kernel.rule,
            " ".join(f"{key}={value}" for key, value in kernel.parameters.items()),
            str(uses.get(kernel.symbol, 0)),
            f"{human_count(kernel.flops)}FLOP",
            " ".join(plain_operators(kernel.ops)),
        ]
        for kernel in kernels
    ]
    return table(rows, header=["kernel", "rule", "parameters", "steps", "each", "operators"], right=[3, 4])


def _words(value: object) -> str:
    """A text, or a list of them, whatever a manifest has there."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def audit_table(manifest: Manifest) -> str:
    """What each library and program needs, and what it exports. (The manifest has more.)"""
    rows = []
    for artifact in manifest.binaries:
        found = artifact.audit
        needed, glibc, exported = (_words(found.get(key, "")) for key in ("needed", "glibc", "exported"))
        rows.append([artifact.path, needed, glibc, exported])
    return table(rows, header=["audited", "needs", "glibc", "exports"])
