"""Takes from this process, for good, the system calls that it does not need: Linux's seccomp.

What is refused is what reaches beyond this process and the files that it has opened: the network, other
processes and programs, the modes and owners of files (which Landlock leaves alone), mounts, the kernel's own
settings. A call that is not known here, of a kernel that came later, does not exist.

The filter is a program for the kernel's machine (https://docs.kernel.org/userspace-api/seccomp_filter.html),
the constants are those of ``linux/seccomp.h``, ``linux/filter.h`` and ``asm/unistd.h``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["filter_calls", "is_known", "no_new_privileges"]


class _Machine(NamedTuple):
    """An architecture.

    Attributes:
        audit: what the kernel calls it (``linux/audit.h``).
        column: of :data:`_REFUSED`.
        seccomp: number of the system call that takes the filter.
        last: the last call before those that have the same number everywhere.
    """

    audit: int
    column: int
    seccomp: int
    last: int


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 0, 317, 334),
    "aarch64": _Machine(0xC00000B7, 1, 277, 294),
    "arm64": _Machine(0xC00000B7, 1, 277, 294),
}

#: Numbers of system calls on x86-64 and on 64-bit ARM; None where there is no such call.
_REFUSED: dict[str, _Numbers] = {
    # the network
    "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "bind": (49, 200), "listen": (50, 201),
    "accept4": (288, 242),
    # programs
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None),
    # other processes, and the group by which this one is ended
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setattr": (314, 274),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "setsid": (112, 157),
    "setpgid": (109, 154),
    # modes, owners, times and attributes of files
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None), "fchown": (93, 55),
    "lchown": (94, None), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "utime": (132, None), "utimes": (235, None), "utimensat": (280, 88), "futimesat": (261, None),
    "mknod": (133, None), "mknodat": (259, 33), "truncate": (76, 45),
    # mounts, and files by other ways than their paths
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    "quotactl": (179, 60), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    # memory and queues that are shared by name
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197), "msgget": (68, 186),
    "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193),
    "semctl": (66, 191), "semtimedop": (220, 192), "mq_open": (240, 180), "mq_unlink": (241, 181),
    # the kernel: its keys, programs, modules, clocks, names, and what few need and many holes were in
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "syslog": (103, 116), "iopl": (172, None),
    "ioperm": (173, None), "modify_ldt": (154, None), "vhangup": (153, 58), "lookup_dcookie": (212, 18),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "settimeofday": (164, 170), "sethostname": (170, 161), "setdomainname": (171, 162),
    "personality": (135, 92),
}  # fmt: skip

#: Calls whose arguments decide.
_CLONE, _KILL, _TKILL, _TGKILL = (56, 220), (62, 129), (200, 130), (234, 131)
_PRLIMIT, _IOCTL, _PRCTL, _OPEN, _OPENAT = (302, 261), (16, 29), (157, 167), (2, None), (257, 56)

#: Of the calls that have the same number everywhere, from 424 on, those that exist: close_range, faccessat2,
#: epoll_pwait2, Landlock's three, futex_waitv, cachestat, map_shadow_stack, futex_wake, futex_wait,
#: futex_requeue, mseal. clone3 is none of them, whose flags no filter sees: the C library then calls clone.
_NEWER = (436, 439, 441, 444, 445, 446, 449, 451, 453, 454, 455, 456, 462)

_CLONE_THREAD = 0x00010000
#: ioctls that type into a terminal.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
#: From version 3 on Landlock keeps files from being truncated by who opens them for reading.
_TRUNCATES, _ACCESS_MODE = os.O_TRUNC, 3

_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
#: The numbers of x86-64's calls with pointers of 32 bits begin here.
_X32 = 0x40000000

_SET_FILTER = 1
#: For all threads; and without the brake on speculation that older kernels put on who has a filter.
_ALL_THREADS, _SPECULATE = 1, 4

_Line = tuple[int, int, int, int]
_Numbers = tuple[int | None, int | None]


def is_known() -> bool:
    """Whether there is a filter for this machine."""
    return platform.machine() in _MACHINES


def no_new_privileges() -> None:
    """No program that this process starts gets rights that it has not: what Landlock and filters ask for.

    Raises:
        OSError: the kernel refuses.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise _error()


def filter_calls() -> None:
    """Refuse the calls of :data:`_REFUSED` in this process, which has :func:`no_new_privileges`, from now on.

    Raises:
        OSError: the kernel refuses, or knows no filters.
    """
    machine = _MACHINES[platform.machine()]
    lines = list(_program(machine, os.getpid()))
    code = b"".join(struct.pack("HBBI", *line) for line in lines)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    number, operation, flags = (
        ctypes.c_long(n) for n in (machine.seccomp, _SET_FILTER, _ALL_THREADS | _SPECULATE)
    )
    if libc.syscall(number, operation, flags, program) != 0:
        raise _error()


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"seccomp: {os.strerror(number)}")


def _program(machine: _Machine, pid: int) -> Iterator[_Line]:
    """The filter; each line is (operation, how far to jump if true, if false, operand)."""
    refuse, absent = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    yield (_LOAD, 0, 0, _ARCHITECTURE)
    yield from ((_EQUAL, 1, 0, machine.audit), (_RETURN, 0, 0, _KILL_PROCESS))
    yield (_LOAD, 0, 0, _NUMBER)
    yield from ((_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, refuse))
    for numbers in _REFUSED.values():
        if (number := numbers[machine.column]) is not None:
            yield from ((_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse))
    for numbers, lines in _by_argument(pid, refuse):
        if (number := numbers[machine.column]) is not None:
            yield from ((_EQUAL, 0, len(lines), number), *lines)
    yield from ((_AT_LEAST, 1, 0, machine.last + 1), (_RETURN, 0, 0, _ALLOW))
    for number in _NEWER:
        yield from ((_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW))
    yield (_RETURN, 0, 0, absent)


def _by_argument(pid: int, refuse: int) -> Iterator[tuple[_Numbers, list[_Line]]]:
    """Calls, and what decides on them: lines that end the program."""
    allow, refused = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, refuse)
    threads = [_argument(0), (_ANY_BIT, 1, 0, _CLONE_THREAD), refused, allow]
    yield _CLONE, threads  # a thread is this process, all else another one
    for signal in (_KILL, _TKILL, _TGKILL):
        yield signal, [_argument(0), (_EQUAL, 1, 0, pid), refused, allow]
    yield _PRLIMIT, [_argument(0), (_EQUAL, 2, 0, 0), (_EQUAL, 1, 0, pid), refused, allow]
    yield _IOCTL, [_argument(1), (_EQUAL, 1, 0, _TIOCSTI), (_EQUAL, 0, 1, _TIOCLINUX), refused, allow]
    yield _PRCTL, [_argument(0), (_EQUAL, 0, 1, _PR_SET_PDEATHSIG), refused, allow]
    opens: tuple[tuple[_Numbers, int], ...] = ((_OPEN, 1), (_OPENAT, 2))
    for call, at in opens:
        masked = (_AND, 0, 0, _TRUNCATES | _ACCESS_MODE)
        yield call, [_argument(at), masked, (_EQUAL, 0, 1, _TRUNCATES), refused, allow]


def _argument(index: int) -> _Line:
    """Loads the lower half of an argument."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)
