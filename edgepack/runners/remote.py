"""What runners on other machines share: what is there already of a bundle, and how its program is run so that
nothing is left running when the connection ends.

The files stay on the device, in a folder of this bundle, so that the next run copies only what has changed
(by SHA-256); those of a bundle in a temporary folder here are removed with it (``left_behind.py``). All that
the device needs is a POSIX shell; without ``sha256sum`` all files are copied anew.
"""

from __future__ import annotations

import os
import re
import shlex
import uuid
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from math import ceil
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from edgepack.errors import EdgepackWarning, ToolchainError
from edgepack.runners.base import DeviceLike, arch_of
from edgepack.runners.job import FOLDERS, Folder, Job
from edgepack.runners.left_behind import Left, forget, left_at, note
from edgepack.system.process import Completed
from edgepack.system.temporary import before_removal

__all__ = ["Link", "NotWrittenError", "ask", "run_there"]

#: Least number of seconds for copying, whatever a run may take: a large model over a slow line.
_COPY_SECONDS = 600.0

#: For a question, and for what is there already: SHA-256 of a large model on a slow device.
_ASK_SECONDS = 60.0

#: Seconds after a program's time is up here in which it should have been ended there.
_LATER = 15.0

#: Seconds between two looks there at whether it is over.
_LOOKS = 2

#: Characters of an answer to a question, a login's greeting included: more is garbage.
_LONGEST_ANSWER = 1 << 20

#: Exit codes of a shell that found a program but could not start it, or did not find it.
_NOT_STARTED = (126, 127)

#: Folders that a warning names, and characters of why.
_NAMED, _SHOWN = 5, 200

_ANOTHER = "Name another one in the device's file: `runner: {options: {directory: ...}}`."


class NotWrittenError(ToolchainError):
    """A device did not take all files.

    Args:
        name: the device.
        files: what was to be written.
        done: what was to write them.
    """

    def __init__(self, name: str, folder: Folder, files: Mapping[str, Path], done: Completed) -> None:
        size = sum(path.stat().st_size for path in files.values())
        super().__init__(
            f"The bundle could not be written to {folder.path} on {name}.",
            detail=done.printed,
            hint=f"It takes {size / 1e6:.1f} MB there: make room, or name another folder in the device's "
            "file: `runner: {options: {directory: ...}}`.",
        )


class Link(Protocol):
    """A way to a device."""

    #: The device as messages name it (``pi@board``), and what tells it from all others.
    name: str
    place: str

    def again(self) -> AbstractContextManager[Link]:
        """The same way, when this one may have ended."""
        ...

    def shell(
        self, script: str, *, timeout: float, stdin: int | IO[bytes] | None = None, what: str = "shell"
    ) -> Completed:
        """Let the device's shell run a script.

        Args:
            what: what is run, for messages.
            stdin: what it reads; default nothing.

        Raises:
            ToolchainError: there is no connection, it broke, or the time is up.
        """
        ...

    def copy(self, files: Mapping[str, Path], folder: Folder, *, timeout: float) -> None:
        """Write files to a folder of the device: path in it -> file of this machine.

        Raises:
            NotWrittenError: not all of them could be written; with what the device said.
            ToolchainError: there is no connection, it broke, or the time is up.
        """
        ...


def run_there(link: Link, job: Job, *, timeout: float) -> Completed:
    """Copy what is not there yet of a bundle, and run its program for at most ``timeout`` seconds.

    Raises:
        ToolchainError: the connection failed, the device has no room, it cannot start the program, or the
            time is up. The program is ended then.
    """
    _tidy(link, job.folder, left_at(link.place, job.folder.parent))
    _note_if_temporary(link, job)
    machine, sums = _look(link, job.folder)
    changed = {name: path for name, path in job.files.items() if sums.get(name) != job.sums[name]}
    if changed:
        try:
            link.copy(changed, job.folder, timeout=max(timeout, _COPY_SECONDS))
        except NotWrittenError:
            _clear(link, job.folder, changed)
            raise
    done = _run(link, job, timeout)
    if done.returncode in _NOT_STARTED:
        raise ToolchainError(
            f"{link.name} cannot start {job.program} (exit code {done.returncode}).",
            detail=done.printed,
            hint=_why_not_started(job.device, machine, done),
        )
    return done


def _note_if_temporary(link: Link, job: Job) -> None:
    """What a bundle in a temporary folder has on a device is removed with that folder."""
    place, parent = link.place, job.folder.parent

    def leave(root: Path) -> None:
        if left := left_at(place, parent, root.resolve()):
            try:
                with link.again() as again:
                    _tidy(again, job.folder, left)
            except ToolchainError as error:
                _warn_of(link.name, left, error.message)

    if root := before_removal(job.bundle, (place, parent), leave):
        with suppress(OSError):  # a full disk here is no reason not to run there
            note(Left(place, parent, job.folder.name, str(job.bundle), str(root)))


def _tidy(link: Link, like: Folder, left: Sequence[Left]) -> None:
    """Remove what is left of other bundles beside a folder. ToolchainError as for :func:`ask`."""
    if not left:
        return
    removals = (replace(like, parent=one.parent, name=one.name).removed() for one in left)
    _, failed, done = ask(
        link, f"c=0; {'; '.join(f'{one} || c=1' for one in removals)}", timeout=_ASK_SECONDS
    )
    if failed == "0":
        forget(left)
    else:
        _warn_of(link.name, left, done.stderr.strip())


def _warn_of(name: str, left: Sequence[Left], why: str) -> None:
    folders = ", ".join(f"{one.parent}/{one.name}" for one in left[:_NAMED])
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    text = f"{name} keeps {folders}{more}, which the next run there removes: {why[:_SHOWN]}"
    warnings.warn(text, EdgepackWarning, stacklevel=2)


def ask(link: Link, script: str, *, timeout: float) -> tuple[str, str, Completed]:
    """Let the device's shell run a script that answers something short.

    Args:
        script: it leaves a word in the variable ``c``.

    Returns:
        what it printed, the word, and all that the device said.

    Raises:
        ToolchainError: there is no connection, the time is up, or this is no answer of a shell.
    """
    begin, end = _marker(), _marker()
    done = link.shell(f"echo {begin}; {script}; echo; echo {end}$c", timeout=timeout)
    answer = _between(done.stdout, begin, end) if len(done.stdout) <= _LONGEST_ANSWER else None
    if answer is None:
        raise ToolchainError(
            f"{link.name} does not answer as a POSIX shell does.",
            detail=done.printed,
            hint="The login must give a shell that can start `sh`, and greet with less than 1 MiB.",
        )
    return (*answer, done)


def _look(link: Link, folder: Folder) -> tuple[str, dict[str, str]]:
    """The device's ``uname -m``, and what is in the folder: path -> SHA-256. The folder is made."""
    what = " ".join(f"{name}/*" for name in FOLDERS)
    alone = "chmod 700 . 2>/dev/null; " if folder.guarded else ""
    answer = f"{alone}uname -m; sha256sum {what} 2>/dev/null"
    script = f"c=unmade; {folder.made()} && c=strange && {folder.checked()} && c=ours && {{ {answer}; }}"
    said, found, done = ask(link, script, timeout=_ASK_SECONDS)
    if found == "strange":
        raise _not_ours(link.name, folder, done)
    if found != "ours":
        raise ToolchainError(
            f"The folder {folder.path} cannot be made on {link.name}.", detail=done.printed, hint=_ANOTHER
        )
    machine, *lines = said.splitlines() or [""]
    sums = (re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line) for line in lines)
    return machine if re.fullmatch(r"[\w.-]{1,40}", machine) else "", {m[2]: m[1] for m in sums if m}


def _not_ours(name: str, folder: Folder, done: Completed) -> ToolchainError:
    return ToolchainError(
        f"The folder {folder.path} on {name} belongs to somebody else, or is a link: it is not used.",
        detail=done.printed,
        hint=f"Remove it. {_ANOTHER}",
    )


def _clear(link: Link, folder: Folder, names: Collection[str]) -> None:
    """Remove what was written of files of which not all were, and the folder if nothing else is in it."""
    files = list(map(PurePosixPath, names))
    folders = {parent for file in files for parent in file.parents if parent.name}
    inner = sorted(folders, key=lambda path: len(path.parts), reverse=True)
    removal = f"rm -f {_joined(files)}; rmdir {_joined(inner)}; cd .. && rmdir ./{folder.name}"
    with suppress(ToolchainError):
        ask(link, f"{folder.entered()} && {{ {removal}; }} 2>/dev/null; c=0", timeout=_ASK_SECONDS)


def _joined(paths: Sequence[PurePosixPath]) -> str:
    return shlex.join(f"./{path}" for path in paths)


def _script(job: Job, seconds: int) -> str:
    """Runs the command in the folder, and ends it when stdin does (on a time-out, an interrupt, a broken
    connection), or after so many seconds: a line that is cut tells the device nothing. Leaves its exit code
    in ``c``."""
    values = " ".join(f"{name}={shlex.quote(value)}" for name, value in job.environment.items())
    call = f"{values} {shlex.join(job.command)}".strip()
    return (
        f"c=strange; {job.folder.entered()} && {{ chmod +x {shlex.quote(job.command[0])} 2>/dev/null; "
        f"exec 3<&0; {call} </dev/null 3<&- & p=$!; "
        "(cat <&3 >/dev/null; kill -9 $p) >/dev/null 2>&1 & w=$!; exec 3<&-; "
        # In short sleeps: one that is left when this shell is told to end is over soon.
        f"(n={seconds}; while [ $n -gt 0 ] && kill -0 $p; do "
        f"sleep {_LOOKS} || exit; n=$((n - {_LOOKS})); done; kill -9 $p) >/dev/null 2>&1 & t=$!; "
        "wait $p; c=$?; kill $w $t 2>/dev/null; }"
    )


def _run(link: Link, job: Job, timeout: float) -> Completed:
    # The exit code is printed: not every connection hands it on, and none tells its own failure from one of
    # the program.
    begin, end = _marker(), _marker()
    reading, writing = os.pipe()
    try:
        script = f"echo {begin}; {_script(job, ceil(timeout + _LATER))}; echo; echo {end}$c"
        done = link.shell(script, timeout=timeout, stdin=reading, what="program")
    finally:
        os.close(writing)
        os.close(reading)
    printed, code = _between(done.stdout, begin, end) or ("", "")
    if code == "strange":
        raise _not_ours(link.name, job.folder, done)
    if not re.fullmatch("[0-9]{1,3}", code):
        raise ToolchainError(
            f"The connection to {link.name} broke while {job.program} ran.",
            detail=done.printed,
            hint="Is the device still on, and in the network? It has not run out of memory?",
        )
    number = int(code)
    return Completed(128 - number if number > 128 else number, printed, done.stderr)


def _marker() -> str:
    """A word that nothing else prints: what stands before it comes from the login (a greeting in .bashrc)."""
    return f"edgepack-{uuid.uuid4().hex}:"


def _between(printed: str, begin: str, end: str) -> tuple[str, str] | None:
    """What was printed between two markers' lines, and the word behind the second; None without them."""
    _, found, behind = printed.rpartition(f"{begin}\n")
    text, ended, word = behind.rpartition(f"\n{end}")
    if not found or not ended:
        return None
    return text.strip("\n"), word.partition("\n")[0].strip()


def _why_not_started(device: DeviceLike, machine: str, done: Completed) -> str:
    if "ermission denied" in done.stderr:
        return (
            "Its folder may be on a file system that starts no programs (noexec): name another one in the "
            "device's file, `runner: {options: {directory: ...}}`."
        )
    if machine and arch_of(machine) != device.arch and (arch_of(machine), device.arch) != ("aarch64", "arm"):
        return f"Its machine is {machine} (`uname -m`), the bundle was packed for {device.arch}."
    libc = getattr(device, "libc", "")
    return (
        f"Its C library must be {libc or 'the one that the bundle was packed for'}, with the loader that "
        + ("`readelf -l` shows for the program; a static build (musl) needs neither.")
    )
