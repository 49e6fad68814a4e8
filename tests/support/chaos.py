"""Commands that are killed, interrupted, and robbed of their disk at random times, two at once into the same
places, and what must hold whatever came between. What is run is a :class:`Command`."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from edgepack.pipeline.cache_total import TOTAL
from edgepack.system.paths import cache_dir
from tests.support import fake

#: In the environment of each command, and so of all that it starts.
MARK = "EDGEPACK_CHAOS"

SIGNALS = {"kill -9": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "Ctrl-C": signal.SIGINT}
DISKS = ("full", "read-only")

_PROGRAM = Path(__file__).with_name("chaos_program.py")

#: Exit codes that may follow each harm. It may be over before; two with the same output may be in each
#: other's way (2).
CODES = {
    "kill -9": {0, 2, -signal.SIGKILL},
    "SIGTERM": {0, 2, 143},
    "Ctrl-C": {0, 2, 130},
    "full": {0, 2},
    "read-only": {0, 2},
    "none": {0, 2},
}


class Command(Protocol):
    """What is run again and again, with the same output."""

    #: Of the output.
    name: str
    #: Of the fake worker.
    mode: str
    #: Exit codes besides :data:`CODES` for what could not be written.
    codes: frozenset[int]
    #: What some of the runs get besides.
    options: Sequence[str]

    def arguments(self, output: Path, version: int) -> Sequence[str | Path]:
        """The command line; 0 and 1 are versions of what is made."""
        ...

    def check(self, output: Path) -> None:
        """Raise an exception unless what stands there is one of the versions, and whole."""
        ...


class Disk:
    """A small file system of its own, where this user may mount one; else a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.mounted = self._mount("-t", "tmpfs", "-o", "size=256m", "tmpfs", str(root))

    @staticmethod
    def _mount(*arguments: str) -> bool:
        with suppress(OSError):
            return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0
        return False

    def leave(self, nbytes: int) -> None:
        """Leave room for so many bytes."""
        status = os.statvfs(self.root)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        self._mount("-o", f"remount,size={used + nbytes}", str(self.root))

    def lock(self) -> bool:
        """Make it read-only; false where it is just being written to."""
        return self._mount("-o", "remount,ro", str(self.root))

    def restore(self) -> None:
        if self.mounted:
            self._mount("-o", "remount,rw,size=256m", str(self.root))

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.root)], check=False)


@dataclass
class Chaos:
    """One run of it.

    Attributes:
        command: what is run.
        disk: for output, cache and temporary files.
        token: marks the processes.
        harms: what is done to commands.
        seed: decides what is done, to which one, and after which part of its time. (What that meets is
            another thing on another machine.)
        seen: how often each harm ended in each exit code.
        broken: what did not hold, in sentences.
    """

    command: Command
    disk: Disk
    token: str
    harms: tuple[str, ...]
    seed: int
    seen: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    seconds: float = 1.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.round = 0
        for name in ("output", "cache", "temporary", "config"):
            (self.disk.root / name).mkdir(mode=0o700, exist_ok=True)

    @property
    def output(self) -> Path:
        return self.disk.root / "output" / self.command.name

    def start(self, *options: str) -> subprocess.Popen[str]:
        root = self.disk.root
        places = {"EDGEPACK_CACHE_DIR": "cache", "TMPDIR": "temporary", "XDG_CONFIG_HOME": "config"}
        environment = {name: str(root / of) for name, of in places.items()}
        version = self.random.randrange(2)
        for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
            environment[name] = str(cache_dir() / "zig")  # it takes long to fill
        return subprocess.Popen(
            [
                sys.executable,
                str(_PROGRAM),
                self.command.mode,
                *map(str, self.command.arguments(self.output, version)),
                *options,
            ],
            env=fake.env(**{MARK: self.token}, **environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
            preexec_fn=_default_signals,  # noqa: PLW1509 (it does no more than that)
        )

    def good_run(self) -> None:
        """One that is left alone: afterwards nothing of the others is there any more."""
        self.disk.restore()
        since = time.monotonic()
        process = self.start()
        err = self.wait(process)
        self.seconds = time.monotonic() - since
        self.expect(process.returncode == 0, f"a command that was left alone failed: {err}")
        self.check_output()
        root = self.disk.root
        self.expect(_names(root / "output") == [self.command.name], f"left: {_names(root / 'output')}")
        hidden = [path.name for path in (root / "output").rglob(".*")]
        self.expect(not hidden, f"left in the output: {hidden}")
        self.expect(_names(root / "temporary") == [], f"left: {_names(root / 'temporary')}")
        results = [name for path in (root / "cache").glob("results-*") for name in _names(path)]
        hidden = [name for name in results if name.startswith(".") and name != TOTAL]
        self.expect(not hidden, f"left in the cache: {hidden}")

    def pair(self) -> int:
        """Two commands at once, each harmed in its way; how many they were."""
        self.round += 1
        plans = [(self.random.choice(self.harms), self.random.random()) for _ in range(2)]
        options = self.command.options if self.random.random() < 0.3 else ()
        room = int(2 ** self.random.uniform(12, 20))
        since = time.monotonic()
        with self.watched():
            return self._pair(plans, options, room, since)

    def _pair(
        self, plans: Sequence[tuple[str, float]], options: Sequence[str], room: int, since: float
    ) -> int:
        processes = [self.start(*options) for _ in plans]
        for number, (harm, moment) in sorted(enumerate(plans), key=lambda plan: plan[1][1]):
            process = processes[number]
            until = since + moment * self.seconds * 1.6
            while time.monotonic() < until and process.poll() is None:
                time.sleep(0.002)
            self.harm(harm, process, room)
        for process, (harm, _) in zip(processes, plans, strict=True):
            err = self.wait(process)
            # Of two harms to the disk each meets both.
            harms = {harm, *(other for other, _ in plans if other in DISKS)}
            allowed = set().union(*(CODES[one] for one in harms))
            allowed |= self.command.codes if harms & {*DISKS} else set()
            self.seen[f"{harm}: {process.returncode}"] += 1
            self.expect(process.returncode in allowed, f"{plans} ended with {process.returncode}: {err}")
            self.expect("Traceback" not in err, f"{plans} ended with a traceback: {err}")
            if process.returncode == 2:
                self.seen[_gist(err)] += 1
        self.check_processes()
        self.disk.restore()
        self.check_output()
        return len(processes)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """What stood at the output is there, or the new one, at each moment: looked for all the time."""
        stop, missing, looks = threading.Event(), 0, 0

        def look() -> None:
            nonlocal missing, looks
            while not stop.is_set():
                looks += 1
                missing += not os.path.lexists(self.output)
                time.sleep(0.0002)

        watcher = threading.Thread(target=look)
        if os.path.lexists(self.output):
            watcher.start()
        try:
            yield
        finally:
            stop.set()
            if watcher.ident is not None:
                watcher.join()
        self.expect(missing == 0, f"at {missing} of {looks} looks there was no output")

    def harm(self, harm: str, process: subprocess.Popen[str], room: int) -> None:
        if harm == "full":
            self.disk.leave(room)
        elif harm == "read-only":
            while not self.disk.lock() and process.poll() is None:
                time.sleep(0.002)
        elif harm in SIGNALS:
            if harm != "kill -9" and process.stdout is not None:
                process.stdout.readline()  # Python itself has started
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGNALS[harm])

    def wait(self, process: subprocess.Popen[str]) -> str:
        try:
            return process.communicate(timeout=300)[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.expect(False, "a command did not end in five minutes")
            return process.communicate()[1]

    def check_output(self) -> None:
        """Whatever is at the destination is whole."""
        if os.path.lexists(self.output):
            try:
                self.command.check(self.output)
            except Exception as error:
                self.expect(False, f"a broken output: {type(error).__name__}: {error}")

    def check_processes(self) -> None:
        """Nothing runs any more of what the commands started."""
        until = time.monotonic() + 60
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        self.expect(not left, f"still running: {left}")

    def processes(self) -> list[str]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"{MARK}={self.token}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.broken.append(f"round {self.round}: {otherwise}")


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _gist(err: str) -> str:
    """The error's sentence without what is another one in each run."""
    line = next((line for line in err.splitlines() if "error:" in line), err[-200:])
    return line.split("error:")[-1].strip()[:160]


def _default_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # in the background of a shell it is ignored


@contextmanager
def chaos(command: Command, folder: Path, *, seed: int, disks: bool) -> Iterator[Chaos]:
    """A run; what is mounted is unmounted after it."""
    disk = Disk(folder / "disk")
    try:
        harms = (*SIGNALS, "none", *(DISKS if disks and disk.mounted else ()))
        yield Chaos(command, disk, f"{os.getpid()}-{seed}-{time.time_ns()}", harms, seed)
    finally:
        disk.close()
