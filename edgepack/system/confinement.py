"""Keeps this process to the files that it was given, for good: whoever takes it over, by a model that a
library reads wrongly, gets no others, no network, no program and no other process.

Linux's Landlock holds the files, seccomp the rest (``landlock.py``, ``seccomp.py``); neither needs root, and
both together take one to two milliseconds. Other systems have nothing like it that a process may ask for
itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgepack.errors import ConfigError
from edgepack.system import landlock, seccomp

__all__ = [
    "CONFINE_ENV",
    "GRANTED",
    "Access",
    "confine",
    "confine_as_granted",
    "confining",
    "what_is_missing",
]

#: Variable that says whether to: ``auto``, ``required`` or ``off``.
CONFINE_ENV = "EDGEPACK_CONFINE"
_MODES = ("auto", "required", "off")
#: File in the working folder of a process that is started to be confined: what it is granted.
GRANTED = "granted.json"

#: Files and folders of the system that libraries read: themselves, and how many processors and how much
#: memory there are.
_SYSTEM = (
    *("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems"),
    *("/proc/sys/vm/overcommit_memory", "/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm"),
    *("/dev/urandom", "/dev/random", "/dev/zero"),
)
_NULL = "/dev/null"

_CAPABILITIES_VERSION = 0x20080522
#: Root's way to files of other users stays (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH): Landlock holds it.
_KEPT_CAPABILITIES = 0b110


@dataclass(frozen=True)
class Access:
    """What a process may open; a folder stands for all that is below it.

    Attributes:
        reads: what it may read.
        writes: where it may write, make and remove.
    """

    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()

    def __or__(self, other: Access) -> Access:
        return Access(
            tuple(dict.fromkeys((*self.reads, *other.reads))),
            tuple(dict.fromkeys((*self.writes, *other.writes))),
        )

    def covers(self, other: Access) -> bool:
        """Whether a process with this access can open all of the other."""
        writable = all(_beneath(self.writes, path) for path in other.writes)
        return writable and all(_beneath((*self.reads, *self.writes), path) for path in other.reads)

    def to_json(self) -> dict[str, Any]:
        """Plain data, which ASCII holds."""
        return {"reads": list(map(str, self.reads)), "writes": list(map(str, self.writes))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Access:
        """Inverse of :meth:`to_json`."""
        return cls(tuple(map(Path, data["reads"])), tuple(map(Path, data["writes"])))


def _beneath(folders: Iterable[Path], path: Path) -> bool:
    return any(path == folder or folder in path.parents for folder in folders)


def what_is_missing() -> str:
    """Why processes cannot be confined here, as a part of a sentence; "" where they can."""
    if sys.platform != "linux":
        return "only Linux has what confines a process"
    if not seccomp.is_known():
        return "there is no filter of system calls for this architecture"
    if landlock.abi() == 0:
        return "the kernel has no Landlock, or it is switched off (Linux 5.13 or newer has it)"
    return ""


def confining() -> str:
    """What the user says of it: ``auto``, where it can be done; ``required``, else nothing is read; ``off``.

    Raises:
        ConfigError: the variable says something else.
    """
    mode = os.environ.get(CONFINE_ENV, "") or "auto"
    if mode not in _MODES:
        raise ConfigError(
            f"{CONFINE_ENV} is {mode!r}, and says whether the process that reads models is confined.",
            hint="Set it to auto, required or off, or unset it.",
        )
    return mode


def confine_as_granted() -> str:
    """Confine this process as the file :data:`GRANTED` in its working folder says, which is its own. "" when
    that is done, else why it is not."""
    folder = Path.cwd()
    granted = json.loads((folder / GRANTED).read_text(encoding="utf-8"))
    if granted["confine"] == "off":
        return f"{CONFINE_ENV} is off"
    return confine(Access.from_json(granted), own=folder)


def confine(access: Access, *, own: Path, version: int = sys.maxsize) -> str:
    """Keep this process, which must have no other thread yet, to ``access`` and to what Python and its
    packages need. "" when that is done, else why it is not: without Landlock it still loses the network, and
    programs and processes.

    Args:
        own: a folder of this process alone, for temporary files.
        version: of Landlock's interface, at most.
    """
    missing = what_is_missing()
    if sys.platform != "linux" or not seccomp.is_known():
        return missing
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        return "the process has threads already"
    try:
        _give_up(access, own, min(version, landlock.abi()))
    except OSError as error:
        return f"the kernel refuses ({error.strerror or error})"
    return missing


def _give_up(access: Access, own: Path, version: int) -> None:
    """All of it, the files only where there is a version of Landlock's interface. Raises OSError."""
    import resource

    seccomp.no_new_privileges()
    if version:
        landlock.restrict(
            reads=[*_SYSTEM, *_of_python(), *access.reads],
            writes=[_NULL, *access.writes],
            own=[own],
            version=version,
        )
    _give_up_capabilities()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seccomp.filter_calls()


def _of_python() -> Iterator[str]:
    """Where Python, its packages and the libraries that these load lie."""
    yield from (sys.prefix, sys.base_prefix, sys.exec_prefix)
    yield from (path for path in sys.path if path and os.path.isabs(path))  # noqa: PTH117
    yield str(Path(__file__).parents[2])  # edgepack, its templates and devices
    for finder in sys.meta_path:  # packages that were installed in place
        places = getattr(sys.modules.get(type(finder).__module__), "MAPPING", None) or getattr(
            sys.modules.get(getattr(finder, "__module__", "")), "MAPPING", {}
        )
        if isinstance(places, dict):
            yield from (place for place in places.values() if isinstance(place, str))
    yield from (path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path)


def _give_up_capabilities() -> None:
    """What root may do beyond others; nothing for who is not root."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("Ii", _CAPABILITIES_VERSION, 0)
    data = struct.pack("6I", _KEPT_CAPABILITIES, _KEPT_CAPABILITIES, 0, 0, 0, 0)
    if libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset")
