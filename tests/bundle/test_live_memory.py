"""How many bytes of an arena are in use at each step, and the chart of it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from edgepack.bundle.live_memory import arena_uses
from edgepack.bundle.manifest import Memory, StepRecord, VariantRecord
from edgepack.cli.arena_chart import arena_chart
from edgepack.errors import ConfigError


def variant(*rows: tuple[str, int, int, int, int], steps: int = 4, gpu: bool = False) -> VariantRecord:
    """Kernels with an arena of 300 bytes and buffers of a name, a place, a size, a first and a last step."""
    keys = ("name", "offset", "nbytes", "first_step", "last_step")
    buffers = [dict(zip(keys, row, strict=True)) for row in rows]
    where = {"gpu_arena": 300, "gpu_buffers": buffers} if gpu else {"buffers": buffers}
    memory = {"arena": 300, "lower_bound": 1, "peak_step": 0, "scratch_per_thread": 0, **where}
    nodes = [StepRecord(kernel=f"k{i}", tasks=1, nodes=(f"node{i}",)) for i in range(steps)]
    return VariantRecord(name="avx2", memory=Memory.model_validate(memory), steps=tuple(nodes))


ROWS = (("a", 0, 100, 0, 1), ("b", 100, 150, 1, 2), ("scratch1", 250, 40, 1, 1), ("c", 0, 60, 2, 3))


def test_each_step_has_the_bytes_that_are_in_use_and_the_peak_its_buffers() -> None:
    (use,) = arena_uses(variant(*ROWS))
    assert [step.nbytes for step in use.steps] == [100, 290, 210, 60]
    assert (use.peak, use.arena, use.variant, use.gpu) == (1, 300, "avx2", False)
    assert [(one.buffer.name, one.nodes) for one in use.live] == [
        ("b", ("node1",)),
        ("a", ("node0",)),
        ("scratch1", ("node1",)),
    ]
    said = use.to_json()
    assert said["steps"][1] == {"step": 1, "nbytes": 290, "kernel": "k1", "nodes": ("node1",)}
    assert said["live_at_peak"][1] == {
        **{"name": "a", "offset": 0, "nbytes": 100, "first_step": 0, "last_step": 1},
        "nodes": ["node0"],
    }


def test_what_a_bundle_does_not_say_is_not_shown() -> None:
    assert arena_uses(variant()) == []
    (use,) = arena_uses(variant(*ROWS))
    assert re.search(r"^b +150 B +100  step 1: node1$", arena_chart(use, every_step=True), re.MULTILINE)
    (use,) = arena_uses(variant(*ROWS, gpu=True))
    assert use.gpu and "GPU's arena of avx2" in arena_chart(use, every_step=True)


@pytest.mark.parametrize("row", [("a", 250, 60, 0, 1), ("a", 0, 1, 2, 1), ("a", 0, 1, 0, 4)])
def test_buffers_outside_of_the_arena_or_the_run_are_refused(row: tuple[str, int, int, int, int]) -> None:
    with pytest.raises(ConfigError, match="outside of it, or of steps that there are not"):
        arena_uses(variant(row))


def test_a_long_run_has_few_bars_and_loses_no_peak() -> None:
    rows = [(f"b{i}", 0, 10 + (200 if i == 77 else 0), i, i) for i in range(100)]
    (use,) = arena_uses(variant(*rows, steps=100))
    few = arena_chart(use, every_step=False).split("\n\n")[0].splitlines()[1:]
    every = arena_chart(use, every_step=True).split("\n\n")[0].splitlines()[1:]
    assert len(few) <= 16 and len(every) == 100
    (peak,) = [line for line in few if " peak " in line]
    assert re.match(r"#{32} peak +77-83 +210 B +node77$", peak)
    assert every[77].startswith("#" * 32 + " peak") and every[0].startswith("## ")


def test_buffers_of_no_bytes_have_no_bar() -> None:
    (use,) = arena_uses(variant(("a", 0, 0, 0, 3)))
    assert "#" not in arena_chart(replace(use, variant=""), every_step=True)
