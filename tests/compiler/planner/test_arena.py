"""The arena: no two live buffers overlap, and it is close to the least possible."""

from __future__ import annotations

import random

import pytest

from edgepack.compiler.planner.arena import Request, lower_bound, plan_arena
from edgepack.plan.types import ALIGNMENT, Arena


def _overlaps(arena: Arena) -> list[tuple[str, str]]:
    found = []
    for i, a in enumerate(arena.buffers):
        for b in arena.buffers[i + 1 :]:
            in_time = a.first_step <= b.last_step and b.first_step <= a.last_step
            in_space = a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
            if in_time and in_space:
                found.append((a.name, b.name))
    return found


def test_no_buffers_need_no_arena() -> None:
    assert plan_arena([]) == Arena()


def test_scratch_is_rounded_up_to_the_alignment() -> None:
    assert plan_arena([], scratch_bytes=65).scratch_bytes == 2 * ALIGNMENT


def test_buffers_that_are_not_live_together_share_memory() -> None:
    arena = plan_arena([Request("a", 100, 0, 1), Request("b", 100, 2, 3)])
    assert arena.nbytes == arena.lower_bound == 128


def test_buffers_that_meet_in_one_step_do_not_overlap() -> None:
    arena = plan_arena([Request("a", 64, 0, 1), Request("b", 64, 1, 2)])
    assert arena.nbytes == 128
    assert arena.peak_step == 1


def test_peak_step_is_where_most_is_live() -> None:
    requests = [Request("a", 64, 0, 5), Request("b", 640, 3, 3), Request("c", 64, 4, 5)]
    assert lower_bound(requests) == (704, 3)


@pytest.mark.parametrize("seed", range(40))
def test_random_plans_are_valid_and_tight(seed: int) -> None:
    rng = random.Random(seed)
    requests = []
    for i in range(rng.randint(1, 60)):
        first = rng.randint(0, 40)
        requests.append(
            Request(f"b{i}", rng.choice([1, 64, 1000, 4096, 100_000]), first, first + rng.randint(0, 8))
        )
    arena = plan_arena(requests)
    assert not _overlaps(arena)
    assert all(b.offset % ALIGNMENT == 0 and b.offset + b.nbytes <= arena.nbytes for b in arena.buffers)
    assert {(b.name, b.nbytes) for b in arena.buffers} == {(r.name, r.nbytes) for r in requests}
    assert arena.lower_bound <= arena.nbytes <= 1.25 * arena.lower_bound
