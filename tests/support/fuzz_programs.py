"""Feeds damaged ``.pt2`` files to the frontend for PyTorch: a case is a number, from which all follows.

``PYTHONPATH=build/torch python -m tests.support.fuzz_programs --first 0 --count 20000`` prints the cases that
end otherwise than with exit code 0 or 3; ``--case 4711`` runs one, and leaves its file in the working folder.
What the schema refuses takes milliseconds; where PyTorch is, it reads the others, and exports each eighth.

Cases run in forked children, some tens in each, which may take 3 GB and 120 s a case.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack.compiler.frontend.torch import frontend
from edgepack.compiler.frontend.torch.archive import check_archive, load_program
from edgepack.errors import EdgepackError
from tests.support.mutate_program import write_case

__all__ = ["Outcome", "run_cases"]

_BYTES, _SECONDS, _PER_CHILD = 3 << 30, 120.0, 50
#: Every so many cases a program that PyTorch reads is exported too.
_EXPORTED = 8


@dataclass(frozen=True)
class Outcome:
    """How a case ended: the exit code, and what there is to say of it in a line."""

    case: int
    code: int
    text: str
    seconds: float = 0.0


def _run(case: int, *, with_torch: bool) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_case(case, folder)
        try:
            if not with_torch:
                check_archive(model, folder / "copy.pt2")
            elif case % _EXPORTED:
                load_program(model, folder)
            else:
                frontend.summarise(model)
        except EdgepackError as error:
            return error.exit_code, error.message
    return 0, ""


def _child(cases: Sequence[int], stream: int, *, with_torch: bool) -> None:
    """Runs cases, and writes a line for each."""
    resource.setrlimit(resource.RLIMIT_DATA, (_BYTES + _data_bytes(), resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    null = os.open(os.devnull, os.O_WRONLY)
    if "FUZZ_NOISE" not in os.environ:
        os.dup2(null, 1)
        os.dup2(null, 2)
    for case in cases:
        since = time.monotonic()
        try:
            code, text = _run(case, with_torch=with_torch)
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


def run_cases(cases: Sequence[int], *, with_torch: bool = False) -> Iterator[Outcome]:
    """How each case ends, in order.

    Args:
        with_torch: what the schema lets through is read by PyTorch.
    """
    if with_torch:
        import torch._dynamo
        import torch.onnx  # noqa: F401 (a fork has them at once)
    todo = list(cases)
    while todo:
        done = 0
        for outcome in _batch(todo[:_PER_CHILD], with_torch=with_torch):
            done += 1
            yield outcome
        todo = todo[done:]


def _batch(cases: Sequence[int], *, with_torch: bool) -> Iterator[Outcome]:
    """How cases end in one child; the last one may have been its end."""
    sys.stdout.flush()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            _child(cases, write, with_torch=with_torch)
        finally:
            os._exit(0)
    os.close(write)
    buffer, at, ready = b"", 0, [read]
    while at < len(cases):
        ready, _, _ = select.select([read], [], [], _SECONDS)
        data = os.read(read, 65536) if ready else b""
        if not ready:
            os.kill(child, signal.SIGKILL)
        if not data:
            break
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            yield Outcome(*json.loads(line))
            at += 1
    os.close(read)
    _, status = os.waitpid(child, 0)
    if at < len(cases):
        died = f"died: {signal.Signals(status & 127).name}" if os.WIFSIGNALED(status) else f"ended {status}"
        yield Outcome(cases[at], 5, died if ready else f"took more than {_SECONDS:g} s")


def main() -> int:
    """Prints what ends otherwise than it should; how many there were of each exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument(
        "--case", type=int, help="run this one alone, and write its file into the working folder"
    )
    parser.add_argument("--words", action="store_true", help="print what is said of each case")
    given = parser.parse_args()
    with_torch = importlib.util.find_spec("torch") is not None
    if given.case is not None:
        write_case(given.case, Path())
        print(_run(given.case, with_torch=with_torch))
        return 0
    codes: Counter[int] = Counter()
    slowest = Outcome(0, 0, "", 0.0)
    for outcome in run_cases(range(given.first, given.first + given.count), with_torch=with_torch):
        codes[outcome.code] += 1
        slowest = max(slowest, outcome, key=lambda one: one.seconds)
        if outcome.code not in (0, 3):
            print(f"case {outcome.case}: exit code {outcome.code}: {outcome.text}", flush=True)
        if given.words:
            print(f"{outcome.case} {outcome.code} {outcome.seconds:.2f} {outcome.text}")
        if sum(codes.values()) % 1000 == 0:
            print(f"{sum(codes.values())} cases: {dict(codes)}", flush=True)
    print(f"exit codes {dict(codes)}; the slowest, {slowest.case}, took {slowest.seconds:.1f} s")
    return 1 if set(codes) - {0, 3} else 0


if __name__ == "__main__":
    sys.exit(main())
