"""clang: one driver for all targets; headers and libraries come from a GNU cross compiler or a sysroot."""

from __future__ import annotations

from edgepack.toolchains.gnu import GnuToolchain

__all__ = ["ClangToolchain"]


class ClangToolchain(GnuToolchain):
    """``clang --target=TARGET``."""

    family = "clang"

    def accepts(self, command: list[str]) -> str:
        return ""  # every clang builds for every target

    def cpu_flags(self) -> list[str]:
        return [f"--target={self.target.target}", *super().cpu_flags()]
