"""What a shell offers for the names that options take: devices, toolchains, package formats, runners.

Nothing is said where a list cannot be made: a shell has no place for errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from edgepack.errors import EdgepackError

__all__ = ["device_names", "format_names", "runner_names", "toolchain_names"]

_Names = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _names(listed: Callable[[], Mapping[str, str]], *, files: bool) -> _Names:
    """Completes a name, or a file where the word looks like a path.

    Args:
        listed: what can be named, and what it is.
        files: whether the option takes a file in the place of a name.
    """

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del ctx, param
        if files and ("/" in incomplete or incomplete.startswith((".", "~"))):
            return [CompletionItem(incomplete, type="file")]
        found: Mapping[str, str] = {}
        with suppress(EdgepackError, OSError):
            found = listed()
        return [
            CompletionItem(name, help=text) for name, text in found.items() if name.startswith(incomplete)
        ]

    return complete


def _devices() -> Mapping[str, str]:
    from edgepack.config.aliases import load_aliases
    from edgepack.config.device import device_names as names

    aliases = {name: f"{one.device}: {one.about}" for name, one in load_aliases().aliases.items()}
    return {**dict.fromkeys(names(), ""), **aliases}


def _toolchains() -> Mapping[str, str]:
    from edgepack.config.toolchain import toolchain_names as names

    return dict.fromkeys(names(), "")


def _formats() -> Mapping[str, str]:
    from edgepack.registry import EXPORT_FORMATS

    return dict.fromkeys(EXPORT_FORMATS.names(), "")


def _runners() -> Mapping[str, str]:
    from edgepack.registry import RUNNERS

    names: Iterable[str] = RUNNERS.names()
    return dict.fromkeys(names, "")


device_names = _names(_devices, files=True)
toolchain_names = _names(_toolchains, files=True)
format_names = _names(_formats, files=False)
runner_names = _names(_runners, files=False)
