"""``edgepack inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgepack.cli.output import Settings, heading, print_json, say, table, verbosity_options
from edgepack.text.printable import printable

if TYPE_CHECKING:
    from edgepack.plan.model_summary import ModelSummary, TensorSummary

__all__ = ["command"]


@click.command()
@click.argument("path", metavar="BUNDLE|MODEL", type=click.Path(path_type=Path))
@click.option("--kernels", is_flag=True, help="List a bundle's kernels, with the rules that made them.")
@click.option(
    "--memory", is_flag=True, help="Show a bundle's arena at every step, for all kinds of CPU and GPU."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@verbosity_options
def command(settings: Settings, path: Path, kernels: bool, memory: bool, as_json: bool) -> None:
    """Show what a bundle holds and needs, or what a model file takes and gives."""
    del settings
    if path.is_file() and path.name != "manifest.json":
        if kernels or memory:
            raise click.UsageError("--kernels and --memory are for bundles; a model file has none yet.")
        _model(path, as_json)
    else:
        _bundle(path, as_json, kernels, memory)


def _bundle(path: Path, as_json: bool, kernels: bool, memory: bool) -> None:
    from edgepack.api import Bundle
    from edgepack.bundle.live_memory import all_arena_uses, arena_uses
    from edgepack.cli import tables
    from edgepack.cli.arena_chart import arena_chart
    from edgepack.render.formatting import human_count

    bundle = Bundle(path)
    manifest = bundle.manifest
    if as_json:
        print_json(bundle.inspect())
        return
    device = manifest.device
    cpu = " ".join([device.cpu or "baseline", *device.features])
    parts = [
        heading(f"{manifest.name} for {device.name}")
        + (f": {printable(device.description)}" if device.description else ""),
        printable(f"made by edgepack {manifest.edgepack} with {manifest.toolchain.version}")
        + f" from {printable(manifest.model.file)}\n{printable(f'{device.triple}, {cpu}')}\n"
        f"{len(manifest.steps)} steps, {len(manifest.kernels)} kernels, {human_count(manifest.flops)}FLOP",
        tables.signature_table(manifest),
        tables.files_table(manifest),
        tables.memory_table(manifest),
        *(
            arena_chart(use, every_step=memory)
            for use in (all_arena_uses(manifest) if memory else arena_uses(manifest))
        ),
        tables.kinds_table(manifest),
        tables.gpu_table(manifest),
        tables.footprint_table(manifest),
        tables.audit_table(manifest),
    ]
    if kernels:
        on_gpus = [tables.kernels_table(record) for record in manifest.variants if record.gpu]
        parts += [*on_gpus, tables.kernels_table(manifest)]
    parts += [printable(f"warning: {text}") for text in manifest.warnings]
    say("\n\n".join(part for part in parts if part))


def _model(path: Path, as_json: bool) -> None:
    from edgepack.pipeline.compile import summarise

    summary = summarise(path)
    if as_json:
        print_json(summary.to_json())
        return
    from edgepack.render.formatting import human_bytes, human_count

    opsets = ", ".join(f"{domain or 'onnx'} {version}" for domain, version in sorted(summary.opsets.items()))
    parts = [
        heading(f"{path.name}: {summary.nodes} nodes, {human_count(summary.params).strip()} parameters")
        + "\n"
        + printable(
            f"by {summary.producer or 'an unnamed exporter'}, opset {opsets}, "
            f"{human_bytes(summary.params_bytes)} of parameters"
            + (f", external data in {', '.join(summary.external)}" if summary.external else "")
        ),
        _signature(summary),
        table(
            [[name, str(count)] for name, count in summary.operators.items()],
            header=["operator", "nodes"],
            right=[1],
        ),
    ]
    for name, dims in summary.unbound.items():
        options = f"bind them with --shape {name}=... or --dim NAME=..."
        parts.append(printable(f"note: input {name} has open dimensions ({', '.join(dims)}); {options}"))
    if summary.denormals:
        share = f"{summary.denormals:,} of {summary.params:,} parameters are denormal numbers"
        parts.append(f"note: {share}; they count as zeros unless packed with --strict-math")
    for operator, nodes in summary.unsupported.items():
        parts.append(printable(f"warning: {operator} cannot be compiled: {', '.join(nodes[:5])}"))
    say("\n\n".join(parts))


def _signature(summary: ModelSummary) -> str:
    """Inputs and outputs; with what their integers mean, if that is known of one."""
    from edgepack.cli.tables import quantisation_text

    tensors = [("input", one) for one in summary.inputs] + [("output", one) for one in summary.outputs]
    rows, header = [_tensor_row(*one) for one in tensors], ["", "name", "dtype", "shape"]
    if any(tensor.quantisation for _, tensor in tensors):
        header.append("an integer x means")
        for row, (_, tensor) in zip(rows, tensors, strict=True):
            row.append(quantisation_text(tensor.quantisation))
    return table(rows, header=header)


def _tensor_row(kind: str, tensor: TensorSummary) -> list[str]:
    if tensor.shape is None:
        shape = "not declared"
    else:
        shape = "x".join("?" if dim is None else str(dim) for dim in tensor.shape) or "scalar"
    return [kind, tensor.name, tensor.dtype, shape]
