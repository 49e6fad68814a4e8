"""``edgepack inspect``."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.cli.output import Settings, heading, print_json, verbosity_options

__all__ = ["command"]


@click.command()
@click.argument("path", metavar="BUNDLE|MODEL", type=click.Path(path_type=Path))
@click.option("--kernels", is_flag=True, help="List a bundle's kernels, with the rules that made them.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@verbosity_options
def command(settings: Settings, path: Path, kernels: bool, as_json: bool) -> None:
    """Show what a bundle holds and needs, or what a model file takes and gives."""
    del settings
    if path.is_file() and path.name != "manifest.json":
        _model(path, as_json, kernels)
    else:
        _bundle(path, as_json, kernels)


def _bundle(path: Path, as_json: bool, kernels: bool) -> None:
    from edgepack.api import Bundle
    from edgepack.bundle.text import human_count
    from edgepack.cli import report

    bundle = Bundle(path)
    manifest = bundle.manifest
    if as_json:
        print_json(bundle.inspect())
        return
    device = manifest.device
    cpu = " ".join([device.cpu or "baseline", *device.features])
    parts = [
        heading(f"{manifest.name} for {device.name}")
        + (f": {device.description}" if device.description else ""),
        f"made by edgepack {manifest.edgepack} with {manifest.toolchain.version} "
        f"from {manifest.model.file}\n"
        f"{device.triple}, {cpu}\n"
        f"{len(manifest.steps)} steps, {len(manifest.kernels)} kernels, {human_count(manifest.flops)}FLOP",
        report.signature_table(manifest),
        report.files_table(manifest),
        report.memory_table(manifest),
        report.audit_table(manifest),
    ]
    if kernels:
        parts.append(report.kernels_table(manifest))
    parts += [f"warning: {text}" for text in manifest.warnings]
    click.echo("\n\n".join(part for part in parts if part))


def _model(path: Path, as_json: bool, kernels: bool) -> None:
    from edgepack.frontend.summary import summarise

    if kernels:
        raise click.UsageError("--kernels is for bundles; a model file has none yet.")
    summary = summarise(path)
    if as_json:
        print_json(summary.to_json())
    else:
        click.echo(str(summary))
