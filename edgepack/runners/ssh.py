"""Runs a bundle on a device that has an ssh server, by this machine's OpenSSH client.

Where: ``--runner ssh:USER@HOST``, or in the file of ``--device``
``runner: {name: ssh, options: {host: USER@HOST, port: 22, directory: .cache/edgepack}}``. Keys, jump hosts
and aliases are those of the user's ssh configuration. Nothing is ever asked: without a key it fails.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from edgepack.errors import ConfigError, ToolchainError
from edgepack.runners.base import Availability, DeviceLike, setting
from edgepack.runners.job import Folder, options, parent_folder, prepare, variables
from edgepack.runners.remote import NotWrittenError, ask, run_there
from edgepack.system.disk_errors import writing_to
from edgepack.system.paths import find_program
from edgepack.system.process import Completed, execute, kill_group, start
from edgepack.system.temporary import temporary_folder

__all__ = ["PLACE", "REAL_SPEED", "available", "run"]

REAL_SPEED = True

#: What stands behind the colon of ``--runner ssh:``.
PLACE = "USER@HOST[:PORT]"

_OPTIONS = ("host", "port", "directory")

#: Where bundles are kept on the device; from the login's home folder.
_DIRECTORY = ".cache/edgepack"

#: Whether commands can share one connection; Windows' client cannot.
SHARED = os.name != "nt"

_CONNECT_SECONDS = 10

#: How often, within 5 s, the connection is asked to end before it is ended.
_ATTEMPTS = 20

_SETTINGS = {
    "BatchMode": "yes",
    "ConnectTimeout": str(_CONNECT_SECONDS),
    # A line that is dead for this long is given up.
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "LogLevel": "ERROR",
    "RequestTTY": "no",
    "RemoteCommand": "none",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    # Else the connection would go on in the background when all is done.
    "ControlPersist": "no",
}

#: How a place is written. ssh gives both names to the shell for what its configuration says (ProxyCommand,
#: Match exec): no character acts on a shell. Older versions than 9.6 do not look themselves.
_WRITTEN = re.compile(
    r"(?P<user>(?!-)[\w.+%\\-]*[\w.+%-]@)?"
    r"(?:\[(?P<address>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>(?!-)[\w.+%-]+))"
    r"(?::(?P<port>[0-9]+))?/?"
)
_LONGEST_PLACE = 300

#: Of files on the device, for tar warns of some: 2001.
_SOME_TIME = 10**9

#: Bytes of what ssh says, at its end, that an error shows.
_MOST_SAID = 1 << 12

#: Characters of what a device says that go into a sentence.
_SHOWN = 200

#: Paths that ssh takes as they are: in others it expands ``%``, ``${}`` and ``~``, and a space ends them.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]{1,60}")

#: What ssh says of why there is no connection, and what helps. {} is the host.
_HINTS = (
    (
        "HOST IDENTIFICATION HAS CHANGED",
        "Its key has changed. If you know why, remove the old one (ssh-keygen -R) and try: ssh {}",
    ),
    ("Host key verification failed", "Connect once by hand, and accept its key: ssh {}"),
    ("Permission denied", "edgepack asks for no password. Put your key on the device: ssh-copy-id {}"),
    ("Could not resolve", "Check the name, or give the device's address."),
    ("Connection refused", "The device answers, but no ssh server does: is it started, on this port?"),
    ("", "Is the device on, and in this network? Try: ssh {}"),
)


@dataclass(frozen=True)
class _Host:
    """Where to connect to."""

    host: str
    port: int | None
    directory: str

    def __str__(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"

    @property
    def typed(self) -> str:
        """The host as ssh and its tools want it on a command line."""
        host = shlex.quote(self.host)
        return host if self.port is None else f"-p {self.port} {host}"


def available(device: DeviceLike) -> Availability:
    """Whether the device can be logged in to, and what it is."""
    client = _client(device)
    if client is None:
        return Availability(False, "", "OpenSSH's client was not found: apt-get install openssh-client.")
    host = _host(device)
    if host is None:
        return Availability(
            False,
            client,
            f"It needs to know where: --runner ssh:{PLACE}, or --device with a file that has `host:`.",
        )
    variables(device)
    try:
        with _here(), _connected(client, host) as link:
            system, _, _ = ask(link, "uname -sm; c=0", timeout=_CONNECT_SECONDS)
    except ToolchainError as error:
        return Availability(False, client, " ".join(part for part in (error.message, error.hint) if part))
    return Availability(True, f"{host} ({system[:_SHOWN] or 'no uname'})", "")


def run(device: DeviceLike, argv: Sequence[str | Path], *, timeout: float, cwd: Path) -> Completed:
    """Copy the bundle ``cwd`` to the device, and run its program there.

    Raises:
        ConfigError: a name that cannot be used on a device; see :func:`edgepack.runners.job.prepare`.
        ToolchainError: no connection, or it broke; no room; the program cannot be started, or is not done in
            time. With what the device said.
    """
    client, host = _client(device), _host(device)
    if client is None or host is None:
        raise ToolchainError(f"ssh cannot run programs of {device.name}.", hint=available(device).hint)
    job = prepare(device, host.directory, argv, cwd, guarded=True)
    with _here(), _connected(client, host) as link:
        return run_there(link, job, timeout=timeout)


def _client(device: DeviceLike) -> str | None:
    named = setting(device, "program") if setting(device, "name") == "ssh" else None
    return find_program(str(named or "ssh"))


def _host(device: DeviceLike) -> _Host | None:
    """The place of the command line, or the profile's; None if neither names one."""
    chosen, place = options(device, "ssh", _OPTIONS), setting(device, "place")
    text = str(place or chosen.get("host") or "").removeprefix("//")
    if not text:
        return None
    match = _WRITTEN.fullmatch(text)
    if match is None or len(text) > _LONGEST_PLACE or not _is_port(match["port"]):
        raise ConfigError(
            f"{text[:80]!r} is no place for ssh.",
            hint=f"Write {PLACE}; an IPv6 address in [ ]. ssh's configuration can give a host another name.",
        )
    port = match["port"] or (None if place else chosen.get("port"))
    if not _is_port(port):
        raise ConfigError(f"{device.name}: {str(port)[:80]!r} is no port for ssh.", hint="Write 1 to 65535.")
    host = (match["user"] or "") + (match["address"] or match["host"])
    directory = parent_folder(device, str(chosen.get("directory") or _DIRECTORY))
    return _Host(host, int(port) if port else None, directory)


def _is_port(port: object) -> bool:
    """Whether it is a port's number, or none is named."""
    return port is None or (
        re.fullmatch("[0-9]{1,5}", str(port)) is not None and 0 < int(str(port)) < 1 << 16
    )


class _Link:
    """ssh to one host; see :class:`edgepack.runners.remote.Link`."""

    def __init__(self, client: str, host: _Host, control: Path | None) -> None:
        self.name = str(host)
        self.place = f"ssh {host}"
        self.host = host
        self.client = client
        self.control = control

    def again(self) -> contextlib.AbstractContextManager[_Link]:
        return _connected(self.client, self.host)

    def command(self, *more: str, master: bool = False) -> list[str]:
        """ssh with its options, to the host; ``more`` is what is to be run there."""
        settings = {**_SETTINGS, "ControlMaster": "yes" if master else "no"}
        settings["ControlPath"] = str(self.control or "none")
        options = [f"-o{name}={value}" for name, value in settings.items()]
        port = [] if self.host.port is None else ["-p", str(self.host.port)]
        return [self.client, *options, *port, *(["-N"] if master else []), "--", self.host.host, *more]

    def shell(
        self, script: str, *, timeout: float, stdin: int | IO[bytes] | None = None, what: str = "shell"
    ) -> Completed:
        done = execute(
            self.command(_by_sh(script)),
            timeout=timeout,
            cwd=Path.cwd(),
            env={"LC_ALL": "C"},
            what=f"The {what} on {self.name}",
            stdin=stdin,
        )
        if done.returncode == 255:  # ssh itself failed
            raise self.failure(done.stderr, done)
        return done

    def failure(self, said: str, done: Completed | None = None) -> ToolchainError:
        """The error for what ssh said."""
        hint = next(hint for text, hint in _HINTS if text in said)
        last = said.strip().rpartition("\n")[2].strip()[:_SHOWN].rstrip(".")
        what = "broke" if done and done.stdout else "failed"
        return ToolchainError(
            f"The connection to {self.name} {what}" + (f": {last}." if last else "."),
            detail=done.printed if done else said.strip(),
            hint=hint.format(self.host.typed),
        )

    def copy(self, files: Mapping[str, Path], folder: Folder, *, timeout: float) -> None:
        with tempfile.TemporaryFile() as stream:
            # GNU's format has names of any length, and what needs none of that is as in the others.
            with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
                for name, path in files.items():
                    tar.add(path, name, recursive=False, filter=_plain)
            stream.seek(0)
            # Where nothing can be written, tar speaks of files that are there already.
            script = f"{folder.entered()} && {{ [ -w . ] || echo It is read-only. >&2; }} && tar -xf -"
            done = self.shell(script, timeout=timeout, stdin=stream)
        if done.returncode != 0:
            raise NotWrittenError(self.name, folder, files, done)


def _by_sh(script: str) -> str:
    """The command for a login, whatever its shell is, that lets ``sh`` run a script.

    csh knows ``!`` in quotes and ends them at a line's end, fish knows backslashes in them: such characters
    are spelled as the octal numbers of ``printf``.
    """
    data = os.fsencode(script)
    spelled = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b"\\'!" else f"\\0{byte:03o}" for byte in data
    )
    if "\\" not in spelled:
        return f"exec sh -c '{script}'"
    return f"""exec sh -c 'eval "$(printf %b "$0")"' '{spelled}'"""


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The archive's entry without an owner and a time of this machine, with a mode that any umask allows."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755
    entry.mtime = _SOME_TIME
    return entry


def _here() -> contextlib.AbstractContextManager[None]:
    return writing_to({"temporary folder": Path(tempfile.gettempdir())})


@contextlib.contextmanager
def _connected(client: str, host: _Host) -> Iterator[_Link]:
    """A link whose commands share one connection where the client can do that."""
    if not SHARED:
        yield _Link(client, host, None)
        return
    # A socket's path has about 100 characters, of which ssh takes 17 for itself.
    short = None if _PLAIN_PATH.fullmatch(tempfile.gettempdir()) else Path("/tmp")
    with temporary_folder(short) as folder:
        link = _Link(client, host, Path(folder, "s"))
        with tempfile.TemporaryFile() as said:
            environment = {**os.environ, "LC_ALL": "C"}
            master = start(link.command(master=True), env=environment, stdout=said, stderr=said)
            try:
                _wait(master, link, said)
                yield link
            finally:
                _close(master)


def _close(master: subprocess.Popen[bytes]) -> None:
    """End the connection, and with it what still runs there."""
    for _ in range(_ATTEMPTS):
        # ssh sees a signal that comes just before it waits for the next event no sooner than that.
        master.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            master.wait(timeout=5 / _ATTEMPTS)
            return
    kill_group(master)
    master.wait()


def _wait(master: subprocess.Popen[bytes], link: _Link, said: IO[bytes]) -> None:
    """Wait until the connection stands. ToolchainError with what ssh said if it does not come to that."""
    assert link.control is not None
    end = time.monotonic() + 3 * _CONNECT_SECONDS
    while not link.control.exists():
        if master.poll() is not None or time.monotonic() > end:
            said.seek(max(0, said.seek(0, os.SEEK_END) - _MOST_SAID))
            raise link.failure(said.read(_MOST_SAID).decode("utf-8", errors="replace"))
        time.sleep(0.02)
