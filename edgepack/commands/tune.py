"""Measure schedules of a model's kernels where it will run, and keep those that are faster there."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from typing_extensions import Unpack

from edgepack.commands.model_file import check_model_file
from edgepack.commands.tune_programs import Program, Programs, compared, run_of
from edgepack.commands.tune_ranking import Ranking
from edgepack.commands.tune_rounds import Candidate, Comparison, Group, Rounds
from edgepack.config.device import Device, load_device
from edgepack.config.option_checks import check_options, with_ram_budget
from edgepack.config.tuned import TunedFile, merge_tuned, read_tuned, write_tuned
from edgepack.errors import CheckFailedError, ConfigError, EdgepackError
from edgepack.options import CheckKeywords, PackOptions, PathLike, RunOptions
from edgepack.plan.tuned import TunedChoice
from edgepack.runners.bench import Measurement
from edgepack.system.boundary import guarded, undisturbed
from edgepack.system.progress import Progress, Stages
from edgepack.system.temporary import temporary_folder
from edgepack.version import __version__

__all__ = ["Search", "Tuned", "tune"]

#: Minutes of a search to which no end is given.
DEFAULT_MINUTES = 10.0

#: The incumbent's own runs differ by more than this part: the round says nothing, and is done again.
DISTURBED = 0.10

#: Measurements of each program when the whole network is compared, in turns.
TURNS = 5

#: A whole run has to be faster by this part at least.
LEAST_WHOLE = 0.003

#: Rounds after which groups that were made faster get the neighbours of what they are now.
MOVES = 3

#: The part of the time left that the first look for candidates takes; each further one takes twice as much.
LOOKING, MOST_LOOKING = 0.1, 0.4

#: How often a device that does not answer is asked again, and seconds between.
ASKED_AGAIN, PAUSE = 3, 10.0


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Attributes:
        path: the file.
        choices: key and gain of each group of the model for which the file has a schedule now.
        trials: programs with candidates that were measured.
        failed: candidates that crashed, hung, or computed something else.
        disturbed: rounds that were measured again because the device was busy or throttled.
        noise: by how much a run's time differed from turn to turn, as a part of it; 0 of counts.
        before, after: a run by the rules' own schedules and by the tuned ones: milliseconds, or instructions.
        unit: "ms" or "instructions".
        kept: whether the whole network is faster; otherwise the file has no new schedules.
        where: where programs were run.
    """

    path: Path
    choices: tuple[tuple[str, float], ...]
    trials: int
    failed: int
    disturbed: int
    noise: float
    before: float
    after: float
    unit: str
    kept: bool
    where: str

    @property
    def speedup(self) -> float:
        """How many times as fast a run is."""
        return self.before / self.after if self.after else 1.0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "path": str(self.path), "speedup": self.speedup}


class TuneKeywords(CheckKeywords, total=False):
    """The options of :func:`tune` as keyword arguments."""

    runner: str | None
    run_timeout: float | None


@guarded
def tune(
    model: PathLike,
    device: PathLike | Device,
    output: PathLike,
    *,
    minutes: float | None = None,
    trials: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[TuneKeywords],
) -> Tuned:
    """Search for faster schedules of a model's kernels, by measuring them on the device.

    Each trial is a program of the whole model in which many kernels have another schedule, each step of which
    is timed in turns with the same steps of the best program so far. Nothing is installed on the device.

    Args:
        model: its file.
        device: a device's name, a path to its YAML file, or the device.
        output: the file of tuned schedules; what it has is the start, and what was tried is not tried again.
        minutes: that it may take; default 10, where no number of trials is given.
        trials: programs with candidates that it may measure.
        progress: as for :func:`edgepack.pack`; a round is a stage.
        options: as for :func:`edgepack.check`; and ``runner``: where programs run, as for ``Bundle.bench``
            (``ssh:user@board``, ``adb``), default this machine or what the device says (microcontrollers'
            instructions are counted under qemu); ``run_timeout``: seconds for each run of a program.

    Raises:
        ConfigError: no such model, device or option, or an emulator, whose times say nothing.
        CheckFailedError: the model's program does not compute what it should to begin with.
        ModelError, ToolchainError, InternalError: as for :func:`edgepack.pack`, and from the runner.
        KeyboardInterrupt: what was found so far is in the file.
    """
    check_options({"model": model, "device": device, **options}, "tune")
    if not isinstance(model, str | os.PathLike):
        raise ConfigError(
            "tune takes a model's file, no model in memory.", hint="Save it, and give its path."
        )
    check_model_file(source := Path(model))
    if (minutes is not None and minutes <= 0) or (trials is not None and trials < 1):
        raise ConfigError("A search needs some time, or trials.", hint="Give --minutes 10, or --trials 20.")
    profile = load_device(device) if not isinstance(device, Device) else device
    profile = with_ram_budget(profile, options.get("ram_budget"))
    if options.get("tuned"):
        raise ConfigError(
            "A search starts from what its own file has, not from --tuned.",
            hint="Merge the files into it first: edgepack tune --merge FILE --merge FILE -o FILE.",
        )
    limit = DEFAULT_MINUTES if minutes is None and trials is None else minutes
    path = Path(output)
    known = read_tuned(path) if path.exists() else TunedFile()
    where = RunOptions(runner=options.get("runner"), timeout=options.get("run_timeout"), device=profile)
    of_pack: Any = {name: value for name, value in options.items() if name in CheckKeywords.__annotations__}
    with temporary_folder() as folder:
        programs = Programs(source, profile, PackOptions(**of_pack), where, Path(folder))
        programs.beside = known.for_cpus(programs.target.tuned_kinds[1:])
        return Search(programs, path, known, Stages(undisturbed(progress)), limit, trials).found()


class Search:
    """A search for one model on one device; without ``by_model`` the nearest candidates are measured first,
    not the best by prediction."""

    def __init__(
        self,
        programs: Programs,
        path: Path,
        known: TunedFile,
        stages: Stages,
        minutes: float | None,
        trials: int | None,
        *,
        by_model: bool = True,
    ) -> None:
        self.programs, self.path, self.known, self.stages = programs, path, known, stages
        self.end = None if minutes is None else time.monotonic() + 60 * minutes
        self.most = trials
        self.trials = self.failed = self.disturbed = self.rounds_done = 0
        self.longest = self.looking = 0.0
        self.part = LOOKING
        self.moved = 0
        self.ranking = Ranking(by_model=by_model)
        self.gone: EdgepackError | None = None
        self.new: set[str] = set()

    def found(self) -> Tuned:
        self.stages("tune", "the program to begin with")
        self.rules = self.programs.packed(())
        if not self.programs.is_right(self.rules):
            raise CheckFailedError(
                "The model's program does not compute what it should to begin with.",
                hint="`edgepack pack` and `edgepack verify` say more.",
            )
        first = self.programs.settle(self.rules)
        self.counted = first.instructions is not None
        self.where = first.where + (f", {first.backend}" if self.programs.gpu else "")
        self.rounds = Rounds.resumed(
            self.known, self.programs.target.tuned_kinds[0], __version__, counted=self.counted
        )
        self.best = self.rules
        if self.rounds.best:
            self.best = self.programs.packed(self.rounds.choices())
            if not self.programs.is_right(self.best):
                self.best, self.rounds.best = self.rules, {}
        groups: Sequence[Group] = self._groups()
        self.shares = self._shares(groups, first)
        while self._more():
            if self.new and self.rounds_done - self.moved >= MOVES:
                groups = self._nearer(groups)
            picks = self._picks(groups)
            if not picks and (self.new or self.programs.cut_short):
                groups = self._nearer(groups)
                picks = self._picks(groups)
            if not picks:
                break
            self._round(groups, picks)
        return self._whole()

    def _groups(self, wanted: Collection[str] = ()) -> list[Group]:
        """The groups of the best program, with candidates."""
        started = time.monotonic()
        seconds = None if self.end is None else self.part * max(0.0, self.end - started)
        self.part = min(MOST_LOOKING, 2 * self.part)
        found = self.programs.groups(self.best, wanted, seconds)
        self.looking = max(self.looking, time.monotonic() - started)
        return found

    def _picks(self, groups: Sequence[Group]) -> dict[str, Candidate]:
        """What the next round measures: for each group that is worth it one of its candidates."""
        self.ranking.fit(groups, self.rounds.gains)
        return self.ranking.picks(groups, self.shares, self.rounds.tried)

    def _nearer(self, groups: Sequence[Group]) -> Sequence[Group]:
        """The groups, those that were made faster with the neighbours of what they are now, if there is
        time."""
        wanted, self.new = self.new, set()
        if self.end is not None and time.monotonic() + self.looking + 1.5 * self.longest >= self.end:
            return groups
        before, self.moved = {group.key: group for group in groups}, self.rounds_done
        return [one if one.candidates else before.get(one.key, one) for one in self._groups(wanted)]

    def _shares(self, groups: Sequence[Group], first: Measurement) -> dict[str, float]:
        """What part of a run each group takes."""
        alone = compared((self.rules, [first]), (self.rules, [first]))
        return {group.key: alone.share(group.nodes) for group in groups}

    def _more(self) -> bool:
        """Whether there is room for another round, and for the comparison at the end."""
        if self.most is not None and self.trials >= self.most:
            return False
        return self.end is None or time.monotonic() + 1.5 * self.longest < self.end

    # A round -----------------------------------------------------------------------------------------------

    def _round(self, groups: Sequence[Group], picks: Mapping[str, Candidate]) -> None:
        """Builds a program with a candidate for each of some groups, and measures it; where it is wrong or
        does not run, its halves."""
        started = time.monotonic()
        self.rounds_done += 1
        self.trials += 1
        name = f"round {self.rounds_done}"
        self.stages(name, f"{len(picks)} candidates")
        program = comparison = None
        try:
            program = self.programs.packed(self.rounds.choices(picks))
            if self.programs.is_right(program):
                comparison = self._compared(self.best, program)
        except EdgepackError:
            self._check_device()
        if program is not None:
            self.programs.discard(program)
        if comparison is None:
            self._halves(groups, picks)
            return
        before = dict(self.rounds.best)
        won = self.rounds.measured(groups, picks, comparison)
        if won:
            won = self._confirmed(groups, won, before)
            self.new |= won.keys()
        self._save()
        self.stages(name, f"{len(won)} of {len(picks)} candidates are faster")
        self.longest = max(self.longest, time.monotonic() - started)

    def _confirmed(
        self, groups: Sequence[Group], won: dict[str, float], before: Mapping[str, TunedChoice]
    ) -> dict[str, float]:
        """Those of the groups that are faster once more, in a program with all of them: of many that are
        measured some seem so by chance. The others get back what they had ``before``."""
        program = self.programs.packed(self.rounds.choices())
        if not self.counted:
            try:
                again = self._compared(self.best, program)
            except EdgepackError:
                self._check_device()
                again = None
            lost = self.rounds.confirmed([group for group in groups if group.key in won], again, before)
            won = {key: speedup for key, speedup in won.items() if key not in lost}
            if lost:
                self.programs.discard(program)
                if not won:
                    return won
                program = self.programs.packed(self.rounds.choices())
        if self.best is not self.rules:
            self.programs.discard(self.best)
        self.best = program
        return won

    def _halves(self, groups: Sequence[Group], picks: Mapping[str, Candidate]) -> None:
        """Finds which candidates of a program that fails are to blame; the others are measured."""
        if len(picks) == 1:
            ((group, candidate),) = picks.items()
            self.rounds.failed(group, candidate)
            self.failed += 1
            self._save()
            return
        keys = sorted(picks)
        for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
            if not self._more():
                return
            self._round(groups, {key: picks[key] for key in half})

    def _check_device(self) -> None:
        """Raises the runner's error if the program that is right does not run either: not the candidates are
        to blame."""
        if self.gone:
            raise self.gone
        self._steady(self.best, runs=1)

    def _steady(self, program: Program, runs: int | None = None) -> Measurement:
        """A program that is known to run. A board that starts again is waited for; the runner's error where
        it does not come back."""
        for _ in range(ASKED_AGAIN):
            try:
                return self.programs.measured(program, runs=runs)
            except EdgepackError:
                time.sleep(PAUSE)
        try:
            return self.programs.measured(program, runs=runs)
        except EdgepackError as error:
            self.gone = error
            raise

    def _compared(self, before: Program, after: Program) -> Comparison:
        """Both measured in turns: A B B A. Again, once, where the device was disturbed."""
        for again in (False, True):
            a = [self._steady(before)]
            b = [self.programs.measured(after)]
            if not self.counted:
                b.append(self.programs.measured(after))
                a.append(self._steady(before))
            found = compared((before, a), (after, b))
            first, last = run_of(a[0]), run_of(a[-1])
            if again or self.counted or abs(first - last) <= DISTURBED * min(first, last):
                break
            self.disturbed += 1
        return found

    def _save(self) -> None:
        """What is known now, beside what the file has of other CPUs."""
        self._write(self.rounds.choices())

    def _write(self, choices: Sequence[Any]) -> None:
        cpu = self.rounds.cpu
        others = [choice for choice in self.known.choices if choice.cpu != cpu]
        tried = {**self.known.tried, self.rounds.measured_on: self.rounds.tried}
        write_tuned(self.path, merge_tuned([TunedFile((*others, *choices), tried)]))

    # The whole network -------------------------------------------------------------------------------------

    def _whole(self) -> Tuned:
        """The network with and without the schedules that were found, which are kept if it is faster."""
        self.stages("tune", "the whole network with and without")
        choices = self.rounds.choices()
        right = not choices or self.programs.is_right(self.best)
        a: list[float] = []
        b: list[float] = []
        for turn in range(1 if self.counted else TURNS):
            sides = [(self.rules, a), (self.best, b)]
            for program, taken in sides if turn % 2 == 0 else reversed(sides):
                taken.append(run_of(self._steady(program)))
        ratios = [x / y for x, y in zip(a, b, strict=True)]
        speedup, before = median(ratios), median(a)
        noise = 0.0 if self.counted else (max(a) - min(a)) / before
        kept = bool(choices) and right and speedup > (1.0 if self.counted else 1 + LEAST_WHOLE)
        self._write(choices if kept else self.known.for_cpus([self.rounds.cpu]))
        gains = tuple((c.group, c.gain) for c in choices if kept and c.group in self.shares)
        return Tuned(
            self.path,
            gains,
            self.trials,
            self.failed,
            self.disturbed,
            noise,
            before,
            (median(b) if self.counted else before / speedup) if kept else before,
            "instructions" if self.counted else "ms",
            kept,
            self.where,
        )
