"""``edgepack verify``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click
from typing_extensions import Unpack

from edgepack.cli.catalogue import note_alias
from edgepack.cli.options import json_option, run_options
from edgepack.cli.output import Settings, print_json, progress, say, table, verbosity_options
from edgepack.options import RunKeywords
from edgepack.text.printable import printable

if TYPE_CHECKING:
    from edgepack.commands.layers import LayersVerification
    from edgepack.runners.verify import CornerCheck, OutputCheck, Verification

__all__ = ["command"]


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--signature",
    metavar="KEY.pub",
    help="Check the signature over SHA256SUMS first, by this public key of minisign or cosign.",
)
@click.option(
    "--layers",
    "model",
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="Also pack MODEL, the file that the bundle was packed from, with the tensors between its kernels as "
    "outputs, and compare each: where accuracy is lost.",
)
@run_options
@json_option
@verbosity_options
def command(
    *,
    settings: Settings,
    bundle: Path,
    signature: str | None,
    model: Path | None,
    as_json: bool,
    **options: Unpack[RunKeywords],
) -> int:
    """Check BUNDLE's files, run its own program on the recorded data, and compare."""
    from edgepack.api import Bundle, verify_layers

    note_alias(settings, options["device"])
    with progress(settings) as show:
        opened = Bundle(bundle)
        show("verify", opened.manifest.name)
        if model is None:
            layers, result = None, opened.verify(signature=signature, **options)
        else:
            if signature is not None:
                opened.check_signature(signature)
            layers = verify_layers(opened, model, progress=show, **options)
            result = layers.bundle
    ok = result.ok if layers is None else layers.ok
    if as_json:
        more = {} if layers is None else {"layers": layers.to_json()}
        print_json({**result.to_json(), **more})
        return 0 if ok else 1
    _say_result(bundle, result)
    if layers is not None:
        say()
        say(_layers_text(layers))
    return 0 if ok else 1


def _say_result(bundle: Path, result: Verification) -> None:
    from edgepack.runners.program import STATUSES

    checks = [(variant.name, variant.outputs) for variant in result.variants if not variant.missing]
    rows = [
        [f"{output.name} ({name})" if name else output.name, *_columns(output)]
        for name, outputs in checks or [("", result.outputs)]
        for output in outputs
    ]
    rows += [
        [f"{output.name} ({corner.name} data)", *_columns(output)]
        for corner in _all_corners(result)
        for output in corner.outputs
        if not output.ok
    ]
    header = ["output", "result", "max abs error", "max abs reference", "tolerance"]
    say(table(rows, header=header, right=[2, 3]))
    threads_text = f"{result.threads} thread" + ("s" if result.threads != 1 else "")
    threads_text += " and one alone" if result.alone else ""
    verdict = "ok" if result.ok else "FAILED"
    where = f"{bundle} on {result.where}, {threads_text}, against {result.reference}"
    say(f"{verdict}: {printable(where)}")
    for variant in result.variants:
        if variant.missing:
            say(printable(f"not run: the kernels of {variant.name}; this machine lacks {variant.missing}"))
    if text := _of_corners(result):
        say(printable(text))
    for text in result.notes:
        say(printable(f"note: {text}"))
    for text in result.warnings:
        say(printable(f"warning: {text}"))
    if not result.ok:
        say(f"{STATUSES[result.status]}")


def _columns(output: OutputCheck) -> list[str]:
    return [
        "ok" if output.ok else f"{output.mismatches} of {output.elements} wrong",
        f"{output.max_abs_err:.3g}",
        f"{output.max_abs_ref:.3g}",
        _tolerance(output),
    ]


def _all_corners(result: Verification) -> list[CornerCheck]:
    return [*result.corners, *(corner for variant in result.variants for corner in variant.corners)]


def _of_corners(result: Verification) -> str:
    """What there is to say of corner data; empty where a bundle knows nothing of them."""
    wrong = {corner.name for corner in _all_corners(result) if not corner.ok}
    said = [f"{one.name} {'FAILED' if one.name in wrong else 'ok'}" for one in result.corners]
    reasons = dict.fromkeys(result.corners_left_out.values())
    for reason in reasons:
        names = ", ".join(name for name, why in result.corners_left_out.items() if why == reason)
        said.append(f"{names} not recorded: {reason}")
    return f"corner data: {'; '.join(said)}" if said else ""


def _tolerance(output: OutputCheck) -> str:
    return f"{output.atol:.3g} + {output.rtol:.3g}*|ref|"


def _layers_text(found: LayersVerification) -> str:
    rows = []
    for one in found.layers:
        check, steps = one.check, one.steps_off
        rows.append(
            [
                f"{one.node} ({one.operator})",
                one.kernel + ("" if one.fused_alike else " *"),
                one.dtype,
                f"{check.max_abs_err:.3g}" if steps is None else "",
                "" if steps is None else f"{steps:g}",
                "" if check.sqnr is None or steps is not None else _decibels(check.sqnr),
                f"{check.atol:.3g}" + (f" + {check.rtol:.3g}*|ref|" if check.rtol else ""),
                "" if check.ok else f"{check.mismatches} of {check.elements} wrong",
            ]
        )
        if one is found.first_beyond:
            rows[-1][-1] += " <- first beyond its tolerance"
    header = ["layer", "kernel", "type", "max abs error", "steps off", "SQNR dB", "tolerance", ""]
    lines = [table(rows, header=header, right=[3, 4, 5])]
    if any(not one.fused_alike for one in found.layers):
        lines.append("* computed by kernels that are fused otherwise than in the bundle")
    where = f"{len(found.layers)} tensors of {found.kernels} kernels, against {found.verification.reference}"
    lines.append(f"{'ok' if found.verification.ok else 'FAILED'}: {printable(where)}")
    lines += [printable(f"warning: {text}") for text in found.warnings]
    return "\n".join(lines)


def _decibels(sqnr: float) -> str:
    return "exact" if sqnr == math.inf else f"{sqnr:.1f}"
