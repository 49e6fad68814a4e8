"""Builds for iOS with zig, which uses its headers of Apple's systems for macOS only and has no SDK for iOS:
a file tells it of both."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from edgepack.errors import ToolchainError
from edgepack.system.temporary import cache_folder

__all__ = ["libc_file"]

#: SDKSettings.json, and the functions of libSystem: no code, no headers of Apple's.
_SDK = Path(__file__).resolve().parent / "ios-sdk"


def libc_file(library: Path) -> Path:
    """The file that ``ZIG_LIBC`` names, as ``zig libc`` describes it; it is made on first use.

    Args:
        library: zig's own ``lib`` folder.

    Raises:
        ToolchainError: it cannot be written.
    """
    include = library / "libc" / "include" / "any-darwin-any"
    lines = {
        **{"include_dir": include, "sys_include_dir": include, "crt_dir": _SDK / "usr" / "lib"},
        **{"msvc_lib_dir": "", "kernel32_lib_dir": "", "gcc_dir": "", "darwin_sdk_dir": _SDK},
    }
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    path = cache_folder("zig") / f"ios-{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"
    if path.is_file():
        return path
    try:
        handle, name = tempfile.mkstemp(prefix=path.stem, dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError as error:
        raise ToolchainError(
            f"The file {path}, which tells zig of iOS, cannot be written: {error.strerror or error}.",
            hint="Set EDGEPACK_CACHE_DIR to a folder that can be written.",
        ) from error
    return path
