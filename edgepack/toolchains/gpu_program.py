"""What vendors' programs that make code for GPUs have in common: where they are found, and how to get them.

They make nothing of a bundle (``compiler/backends``); they are for who compiles with TVM itself.
"""

from __future__ import annotations

import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from edgepack.errors import ToolchainError
from edgepack.system.paths import find_program
from edgepack.system.process import run_checked

__all__ = ["GpuProgram"]

_SECONDS = 600.0


class GpuProgram(ABC):
    """A program that is looked for in its vendor's folders and in ``PATH``, the first that is there.

    All methods raise ToolchainError: it is not installed, with where it was looked for; or the command, and
    what it printed.
    """

    name: ClassVar[str]
    #: What it is, for messages.
    described: ClassVar[str]
    #: How to get it.
    install: ClassVar[str]
    #: Environment variables that name its vendor's folder.
    variables: ClassVar[tuple[str, ...]]
    #: The program in that folder.
    place: ClassVar[str]
    #: Where the vendor's folder usually is.
    usual: ClassVar[str]

    @abstractmethod
    def version(self) -> str:
        """Its name and version. Runs it."""

    def commands(self) -> list[list[str]]:
        """What is tried, in order."""
        named = [folder for name in self.variables if (folder := os.environ.get(name))]
        places = [str(Path(folder).expanduser() / self.place) for folder in (*named, self.usual)]
        return [[place] for place in (*places[:-1], self.name, places[-1])]

    @cached_property
    def executable(self) -> list[str]:
        """The command, without options."""
        for command in self.commands():
            if (found := find_program(command[0])) is not None:
                return [found, *command[1:]]
        tried = ", ".join(shlex.join(command) for command in self.commands())
        raise ToolchainError(
            f"{self.name}, {self.described}, is not installed.",
            detail=f"Looked for: {tried}.",
            hint=self.install,
        )

    def run(self, options: Sequence[str], what: str, cwd: Path | None = None) -> str:
        """What it prints."""
        environment = {**os.environ, "LC_ALL": "C"}
        return run_checked(
            [*self.executable, *options], what=what, timeout=_SECONDS, cwd=cwd, env=environment
        )
