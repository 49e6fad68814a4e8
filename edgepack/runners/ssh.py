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
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from edgepack.errors import ConfigError, ToolchainError
from edgepack.process import Completed, execute, kill_group, start
from edgepack.runners.base import Availability, DeviceLike, setting
from edgepack.runners.remote import not_written, options, run_there
from edgepack.temporary import temporary_folder

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
}

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
        """As ssh and its tools want it."""
        return self.host if self.port is None else f"-p {self.port} {self.host}"


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
    try:
        with _connected(client, host) as link:
            done = link.shell("uname -sm", timeout=_CONNECT_SECONDS)
    except ToolchainError as error:
        return Availability(False, client, " ".join(part for part in (error.message, error.hint) if part))
    system = (done.stdout.strip().splitlines() or ["no uname"])[-1]  # a login may print a greeting before
    return Availability(True, f"{host} ({system})", "")


def run(device: DeviceLike, argv: Sequence[str | Path], *, timeout: float, cwd: Path) -> Completed:
    """Copy the bundle ``cwd`` to the device, and run its program there.

    Raises:
        ToolchainError: no connection, or it broke; no room; the program cannot be started, or is not done in
            time. With what the device said.
    """
    client, host = _client(device), _host(device)
    if client is None or host is None:
        raise ToolchainError(f"ssh cannot run programs of {device.name}.", hint=available(device).hint)
    with _connected(client, host) as link:
        return run_there(link, device, host.directory, argv, timeout=timeout, cwd=cwd)


def _client(device: DeviceLike) -> str | None:
    named = setting(device, "program") if setting(device, "name") == "ssh" else None
    return shutil.which(str(named or "ssh"))


def _host(device: DeviceLike) -> _Host | None:
    """The place of the command line, or the profile's; None if neither names one."""
    chosen, place = options(device, "ssh", _OPTIONS), setting(device, "place")
    text = str(place or chosen.get("host") or "").removeprefix("//")
    if not text:
        return None
    match = re.fullmatch(r"((?:[^@\s]+@)?(?:\[[^\]\s]+\]|[^:@\s\[\]]+))(?::([0-9]+))?/?", text)
    if match is None or text.startswith("-"):
        raise ConfigError(f"{text!r} is no place for ssh.", hint=f"Write {PLACE}; an IPv6 address in [ ].")
    port = match[2] or (None if place else chosen.get("port"))
    host = re.sub(r"[\[\]]", "", match[1])
    directory = str(chosen.get("directory") or _DIRECTORY).removeprefix("~/")
    return _Host(host, int(port) if port else None, directory)


class _Link:
    """ssh to one host; see :class:`edgepack.runners.remote.Link`."""

    def __init__(self, client: str, host: _Host, control: Path | None) -> None:
        self.name = str(host)
        self.host = host
        self.client = client
        self.control = control

    def command(self, *more: str, master: bool = False) -> list[str]:
        """ssh with its options, to the host; ``more`` is what is to be run there."""
        settings = {**_SETTINGS, "ControlMaster": "yes" if master else "no"}
        settings["ControlPath"] = str(self.control or "none")
        options = [f"-o{name}={value}" for name, value in settings.items()]
        port = [] if self.host.port is None else ["-p", str(self.host.port)]
        return [self.client, *options, *port, *(["-N"] if master else []), "--", self.host.host, *more]

    def shell(self, script: str, *, timeout: float, stdin: int | IO[bytes] | None = None) -> Completed:
        # By sh, whatever the login's own shell is.
        there = f"exec sh -c {shlex.quote(script)}"
        done = execute(
            self.command(there),
            timeout=timeout,
            cwd=Path.cwd(),
            env={"LC_ALL": "C"},
            what=f"The program on {self.name}",
            stdin=stdin,
        )
        if done.returncode == 255:  # ssh itself failed
            raise self.failure(done.stderr, done)
        return done

    def failure(self, said: str, done: Completed | None = None) -> ToolchainError:
        """The error for what ssh said."""
        hint = next(hint for text, hint in _HINTS if text in said)
        last = said.strip().rpartition("\n")[2].strip().rstrip(".")
        what = "broke" if done and done.stdout else "failed"
        return ToolchainError(
            f"The connection to {self.name} {what}" + (f": {last}." if last else "."),
            detail=done.printed if done else said.strip(),
            hint=hint.format(self.host.typed),
        )

    def copy(self, files: Mapping[str, Path], folder: str, *, timeout: float) -> None:
        with tempfile.TemporaryFile() as stream:
            with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
                for name, path in files.items():
                    tar.add(path, name, recursive=False, filter=_plain)
            stream.seek(0)
            done = self.shell(f"cd {shlex.quote(folder)} && tar -xf -", timeout=timeout, stdin=stream)
        if done.returncode != 0:
            raise not_written(self.name, folder, files, done)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The archive's entry without an owner of this machine, with a mode that any umask allows."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755
    return entry


@contextlib.contextmanager
def _connected(client: str, host: _Host) -> Iterator[_Link]:
    """A link whose commands share one connection where the client can do that."""
    if not SHARED:
        yield _Link(client, host, None)
        return
    # A socket's path has about 100 characters, of which ssh takes 17 for itself.
    short = None if len(tempfile.gettempdir()) < 60 else Path("/tmp")
    with temporary_folder(short) as folder:
        link = _Link(client, host, Path(folder, "s"))
        with tempfile.TemporaryFile() as said:
            environment = {**os.environ, "LC_ALL": "C"}
            master = start(link.command(master=True), env=environment, stdout=said, stderr=said)
            try:
                _wait(master, link, said)
                yield link
            finally:
                master.terminate()  # it closes the connection, and with it what still runs there
                try:
                    master.wait(timeout=5)
                except subprocess.TimeoutExpired:
                    kill_group(master)
                    master.wait()


def _wait(master: subprocess.Popen[bytes], link: _Link, said: IO[bytes]) -> None:
    """Wait until the connection stands. ToolchainError with what ssh said if it does not come to that."""
    assert link.control is not None
    end = time.monotonic() + 3 * _CONNECT_SECONDS
    while not link.control.exists():
        if master.poll() is not None or time.monotonic() > end:
            said.seek(0)
            raise link.failure(said.read().decode("utf-8", errors="replace"))
        time.sleep(0.02)
