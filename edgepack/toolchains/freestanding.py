"""Shared libraries that call no C library: zig makes them for every target, without that target's SDK."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgepack.config.device import load_device
from edgepack.config.toolchain import load_toolchain
from edgepack.system.process import run_checked
from edgepack.system.temporary import temporary_folder
from edgepack.toolchains.zig import ZigToolchain

__all__ = ["link_freestanding"]


def link_freestanding(
    source: str, name: str, target: str, needed: Path, *, headers: Mapping[str, bytes], page_size: int
) -> bytes:
    """A shared library for ELF of one C file; all that it calls is in itself or in one other library.

    Args:
        source: text of the C file.
        name: file name of the library.
        target: zig's: ``aarch64-linux-android``.
        needed: the other library.
        headers: what it includes beside the compiler's own, by path.
        page_size: alignment of its segments.

    Raises:
        ToolchainError: zig is not installed, or something is undefined.
    """
    zig = ZigToolchain(load_toolchain("zig"), load_device("linux-x86_64"))
    with temporary_folder() as place:
        folder = Path(place)
        (folder / "source.c").write_text(source, encoding="utf-8")
        for path, content in headers.items():
            (folder / "include" / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / "include" / path).write_bytes(content)
        run_checked(
            [
                *zig.executable(),
                *("cc", "-target", target, "-mcpu=baseline", "-std=c99", "-Os", "-g0", "-s", "-fPIC"),
                *("-ffreestanding", "-nostdlib", "-shared", "-fvisibility=hidden", "-fno-sanitize=all"),
                *("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"),
                *(f"-Wl,-soname,{name}", f"-Wl,-z,max-page-size={page_size}", "-Wl,-z,defs"),
                *("-Iinclude", "source.c", str(needed.absolute()), "-o", "library.so"),
            ],
            what=f"linking {name} for {target} with zig",
            timeout=600,
            hint=zig.install_hint(),
            cwd=folder,
            env=zig.environment,
        )
        return (folder / "library.so").read_bytes()
