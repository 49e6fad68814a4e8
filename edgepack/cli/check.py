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
    from collections.abc import Mapping, Sequence

    from edgepack.plan.model_check import CheckedMemory, ModelCheck

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
    it would be, without packing it. Exit code 3 if it cannot be compiled, 1 if a microcontroller has no room
    for it."""
    from edgepack import api

    since = time.monotonic()
    note_alias(settings, options["device"])
    with progress(settings) as show:
        found = api.check(**options, progress=show)
    if as_json:
        print_json(found.to_json())
    else:
        say(_shown(found, time.monotonic() - since))
    if not found.ok:
        return 3
    return 1 if found.fits is False else 0


def _shown(found: ModelCheck, seconds: float) -> str:
    parts = [heading(f"{found.model} for {found.device}: {_verdict(found)}") + f" ({seconds:.1f} s)"]
    if found.ok:
        parts += [_rules(found), _memory(found)]
    else:
        parts.append(_refused(found))
    if found.warnings:
        parts.append("\n".join(printable(f"warning: {text}") for text in found.warnings))
    if found.fits is False:
        parts.append(printable(found.message) + (f"\n{hint_lines(found.hint)}" if found.hint else ""))
    return "\n\n".join(parts)


def _verdict(found: ModelCheck) -> str:
    if not found.ok:
        return "cannot be compiled"
    fits = {True: " and fits", False: ", but is too large", None: ""}
    return f"can be compiled{fits[found.fits]}"


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


def _in_memories(memories: Sequence[CheckedMemory], notes: Mapping[str, str]) -> str:
    """What a microcontroller's memories have to hold, beside what they have.

    Args:
        notes: by part.
    """
    from edgepack.render.formatting import human_bytes

    def row(name: str, sizes: Sequence[int]) -> list[str]:
        return [name, *(human_bytes(size) if size else "" for size in sizes), notes.get(name, "")]

    parts = dict.fromkeys(part for memory in memories for part in memory.parts)
    rows = [row(part, [memory.parts.get(part, 0) for memory in memories]) for part in parts]
    beside = "start code, the C library and the stack come on top"
    rows.append(["at least", *(human_bytes(memory.nbytes) for memory in memories), beside])
    if any(memory.budget for memory in memories):
        rows.append(row("budget", [memory.budget for memory in memories]))
        more = [max(0, memory.nbytes - memory.budget) if memory.budget else 0 for memory in memories]
        rows += [row("too much", more)] if any(more) else []
    header = ["firmware", *(memory.name for memory in memories), ""]
    return table(rows, header=header, right=range(1, len(header) - 1))


def _memory(found: ModelCheck) -> str:
    from edgepack.render.formatting import human_bytes

    grown = ""
    if found.params_growth * 100 >= found.params_bytes > 0:
        grown = f"{human_bytes(found.params_growth)} of it for speed (none with --optimize size)"
    notes = {"params": grown, "arena": f"least possible {human_bytes(found.arena_lower_bound)}"}
    if found.memories:
        return _in_memories(found.memories, notes)
    sizes = {"params": found.params_bytes, "arena": found.arena_bytes}
    rows = [[part, human_bytes(nbytes), notes[part]] for part, nbytes in sizes.items()]
    return table(rows, header=["memory", "size", ""], right=[1])
