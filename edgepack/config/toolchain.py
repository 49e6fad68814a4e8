"""Toolchains: how to call a compiler. One YAML file each; see docs/reference/device-files.md."""

from __future__ import annotations

import os
import re
import shlex
from typing import Annotated

from pydantic import AfterValidator, Field

from edgepack import resources
from edgepack.config.load import Kind, Resolved
from edgepack.config.models import Frozen, Name, Variable

__all__ = [
    "TOOLCHAINS",
    "ToolchainConfig",
    "load_toolchain",
    "resolve_toolchain",
    "split_command",
    "toolchain_names",
]


def split_command(text: str) -> list[str]:
    """Words of a command; quotes group, and a backslash is just a character (Windows paths).

    Raises:
        ValueError: there is no word, or a quote is not closed.
    """
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.escape, lexer.commenters = True, "", ""
    words = list(lexer)
    if not words or not words[0]:
        raise ValueError("names no program")
    return words


def _command(text: str) -> str:
    try:
        words = split_command(text)
    except ValueError as error:
        raise ValueError(f"{text[:80]!r} is not a command: {str(error).lower()}") from None
    if words[:2] == ["{python}", "-m"] and not (len(words) > 2 and _MODULE.fullmatch(words[2])):
        raise ValueError(f"{text[:80]!r} is not a command: it names no module of Python")
    return text


_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Command = Annotated[str, AfterValidator(_command)]


class ToolchainConfig(Frozen):
    """A toolchain, all of its fields given.

    Made by :func:`load_toolchain`. Texts may hold ``{target}`` (the device's target for the family),
    ``{package}`` (the same as a Debian package spells it) and ``{python}`` (the Python that runs edgepack).
    """

    name: Name = Field(description="The file's name without .yaml, unless given.")
    description: str = Field(default="", description="One line for the list of toolchains.")
    family: Name = Field(description="The module that knows its options (`zig`, `gcc`, `clang`).")
    executables: dict[str, tuple[Command, ...]] = Field(
        description="By tool (`cc`, `ar`): commands to try, in order; the first that is there and builds for "
        "the device is taken."
    )
    flags: tuple[str, ...] = Field(default=(), description="More flags, for compiling and linking.")
    compile_flags: tuple[str, ...] = Field(default=(), description="More flags, for compiling.")
    link_flags: tuple[str, ...] = Field(default=(), description="More flags, for linking.")
    sysroot: str = Field(default="", description="Folder with the target's headers and libraries.")
    sdk: str = Field(default="", description="Folder of the SDK, for a family that needs one (`ndk`).")
    environment: dict[Variable, str] = Field(
        default={}, description="Environment variables for the commands."
    )
    timeout: int = Field(default=600, ge=1, le=86_400, description="Seconds until a command is given up.")
    install: str = Field(default="", description="What to do if it is missing.")


#: Where toolchains are found, and what they must fit.
TOOLCHAINS: Kind[ToolchainConfig] = Kind(
    noun="toolchain",
    model=ToolchainConfig,
    directory=resources.TOOLCHAINS,
    path_env="EDGEPACK_TOOLCHAIN_PATH",
    command="edgepack toolchains",
)


def load_toolchain(name_or_path: str | os.PathLike[str]) -> ToolchainConfig:
    """The toolchain of a name or of a path to a YAML file.

    Raises ConfigError: unknown name (with the nearest ones), or what is wrong in the file, with its line.
    """
    return resolve_toolchain(name_or_path).model


def resolve_toolchain(name_or_path: str | os.PathLike[str]) -> Resolved[ToolchainConfig]:
    """The toolchain of :func:`load_toolchain`, with where each value came from."""
    return TOOLCHAINS.load(name_or_path)


def toolchain_names() -> list[str]:
    """Names that :func:`load_toolchain` knows, sorted."""
    return TOOLCHAINS.names()
