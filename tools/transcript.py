#!/usr/bin/env python3
"""Write what `make demo` prints into README.md, and draw it as a terminal: ``tools/transcript.py``.

    tools/transcript.py                      # runs make demo, with an empty cache
    tools/transcript.py --printed FILE       # takes what it printed, both streams, from a file
    make test && tools/transcript.py --tested      # adds this machine to the table of those that were tested

Lines of progress are left out, and so is what comes after the last command; all else is as it was printed.
With the transcript stands the newest commit of the kernels that it was made with, by which
tests/test_transcript.py knows its age.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools import on_cpu, terminal, this_cpu
from tools.svg import IMAGES, THEMES

__all__ = [
    "README",
    "Step",
    "kernels_of",
    "merged",
    "newer_commits",
    "read",
    "steps_of",
    "text_of",
    "written",
]

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
#: What decides on speed and memory.
KERNELS = ("edgepack/compiler/kernels", "edgepack/compiler/planner")

_PROGRESS = re.compile(r"\[ *\d+\.\d s\] ")
_PROGRAMS = ".venv/bin/"


@dataclass(frozen=True)
class Step:
    """A command, without the folder of its program, and the lines that it printed."""

    command: str
    lines: tuple[str, ...]


def steps_of(printed: str) -> list[Step]:
    """The commands of what `make demo` printed."""
    found: list[tuple[str, list[str]]] = []
    for line in printed.splitlines():
        if line.startswith(_PROGRAMS):
            found.append((line.removeprefix(_PROGRAMS), []))
        elif line.startswith("What next:"):
            break
        elif found and not _PROGRESS.match(line) and not re.match(r"make(\[\d+\])?: ", line):
            found[-1][1].append(line.rstrip())
    return [Step(command, tuple("\n".join(lines).strip("\n").split("\n"))) for command, lines in found]


def text_of(steps: Sequence[Step]) -> str:
    """The steps as an indented block."""
    blocks = ["\n".join([f"$ {step.command}", *step.lines]) for step in steps]
    lines = "\n\n".join(blocks).split("\n")
    return "\n".join(f"    {line}".rstrip() for line in lines)


def read(page: str) -> list[Step]:
    """The steps of a page's transcript."""
    block = _part(page, "transcript")
    lines = [line[4:] for line in block.splitlines() if not line.strip() or line.startswith("    ")]
    texts = re.split(r"^\$ ", "\n".join(lines), flags=re.MULTILINE)[1:]
    return [
        Step(command, tuple(lines)) for command, *lines in (text.strip("\n").split("\n") for text in texts)
    ]


def kernels_of(page: str) -> str:
    """The commit of the kernels that a page's transcript was made with."""
    (commit,) = re.findall(r"<!-- kernels: (\w+) -->", _part(page, "transcript"))
    return str(commit)


def written(page: str, steps: Sequence[Step], commit: str, where: str) -> str:
    """The page with another transcript, and on which machine and when it was made."""
    text = f"<!-- kernels: {commit} -->\n\n{text_of(steps)}\n\n{where}"
    return _with_part(page, "transcript", text)


def merged(page: str, cpu: str, instructions: str, how: str) -> str:
    """The page with a row for a CPU on which the tests passed, in the place of the one before.

    Args:
        how: how they were run, a comma, and when. Of a CPU that another one stands in for, this says which.
    """
    lines = _part(page, "tested-on").splitlines()
    row = f"| {cpu} | {instructions} | {how} |"
    way = f"| {how.partition(',')[0]}"
    mine = way if "on_cpu" in way else f"| {cpu} | {instructions} {way}"
    places = [i for i, line in enumerate(lines) if mine in line]
    if places:
        lines[places[0]] = row
    else:
        lines.append(row)
    return _with_part(page, "tested-on", "\n".join(lines))


def newer_commits(commit: str) -> int | None:
    """How many commits have changed the kernels since; None where there is no history, or not all of it."""
    if _git("rev-parse", "--is-shallow-repository") != "false":
        return None
    counted = _git("rev-list", "--count", f"{commit}..HEAD", "--", *KERNELS)
    if counted is None:
        raise ValueError(
            f"The transcript names commit {commit}, which is not there: run tools/transcript.py."
        )
    return int(counted)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], check=False, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name}: written by [^>]* -->\n\n)(.*?)(\n\n<!-- {name}: end -->)", re.DOTALL)


def _part(page: str, name: str) -> str:
    found = _pattern(name).search(page)
    if found is None:
        raise ValueError(f"There are no marks of a part {name}.")
    return found[2]


def _with_part(page: str, name: str, text: str) -> str:
    _part(page, name)
    return _pattern(name).sub(lambda found: f"{found[1]}{text}{found[3]}", page)


def _demo() -> str:
    """What `make demo` prints where nothing was packed before."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "EDGEPACK_CACHE_DIR": cache}
        command = ["make", "--no-print-directory", "demo"]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, check=False, cwd=ROOT, env=environment, text=True, **streams)
    if done.returncode != 0:
        sys.exit(f"make demo failed:\n{done.stdout}")
    return done.stdout


def _this_machine() -> tuple[str, str, str]:
    """Its row: name, instructions, how the tests were run and when."""
    name, way = this_cpu.name(), "as it is"
    if shown := os.environ.get(on_cpu.SHOWN):
        name, way = f"{name}, as {shown}", f"`tools/on_cpu.py {shown} -- make test`"
    return name, this_cpu.instructions(), f"{way}, {this_cpu.today()}"


def draw(steps: Sequence[Step]) -> None:
    """The pictures of the terminal."""
    for name, theme in THEMES.items():
        drawn = terminal.draw([(step.command, step.lines) for step in steps], theme)
        (IMAGES / f"terminal-{name}.svg").write_text(drawn, encoding="utf-8", newline="\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--printed", type=Path, metavar="FILE", help="what make demo printed, both streams")
    parser.add_argument(
        "--draw", action="store_true", help="draw the terminal only, of README.md's transcript"
    )
    parser.add_argument(
        "--tested", action="store_true", help="add this machine, on which make test has passed, and no more"
    )
    given = parser.parse_args()
    page = README.read_text(encoding="utf-8")
    if given.tested:
        page = merged(page, *_this_machine())
    elif not given.draw:
        steps = steps_of(given.printed.read_text(encoding="utf-8") if given.printed else _demo())
        commit = _git("log", "-1", "--format=%h", "--", *KERNELS)
        if not commit or not steps:
            sys.exit("There is no history of the kernels here." if steps else "make demo printed no command.")
        cpu = f"{this_cpu.name()} ({this_cpu.instructions()})"
        where = f"On {os.cpu_count()} CPUs of {cpu}, {this_cpu.today()}."
        page = written(page, steps, commit, where)
    README.write_text(page, encoding="utf-8", newline="\n")
    if not given.tested:
        draw(read(page))


if __name__ == "__main__":
    main()
