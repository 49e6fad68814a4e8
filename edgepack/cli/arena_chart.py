"""The arena over a run as ``inspect`` shows it: a bar for each step, and what is in use at the peak."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.bundle.live_memory import ArenaUse, StepUse
from edgepack.cli.output import table
from edgepack.render.formatting import human_bytes

__all__ = ["arena_chart"]

#: Rows of a chart that is not to show every step, and characters of the longest bar.
_ROWS, _BAR = 16, 32


def arena_chart(use: ArenaUse, *, every_step: bool) -> str:
    """The chart, and a table of what is in use at the peak.

    Args:
        every_step: a bar for each step; else at most 16 bars, each for some steps in a row, of which the one
            with the most bytes is shown.
    """
    most = use.steps[use.peak].nbytes
    together = 1 if every_step else -(-len(use.steps) // _ROWS)
    groups = [use.steps[i : i + together] for i in range(0, len(use.steps), together)]
    where = "GPU's arena" if use.gpu else "arena"
    title = f"{where} of {use.variant}" if use.variant else where
    rows = [_row(group, use.peak, most) for group in groups]
    chart = table(rows, header=[title, "step", "in use", "nodes"], right=[1, 2])
    live = [
        [
            one.buffer.name,
            human_bytes(one.buffer.nbytes),
            str(one.buffer.offset),
            f"step {one.buffer.first_step}: {_label(use.steps[one.buffer.first_step])}",
        ]
        for one in use.live
    ]
    peak = f"at step {use.peak}: {human_bytes(most)} of {human_bytes(use.arena)}"
    return chart + "\n\n" + table(live, header=[peak, "size", "from", "made by"], right=[1, 2])


def _row(group: Sequence[StepUse], peak: int, most: int) -> list[str]:
    largest = max(group, key=lambda step: step.nbytes)
    first, last = group[0].step, group[-1].step
    bar = "#" * max(round(largest.nbytes / (most or 1) * _BAR), 1 if largest.nbytes else 0)
    return [
        f"{bar} peak" if first <= peak <= last else bar,
        str(first) if first == last else f"{first}-{last}",
        human_bytes(largest.nbytes),
        _label(largest),
    ]


def _label(step: StepUse) -> str:
    """The nodes that it computes, or its kernel where they have no names."""
    return ", ".join(step.nodes)[:50] or step.kernel or "a copy"
