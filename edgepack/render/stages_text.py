"""The table of contents of a model's stages: how many operators each one leaves, and what each kernel is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgepack.plan.stages import GraphStage, KernelTexts, StagesRecord
from edgepack.text.columns import columns

__all__ = ["index_text", "kernel_heading"]

#: Changes of the number of an operator that are named for a stage; nodes that are named for a kernel.
MOST_CHANGES, MOST_NODES = 6, 4


def index_text(record: StagesRecord, plan_file: str, steps: int) -> str:
    """A line for each stage with its operators before and after, and one for each kernel with the nodes of
    the model that it computes.

    Args:
        plan_file: name of the text of the plan, the last stage.
        steps: how many the plan has.
    """
    rows, before = [], record.graph[0]
    for stage in record.graph:
        rows += _stage_rows(stage, before)
        before = stage
    number = f"{len(record.graph) + 1:02}"
    does = "kernels are chosen, steps ordered, memory placed"
    rows.append([number, "plan", str(before.operators), str(steps), plan_file, does])
    header = ["", "stage", "before", "after", "file", "what the stage does, and to which operators"]
    lines = [f"{record.model} for {record.target}", "", *columns([header, *rows], [2, 3]), ""]
    kernels = [
        [
            kernel.name,
            kernel.rule,
            " ".join(map(str, kernel.steps)),
            " ".join(kernel.ops),
            _some(kernel.nodes, ", ", MOST_NODES),
        ]
        for kernel in record.kernels
    ]
    head = ["kernel", "rule", "steps", "operators", "nodes of the model"]
    return "\n".join([*lines, *columns([head, *kernels])]) + "\n"


def kernel_heading(kernel: KernelTexts) -> str:
    """What a kernel is, above its texts."""
    rows = [
        ["symbol", kernel.symbol],
        ["rule", kernel.rule],
        ["on", kernel.backend],
        ["operators", " ".join(kernel.ops)],
        ["nodes", ", ".join(kernel.nodes)],
        ["steps", " ".join(map(str, kernel.steps))],
    ]
    if not kernel.files:
        rows.append(["texts", "none: a function of the user's C computes it"])
    return "\n".join(columns([["kernel", kernel.name], *rows])) + "\n"


def _stage_rows(stage: GraphStage, before: GraphStage) -> list[list[str]]:
    """What a stage does and, on a line of its own, of which operators there are more or less."""
    first = stage is before
    counts = ["" if first else str(before.operators), str(stage.operators)]
    if stage.state == "skipped":
        note = "does not run at this level of optimisation"
        return [[f"{stage.number:02}", stage.name, "", "", "", note]]
    if stage.state == "unchanged":
        return [[f"{stage.number:02}", stage.name, *counts, "", "found nothing to do"]]
    rows = [[f"{stage.number:02}", stage.name, *counts, stage.file, stage.title]]
    if changes := _changes({} if first else before.counts, stage.counts):
        rows.append(["", "", "", "", "", changes])
    return rows


def _changes(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """``-20 batch_norm +20 add``: the largest changes of how often an operator is called."""
    names = sorted(before.keys() | after.keys())
    changed = [(after.get(name, 0) - before.get(name, 0), name) for name in names]
    largest = sorted((one for one in changed if one[0]), key=lambda one: (-abs(one[0]), one[0] > 0, one[1]))
    return _some([f"{count:+} {name}" for count, name in largest], " ", MOST_CHANGES)


def _some(texts: Sequence[str], separator: str, most: int) -> str:
    more = f"{separator}and {len(texts) - most} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + more
