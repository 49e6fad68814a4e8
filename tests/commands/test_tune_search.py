"""The search of ``edgepack tune``, on invented devices: noisy ones, and some that crash or start again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgepack.commands import tune as module
from edgepack.commands import tune_programs
from edgepack.commands.tune import Search, Tuned
from edgepack.commands.tune_programs import Program
from edgepack.commands.tune_rounds import FAILED, Candidate, Comparison, Group, Rounds
from edgepack.config.device import load_device
from edgepack.config.tuned import TunedFile, read_tuned
from edgepack.errors import CheckFailedError, ConfigError, EdgepackError, ToolchainError
from edgepack.options import PackOptions, RunOptions
from edgepack.plan.tuned import TunedChoice
from edgepack.runners.bench import Measurement
from edgepack.runners.instructions import Instructions
from edgepack.system.progress import Stages

#: Groups of the invented model, with microseconds of each by the rules; the last is not worth trying.
GROUPS = {"conv": 400.0, "dense": 300.0, "pool": 300.0, "add": 1.0}
#: By group and number of a candidate: how many times as fast it is; others are slower.
SPEED = {("conv", 2): 1.5, ("conv", 4): 1.2, ("dense", 0): 0.7, ("dense", 3): 1.1, ("pool", 1): 1.01}
CPU = "a kind of CPU"


def candidate(number: int) -> Candidate:
    return Candidate("rule", {"tile": number})


@dataclass
class Target:
    tuned_kinds: tuple[str, ...] = (CPU,)


class Steps:
    """A step for each group, as a manifest has them."""

    steps = tuple(type("Step", (), {"nodes": (name,)}) for name in GROUPS)

    def code(self, variant: str) -> Steps:
        return self


class Programs:
    """Stands for a device.

    Args:
        noise: by which part times differ at random.
        bad: choices by which a program is wrong, and ``crash`` those by which it does not run.
        fails: is asked before each measurement, and raises where the device is gone.
        whole: by how much a whole run is slower with any choices than its steps say.
    """

    def __init__(
        self,
        *,
        noise: float = 0.0,
        bad: Iterable[tuple[str, int]] = (),
        crash: Iterable[tuple[str, int]] = (),
        fails: Callable[[int], None] = lambda number: None,
        counted: bool = False,
        whole: float = 1.0,
    ) -> None:
        self.noise, self.bad, self.crash, self.fails = noise, set(bad), set(crash), fails
        self.counted, self.whole = counted, whole
        self.cut_short = False
        self.random = random.Random(1)
        self.target, self.gpu = Target(), ""
        self.runs = self.alive = self.most = 0

    def packed(self, choices: Sequence[TunedChoice]) -> Program:
        self.alive += 1
        self.most = max(self.most, self.alive)
        return Program(Path("x"), Steps(), tuple(choices))  # type: ignore[arg-type]

    def discard(self, program: Program) -> None:
        self.alive -= 1

    def groups(self, program: Program, wanted: Any = (), seconds: Any = None) -> list[Group]:
        return [Group(name, name, frozenset({(name,)}), [candidate(n) for n in range(5)]) for name in GROUPS]

    def is_right(self, program: Program) -> bool:
        chosen = {(one.group, int(one.schedule["tile"])) for one in program.choices}
        if chosen & self.crash:
            raise CheckFailedError("it crashed")
        return not chosen & self.bad

    def measured(self, program: Program, *, runs: int | None = None) -> Measurement:
        self.runs += 1
        self.fails(self.runs)
        chosen = {one.group: int(one.schedule["tile"]) for one in program.choices}
        steps = []
        for name, micros in GROUPS.items():
            speed = SPEED.get((name, chosen[name]), 0.9) if name in chosen else 1.0
            steps.append(micros / speed * (1 + self.random.uniform(0, self.noise)))
        total = sum(steps) / 1000 * (self.whole if chosen else 1.0)
        times, counts = (total,) * 5, None
        if self.counted:
            times, counts = (
                (),
                Instructions(round(1e6 * total), True, 1, tuple(round(1e3 * s) for s in steps)),
            )
        return Measurement("native", "here", True, 1, 0, times, 0, 0, 0, 0, tuple(steps), "", counts)

    def settle(self, program: Program) -> Measurement:
        return self.measured(program)


def search(programs: Programs, path: Path, *, trials: int = 12, known: TunedFile | None = None) -> Tuned:
    start = known or (read_tuned(path) if path.exists() else TunedFile())
    return Search(programs, path, start, Stages(None), None, trials).found()  # type: ignore[arg-type]


def chosen(path: Path) -> dict[str, int]:
    return {one.group: one.schedule["tile"] for one in read_tuned(path).choices}


def gone_from(first: int, error: type[BaseException] = ToolchainError) -> Callable[[int], None]:
    """A device that does not answer from a measurement on."""

    def fails(number: int) -> None:
        if number >= first:
            raise error("no route to host")

    return fails


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were waited, which take none."""
    found: list[float] = []
    monkeypatch.setattr(module.time, "sleep", found.append)
    return found


def test_the_fastest_of_each_group_is_found(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    programs = Programs()
    found = search(programs, path)
    assert chosen(path) == {"conv": 2, "dense": 3}
    assert programs.most <= 3 and programs.alive == 2  # bundles are large
    gains = dict(found.choices)
    assert gains["conv"] == pytest.approx(1.5) and gains["dense"] == pytest.approx(1.1)
    assert found.kept and found.before == pytest.approx(1.001) and found.failed == 0
    assert found.after == pytest.approx((400 / 1.5 + 300 / 1.1 + 300 + 1) / 1000)
    tried = read_tuned(path).tried[CPU]
    assert {len(tried[name]) for name in ("conv", "dense", "pool")} == {5} and "add" not in tried


def test_a_noisy_device_keeps_what_is_really_faster(tmp_path: Path) -> None:
    """1 % is within its noise, half as much again is not."""
    path = tmp_path / "t.json"
    search(Programs(noise=0.05), path)
    assert chosen(path)["conv"] == 2 and "pool" not in chosen(path)


def test_what_is_tried_is_not_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    first = search(Programs(), path, trials=3)
    assert first.trials == 3 and chosen(path) == {"conv": 2}
    second = search(Programs(), path)
    assert second.trials == 2 and chosen(path) == {"conv": 2, "dense": 3}
    assert dict(second.choices)["conv"] == pytest.approx(1.5)
    assert search(Programs(), path).trials == 0 and chosen(path) == {"conv": 2, "dense": 3}


@pytest.mark.parametrize("how", ["bad", "crash"])
def test_a_candidate_that_fails_costs_itself_only(how: str, tmp_path: Path) -> None:
    path, blamed = tmp_path / "t.json", [("conv", 4), ("pool", 0)]
    programs = Programs(bad=blamed) if how == "bad" else Programs(crash=blamed)
    found = search(programs, path, trials=40)
    assert chosen(path) == {"conv": 2, "dense": 3} and found.failed == 2
    tried = read_tuned(path).tried[CPU]
    assert tried["conv"][candidate(4).digest] == tried["pool"][candidate(0).digest] == FAILED
    assert tried["dense"][candidate(0).digest] > FAILED


def test_a_board_that_starts_again_is_waited_for(tmp_path: Path, waited: list[float]) -> None:
    def fails(number: int) -> None:
        if number in (4, 5, 6):
            raise ToolchainError("no route to host")

    path = tmp_path / "t.json"
    found = search(Programs(fails=fails), path, trials=40)
    assert waited == [module.PAUSE] * 2 and found.failed == 0
    assert chosen(path) == {"conv": 2, "dense": 3}


def test_a_device_that_is_gone_is_an_error_and_what_was_found_is_kept(
    tmp_path: Path, waited: list[float]
) -> None:
    path = tmp_path / "t.json"
    with pytest.raises(EdgepackError, match="no route to host"):
        search(Programs(fails=gone_from(18)), path)
    assert chosen(path) == {"conv": 2} and len(waited) == module.ASKED_AGAIN


def test_ctrl_c_keeps_what_was_found(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    with pytest.raises(KeyboardInterrupt):
        search(Programs(fails=gone_from(18, KeyboardInterrupt)), path)
    assert chosen(path) == {"conv": 2}


def test_nothing_is_kept_where_the_whole_network_is_not_faster(tmp_path: Path) -> None:
    """What another model's search found stays."""
    path = tmp_path / "t.json"
    known = TunedFile((TunedChoice(CPU, "other", "rule", {"tile": 1}, 1.3),))
    found = search(Programs(whole=2.0), path, known=known)
    assert not found.kept and found.choices == () and found.after == found.before
    assert chosen(path) == {"other": 1}
    assert read_tuned(path).tried[CPU]["conv"]


def test_a_disturbed_round_is_measured_again(tmp_path: Path) -> None:
    """Where the incumbent's own times differ by much from its first to its last run."""

    class Disturbed(Programs):
        def measured(self, program: Program, *, runs: int | None = None) -> Measurement:
            found = super().measured(program, runs=runs)
            return replace(found, runs_ms=(9.0,)) if self.runs == 5 else found

    assert search(Disturbed(), tmp_path / "t.json").disturbed == 1


def test_what_seems_faster_by_chance_is_not_kept(tmp_path: Path) -> None:
    """Both times of the first round's program have a fast pooling, and no later one has."""

    class Chance(Programs):
        def measured(self, program: Program, *, runs: int | None = None) -> Measurement:
            found = super().measured(program, runs=runs)
            pool = list(GROUPS).index("pool")
            steps = [
                us / 2 if i == pool and self.runs in (3, 4) else us for i, us in enumerate(found.steps_us)
            ]
            return replace(found, steps_us=tuple(steps))

    path = tmp_path / "t.json"
    search(Chance(), path)
    assert chosen(path) == {"conv": 2, "dense": 3}


def test_counts_need_no_turns(tmp_path: Path) -> None:
    """However little it is, what is counted is exact."""
    path, programs = tmp_path / "t.json", Programs(counted=True)
    found = search(programs, path, trials=5)
    assert found.unit == "instructions" and found.noise == 0.0
    assert programs.runs == 1 + 2 * 5 + 2
    assert chosen(path) == {"conv": 2, "dense": 3, "pool": 1}
    assert all(one.counted for one in read_tuned(path).choices)


def test_minutes_are_a_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    class Slow(Programs):
        def packed(self, choices: Sequence[TunedChoice]) -> Program:
            clock[0] += 30
            return super().packed(choices)

    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    programs: Any = Slow()
    found = Search(programs, tmp_path / "t.json", TunedFile(), Stages(None), 3.0, None).found()
    assert clock[0] <= 180 and 1 <= found.trials <= 5


def test_a_program_that_is_wrong_to_begin_with_is_said(tmp_path: Path) -> None:
    class Wrong(Programs):
        def is_right(self, program: Program) -> bool:
            return False

    with pytest.raises(CheckFailedError, match="to begin with"):
        search(Wrong(), tmp_path / "t.json")
    assert not (tmp_path / "t.json").exists()


def test_a_comparison_is_of_the_steps_that_both_have() -> None:
    found = Comparison({("a",): 10.0, ("b",): 30.0}, {("a",): 5.0, ("c",): 1.0}, {("a",): 0.1, ("b",): 0.2})
    assert found.speedup([("a",), ("b",)]) == 2.0 and found.speedup([("b",)]) == 1.0
    assert found.noise_of([("a",), ("b",)]) == pytest.approx(0.175)
    assert found.share([("a",)]) == 0.25


def test_a_digest_is_of_rule_and_schedule() -> None:
    digests = {Candidate(rule, {"tile": [1, n]}).digest for rule in ("a", "b") for n in (1, 2)}
    assert len(digests) == 4 and Candidate("a", {"tile": [1, 1]}).digest in digests


def test_rounds_resume_with_the_choices_of_their_kind_of_cpu() -> None:
    choices = [TunedChoice(cpu, "conv", "rule", {"tile": n}, 1.0 + n) for n, cpu in enumerate(("x", "y"))]
    file = TunedFile(tuple(choices), {"y": {"conv": {"d": 1.5}}})
    rounds = Rounds.resumed(file, "y", "1", counted=False)
    assert rounds.gain("conv") == 2.0 and rounds.tried == {"conv": {"d": 1.5}}
    assert [one.group for one in rounds.choices({"dense": candidate(1)})] == ["conv", "dense"]


class Predicted(Programs):
    """The same, with a cost model that is right about ``conv`` and wrong about ``dense``.

    Attributes:
        asked: the groups of which candidates were wanted, of each call.
    """

    def groups(self, program: Program, wanted: Any = (), seconds: Any = None) -> list[Group]:
        self.asked = [*getattr(self, "asked", []), sorted(wanted)]
        chosen = {one.group: int(one.schedule["tile"]) for one in program.choices}
        found = []
        for name in GROUPS:
            speeds = [SPEED.get((name, number), 0.9) for number in range(5)]
            cycles = [100 / speed if name == "conv" else 100 * speed for speed in speeds]
            others = [Candidate("rule", {"tile": n}, cycles[n]) for n in range(5) if n != chosen.get(name)]
            own = chosen.get(name)
            now = (
                Candidate("rule", {"tile": own}, cycles[own])
                if own is not None
                else Candidate("r", {}, 100.0)
            )
            asked = not wanted or name in wanted
            found.append(Group(name, name, frozenset({(name,)}), others if asked else [], now))
        return found


def test_what_is_predicted_to_be_the_fastest_is_measured_first(tmp_path: Path) -> None:
    """By distance the third candidate of a convolution would be measured third."""
    path = tmp_path / "t.json"
    search(Predicted(), path, trials=1)
    assert chosen(path) == {"conv": 2}


def test_a_wrong_prediction_costs_little(tmp_path: Path) -> None:
    """One in four is the nearest one, and what was measured corrects the rest: all is found in the end."""
    path, programs = tmp_path / "t.json", Predicted()
    search(programs, path, trials=8)
    assert chosen(path) == {"conv": 2, "dense": 3}
    assert programs.asked[:2] == [[], ["conv"]]  # its neighbours anew, of others those that were left


def test_trials_are_a_promise_and_two_searches_are_the_same(tmp_path: Path) -> None:
    found = []
    for name in ("a.json", "b.json"):
        programs = Predicted(noise=0.02)
        assert search(programs, tmp_path / name, trials=4).trials == 4
        found.append((tmp_path / name).read_bytes())
    assert found[0] == found[1]


def test_steps_of_a_gpu_are_told_apart_by_their_operators(tmp_path: Path) -> None:
    """What moves a node's tensor there has a kernel of its own; copies have no nodes."""
    kernels = {"a": ("transpose",), "b": ("conv2d", "relu")}
    record = SimpleNamespace(
        kernels=[SimpleNamespace(symbol=symbol, ops=ops) for symbol, ops in kernels.items()],
        steps=[
            SimpleNamespace(kernel=symbol, nodes=("Conv_0",) if symbol else ()) for symbol in ("", "a", "b")
        ],
    )
    manifest: Any = SimpleNamespace(code=lambda variant: record)
    on_gpu, on_cpu = Program(tmp_path, manifest, (), "opencl"), Program(tmp_path, manifest, ())
    assert on_gpu.nodes("opencl") == [(), ("Conv_0", "transpose"), ("Conv_0", "conv2d", "relu")]
    assert on_gpu.nodes_of(["b"]) == {("Conv_0", "conv2d", "relu")}
    assert on_cpu.nodes("") == [(), ("Conv_0",), ("Conv_0",)]


def test_kernels_of_a_gpu_that_were_not_run_are_not_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = load_device("opencl-generic")
    programs = tune_programs.Programs(Path("m.onnx"), device, PackOptions(), RunOptions(), tmp_path)
    lacks = "a GPU that fits"

    def verify(root: Path, manifest: Any, options: RunOptions) -> Any:
        checks = [SimpleNamespace(name="opencl", missing=lacks)]
        return SimpleNamespace(variants=checks, where="a board", ok=True)

    monkeypatch.setattr(tune_programs, "verify", verify)
    program = Program(tmp_path, None, (), "opencl")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="There is no GPU that fits to tune for on a board"):
        programs.is_right(program)
    lacks = ""
    assert programs.is_right(program)


def test_where_there_was_no_time_for_all_candidates_more_are_asked_for(tmp_path: Path) -> None:
    class Cut(Programs):
        """Has one candidate of each group at first, and then all."""

        seconds: tuple[float, ...] = ()

        def groups(self, program: Program, wanted: Any = (), seconds: Any = None) -> list[Group]:
            self.seconds = *self.seconds, seconds
            self.cut_short = len(self.seconds) == 1
            found = super().groups(program, wanted)
            return [replace(one, candidates=one.candidates[:1]) for one in found] if self.cut_short else found

    programs, path = Cut(), tmp_path / "t.json"
    programs_: Any = programs
    Search(programs_, path, TunedFile(), Stages(None), 100.0, None).found()
    assert chosen(path) == {"conv": 2, "dense": 3}
    first, second, *_ = programs.seconds
    assert 590 < first <= 600 and 1.9 * first < second <= 2 * first, (
        "a tenth of the time, a fifth of the rest"
    )
