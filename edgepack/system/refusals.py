"""What the system refuses a process, in a sentence: files, descriptors, memory, threads, its working
folder."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator

from edgepack.errors import ConfigError

__all__ = ["exhausted", "lacked_memory", "refused_by_the_system", "said_by_a_program"]

#: What the system says of files where the user, and nobody's defect, is to blame.
_FILES = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.ENAMETOOLONG),
    errno.ENOTDIR,
}

#: How Python, C libraries, the dynamic linker and zig say that something has run out.
_DESCRIPTORS = re.compile(r"Too many open files|\b(Process|System)FdQuotaExceeded\b")
_MEMORY = re.compile(
    r"[Cc]annot allocate memory|failed to map segment|\bMemoryError\b|std::bad_alloc|Out of memory"
    r"|Memory allocation (still )?failed"
)
_THREADS = re.compile(r"can't start new thread|pthread_create failed|Resource temporarily unavailable")


def refused_by_the_system(error: BaseException) -> ConfigError | None:
    """The error for an exception that the system is to blame for; None for any other."""
    if (said := exhausted(error)) is not None:
        return said
    for one in _chain(error):
        if isinstance(one, FileNotFoundError) and "temporary directory" in str(one.strerror):  # tempfile's
            return ConfigError(
                "No folder for temporary files can be written to.",
                hint="Make room in the usual one, or name another by TMPDIR.",
                detail=str(one.strerror),
            )
        if isinstance(one, FileNotFoundError) and _is_nowhere():
            return ConfigError(
                "The current folder is not there any more.", hint="Change to another one (cd)."
            )
    if isinstance(error, OSError) and error.errno in _FILES:
        where = f"{error.filename}: " if error.filename is not None else ""
        return ConfigError(
            f"{where}{error.strerror}.", hint="Make room, or choose a folder that may be written to."
        )
    return None


def exhausted(error: BaseException) -> ConfigError | None:
    """The error where descriptors, memory or threads have run out, or that is why another exception was
    raised; None for any other."""
    for one in _chain(error):
        number = one.errno if isinstance(one, OSError) else None
        if number in (errno.EMFILE, errno.ENFILE) or _says(one, _DESCRIPTORS):
            return _descriptors()
        if isinstance(one, MemoryError) or number == errno.ENOMEM or _says(one, _MEMORY):
            return _memory()
        if number == errno.EAGAIN or _says(one, _THREADS):
            return _threads()
    return None


def said_by_a_program(output: str) -> ConfigError | None:
    """The error for a program that failed for want of descriptors, memory or threads; None where it says
    nothing of them."""
    for pattern, made in ((_DESCRIPTORS, _descriptors), (_MEMORY, _memory), (_THREADS, _threads)):
        if pattern.search(output):
            return made()
    return None


def lacked_memory(output: str) -> bool:
    """Whether a program that failed says that it got no memory."""
    return bool(_MEMORY.search(output))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, and those that it was raised by or meanwhile."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def _says(error: BaseException, pattern: re.Pattern[str]) -> bool:
    """Whether the text of an exception of the system's kind says so: a name in others' may be anything."""
    return isinstance(error, ImportError | OSError | RuntimeError) and bool(pattern.search(str(error)))


def _descriptors() -> ConfigError:
    most = _limit("RLIMIT_NOFILE")
    known = f": this process may open {most} (ulimit -n)" if most else ""
    return ConfigError(f"Too many files are open{known}.", hint="Allow more of them: ulimit -n 1024.")


def _memory() -> ConfigError:
    most = _limit("RLIMIT_AS") or _limit("RLIMIT_DATA")
    known = f": this process may have {most >> 20} MiB (ulimit -v)" if most else ""
    return ConfigError(f"There is too little memory{known}.", hint="Allow more of it, or end other programs.")


def _threads() -> ConfigError:
    if _limit("RLIMIT_AS"):  # a thread's stack is what there is no room for
        return _memory()
    most = _limit("RLIMIT_NPROC")
    known = f": this user may have {most} (ulimit -u)" if most else ""
    return ConfigError(
        f"No more processes or threads can be started{known}.",
        hint="Allow more of them, or end other programs.",
    )


def _limit(name: str) -> int:
    """A limit of this process; 0 where there is none."""
    try:
        import resource

        soft, _ = resource.getrlimit(getattr(resource, name))
    except (ImportError, AttributeError, OSError):
        return 0
    return 0 if soft == resource.RLIM_INFINITY else soft


def _is_nowhere() -> bool:
    try:
        os.getcwd()  # noqa: PTH109
    except OSError:
        return True
    return False
