"""What a process tries that somebody else has taken over: ``python confined.py VERSION SECRET OWN READABLE``.

Confined with at most that version of Landlock's interface (0: not at all), it tries each of :data:`ATTEMPTS`
and prints as JSON what became of them: "" for what worked, else the error's name.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from edgepack.system.confinement import Access, confine

SECRET, OWN, READABLE = (Path(argument) for argument in sys.argv[2:5])
LIBC = ctypes.CDLL(None, use_errno=True)


def _called(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), "call")


def _signal_to_parent() -> None:
    os.kill(os.getppid(), 0)


def _in_a_thread() -> None:
    errors: list[Exception] = []

    def read() -> None:
        try:
            SECRET.read_text()
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def _read_parents_memory() -> None:
    """What only this user's processes may read of each other."""
    Path(f"/proc/{os.getppid()}/environ").read_bytes()


def _truncated_for_reading() -> None:
    os.close(os.open(SECRET, os.O_RDONLY | os.O_TRUNC))


def _renamed() -> None:
    SECRET.rename(OWN / "mine")


def _linked() -> None:
    os.link(SECRET, OWN / "link")


def _ring() -> None:
    _called(LIBC.syscall(425, 4, mmap.mmap(-1, 4096).read(120)))


def _limits_of_others() -> None:
    import resource

    resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)


#: What must not work.
ATTEMPTS: dict[str, Callable[[], object]] = {
    "read a file": SECRET.read_text,
    "read a file in a thread": _in_a_thread,
    "list a folder": lambda: list(SECRET.parent.iterdir()),
    "write a file": lambda: SECRET.write_text("mine"),
    "make a file": lambda: (SECRET.parent / "new").touch(exist_ok=False),
    "truncate a file": lambda: os.truncate(SECRET, 0),
    "truncate a file by reading it": _truncated_for_reading,
    "remove a file": SECRET.unlink,
    "take a file": _renamed,
    "link to a file": _linked,
    "change a mode": lambda: SECRET.chmod(0o777),
    "change a time": lambda: os.utime(SECRET, (0, 0)),
    "write what it may read": lambda: READABLE.write_text("mine"),
    "change the mode of what it may read": lambda: READABLE.chmod(0o777),
    "connect": lambda: socket.create_connection(("127.0.0.1", 9), timeout=1),
    "make a socket": lambda: socket.socket(socket.AF_UNIX),
    "send a datagram": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"", ("127.0.0.1", 9)),
    "start a program": lambda: subprocess.run(["true"], check=True),
    "fork": lambda: os.fork() or os._exit(0),
    "leave its group": os.setsid,
    "signal its parent": _signal_to_parent,
    "read its parent's environment": _read_parents_memory,
    "trace its parent": lambda: _called(LIBC.ptrace(0x4206, os.getppid(), 0, 0)),
    "see its parent's limits": _limits_of_others,
    "see other processes": lambda: list(Path("/proc").iterdir()),
    "outlive its parent": lambda: _called(LIBC.prctl(1, 0, 0, 0, 0)),
    "make a namespace": lambda: _called(LIBC.unshare(0x10000000)),
    "use io_uring": _ring,
    "share memory by name": lambda: _called(LIBC.shmget(0, 4096, 0o1600)),
    "make a pipe in a folder": lambda: os.mkfifo(OWN / "pipe"),
}

#: What must.
ALLOWED: dict[str, Callable[[], object]] = {
    "read its file": READABLE.read_text,
    "write in its folder": lambda: (OWN / "file").write_text("mine"),
    "rename in its folder": lambda: (OWN / "file").rename(OWN / "other"),
    "remove from its folder": (OWN / "other").unlink,
    "link in its folder": lambda: (OWN / "leads out").symlink_to(SECRET),
    "make a thread": lambda: threading.Thread(target=time.sleep, args=(0,)).start(),
    "signal itself": lambda: signal.raise_signal(signal.SIGCONT),
    "read its status": lambda: Path("/proc/self/status").read_text(),
    "open null": lambda: Path(os.devnull).write_text(""),
    "import a module": lambda: __import__("sqlite3"),
}


def _tried(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except Exception as error:
        return type(error).__name__
    return ""


if __name__ == "__main__":
    version = int(sys.argv[1])
    access = Access(reads=(READABLE,))
    missing = confine(access, own=OWN, version=version) if version else ""
    found = {name: _tried(attempt) for name, attempt in {**ALLOWED, **ATTEMPTS}.items()}
    print(json.dumps({"missing": missing, **found}))
