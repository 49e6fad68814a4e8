"""One kernel for two groups, as the search of ``edgepack tune`` decides it, on an invented device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edgepack.commands.tune_results import TuneRound
from edgepack.commands.tune_rounds import Group
from edgepack.commands.tune_search import FIRST, Bounds, Search
from edgepack.config.tuned import TunedFile
from edgepack.runners.bench import Measurement
from edgepack.system.progress import Stages
from tests.support.invented_device import TURNS, Device, candidate, chosen, chosen_of, search


class Pairs(Device):
    """A model of which one kernel may compute ``conv`` and ``dense``, which then take less time.

    Attributes:
        speed: how many times as fast both are so.
        rules: 1 where the rules take that kernel, 0 where they take two.
    """

    speed, rules = 1.25, 0
    KEY = "conv then dense"

    def groups(self, choices: Any, wanted: Any = (), tried: Any = (), seconds: Any = None) -> list[Group]:
        joined = chosen_of(choices).get(self.KEY, self.rules) == 1
        found = [one for one in super().groups(choices) if not joined or one.key not in ("conv", "dense")]
        pair = frozenset({("conv", "dense")})
        now = candidate(int(joined))
        return [*found, Group(self.KEY, self.KEY, pair, [candidate(1 - joined)], now, between=not joined)]

    def share(self, groups: Sequence[Group], first: Measurement) -> dict[str, float]:
        return {**super().share(groups, first), self.KEY: 700.0 / 1001}

    def times(self, chosen: dict[str, int]) -> dict[tuple[str, ...], list[float]]:
        found = super().times(chosen)
        if chosen.get(self.KEY, self.rules) == 1:
            found["conv", "dense"] = [700.0 / self.speed for _ in range(TURNS)]
            del found["conv",], found["dense",]
        return found


def test_one_kernel_for_two_groups_is_taken_where_it_beats_both_tuned(tmp_path: Path) -> None:
    """1.6 times as fast as the two by the rules: 438 us, which take 539 us when they are tuned."""
    said: list[TuneRound] = []
    device = Pairs()
    device.speed = 1.6
    bounds = Bounds(trials=20)
    found = Search(
        device, tmp_path / "t.json", TunedFile(), bounds, Stages(None), on_round=said.append
    ).found()
    rows = [device.KEY in {layer.group for layer in one.layers} for one in said]
    assert not rows[0] and rows == sorted(rows) and rows[-1], "a row when it is taken"
    versions = [set(one) for asked in device.asked for one in asked]
    assert versions[0] == {"conv then dense", "pool"}, "it is measured first, without its parts"
    joined = next(i for i, asked in enumerate(device.asked) if "conv then dense" in asked[-1])
    tried = [one for asked in device.asked[:joined] for one in asked if "conv" in one]
    assert {one["conv"] for one in tried} == set(range(5)), "taken when its parts were tuned"
    assert dict(found.choices)["conv then dense"] == pytest.approx(1.6)
    assert found.kept and found.speedup == pytest.approx(1001 / (700 / 1.6 + 301))


def test_one_kernel_for_two_groups_is_taken_where_trials_are_over(tmp_path: Path) -> None:
    path, device = tmp_path / "t.json", Pairs()
    device.speed = 1.6
    assert search(device, path, trials=FIRST).trials == FIRST and set(chosen(path)) == {device.KEY}


def test_one_kernel_for_two_groups_is_not_taken_where_both_tuned_are_faster(tmp_path: Path) -> None:
    path, device = tmp_path / "t.json", Pairs()
    found = search(device, path)
    assert device.KEY in device.asked[0][0], "it was measured"
    assert chosen(path) == {"conv": 2, "dense": 3}
    assert found.speedup == pytest.approx(1001 / (400 / 1.5 + 300 / 1.1 + 301))


def test_where_time_is_over_what_saves_more_is_confirmed_first(tmp_path: Path) -> None:
    """Of one kernel for two groups, and what these won in the same round."""
    one = Search(Pairs(), tmp_path / "t.json", TunedFile(), Bounds(trials=1), Stages(None))
    groups = one.device.programs.groups(())
    one.shares = {"conv": 0.4, "dense": 0.3, "pool": 0.3, Pairs.KEY: 0.7}
    for ratio, later in ((1.2, {"conv", "dense"}), (1.1, {Pairs.KEY})):
        one.won = {key: (1.15, candidate(1)) for key in ("conv", "dense", "pool")}
        one.won[Pairs.KEY] = ratio, candidate(1)
        everything = set(one.won)
        assert set(one._postponed(groups)) == later and set(one.won) == everything - later


def test_two_groups_that_are_taken_apart_are_tuned(tmp_path: Path) -> None:
    class Joined(Pairs):
        speed, rules = 0.8, 1

        def share(self, groups: Sequence[Group], first: Measurement) -> dict[str, float]:
            return {"pool": 0.25, self.KEY: 0.74}

    found = search(Joined(), tmp_path / "t.json")
    assert dict(found.choices) == pytest.approx({"conv then dense": 1.25, "conv": 1.5, "dense": 1.1})
