"""Lets a bundle's own program measure several of its variants in turns, so that what slows a device down for
a while slows all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgepack.bundle.manifest import Manifest
from edgepack.errors import CheckFailedError
from edgepack.options import RunOptions
from edgepack.runners.program import run_program, threads_arguments, understood

__all__ = ["HowMany", "Turns", "bench_in_turns"]


@dataclass(frozen=True)
class Turns:
    """One variant's times.

    Attributes:
        runs_ms: of each turn, the median of its runs in milliseconds.
        steps_us: of each turn, the median of each step in microseconds, in the order of its plan.
    """

    runs_ms: tuple[float, ...]
    steps_us: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class HowMany:
    """How long variants are measured.

    Attributes:
        turns: of each variant, at most.
        runs: that are measured of a variant in each of its turns.
        seconds: after which no turn begins, once each had seven.
    """

    turns: int
    runs: int
    seconds: int


def bench_in_turns(
    root: Path, manifest: Manifest, variants: Sequence[str], many: HowMany, options: RunOptions
) -> list[Turns]:
    """The times of variants, of the CPU all of them, in the order of ``variants``.

    In each turn each variant has a session of its own, of which the first runs are not measured, at one and
    the same place in memory.

    Args:
        root: the bundle's folder.
        variants: their names, at most 17.
        many: how long they are measured.

    Raises: as :func:`edgepack.runners.bench.bench`.
    """
    first, *others = variants
    beside = [word for name in others for word in ("--beside", name)]
    arguments: list[str | Path] = ["bench", Path("test"), *threads_arguments(options.threads), "--profile"]
    arguments += ["--turns", str(many.turns), "--seconds", str(many.seconds), "--runs", str(many.runs)]
    arguments += ["--warmup", "2", "--variant", first, *beside]
    _, result = run_program(root, manifest, arguments, options)
    with understood():
        found = {str(one["name"]): _turns(one) for one in result["variants"]}
    done = len(found.get(first, Turns((), ())).runs_ms)
    for name in variants:
        steps = len(manifest.code(name).steps)
        measured = found.get(name, Turns((), ()))
        if not 0 < done == len(measured.runs_ms) or [len(one) for one in measured.steps_us] != [steps] * done:
            raise CheckFailedError(f"The program did not measure the steps of {name} in turns.")
    return [found[name] for name in variants]


def _turns(one: Any) -> Turns:
    runs = tuple(float(value) for value in one["runs_ms"])
    return Turns(runs, tuple(tuple(float(value) for value in turn) for turn in one["steps_us"]))
