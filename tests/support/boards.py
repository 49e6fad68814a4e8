"""What tests of the runners on other machines share: a folder like a bundle's, and devices to run it on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgepack.runners import ssh
from edgepack.system.process import Completed

__all__ = ["Device", "like_a_bundle", "program", "run"]


@dataclass(frozen=True)
class Device:
    """The device that ``tests/support/sshd.py`` serves."""

    name: str = "board"
    arch: str = "x86_64"
    os: str = "linux"
    libc: str = "glibc"
    runner: dict[str, Any] = field(default_factory=lambda: {"name": "ssh", "options": {"host": "board"}})

    @classmethod
    def with_options(cls, environment: dict[str, str] | None = None, **options: Any) -> Device:
        """It, with other options of the runner."""
        more = {"environment": environment} if environment else {}
        return cls(runner={"name": "ssh", "options": {"host": "board", **options}, **more})


def like_a_bundle(root: Path, script: str) -> Path:
    """Make a folder like a bundle's, whose program is a script."""
    for name in ("bin", "params", "test"):
        (root / name).mkdir(parents=True)
    program(root, script)
    (root / "params" / "it.params").write_bytes(bytes(200_000))
    (root / "test" / "input_0.bin").write_text("input")
    return root


def program(root: Path, script: str) -> Path:
    """Write the program of such a folder."""
    path = root / "bin" / "it"
    path.write_text(f"#!/bin/sh\n{script}\n")
    return path


def run(root: Path, *arguments: str | Path, device: Any = None, timeout: float = 30) -> Completed:
    """Run the program of such a folder by ssh."""
    argv = [root / "bin" / "it", *arguments]
    return ssh.run(device or Device(), argv, timeout=timeout, cwd=root)
