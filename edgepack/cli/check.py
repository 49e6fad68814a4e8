"""``edgepack check``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgepack.cli.catalogue import note_alias
from edgepack.cli.grouped import GroupedCommand
from edgepack.cli.options import device_option, json_option, kernel_options, limit_option, model_options
from edgepack.cli.output import (
    Settings,
    heading,
    hint_lines,
    print_json,
    progress,
    say,
    table,
    verbosity_options,
)
from edgepack.text.printable import printable

if TYPE_CHECKING:
    from edgepack.plan.model_check import ModelCheck

__all__ = ["command"]

#: How many nodes of an operator are named.
MOST_NODES = 5


@click.command(cls=GroupedCommand)
@click.argument("model", type=click.Path(path_type=Path))
@device_option
@model_options
@kernel_options
@limit_option
@json_option
@verbosity_options
def command(settings: Settings, as_json: bool, **options: Any) -> int:
    """Say what of MODEL (an ONNX or .pt2 file) would be compiled, refused or slow on a device, and how large
    it would be, without compiling it. Exit code 3 if it cannot be compiled."""
    from edgepack import api

    since = time.monotonic()
    note_alias(settings, options["device"])
    with progress(settings) as show:
        found = api.check(**options, progress=show)
    if as_json:
        print_json(found.to_json())
    else:
        say(_shown(found, time.monotonic() - since))
    return 0 if found.ok else 3


def _shown(found: ModelCheck, seconds: float) -> str:
    verdict = "can be compiled" if found.ok else "cannot be compiled"
    parts = [heading(f"{found.model} for {found.device}: {verdict}") + f" ({seconds:.1f} s)"]
    parts += [_rules(found), _memory(found)] if found.ok else [_refused(found)]
    if found.warnings:
        parts.append("\n".join(printable(f"warning: {text}") for text in found.warnings))
    return "\n\n".join(parts)


def _refused(found: ModelCheck) -> str:
    rows = []
    for one in found.refused:
        more = f" and {len(one.nodes) - MOST_NODES} more" if len(one.nodes) > MOST_NODES else ""
        rows.append([one.operator, one.reason, ", ".join(one.nodes[:MOST_NODES]) + more])
    text = f"{printable(found.message)}\n\n{table(rows, header=['operator', 'why', 'nodes'])}"
    return f"{text}\n\n{hint_lines(found.hint)}" if found.hint else text


def _rules(found: ModelCheck) -> str:
    """The schedule rules, that with the most work first, and what they serve."""
    from edgepack.render.formatting import human_bytes, human_count

    by_rule: dict[str, list[Any]] = {}
    for step in found.steps:
        by_rule.setdefault(step.rule, []).append(step)
    rows = []
    order = sorted(by_rule.items(), key=lambda item: (-sum(step.flops for step in item[1]), item[0]))
    for rule, steps in order:
        operators = dict.fromkeys(name for step in steps for name in step.operators)
        rows.append(
            [
                rule,
                str(len(steps)),
                f"{human_count(sum(step.flops for step in steps))}FLOP",
                human_bytes(sum(step.bytes_moved for step in steps)),
                " ".join(list(operators)[:MOST_NODES]) + (" ..." if len(operators) > MOST_NODES else ""),
            ]
        )
    return table(rows, header=["rule", "steps", "work", "data", "operators"], right=[1, 2, 3])


def _memory(found: ModelCheck) -> str:
    from edgepack.render.formatting import human_bytes

    grown = ""
    if found.params_growth * 100 >= found.params_bytes > 0:
        grown = f"{human_bytes(found.params_growth)} of it for speed (none with --optimize size)"
    rows = [
        ["params", human_bytes(found.params_bytes), grown],
        ["arena", human_bytes(found.arena_bytes), f"least possible {human_bytes(found.arena_lower_bound)}"],
    ]
    return table(rows, header=["memory", "size", ""], right=[1])
