"""Versions of a model compared on a device by ``edgepack tune``: candidates that crash, hang or are wrong are
planted there, and boards that start again or are gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgepack.commands import tune_device as module
from edgepack.commands.tune_device import OnDevice
from edgepack.commands.tune_programs import Choices, Program, step_nodes
from edgepack.commands.tune_rounds import Comparison, Group
from edgepack.errors import CheckFailedError, ConfigError, EdgepackError, ToolchainError
from edgepack.options import RunOptions
from edgepack.plan.tuned import TunedChoice
from edgepack.runners.bench import Measurement
from edgepack.runners.instructions import Instructions
from edgepack.runners.turns import HowMany, Turns

#: Microseconds of each step of the invented model by the rules.
STEPS = {"conv": 400.0, "pool": 100.0}


def by(tile: int) -> Choices:
    """A version whose convolution is so many tenths of as fast as by the rules."""
    return (TunedChoice("cpu", "conv", "rule", {"tile": tile}, 1.0),)


RULES: Choices = ()


def tile_of(choices: Choices) -> int:
    return int(choices[0].schedule["tile"]) if choices else 10


class Steps:
    """A manifest."""

    steps = tuple(SimpleNamespace(nodes=(name,), kernel=name) for name in STEPS)
    kernels = ()

    def code(self, variant: str) -> Steps:
        return self


class Board:
    """Makes programs, and runs them.

    Attributes:
        uncompiled, unbuilt, crashing, wrong, unmeasured: tiles of versions that cannot be compiled, be in one
            program with others, run, be right, or be measured in turns.
        fails: is asked before each run of a program, and raises where the device is gone.
        built_so_far: the tiles of each program, and ``alive`` how many of them there are now.
    """

    device = SimpleNamespace(name="board")

    def __init__(self, folder: Path, most_versions: int = 8) -> None:
        self.folder, self.most_versions, self.gpu = folder, most_versions, ""
        self.uncompiled: set[int] = set()
        self.unbuilt: set[int] = set()
        self.crashing: set[int] = set()
        self.wrong: set[int] = set()
        self.unmeasured: set[int] = set()
        self.fails: Callable[[int], None] = lambda number: None
        self.counted, self.real_speed, self.missing = False, True, ""
        self.built_so_far: list[list[int]] = []
        self.in_turns: list[HowMany] = []
        self.drift: list[float] = []
        self.runs = 0
        self.versions: dict[Path, dict[str, int]] = {}

    @property
    def alive(self) -> int:
        return sum(root.is_dir() for root in self.versions)

    def built(self, versions: Sequence[Choices]) -> Program:
        tiles = [tile_of(one) for one in versions]
        self.built_so_far.append(tiles)
        if self.unbuilt & set(tiles):
            raise ToolchainError("it cannot be linked")
        if self.uncompiled & set(tiles[:1]):
            raise EdgepackError("it cannot be compiled")
        names = [f"v{i}" if tile not in self.uncompiled else "" for i, tile in enumerate(tiles)]
        names = names if len(names) > 1 else [""]
        root = self.folder / f"program{len(self.built_so_far)}"
        root.mkdir()
        self.versions[root] = dict(zip(names, tiles, strict=True))
        return Program(root, Steps(), tuple(names), self.gpu)  # type: ignore[arg-type]

    # What runs programs, in place of the runners' functions.

    def run(self) -> None:
        self.runs += 1
        self.fails(self.runs)

    def verified(self, root: Path, name: str) -> bool:
        self.run()
        tile = self.versions[root][name]
        if tile in self.crashing:
            raise CheckFailedError("it crashed")
        return tile not in self.wrong

    def verify(self, root: Path, manifest: Any, options: RunOptions) -> Any:
        checks = [SimpleNamespace(name=self.gpu, missing=self.missing)] if self.gpu else []
        (name,) = self.versions[root]
        return SimpleNamespace(variants=checks, where="a board", ok=self.verified(root, name))

    def verify_variant(self, root: Path, manifest: Any, name: str, options: RunOptions) -> bool:
        return self.verified(root, name)

    def times(self, root: Path, name: str) -> tuple[float, ...]:
        slower = self.drift.pop(0) if self.drift else 1.0
        tile = self.versions[root][name]
        return tuple(us * slower * (10 / tile if step == "conv" else 1) for step, us in STEPS.items())

    def bench(self, root: Path, manifest: Any, options: Any) -> Measurement:
        self.run()
        (name,) = self.versions[root]
        steps = self.times(root, name)
        times, counts = (sum(steps) / 1e3,) * 3, None
        if self.counted:
            times, counts = (), Instructions(round(sum(steps)), True, 1, tuple(map(round, steps)))
        return Measurement(
            "qemu", "here", self.real_speed, 1, 0, times, 0, 0, 0, 0, steps, "", counts, "a GPU"
        )

    def bench_in_turns(
        self, root: Path, manifest: Any, names: Sequence[str], many: HowMany, options: RunOptions
    ) -> list[Turns]:
        self.run()
        self.in_turns.append(many)
        if self.unmeasured & {self.versions[root][name] for name in names}:
            raise ToolchainError("the time is up")
        found = []
        for name in names:
            steps = [self.times(root, name) for _ in range(many.turns)]
            found.append(Turns(tuple(sum(turn) / 1e3 for turn in steps), tuple(steps)))
        return found


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    found = Board(tmp_path)
    for name in ("bench", "bench_in_turns", "verify", "verify_variant"):
        monkeypatch.setattr(module, name, getattr(found, name))
    return found


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were waited, which take none."""
    found: list[float] = []
    monkeypatch.setattr(module.time, "sleep", found.append)
    return found


def on(board: Board) -> OnDevice:
    found = OnDevice(board, RunOptions())  # type: ignore[arg-type]
    found.settle()
    return found


def ratios(found: Sequence[Comparison | None]) -> list[float | None]:
    return [one if one is None else round(one.speedup([("conv",)]).ratio, 3) for one in found]


def gone_from(first: int) -> Callable[[int], None]:
    def fails(number: int) -> None:
        if number >= first:
            raise ToolchainError("no route to host")

    return fails


def test_versions_are_measured_in_one_program(board: Board) -> None:
    device = on(board)
    found = device.compared(RULES, [by(20), by(5), by(11)])
    assert ratios(found) == [2.0, 0.5, 1.1]
    assert found[0] is not None and found[0].whole.ratio == pytest.approx(500 / 300)
    assert board.built_so_far == [[10], [10, 20, 5, 11]] and board.alive == 1, "bundles are large"
    (many,) = board.in_turns
    assert (many.runs, many.turns, many.seconds) == (24, 101, 12)


def test_of_too_many_versions_more_programs_are_made(board: Board) -> None:
    device = on(board)
    board.most_versions = 3
    assert ratios(device.compared(by(5), [by(n) for n in (5, 10, 20)])) == [1.0, 2.0, 4.0]
    assert board.built_so_far[1:] == [[5, 5, 10], [5, 20]]


def test_shares_are_of_the_rules_own_program(board: Board) -> None:
    device = OnDevice(board, RunOptions())  # type: ignore[arg-type]
    groups = [Group(name, name, frozenset({(name,)}), []) for name in STEPS]
    assert device.share(groups, device.settle()) == {"conv": 0.8, "pool": 0.2}


@pytest.mark.parametrize("how", ["uncompiled", "crashing", "wrong", "unmeasured", "unbuilt"])
def test_a_version_that_fails_costs_itself_only(how: str, board: Board) -> None:
    """It cannot be compiled, crashes or hangs, is wrong, hangs when it is measured, or cannot be linked."""
    device = on(board)
    setattr(board, how, {7})
    assert ratios(device.compared(RULES, [by(20), by(7), by(11)])) == [2.0, None, 1.1]
    assert board.alive == 1
    assert device.compared(RULES, [by(7)]) == [None]


def test_a_board_that_starts_again_is_waited_for(board: Board, waited: list[float]) -> None:
    """It is gone while a version is verified, and when the rules' own program is run; nothing is to blame."""
    device = on(board)

    def fails(number: int) -> None:
        if number in (3, 4, 5):
            raise ToolchainError("no route to host")

    board.fails = fails
    assert ratios(device.compared(RULES, [by(20), by(11)])) == [2.0, 1.1]
    assert waited == [module.PAUSE] * 2


def test_a_connection_that_is_lost_costs_nothing(board: Board) -> None:
    """Each sixth run of a program fails."""
    device = on(board)

    def fails(number: int) -> None:
        if number % 6 == 0:
            raise ToolchainError("the connection was closed")

    board.fails = fails
    for _ in range(4):
        assert ratios(device.compared(RULES, [by(20), by(11), by(5)])) == [2.0, 1.1, 0.5]
    assert board.runs > 20 and board.alive == 1


def test_a_version_that_hangs_is_not_waited_for_long(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than what a device's programs may take, but what the user says counts."""
    limits: list[float | None] = []

    def verify_variant(root: Path, manifest: Any, name: str, options: RunOptions) -> bool:
        limits.append(options.timeout)
        return True

    monkeypatch.setattr(module, "verify_variant", verify_variant)
    on(board).compared(RULES, [by(20)])
    theirs = OnDevice(board, RunOptions(timeout=3.0))  # type: ignore[arg-type]
    theirs.settle()
    theirs.compared(RULES, [by(20)])
    first, second = limits
    assert first is not None and module.HANGS <= first < module.HANGS + 10 and second == 3.0


def test_a_board_that_is_gone_is_an_error(board: Board, waited: list[float]) -> None:
    device = on(board)
    board.fails = gone_from(4)
    for _ in range(2):
        with pytest.raises(ToolchainError, match="no route to host"):
            device.compared(RULES, [by(20), by(11)])
    assert waited == [module.PAUSE] * module.ASKED_AGAIN, "it is asked no more"


def test_what_keeps_every_program_from_being_built_is_an_error(board: Board) -> None:
    """A disk that is full is nobody's fault."""
    device = on(board)
    board.unbuilt = {10}
    for most in (8, 1):
        board.most_versions = most
        with pytest.raises(ToolchainError, match="it cannot be linked"):
            device.compared(RULES, [by(20), by(10)])


def test_a_disturbed_comparison_is_done_again(board: Board) -> None:
    """Two versions of 101 turns each, by turns of which every other is slowed down."""
    device = on(board)
    board.drift = [1.0 + number % 3 for number in range(2 * 101)]
    (found,) = device.compared(RULES, [by(20)])
    assert device.disturbed == 1 and len(board.in_turns) == 2
    assert found is not None and len(found.run_before) == len(found.before["conv",]) == 202


def test_two_programs_take_turns_where_one_has_one_version(board: Board) -> None:
    board.gpu, board.most_versions = "opencl", 1
    device = on(board)
    assert device.place == "here, a GPU"
    board.drift = [1.0, 1.0, 2.0, 2.0]  # A B B A
    (found,) = device.compared(RULES, [by(20)])
    assert found is not None and list(found.before["conv",]) == [400.0, 800.0]
    assert list(found.after["conv",]) == [200.0, 400.0] and found.whole.ratio == pytest.approx(500 / 300)
    assert board.built_so_far == [[10], [20]] and board.alive == 1
    assert ratios(device.compared(by(20), [by(5), by(40)])) == [0.25, 2.0]
    assert board.built_so_far[2:] == [[20], [5], [40]] and board.alive == 2, "an incumbent's is kept"
    for how in ("uncompiled", "crashing", "wrong"):
        setattr(board, how, {7})
        assert device.compared(RULES, [by(7)]) == [None]


def test_what_is_counted_is_run_once(board: Board) -> None:
    board.counted, board.most_versions, board.real_speed = True, 1, False
    device, before = on(board), board.runs
    (found,) = device.compared(RULES, [by(20)])
    assert device.counted and found is not None and found.counted
    assert (found.whole.ratio, found.whole.error) == (500 / 300, 0.0)
    assert board.runs == before + 3, "verified, and a run each"


def test_an_emulator_s_times_are_refused(board: Board) -> None:
    board.real_speed = False
    with pytest.raises(ConfigError, match="qemu emulates board: its times say nothing about the device"):
        on(board)


def test_a_program_that_is_wrong_to_begin_with_is_said(board: Board) -> None:
    board.wrong = {10}
    with pytest.raises(CheckFailedError, match="does not compute what it should to begin with"):
        on(board)
    board.crashing = {10}
    with pytest.raises(CheckFailedError, match="it crashed"):
        on(board)


def test_kernels_of_a_gpu_that_were_not_run_are_not_right(board: Board) -> None:
    board.gpu, board.most_versions, board.missing = "opencl", 1, "a GPU that fits"
    with pytest.raises(ConfigError, match="There is no GPU that fits to tune for on a board"):
        on(board)


def test_steps_of_a_gpu_are_told_apart_by_their_operators() -> None:
    """What moves a node's tensor there has a kernel of its own; copies have no nodes."""
    kernels: Any = [
        SimpleNamespace(symbol="a", ops=("transpose",)),
        SimpleNamespace(symbol="b", ops=("relu",)),
    ]
    steps: Any = [
        SimpleNamespace(kernel=symbol, nodes=("Conv_0",) if symbol else ()) for symbol in ("", "a", "b")
    ]
    assert step_nodes(steps, kernels, gpu=True) == [(), ("Conv_0", "transpose"), ("Conv_0", "relu")]
    assert step_nodes(steps, kernels, gpu=False) == [(), ("Conv_0",), ("Conv_0",)]


def test_steps_of_the_same_nodes_count_together(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Winograd's form has several of a convolution."""
    steps = tuple(SimpleNamespace(nodes=("conv",), kernel=name) for name in STEPS)
    monkeypatch.setattr(Steps, "steps", steps)
    (found,) = on(board).compared(RULES, [by(20)])
    assert found is not None and found.before["conv",][0] == 500.0 and found.after["conv",][0] == 300.0
    assert replace(found, after={}).speedup([("conv",)]).ratio == 1.0
