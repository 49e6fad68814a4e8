"""A search for faster schedules on one device: which candidates each round measures, what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import median

from edgepack.commands.tune_device import OnDevice, run_of
from edgepack.commands.tune_programs import Choices
from edgepack.commands.tune_ranking import WORTH_TRYING, Ranking
from edgepack.commands.tune_results import Tuned, TuneLayer, TuneRound
from edgepack.commands.tune_rounds import Candidate, Comparison, Group, Rounds, Speedup
from edgepack.config.tuned import TunedFile, merge_tuned, read_tuned, write_tuned
from edgepack.errors import ConfigError
from edgepack.plan.tuned import PAIR, TunedChoice
from edgepack.system.progress import Stages
from edgepack.version import __version__

__all__ = ["FIRST", "WIDEST", "Bounds", "Search"]

#: A whole run has to be faster by this part and by so many standard errors at least, and where it is not sure
#: it is compared so many times more.
LEAST_WHOLE, SURE_WHOLE, MORE_TURNS = 0.003, 2.0, 4

#: Rounds after which groups that were made faster get the neighbours of what they are now: of one version
#: each, and of several.
MOVES, WIDE_MOVES = 3, 2

#: Candidates of a group in a round at most: what was measured is to say what is measured next.
WIDEST, FIRST = 6, 3

#: The part of the time left that the first look for candidates takes; each further one takes twice as much.
LOOKING, MOST_LOOKING = 0.1, 0.4


@dataclass(frozen=True)
class Bounds:
    """How long a search may take.

    Attributes:
        minutes: all in all; None for any.
        trials: versions with candidates that it may measure; None for any.
    """

    minutes: float | None = None
    trials: int | None = None


class Search:
    """A search for one model on one device; without ``by_model`` the nearest candidates are measured first,
    not the best by prediction.

    Attributes:
        trials: versions with candidates that were measured, and ``failed`` candidates that do not run, or
            compute something else.
    """

    def __init__(
        self,
        device: OnDevice,
        path: Path,
        known: TunedFile,
        bounds: Bounds,
        stages: Stages,
        *,
        by_model: bool = True,
        on_round: Callable[[TuneRound], None] | None = None,
    ) -> None:
        self.device, self.path, self.known, self.stages = device, path, known, stages
        self.end = None if bounds.minutes is None else time.monotonic() + 60 * bounds.minutes
        self.most = bounds.trials
        self.on_round = on_round or (lambda _: None)
        self.trials = self.failed = self.rounds_done = self.moved = 0
        self.looking = self.of_wave = 0.0
        self.part = LOOKING
        self.ranking = Ranking(by_model=by_model)
        self.won: dict[str, tuple[float, Candidate]] = {}
        self.suspects: list[dict[str, Candidate]] = []
        self.new: set[str] = set()
        self.groups_written: set[str] = set()
        #: Kernels for two groups that were faster than the two, which are tuned first.
        self.waiting: dict[str, tuple[float, Candidate]] = {}

    def found(self) -> Tuned:
        self.stages("tune", "the program to begin with")
        first = self.device.settle()
        self.rounds = Rounds.resumed(
            self.known, self.device.programs.target.tuned_kinds[0], __version__, counted=self.device.counted
        )
        if self.rounds.best and self.device.compared((), [self.rounds.choices()]) == [None]:
            self.rounds.best = {}
        groups: Sequence[Group] = self._groups()
        self.shares, self.before = self.device.share(groups, first), run_of(first)
        while self._room() > 0:
            if self.new and self.rounds_done - self.moved >= (WIDE_MOVES if self._widest() > 1 else MOVES):
                groups = self._nearer(groups, self.new)
            versions = self._versions(groups)
            if not versions:
                self.won, self.waiting = {**self.won, **self.waiting}, {}
            if not versions and not self.won:
                groups = self._nearer(groups, ())
                versions = self._versions(groups)
                if not versions:
                    break
            self._round(groups, versions)
        self.won = {**self.won, **self.waiting}
        while self.won:  # again for those that share steps with others
            self._round(groups, ())
            if self.end is not None and time.monotonic() + 2 * self.of_wave > self.end:
                break
        return self._whole()

    def _groups(self, wanted: Collection[str] = ()) -> list[Group]:
        """The groups of the best version, with candidates that were not tried."""
        started = time.monotonic()
        seconds = None if self.end is None else self.part * max(0.0, self.end - started)
        self.part = min(MOST_LOOKING, 2 * self.part)
        programs, tried = self.device.programs, self.rounds.tried
        found = programs.groups(self.rounds.choices(), sorted(wanted), tried, seconds)
        self.looking = max(self.looking, time.monotonic() - started)
        return found

    def _nearer(self, groups: Sequence[Group], wanted: Collection[str]) -> Sequence[Group]:
        """The groups, those that are wanted with candidates near to what they are now, if there is time."""
        self.moved = self.rounds_done
        if self.end is not None and time.monotonic() + self.looking + 3 * self.of_wave >= self.end:
            self.new = set()
            return groups
        before = {group.key: group for group in groups}
        found = [one if one.candidates else before.get(one.key, one) for one in self._groups(wanted)]
        self._share_parts(found)
        self.new = set()
        return found

    def _share_parts(self, groups: Sequence[Group]) -> None:
        """Two groups that one kernel computed, when the shares were measured, have half of its share each."""
        pairs = [(key.split(PAIR), share) for key, share in self.shares.items()]
        parts = {part: share / 2 for both, share in pairs if len(both) > 1 for part in both}
        for one in groups:
            if one.key in parts:
                self.shares.setdefault(one.key, parts[one.key])

    def _widest(self) -> int:
        """How many versions with candidates a round may have, whatever it takes."""
        return min(WIDEST if self.of_wave else FIRST, max(1, self.device.programs.most_versions - 2))

    def _room(self) -> int:
        """How many the next round may have: there is to be time for it, for another one that confirms what it
        finds, and for the comparison at the end."""
        most = self._widest()
        if self.most is not None:
            most = min(most, self.most - self.trials)
        if self.end is not None:
            waves = (self.end - time.monotonic()) / (self.of_wave or 1.0) - 2
            # Beside the candidates there are the incumbent and what the round confirms.
            most = min(most, int(waves) * self.device.programs.workers - 2)
        return most

    # A round -----------------------------------------------------------------------------------------------

    def _versions(self, groups: Sequence[Group]) -> list[dict[str, Candidate]]:
        """What the next round measures: versions, in which groups that are worth it have a candidate each; of
        a version that was wrong or did not run each half."""
        room = max(1, self._room())
        found, self.suspects = self.suspects[:room], self.suspects[room:]
        self.ranking.fit(groups, self.rounds.gains)
        tried = {key: dict(ratios) for key, ratios in self.rounds.tried.items()}
        for version in (*found, *self.suspects):
            for key, candidate in version.items():
                tried.setdefault(key, {})[candidate.digest] = 1.0
        while len(found) < room and (picks := self.ranking.picks(groups, self.shares, tried)):
            for key, candidate in picks.items():
                tried.setdefault(key, {})[candidate.digest] = 1.0
            found.append(picks)
        return found

    def _round(self, groups: Sequence[Group], versions: Sequence[dict[str, Candidate]]) -> None:
        """Measures versions with candidates beside the incumbent, and once more the winners of the last
        round: of many that are measured some seem faster by chance."""
        started = time.monotonic()
        self.rounds_done += 1
        self.trials += len(versions)
        name = f"round {self.rounds_done}"
        count = sum(map(len, versions))
        self.stages(name, f"{count} candidates")
        later = self._postponed(groups)
        confirming = [{key: candidate for key, (_, candidate) in self.won.items()}] if self.won else []
        others = [self.rounds.choices(version) for version in (*versions, *confirming)]
        found = self.device.compared(self.rounds.choices(), others)
        faster: dict[str, tuple[float, Candidate]] = {}
        for version, comparison in zip(versions, found, strict=False):
            if comparison is None:
                self._suspect(version)
                continue
            for key, speedup in self.rounds.measured(groups, version, comparison).items():
                if speedup.ratio > faster.get(key, (0.0,))[0]:
                    faster[key] = speedup.ratio, version[key]
        confirmed = self._confirmed(groups, found[-1]) if confirming else {}
        self.won = later
        self._win(groups, faster, confirmed)
        self._save()
        errors = [one.whole.error for one in found if one is not None]
        self._report(groups, count, len(faster), len(confirmed), median(errors) if errors else 0.0)
        waves = ceil((1 + len(others)) / self.device.programs.workers)
        self.of_wave = max(self.of_wave, (time.monotonic() - started) / waves)

    def _postponed(self, groups: Sequence[Group]) -> dict[str, tuple[float, Candidate]]:
        """Takes winners of the last round away that share steps with what saves more, a decision between
        kernels or all that its kernels won: they are measured once more in the next round."""
        saved = {key: self.shares.get(key, 0.0) * (1 - 1 / ratio) for key, (ratio, _) in self.won.items()}
        winners = sorted((one for one in groups if one.key in saved), key=lambda one: -saved[one.key])
        later: set[str] = set()
        for group in (one for one in winners if one.between and one.key not in later):
            rivals = [one for one in winners if one is not group and one.shares_steps(group)]
            kernels = {one.key for one in rivals if not one.between} - later
            if saved[group.key] >= sum(saved[key] for key in kernels):
                later |= {one.key for one in rivals}
            else:
                later.add(group.key)
        return {key: self.won.pop(key) for key in later}

    def _confirmed(self, groups: Sequence[Group], comparison: Comparison | None) -> dict[str, float]:
        """The winners of the last round that are faster once more become incumbents: by how much they are, by
        group, which is the smaller of the two."""
        found = {}
        for group in groups if comparison is not None else ():
            if (winner := self.won.get(group.key)) is None:
                continue
            ratio, candidate = winner
            assert comparison is not None
            again = comparison.speedup(group.nodes)
            if self.rounds.is_faster(again):
                found[group.key] = min(ratio, again.ratio)
                self._take(group.key, candidate, found[group.key])
        return found

    def _take(self, key: str, candidate: Candidate, ratio: float) -> None:
        """A candidate becomes the incumbent."""
        self.rounds.take(key, candidate, ratio)
        self.new.add(key)

    def _win(
        self,
        groups: Sequence[Group],
        faster: Mapping[str, tuple[float, Candidate]],
        confirmed: Mapping[str, float],
    ) -> None:
        """The fastest candidates of a round are measured once more, where they are faster than what was
        confirmed meanwhile, kernels for two groups when these were tuned; what was counted is exact."""
        by_key = {group.key: group for group in groups}
        for key, (ratio, candidate) in faster.items():
            if self.device.counted:
                self._take(key, candidate, ratio)
            elif ratio > confirmed.get(key, 1.0):
                for_two = by_key[key].between and any(one.is_part_of(by_key[key]) for one in groups)
                waits = self.waiting if for_two else self.won
                winner = ratio / confirmed.get(key, 1.0), candidate
                waits[key] = max(winner, waits.get(key, winner), key=lambda one: one[0])

    def _report(
        self, groups: Sequence[Group], candidates: int, faster: int, confirmed: int, error: float
    ) -> None:
        """Tells of the round that was."""
        layers = [
            TuneLayer(
                group.key,
                group.title,
                self.shares[group.key],
                self.rounds.gain(group.key),
                len(self.rounds.tried.get(group.key, {})),
            )
            for group in groups
            if self.shares.get(group.key, 0.0) >= WORTH_TRYING
            and (not group.between or group.key in self.rounds.best)
        ]
        saved = sum(share * (1 - 1 / self.rounds.gain(key)) for key, share in self.shares.items())
        self.on_round(
            TuneRound(
                number=self.rounds_done,
                candidates=candidates,
                faster=faster,
                confirmed=confirmed,
                trials=self.trials,
                failed=self.failed,
                speedup=1 / (1 - saved),
                error=error,
                seconds_left=None if self.end is None else max(0.0, self.end - time.monotonic()),
                layers=tuple(sorted(layers, key=lambda one: -one.share)),
            )
        )

    def _suspect(self, version: dict[str, Candidate]) -> None:
        """Of a version that is wrong or does not run each half is measured in a later round; one candidate
        alone is to blame."""
        if len(version) == 1:
            ((group, candidate),) = version.items()
            self.rounds.failed(group, candidate)
            self.failed += 1
            return
        keys = sorted(version)
        for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
            self.suspects.append({key: version[key] for key in half})

    def _save(self) -> None:
        """What is known now, beside what the file has of other CPUs."""
        self._write(self.rounds.choices())

    def _write(self, choices: Sequence[TunedChoice]) -> None:
        """Write the choices for this kind of CPU beside all else that the file has: another search may have
        written into it meanwhile."""
        there, cpu = self._there(), self.rounds.cpu
        self.groups_written |= {choice.group for choice in (*choices, *self.known.for_cpus([cpu]))}
        others = [one for one in there.choices if one.cpu != cpu or one.group not in self.groups_written]
        tried = {
            group: dict(ratios) for group, ratios in there.tried.get(self.rounds.measured_on, {}).items()
        }
        for group, ratios in self.rounds.tried.items():
            tried.setdefault(group, {}).update(ratios)
        file = TunedFile((*others, *choices), {**there.tried, self.rounds.measured_on: tried})
        write_tuned(self.path, merge_tuned([file]))

    def _there(self) -> TunedFile:
        """What the file has now; what it had at first where it is not there, or no such file any more."""
        try:
            return read_tuned(self.path) if self.path.exists() else self.known
        except ConfigError:
            return self.known

    # The whole network -------------------------------------------------------------------------------------

    def _compared_whole(self, choices: Choices) -> Comparison | None:
        """The rules' own version and the best one. What seems faster, and is not sure yet, is measured
        longer."""
        (found,) = self.device.compared((), [choices])
        for _ in range(MORE_TURNS):
            if found is None or found.whole.ratio <= 1 + LEAST_WHOLE or self._is_faster(found.whole):
                break
            if self.end is not None and time.monotonic() > self.end:
                break
            (again,) = self.device.compared((), [choices])
            found = found.and_again(again) if again is not None else None
        return found

    def _is_faster(self, whole: Speedup) -> bool:
        """Whether a run is: its layers are, twice, so that less is asked of the whole."""
        if self.device.counted:
            return whole.ratio > 1
        return whole.ratio > 1 + LEAST_WHOLE and whole.ratio - SURE_WHOLE * whole.error > 1

    def _whole(self) -> Tuned:
        """The network with and without the schedules that were found, which are kept if it is faster."""
        self.stages("tune", "the whole network with and without")
        choices = self.rounds.choices()
        found = self._compared_whole(choices) if choices else None
        whole = found.whole if found is not None else Speedup(1.0)
        kept = self._is_faster(whole)
        self._write(choices if kept else self.known.for_cpus([self.rounds.cpu]))
        gains = tuple((c.group, c.gain) for c in choices if kept and c.group in self.shares)
        before = median(found.run_before) if found is not None else self.before
        return Tuned(
            path=self.path,
            choices=gains,
            trials=self.trials,
            failed=self.failed,
            disturbed=self.device.disturbed,
            noise=whole.error,
            before=before,
            after=before / whole.ratio if kept else before,
            unit="instructions" if self.device.counted else "ms",
            kept=kept,
            where=self.device.place,
        )
