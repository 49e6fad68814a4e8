"""One file that a command writes: what may be there already, and be replaced."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from edgepack.errors import ConfigError
from edgepack.system.files import begins_with

__all__ = ["beside", "check_output_file"]

_ANOTHER = "Choose another --output."


def check_output_file(
    output: Path, *, force: bool, what: str, begins: bytes = b"", inputs: Mapping[Path, str] | None = None
) -> None:
    """Refuse to write a file where something else would be lost by it.

    Args:
        force: replace a file that is what the command writes.
        what: that is ("a report").
        begins: the bytes by which such a file is known; an empty file may be replaced too.
        inputs: files that the command reads, and what each is ("the model itself").

    Raises:
        ConfigError: there is a folder, an input, or something that is no such file; or one and ``force`` is
            false.
    """
    if not os.path.lexists(output):
        return
    if output.is_dir():
        raise ConfigError(f"{output} is a folder.", hint="Name the file in it with --output.")
    for path, is_what in (inputs or {}).items():
        if output.exists() and path.exists() and output.samefile(path):
            raise ConfigError(f"{output} is {is_what}.", hint=_ANOTHER)
    if not force:
        raise ConfigError(f"{output} exists.", hint="Replace it with --force, or choose another --output.")
    if not begins_with(output, begins):
        raise ConfigError(f"{output} is not {what}; --force replaces only such.", hint=_ANOTHER)


def beside(output: Path) -> Path:
    """The folder in which a file is made before it takes its place: that of a link itself where ``output`` is
    one, which is replaced and not followed."""
    return output.parent.resolve()
