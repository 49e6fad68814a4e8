"""The search of ``edgepack tune``, on invented devices: noisy ones, and some that do not answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgepack.commands import tune_search as module
from edgepack.commands.tune_results import TuneRound
from edgepack.commands.tune_rounds import FAILED, Candidate, Comparison, Group
from edgepack.commands.tune_search import FIRST, WIDEST, Bounds, Search
from edgepack.config.tuned import TunedFile, merge_tuned, read_tuned, write_tuned
from edgepack.errors import EdgepackError, ToolchainError
from edgepack.plan.tuned import TunedChoice
from edgepack.system.progress import Stages
from tests.support.invented_device import (
    CPU,
    GROUPS,
    SPEED,
    TURNS,
    Device,
    candidate,
    chosen,
    chosen_of,
    search,
)


def gone_from(first: int, error: type[BaseException] = ToolchainError) -> Callable[[int], None]:
    """A device that does not answer from a comparison on."""

    def fails(number: int) -> None:
        if number >= first:
            raise error("no route to host")

    return fails


def test_the_fastest_of_each_group_is_found(tmp_path: Path) -> None:
    path, device = tmp_path / "t.json", Device()
    found = search(device, path)
    assert chosen(path) == {"conv": 2, "dense": 3}
    gains = dict(found.choices)
    assert gains["conv"] == pytest.approx(1.5) and gains["dense"] == pytest.approx(1.1)
    assert found.kept and found.speedup == pytest.approx(1001 / (400 / 1.5 + 300 / 1.1 + 301))
    assert (found.trials, found.failed, found.unit) == (5, 0, "ms")
    tried = read_tuned(path).tried[CPU]
    assert {len(tried[name]) for name in ("conv", "dense", "pool")} == {5} and "add" not in tried


def test_a_round_has_several_versions_and_confirms_what_won_before(tmp_path: Path) -> None:
    device = Device()
    search(device, tmp_path / "t.json")
    first, second, third, whole = device.asked
    assert [one["conv"] for one in first] == [0, 1, 2] and len(first) == FIRST
    assert [one["conv"] for one in second] == [3, 4, 2], "the last is what won"
    assert third == [{"conv": 2, "dense": 3}] == whole
    assert second[-1] == {"conv": 2} and second[0] == dict.fromkeys(("conv", "dense", "pool"), 3)


def test_each_round_says_what_it_found(tmp_path: Path) -> None:
    said: list[TuneRound] = []
    path, device = tmp_path / "t.json", Device(bad=[("pool", 4)])
    bounds = Bounds(minutes=100.0)
    Search(device, path, TunedFile(), bounds, Stages(None), on_round=said.append).found()
    first, second = said[:2]
    assert (first.number, first.candidates, first.faster, first.confirmed, first.trials) == (1, 9, 1, 0, 3)
    assert first.speedup == 1.0 and 5990 < (first.seconds_left or 0) <= 6000
    assert [one.title for one in first.layers] == ["conv", "dense", "pool"], "those that are worth it"
    assert [one.share for one in first.layers] == sorted((one.share for one in first.layers), reverse=True)
    assert [one.tried for one in first.layers] == [3, 3, 3] and second.layers[0].gain == pytest.approx(1.5)
    assert second.confirmed == 1 and second.speedup == pytest.approx(1001 / (400 / 1.5 + 601))
    last = said[-1]
    assert last.failed == 1 and last.layers[1].gain == pytest.approx(1.1) and last.error == 0.0


def test_rounds_are_no_wider_than_allowed(tmp_path: Path) -> None:
    class Many(Device):
        def groups(self, choices: Any, wanted: Any = (), tried: Any = (), seconds: Any = None) -> list[Group]:
            found = super().groups(choices)
            return [replace(one, candidates=[candidate(n) for n in range(30)]) for one in found]

    device = Many()
    assert search(device, tmp_path / "t.json", trials=14).trials == 14
    candidates = [{one["pool"] for one in asked if "pool" in one} for asked in device.asked]
    assert [len(one) for one in candidates] == [FIRST, WIDEST, 5, 0]


def test_a_noisy_device_keeps_what_is_really_faster(tmp_path: Path) -> None:
    """Half a percent is nothing, half as much again is found."""
    path = tmp_path / "t.json"
    search(Device(noise=0.05), path)
    assert chosen(path)["conv"] == 2 and "pool" not in chosen(path)


def test_what_is_tried_is_not_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    first = search(Device(), path, trials=3)
    assert first.trials == 3 and chosen(path) == {"conv": 2}
    second = search(Device(), path)
    assert second.trials == 2 and chosen(path) == {"conv": 2, "dense": 3}
    assert dict(second.choices)["conv"] == pytest.approx(1.5)
    assert search(Device(), path).trials == 0 and chosen(path) == {"conv": 2, "dense": 3}


def test_a_file_s_choices_that_do_not_run_any_more_are_left(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    known = TunedFile((TunedChoice(CPU, "conv", "rule", {"tile": 7}, 1.3),))
    search(Device(bad=[("conv", 7)]), path, known=known)
    assert chosen(path) == {"conv": 2, "dense": 3}


@pytest.mark.parametrize("kept", [True, False])
def test_two_searches_into_one_file_keep_what_each_finds(kept: bool, tmp_path: Path) -> None:
    """Another model's on the same CPU, another CPU's, and what they tried, is there when this one saves."""
    path, device = tmp_path / "t.json", Device() if kept else Device(whole=2.0)
    another = TunedFile(
        (
            TunedChoice(CPU, "other", "rule", {"tile": 1}, 1.3),
            TunedChoice("q", "conv", "rule", {"tile": 7}, 1.1),
        ),
        {"q": {"conv": {"0" * 16: 1.1}}, CPU: {"other": {"1" * 16: 1.3}}},
    )

    def meanwhile(told: TuneRound) -> None:
        if told.number == 1:
            write_tuned(path, merge_tuned([read_tuned(path), another]))

    bounds = Bounds(trials=5)
    found = Search(device, path, TunedFile(), bounds, Stages(None), on_round=meanwhile).found()
    file = read_tuned(path)
    assert found.kept == kept
    assert {(one.cpu, one.group) for one in file.choices} - {(CPU, "conv"), (CPU, "dense")} == {
        (CPU, "other"),
        ("q", "conv"),
    }
    assert ((CPU, "conv") in {(one.cpu, one.group) for one in file.choices}) == kept
    assert file.tried["q"] == another.tried["q"] and set(file.tried[CPU]) >= {"other", "conv"}


def test_a_candidate_that_fails_costs_itself_only(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    found = search(Device(bad=[("conv", 4), ("pool", 0)]), path, trials=40)
    assert chosen(path) == {"conv": 2, "dense": 3} and found.failed == 2
    tried = read_tuned(path).tried[CPU]
    assert tried["conv"][candidate(4).digest] == tried["pool"][candidate(0).digest] == FAILED
    assert tried["dense"][candidate(0).digest] > FAILED


@pytest.mark.parametrize("error", [ToolchainError, KeyboardInterrupt])
def test_what_was_found_is_kept_where_the_search_ends_early(
    error: type[BaseException], tmp_path: Path
) -> None:
    """The device is gone, or the user wants no more."""
    path = tmp_path / "t.json"
    with pytest.raises((EdgepackError, KeyboardInterrupt)):
        search(Device(fails=gone_from(3, error)), path)
    assert chosen(path) == {"conv": 2}


def test_nothing_is_kept_where_the_whole_network_is_not_faster(tmp_path: Path) -> None:
    """What another model's search found stays."""
    path = tmp_path / "t.json"
    known = TunedFile((TunedChoice(CPU, "other", "rule", {"tile": 1}, 1.3),))
    found = search(Device(whole=2.0), path, known=known)
    assert not found.kept and found.choices == () and found.after == found.before
    assert chosen(path) == {"other": 1}
    assert read_tuned(path).tried[CPU]["conv"]


def test_a_whole_run_that_is_not_sure_to_be_faster_is_measured_longer(tmp_path: Path) -> None:
    """Turns that differ by 2 % do not show a hundredth; twice as many do."""

    class Slow(Device):
        def comparison(self, before: Any, other: Any) -> Comparison:
            runs = [1.01, *[1.02, 1.0] * (TURNS // 2)]
            return replace(super().comparison(before, other), run_before=runs, run_after=[1.0] * TURNS)

    device = Slow()
    found = search(device, tmp_path / "t.json")
    best = {"conv": 2, "dense": 3}
    assert device.asked[-3:] == [[best]] * 3, "what was confirmed, and the whole twice"
    assert found.kept and found.speedup == pytest.approx(1.01) and 0.003 < found.noise < 0.005


def test_what_seems_faster_by_chance_is_not_kept(tmp_path: Path) -> None:
    """The first round has a fast pooling, and no later one has."""

    class Chance(Device):
        def times(self, chosen: dict[str, int]) -> dict[tuple[str, ...], list[float]]:
            found = super().times(chosen)
            if len(self.asked) == 1 and chosen:
                found["pool",] = [us / 2 for us in found["pool",]]
            return found

    path, device = tmp_path / "t.json", Chance()
    search(device, path)
    assert "pool" in device.asked[1][-1], "it is measured once more"
    assert chosen(path) == {"conv": 2, "dense": 3}


def test_what_is_counted_needs_no_second_look(tmp_path: Path) -> None:
    """However little it is, it is exact; a program has one version."""
    path, device = tmp_path / "t.json", Device(counted=True)
    found = search(device, path, trials=5)
    assert found.unit == "instructions" and found.noise == 0.0
    assert [len(one) for one in device.asked] == [1] * 6
    assert chosen(path) == {"conv": 2, "dense": 3, "pool": 1}
    assert all(one.counted for one in read_tuned(path).choices)


@pytest.mark.parametrize("minutes", [2.0, 4.0, 9.0])
def test_minutes_are_a_promise(minutes: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    class Slow(Device):
        def compared(self, before: Any, others: Sequence[Any]) -> list[Comparison | None]:
            clock[0] += 8 * (1 + len(others))
            return super().compared(before, others)

        def groups(self, choices: Any, wanted: Any = (), tried: Any = (), seconds: Any = None) -> list[Group]:
            found = super().groups(choices)
            return [replace(one, candidates=[candidate(n) for n in range(60)]) for one in found]

    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    bounds = Bounds(minutes=minutes)
    found = Search(Slow(), tmp_path / "t.json", TunedFile(), bounds, Stages(None)).found()
    assert 60 * minutes / 3 <= clock[0] <= 60 * minutes and found.trials >= 3
    assert chosen(tmp_path / "t.json")["conv"] == 2


class Predicted(Device):
    """The same, with a cost model that is right about ``conv`` and wrong about ``dense``; one version at a
    time.

    Attributes:
        wanted: the groups of which candidates were wanted, of each call.
    """

    def __init__(self, *, noise: float = 0.0) -> None:
        super().__init__(noise=noise)
        self.programs.most_versions = 3  # type: ignore[misc]
        self.wanted: list[list[str]] = []

    def groups(self, choices: Any, wanted: Any = (), tried: Any = (), seconds: Any = None) -> list[Group]:
        self.wanted.append(sorted(wanted))
        now = chosen_of(choices)
        found = []
        for name in GROUPS:
            speeds = [SPEED.get((name, number), 0.9) for number in range(5)]
            cycles = [100 / speed if name == "conv" else 100 * speed for speed in speeds]
            others = [Candidate("rule", {"tile": n}, cycles[n]) for n in range(5) if n != now.get(name)]
            own = now.get(name)
            by = Candidate("r", {}, 100.0) if own is None else Candidate("rule", {"tile": own}, cycles[own])
            asked = not wanted or name in wanted
            found.append(Group(name, name, frozenset({(name,)}), others if asked else [], by))
        return found


def test_what_is_predicted_to_be_the_fastest_is_measured_first(tmp_path: Path) -> None:
    """By distance the third candidate of a convolution would be measured third."""
    path = tmp_path / "t.json"
    search(Predicted(), path, trials=1)
    assert chosen(path) == {"conv": 2}


def test_a_wrong_prediction_costs_little(tmp_path: Path) -> None:
    """One in four is the nearest one, and what was measured corrects the rest: all is found in the end."""
    path, device = tmp_path / "t.json", Predicted()
    search(device, path, trials=8)
    assert chosen(path) == {"conv": 2, "dense": 3}
    assert device.wanted[:2] == [[], ["conv"]]  # its neighbours anew, of others those that were left


def test_trials_are_a_promise_and_two_searches_are_the_same(tmp_path: Path) -> None:
    found = []
    for name in ("a.json", "b.json"):
        assert search(Predicted(noise=0.02), tmp_path / name, trials=4).trials == 4
        found.append((tmp_path / name).read_bytes())
    assert found[0] == found[1]


def test_where_there_was_no_time_for_all_candidates_more_are_asked_for(tmp_path: Path) -> None:
    class Cut(Device):
        """Has one candidate of each group at first, and then all."""

        seconds: tuple[float, ...] = ()

        def groups(self, choices: Any, wanted: Any = (), tried: Any = (), seconds: Any = None) -> list[Group]:
            self.seconds = *self.seconds, seconds
            self.programs.cut_short = len(self.seconds) == 1
            found, some = super().groups(choices, wanted), 1 if self.programs.cut_short else 5
            return [replace(one, candidates=one.candidates[:some]) for one in found]

    device, path = Cut(), tmp_path / "t.json"
    Search(device, path, TunedFile(), Bounds(minutes=100.0), Stages(None)).found()
    assert chosen(path) == {"conv": 2, "dense": 3}
    first, second, *_ = device.seconds
    assert 590 < first <= 600 and 1.9 * first < second <= 2 * first, (
        "a tenth of the time, a fifth of the rest"
    )
