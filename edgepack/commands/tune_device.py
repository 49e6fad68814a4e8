"""What a tuner has of a device: versions of a model compared there, whatever one of them does."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from statistics import median
from typing import TypeVar

from edgepack.commands.tune_programs import Choices, Program, Programs
from edgepack.commands.tune_rounds import Comparison, Group, Nodes, steps_of
from edgepack.errors import CheckFailedError, ConfigError, EdgepackError, ToolchainError
from edgepack.options import RunOptions
from edgepack.runners.bench import BenchOptions, Measurement, bench, percentile
from edgepack.runners.turns import HowMany, Turns, bench_in_turns
from edgepack.runners.verify import Verification, verify, verify_variant

__all__ = ["ASKED_AGAIN", "PAUSE", "OnDevice", "run_of"]

#: Milliseconds that a measurement of one program takes, about, and how many runs it has.
MEASURED_MS, FEWEST, MOST = 1500.0, 5, 300

#: The same of the versions of one program in turns: milliseconds of all, of one version's runs in a turn, how
#: many runs these are, and how many turns.
IN_TURNS_MS, IN_TURN_MS, FEWEST_IN_TURN, MOST_IN_TURN, FEWEST_TURNS, MOST_TURNS = 6000.0, 12.0, 3, 300, 9, 101

#: The ratio of whole runs is not known better than this: the device does something else, or throttles.
DISTURBED = 0.015

#: How often a device that does not answer is asked again, and seconds between.
ASKED_AGAIN, PAUSE = 3, 10.0

#: A version hangs that takes so many seconds more than so many times what verifying the rules' own took.
HANGS, TIMES_USUAL = 20.0, 10.0

_R = TypeVar("_R")


class OnDevice:
    """Builds versions of a model, and compares them where they will run.

    Args:
        where: how and where programs are run.

    Attributes:
        counted: instructions are counted instead of times.
        disturbed: how often was measured again because the device was busy or throttled.
        place: where programs are run.
    """

    def __init__(self, programs: Programs, where: RunOptions) -> None:
        self.programs, self.where = programs, where
        self.counted = False
        self.disturbed = 0
        self.place = ""
        self._each = 1.0
        self._usual = 0.0
        self._gone: EdgepackError | None = None
        self._rules: Program | None = None
        self._last: tuple[Choices, Program] | None = None

    def settle(self) -> Measurement:
        """The first measurement, of the rules' own schedules, by which it is decided how many runs one takes.

        Raises:
            ConfigError: an emulator would run it, whose times say nothing, or there is no such GPU.
            CheckFailedError: it does not compute what it should to begin with.
        """
        self._rules = self.programs.built([()])
        started = time.monotonic()
        right = verify(self._rules.root, self._rules.manifest, self.where)
        self._usual = time.monotonic() - started
        self._check_gpu(right)
        if not right.ok:
            raise CheckFailedError(
                "The model's program does not compute what it should to begin with.",
                hint="`edgepack pack` and `edgepack verify` say more.",
            )
        found = bench(self._rules.root, self._rules.manifest, self._options())
        if found.instructions is None and not found.real_speed:
            raise ConfigError(
                f"{found.runner} emulates {self.programs.device.name}: its times say nothing about the "
                "device.",
                hint="Name a device that is at hand: --runner ssh:user@board, or adb; microcontrollers are "
                "counted under qemu.",
            )
        self.counted = found.instructions is not None
        self.place = found.where + (f", {found.backend}" if self.programs.gpu else "")
        if not self.counted:
            self._each = max(median(found.runs_ms), 1e-3)
        return found

    def share(self, groups: Sequence[Group], first: Measurement) -> dict[str, float]:
        """What part of a run each group takes, by its key."""
        assert self._rules is not None
        taken = _times(self._rules, first)
        total = sum(taken.values()) or 1.0
        return {
            group.key: sum(taken[step] for step in {s for one in group.nodes for s in steps_of(one, taken)})
            / total
            for group in groups
        }

    def compared(self, before: Choices, others: Sequence[Choices]) -> list[Comparison | None]:
        """Other versions beside an incumbent; None for one that cannot be compiled, does not run, or computes
        something else.

        Raises:
            EdgepackError: the incumbent, which did run, does not any more.
        """
        most = self.programs.most_versions
        if most == 1:
            return [self._in_two_programs(before, other) for other in others]
        found: list[Comparison | None] = []
        for first in range(0, len(others), most - 1):
            found += self._in_one_program(before, others[first : first + most - 1])
        return found

    # In one program, in turns ------------------------------------------------------------------------------

    def _in_one_program(self, before: Choices, others: Sequence[Choices]) -> list[Comparison | None]:
        try:
            program = self.programs.built([before, *others])
        except EdgepackError:
            half = len(others) // 2
            if not half:
                self._check_building(before)
                return [None]
            return self._in_one_program(before, others[:half]) + self._in_one_program(before, others[half:])
        own, *names = program.versions
        right = [name for name in names if name and self._is_right(program, name)]
        found = self._measured(program, [own, *right]) if right else {}
        program.discard()
        return [found.get(name) for name in names]

    def _measured(self, program: Program, names: Sequence[str]) -> dict[str, Comparison]:
        """The first of the named versions beside the others; one that does not run any more is left out."""
        try:
            found = self._tried(lambda: self._turns(program, names))
        except EdgepackError:
            self._check_answers()
            own, *others = names
            if len(others) == 1:
                return {}
            each = [self._measured(program, [own, other]) for other in others]
            return {name: comparison for one in each for name, comparison in one.items()}
        if median(one.whole.error for one in found.values()) > DISTURBED:
            self.disturbed += 1
            try:
                again = self._tried(lambda: self._turns(program, names))
            except EdgepackError:
                self._check_answers()
                return found
            return {name: one.and_again(again[name]) for name, one in found.items()}
        return found

    def _turns(self, program: Program, names: Sequence[str]) -> dict[str, Comparison]:
        runs = int(min(MOST_IN_TURN, max(FEWEST_IN_TURN, IN_TURN_MS / self._each)))
        turn = len(names) * (runs + 2) * self._each
        turns = int(min(MOST_TURNS, max(FEWEST_TURNS, IN_TURNS_MS / turn)))
        root, manifest = program.root, program.manifest
        seconds = ceil(2 * max(IN_TURNS_MS, turns * turn) / 1000)  # of which some version may be much slower
        many = HowMany(turns, runs, seconds)
        first, *others = bench_in_turns(root, manifest, names, many, self._patient(4 * seconds))
        before = _in_turns(program, names[0], first)
        return {
            name: Comparison(before, _in_turns(program, name, other), first.runs_ms, other.runs_ms)
            for name, other in zip(names[1:], others, strict=True)
        }

    # In two programs ---------------------------------------------------------------------------------------

    def _in_two_programs(self, before: Choices, other: Choices) -> Comparison | None:
        """Programs of a version each: A B B A, once where instructions are counted."""
        first = self._alone(before)
        try:
            second = self.programs.built([other])
        except EdgepackError:
            self._check_building(before)
            return None
        try:
            return self._tried(lambda: self._compared(first, second)) if self._is_right(second) else None
        except EdgepackError:
            self._check_answers()
            return None
        finally:
            second.discard()

    def _compared(self, before: Program, after: Program) -> Comparison:
        a, b = [self._steady(before)], [self._bench(after)]
        if not self.counted:
            b.append(self._bench(after))
            a.append(self._steady(before))
        before_us, after_us = (
            _together([_times(program, one) for one in those]) for program, those in ((before, a), (after, b))
        )
        runs_a, runs_b = ([run_of(one) for one in those] for those in (a, b))
        return Comparison(before_us, after_us, runs_a, runs_b, counted=self.counted)

    def _check_building(self, before: Choices) -> None:
        """Raises what keeps any program from being built, the incumbent's alone too: a disk that is full, and
        not a candidate."""
        self.programs.built([before]).discard()

    def _alone(self, choices: Choices) -> Program:
        """The program of one version, which is kept until another one is asked for; that of the rules
        stays."""
        if not choices and self._rules is not None:
            return self._rules
        if self._last is None or self._last[0] != choices:
            if self._last is not None:
                self._last[1].discard()
            self._last = choices, self.programs.built([choices])
        return self._last[1]

    # Running -----------------------------------------------------------------------------------------------

    def _is_right(self, program: Program, version: str = "") -> bool:
        """Whether a program, or one of its versions, runs and computes what was recorded."""
        root, manifest, where = program.root, program.manifest, self._patient(0.0)
        try:
            if version:
                return self._tried(lambda: verify_variant(root, manifest, version, where))
            found = self._tried(lambda: verify(root, manifest, where))
        except EdgepackError:
            self._check_answers()
            return False
        self._check_gpu(found)
        return found.ok

    def _check_gpu(self, found: Verification) -> None:
        """Raise ConfigError where kernels for a GPU were not run, which are neither right nor wrong."""
        for one in found.variants:
            if one.name == self.programs.gpu and one.missing:
                raise ConfigError(
                    f"There is no {one.missing.removeprefix('a ')} to tune for on {found.where}.",
                    hint="`edgepack doctor` says what is missing; --runner names a device that has it.",
                )

    def _patient(self, seconds: float) -> RunOptions:
        """Where a program with candidates is run, which may hang, and takes ``seconds`` otherwise."""
        limit = HANGS + TIMES_USUAL * self._usual + seconds
        return self.where if self.where.timeout else replace(self.where, timeout=limit)

    def _tried(self, run: Callable[[], _R]) -> _R:
        """What ``run`` returns, which runs a program with candidates: once more if it was not the program
        that failed but the way to it, or its time was up. Raises the runner's error of the candidates, or of
        the rules' own program if that, which is right, does not run any more either."""
        try:
            return run()
        except ToolchainError:
            self._check_device()
        except EdgepackError:
            self._check_device()
            raise
        try:
            return run()
        except EdgepackError:
            self._check_device()
            raise

    def _check_answers(self) -> None:
        """Raises the runner's error if the device was given up."""
        if self._gone is not None:
            raise self._gone

    def _check_device(self) -> None:
        """Raises the runner's error if the rules' own program does not run: not the candidates are to
        blame."""
        self._check_answers()
        assert self._rules is not None
        self._steady(self._rules, runs=1)

    def _steady(self, program: Program, runs: int | None = None) -> Measurement:
        """A program that is known to run. A board that starts again is waited for; the runner's error where
        it does not come back."""
        for _ in range(ASKED_AGAIN):
            try:
                return self._bench(program, runs)
            except EdgepackError:
                time.sleep(PAUSE)
        try:
            return self._bench(program, runs)
        except EdgepackError as error:
            self._gone = error
            raise

    def _bench(self, program: Program, runs: int | None = None) -> Measurement:
        """Its runs and steps. EdgepackError where it cannot be run."""
        usual = 1 if self.counted else int(min(MOST, max(FEWEST, MEASURED_MS / self._each)))
        return bench(program.root, program.manifest, self._options(runs or usual))

    def _options(self, runs: int | None = None) -> BenchOptions:
        return BenchOptions(runs=runs, profile=True, variant=self.programs.gpu or None, where=self.where)


def _times(program: Program, measurement: Measurement) -> dict[Nodes, float]:
    """What each step took by its nodes, those with the same nodes together; instructions where these were
    counted."""
    counted = measurement.instructions
    values = counted.steps if counted is not None else measurement.steps_us
    return _by_nodes(program.nodes(measurement.variant), values)


def _by_nodes(nodes: Sequence[Nodes], values: Sequence[float]) -> dict[Nodes, float]:
    found: dict[Nodes, float] = defaultdict(float)
    for one, value in zip(nodes, values, strict=True):
        found[one] += float(value)
    return dict(found)


def _in_turns(program: Program, version: str, turns: Turns) -> dict[Nodes, Sequence[float]]:
    """What each step of a version took by its nodes, of each turn."""
    nodes = program.nodes(version)
    return _together([_by_nodes(nodes, turn) for turn in turns.steps_us])


def _together(turns: Sequence[dict[Nodes, float]]) -> dict[Nodes, Sequence[float]]:
    return {one: [turn[one] for turn in turns] for one in turns[0]}


def run_of(measurement: Measurement) -> float:
    """A run in milliseconds, or in instructions where these were counted."""
    if measurement.instructions is not None:
        return float(measurement.instructions.run)
    return percentile(measurement.runs_ms, 50)
