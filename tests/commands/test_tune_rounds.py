"""What a tuner knows: speedups with their errors, and what was tried."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from edgepack.commands.tune_rounds import Candidate, Comparison, Group, Rounds, Speedup
from edgepack.config.tuned import TunedFile
from edgepack.plan.tuned import TunedChoice


def test_speedups_are_medians_over_turns_of_the_steps_that_both_have() -> None:
    before = {("a",): [10.0] * 7, ("b",): [30.0] * 7}
    after = {("a",): [5.0, 5.0, 50.0, 5.0, 5.0, 5.0, 5.0], ("c",): [1.0] * 7}
    found = Comparison(before, after, [40.0] * 7, [20.0] * 7)
    assert found.speedup([("a",), ("b",)]).ratio == 2.0 and found.speedup([("b",)]).ratio == 1.0
    assert found.whole.ratio == 2.0 and found.whole.error == 0.0
    again = found.and_again(replace(found, after={("a",): [10 / 3] * 7, ("c",): [1.0] * 7}))
    assert again.speedup([("a",)]).ratio == pytest.approx(2.5) and len(again.run_before) == 14


def test_two_steps_are_compared_with_the_one_that_computes_both() -> None:
    before = {("a",): [10.0] * 7, ("b",): [30.0] * 7, ("c", "d"): [1.0] * 7, (): [9.0] * 7}
    after = {("a", "b"): [20.0] * 7, ("c",): [2.0] * 7, (): [1.0] * 7}
    found = Comparison(before, after, [50.0] * 7, [30.0] * 7)
    assert found.speedup([("a", "b")]).ratio == 2.0
    assert found.speedup([("a",)]).ratio == 1.0, "a step computes it with another node"
    assert found.speedup([("c", "d")]).ratio == 1.0, "nothing computes the other"
    back = Comparison(after, before, [30.0] * 7, [50.0] * 7)
    assert back.speedup([("a", "b"), ("a", "b")]).ratio == 0.5


def test_the_error_of_a_speedup_is_that_of_a_median() -> None:
    """Of normal noise of 1 % in 400 turns: 1.25 % / 20, of the ratio 1.4 times that."""
    rng = random.Random(3)
    turns = [[100 * rng.gauss(1, 0.01) for _ in range(400)] for _ in range(2)]
    found = Comparison({}, {}, *turns).whole
    assert found.error == pytest.approx(1.2533 * 0.01 * 2**0.5 / 20, rel=0.15)
    assert abs(found.ratio - 1) < 3 * found.error and found.sure == found.ratio - 3 * found.error


def test_faster_is_by_a_hundredth_and_three_errors() -> None:
    timed, counted = Rounds("cpu", "1"), Rounds("cpu", "1", counted=True)
    assert timed.is_faster(Speedup(1.05, 0.01)) and not timed.is_faster(Speedup(1.05, 0.02))
    assert not timed.is_faster(Speedup(1.005)) and counted.is_faster(Speedup(1.005))
    assert not counted.is_faster(Speedup(1.0005))


def test_two_turns_say_little() -> None:
    assert Comparison({}, {}, [1.03, 1.05], [1.0, 1.0]).whole.sure < 1.01


def test_a_digest_is_of_rule_and_schedule() -> None:
    digests = {Candidate(rule, {"tile": [1, n]}).digest for rule in ("a", "b") for n in (1, 2)}
    assert len(digests) == 4 and Candidate("a", {"tile": [1, 1]}).digest in digests


def test_rounds_resume_with_the_choices_of_their_kind_of_cpu() -> None:
    choices = [TunedChoice(cpu, "conv", "rule", {"tile": n}, 1.0 + n) for n, cpu in enumerate(("x", "y"))]
    file = TunedFile(tuple(choices), {"y": {"conv": {"d": 1.5}}})
    rounds = Rounds.resumed(file, "y", "1", counted=False)
    assert rounds.gain("conv") == 2.0 and rounds.tried == {"conv": {"d": 1.5}}
    assert [one.group for one in rounds.choices({"dense": Candidate("rule", {"tile": 1})})] == [
        "conv",
        "dense",
    ]


def test_a_group_is_part_of_what_may_compute_more() -> None:
    def group(*nodes: tuple[str, ...]) -> Group:
        return Group("", "", frozenset(nodes), ())

    pair = group(("a", "b"))
    assert group(("a",)).is_part_of(pair) and group(("a",)).shares_steps(pair)
    for other in (group(("c",)), group(()), group(("b", "c"))):  # () is of steps without nodes
        assert not other.is_part_of(pair) and not other.shares_steps(pair)
    assert not pair.is_part_of(pair) and pair.shares_steps(pair)
    assert pair.shares_steps(group(("b",))) and not pair.is_part_of(group(("b",)))
