"""Limits on this process's memory, so that a model that takes too much is an error of Python's, and neither
the end of the process nor that of others on the machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["at_most", "check_room", "limit_to_available", "ran_out"]

#: Memory that libraries ask for and never touch, in bytes.
_UNTOUCHED = 1 << 30


def limit_to_available() -> None:
    """From now on the process gets no more memory than is free at this moment (on Linux), and cannot get the
    right to more."""
    free = _available()
    if free is not None:
        _limit(_taken() + free + _UNTOUCHED, for_good=True)


def check_room(nbytes: int) -> None:
    """Raises MemoryError if this process cannot have so many bytes more (on Linux): libraries end the process
    where they find that out by themselves."""
    rooms = [_available()]
    if sys.platform == "linux":
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
        rooms.append(None if soft == resource.RLIM_INFINITY else soft - _taken())
    if any(room is not None and nbytes > room for room in rooms):
        raise MemoryError(f"{nbytes} bytes")


def ran_out(error: BaseException) -> bool:
    """Whether an error says that there is no more memory: Python's and NumPy's are MemoryErrors, that of
    TVM, which is C++, is called ``std::bad_alloc`` in an error of its own."""
    return isinstance(error, MemoryError) or "std::bad_alloc" in str(error)


@contextmanager
def at_most(nbytes: int) -> Iterator[None]:
    """What runs within gets a MemoryError where it would take more than ``nbytes`` (on Linux)."""
    if sys.platform != "linux":
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    _limit(_taken() + nbytes)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _limit(nbytes: int, *, for_good: bool = False) -> None:
    """Lowers the soft limit of the process's data; ``for_good``: the hard one too."""
    if sys.platform == "linux":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if soft == resource.RLIM_INFINITY or nbytes < soft:
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_DATA, (nbytes, nbytes if for_good else hard))


def _taken() -> int:
    """Bytes of data that the process has."""
    return _kilobytes(Path("/proc/self/status"), "VmData") or 0


def _available() -> int | None:
    """Bytes that the system, or this process's control group, has left; None where it does not say."""
    system = Path("/proc/meminfo")
    free = _kilobytes(system, "MemAvailable")
    if free is None:
        return None
    free += _kilobytes(system, "SwapFree") or 0
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):
        most, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        free = min(free, max(0, most - used) + _group_cache(group))
    return free


def _group_cache(group: Path) -> int:
    """Bytes of files that the control group has in memory, which it gives up when it needs them."""
    for line in (group / "memory.stat").read_text().splitlines():
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0


def _kilobytes(file: Path, key: str) -> int | None:
    """A line ``key: 123 kB`` of a file in /proc, in bytes."""
    with suppress(OSError, ValueError):
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return None
