"""Runs numbered cases in forked children, some tens in each, with bounded memory and time.

What a child prints of a case is what a command would have said, and one that dies of a case dies as the
command would have: exit code 5, unless somebody else's program ran the case's model (:func:`running`), or the
case ended itself by SIGALRM, for the time limit of commands: 3.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LIMITS", "Limits", "Outcome", "Run", "main_of", "run_forked", "running"]

#: The exit code of a case, and what there is to say of it.
Run = Callable[[int], tuple[int, str]]

_PER_CHILD = 40
#: In a child, the pipe to its parent.
_parent: list[int] = []


@dataclass(frozen=True)
class Limits:
    """What a case may take: bytes beyond what the process has at its start, and seconds."""

    nbytes: int = 2 << 30
    seconds: float = 30.0


LIMITS = Limits()


@dataclass(frozen=True)
class Outcome:
    """How a case ended: the command's exit code, and what there is to say of it in a line."""

    case: int
    code: int
    text: str
    seconds: float = 0.0


def running(name: str) -> None:
    """Says of the case that somebody else's program runs its model from now on; "" if none does any more."""
    for stream in _parent:
        os.write(stream, json.dumps({"running": name}).encode() + b"\n")


def run_forked(cases: Sequence[int], run: Run, limits: Limits = LIMITS) -> Iterator[Outcome]:
    """How each case ends, in order."""
    todo = list(cases)
    while todo:
        done = 0
        for outcome in _batch(todo[:_PER_CHILD], run, limits):
            done += 1
            yield outcome
        todo = todo[done:]


def main_of(run: Run, write_case: Callable[[int, Path], Path], limits: Limits = LIMITS) -> int:
    """The command line of a module that has cases: prints what ends otherwise than with exit code 0 or 3."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument(
        "--case", type=int, help="run this one alone, and leave its files in the working folder"
    )
    parser.add_argument("--words", action="store_true", help="print what is said of each case")
    given = parser.parse_args()
    if given.case is not None:
        write_case(given.case, Path())
        print(run(given.case))
        return 0
    codes: Counter[int] = Counter()
    slowest = Outcome(0, 0, "", 0.0)
    for outcome in run_forked(range(given.first, given.first + given.count), run, limits):
        codes[outcome.code] += 1
        slowest = max(slowest, outcome, key=lambda one: one.seconds)
        if outcome.code not in (0, 3) or given.words:
            print(f"case {outcome.case}: exit code {outcome.code}: {outcome.text}", flush=True)
        if sum(codes.values()) % 1000 == 0:
            print(f"{sum(codes.values())} cases: {dict(codes)}", flush=True)
    print(f"exit codes {dict(codes)}; the slowest, {slowest.case}, took {slowest.seconds:.1f} s")
    return 1 if set(codes) - {0, 3} else 0


def _child(cases: Sequence[int], run: Run, limits: Limits, stream: int) -> None:
    """Runs cases, and writes a line for each."""
    _parent.append(stream)
    resource.setrlimit(resource.RLIMIT_DATA, (limits.nbytes + _data_bytes(), resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if "FUZZ_NOISE" not in os.environ:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
    for case in cases:
        since = time.monotonic()
        try:
            code, text = run(case)
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = [f for f in frames if "edgepack" in f.filename][-1:] or frames[-1:]
            where = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in [*own, frames[-1]])
            code, text = 5, f"{type(error).__name__}: {str(error)[:200]} at {where}"
        line = json.dumps([case, code, text[:600], time.monotonic() - since])
        os.write(stream, line.encode("ascii", "replace") + b"\n")


def _data_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData"):
            return int(line.split()[1]) * 1024
    return 0


def _batch(cases: Sequence[int], run: Run, limits: Limits) -> Iterator[Outcome]:
    """How cases end in one child; the last one may have been its end."""
    sys.stdout.flush()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            _child(cases, run, limits, write)
        finally:
            os._exit(0)
    os.close(write)
    buffer, at, ready, blamed = b"", 0, [read], ""
    while at < len(cases):
        ready, _, _ = select.select([read], [], [], limits.seconds)
        data = os.read(read, 65536) if ready else b""
        if not ready:
            os.kill(child, signal.SIGKILL)
        if not data:
            break
        *lines, buffer = (buffer + data).split(b"\n")
        for said in map(json.loads, lines):
            if isinstance(said, dict):
                blamed = said["running"]
                continue
            yield Outcome(*said)
            at, blamed = at + 1, ""
    os.close(read)
    _, status = os.waitpid(child, 0)
    if at < len(cases):
        by = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"ended {status}"
        text = f"died: {by} {blamed}".rstrip() if ready else f"took more than {limits.seconds:g} s"
        yield Outcome(cases[at], 3 if by == "SIGALRM" or (ready and blamed) else 5, text)
