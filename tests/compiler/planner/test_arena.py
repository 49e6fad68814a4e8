"""The arena: no two live buffers overlap, and it is close to the least possible."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from edgepack.compiler.planner.arena import Request, Shared, lower_bound, plan_arena
from edgepack.compiler.planner.arena_banks import plan_banks
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


def test_an_arena_in_several_memories_has_no_buffer_in_two() -> None:
    parted = [_parted(random.Random(seed)) for seed in range(6)]
    assert sum(parted) >= 3, "of the others, whole buffers have no room"


def _parted(rng: random.Random) -> bool:
    """Whether the arena of random requests, checked, was planned for several memories."""
    requests = []
    for i in range(rng.randint(12, 30)):
        first = rng.randint(0, 20)
        scratch = rng.random() < 0.2
        nbytes = rng.choice([8, 100] if scratch else [0, 8, 100, 1000, 2048])
        name = f"{'scratch' if scratch else 'b'}{i}"
        requests.append(Request(name, nbytes, first, first + rng.randint(0, 4)))
    pairs = [
        Shared(i, j, rng.choice([None, -64, 0]))
        for i, j in permutations(range(len(requests)), 2)
        if requests[i].last_step == requests[j].first_step > requests[i].first_step and rng.random() < 0.3
    ]
    common: dict[str, Any] = {"shared": pairs, "alignment": 8, "threads": 1, "scratch_bytes": 0}
    whole = plan_banks(requests, [], **common)
    assert whole == plan_arena(requests, **common) and not whole.banks
    assert plan_banks(requests, [whole.nbytes - 1, whole.nbytes], **common) == whole
    room = [int(whole.nbytes * 0.6), int(whole.nbytes * 0.3), int(whole.nbytes * 0.5)]
    arena = plan_banks(requests, room, **common)
    if not arena.banks:
        assert arena == whole
        return False
    assert all(0 <= nbytes <= most for nbytes, most in zip(arena.banks, room, strict=False))
    assert sum(arena.banks) == arena.nbytes
    assert {(b.name, b.nbytes) for b in arena.buffers} == {(r.name, r.nbytes) for r in requests}
    for buffer in arena.buffers:
        bank, offset = arena.bank(buffer.offset)
        assert offset + buffer.nbytes <= arena.banks[bank]
        assert bank == 0 or not buffer.name.startswith("scratch")
    allowed = {(requests[one.read].name, requests[one.written].name) for one in pairs}
    assert all((a, b) in allowed or (b, a) in allowed for a, b in _overlaps(arena))
    return True


def test_memories_with_too_little_room_get_no_part_of_an_arena() -> None:
    requests = [Request("a", 1000, 0, 1), Request("b", 1000, 1, 2)]
    common: dict[str, Any] = {"shared": (), "alignment": 64, "threads": 1, "scratch_bytes": 0}
    assert plan_banks(requests, [1024, 1024], **common).banks == (1024, 1024)
    assert plan_banks(requests, [1024, 1000], **common).banks == ()
    scratch = [Request("a", 2000, 0, 1), Request("scratch1", 500, 1, 1)]
    assert plan_banks(scratch, [256, 2048], **common).banks == (), "scratch is in the nearest"
