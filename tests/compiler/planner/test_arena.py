"""The arena: no two live buffers overlap, and it is close to the least possible."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from edgepack.compiler.planner.arena import Request, Shared, lower_bound, plan_arena
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


def test_a_result_lies_over_what_it_is_made_of() -> None:
    requests = [Request("a", 640, 0, 1), Request("b", 640, 1, 2)]
    arena = plan_arena(requests, shared=[Shared(0, 1, None)])
    assert (arena.nbytes, arena.lower_bound) == (640, 640)
    arena = plan_arena(requests, shared=[Shared(0, 1, -100)], alignment=8)
    assert (arena.nbytes, arena.lower_bound) == (744, 740)
    places = {b.name: b.offset for b in arena.buffers}
    assert places["b"] + 100 <= places["a"]


def test_a_larger_result_begins_before_what_it_is_made_of() -> None:
    requests = [Request("a", 640, 0, 1), Request("b", 1280, 1, 2)]
    arena = plan_arena(requests, shared=[Shared(0, 1, -640)])
    assert arena.nbytes == arena.lower_bound == 1280


def test_other_buffers_lie_over_neither() -> None:
    requests = [Request("a", 64, 0, 1), Request("b", 64, 1, 2), Request("c", 64, 0, 2)]
    arena = plan_arena(requests, shared=[Shared(0, 1, 0)])
    assert arena.nbytes == arena.lower_bound == 128
    assert set(_overlaps(arena)) == {("a", "b")}


@pytest.mark.parametrize("seed", range(40))
def test_random_chains_lie_over_each_other_as_far_as_they_may(seed: int) -> None:
    """Layers that read one or two buffers, some of which others read later; scratch."""
    rng = random.Random(seed)
    requests: list[Request] = [Request("b0", rng.choice([500, 3000, 20_000]), 0, 0)]
    shared = []
    for step in range(1, rng.randint(2, 25)):
        read = len(requests) - 1
        requests[read] = replace(requests[read], last_step=step)
        if rng.random() < 0.3:
            older = rng.randrange(len(requests))
            requests[older] = replace(requests[older], last_step=step)
        if rng.random() < 0.8:
            most = rng.choice([None, 0, -64, -500, -2000, 100])
            shared.append((read, len(requests), most, step))
        requests.append(Request(f"b{step}", rng.choice([64, 500, 3000, 20_000]), step, step))
    pairs = [Shared(a, b, most) for a, b, most, step in shared if requests[a].last_step == step]
    arena = plan_arena(requests, shared=pairs, alignment=16)
    places = {b.name: b for b in arena.buffers}
    allowed = {}
    for pair in pairs:
        a, b = places[requests[pair.read].name], places[requests[pair.written].name]
        distance = b.offset - a.offset
        if (distance == 0) if pair.most is None else (distance <= pair.most):
            allowed[frozenset((a.name, b.name))] = pair
    assert {frozenset(names) for names in _overlaps(arena)} <= allowed.keys()
    assert all(b.offset % 16 == 0 and b.offset + b.nbytes <= arena.nbytes for b in arena.buffers)
    assert arena.lower_bound <= arena.nbytes <= plan_arena(requests, alignment=16).nbytes
