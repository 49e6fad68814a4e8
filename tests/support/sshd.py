"""A real sshd on loopback, with keys, configuration and a home folder of its own, run as the tests' user."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Board", "serve"]

#: bash reads the user's own .bashrc for a shell of the first level that sshd starts.
_SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
SetEnv SHLVL=2
ForceCommand {folder}/login
"""

_CLIENT = """\
Host board
    HostName 127.0.0.1
    Port {port}
Host *
    User {user}
    IdentityFile {folder}/key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
"""


class Board:
    """The device: ``ssh:board`` reaches it with :attr:`client` first in PATH.

    Attributes:
        folder: keys and configurations.
        home: the home folder of who logs in.
        client: folder with an ``ssh`` that knows it.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.home = folder / "home"
        self.client = folder / "path"

    def behave(self, script: str = "") -> None:
        """What happens at each login before the command runs (``$SSH_ORIGINAL_COMMAND``)."""
        login = self.folder / "login"
        login.write_text(
            f"#!/bin/sh\nexport HOME={shlex.quote(str(self.home))}\ncd\n{script}\n"
            'eval "$SSH_ORIGINAL_COMMAND"\n'
        )
        login.chmod(0o755)

    def cached(self, pattern: str = "*") -> list[Path]:
        """Files that it keeps of bundles."""
        return sorted(path for path in (self.home / ".cache" / "edgepack").rglob(pattern) if path.is_file())


@contextmanager
def serve(folder: Path) -> Iterator[Board]:
    """The server, from here to the end of the block."""
    program = shutil.which("sshd") or "/usr/sbin/sshd"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    board = Board(folder, port)
    for path in (board.home, board.client):
        path.mkdir()
    for name in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copyfile(folder / "key.pub", folder / "authorized_keys")
    key = (folder / "host_key.pub").read_text().rsplit(" ", 1)[0]
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {key}\n")
    (folder / "sshd_config").write_text(_SERVER.format(port=port, folder=folder))
    (folder / "ssh_config").write_text(_CLIENT.format(port=port, folder=folder, user=getpass.getuser()))
    ssh = board.client / "ssh"
    ssh.write_text(
        f'#!/bin/sh\nexec {shutil.which("ssh")} -F {shlex.quote(str(folder / "ssh_config"))} "$@"\n'
    )
    ssh.chmod(0o755)
    board.behave()
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # root's sshd wants it
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
        try:
            _wait(server, board)
            yield board
        finally:
            server.terminate()
            server.wait()


def _wait(server: subprocess.Popen[bytes], board: Board) -> None:
    for _ in range(500):
        assert server.poll() is None, (board.folder / "log").read_text()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", board.port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError("sshd does not listen")
