"""clang: one driver for all targets; headers and libraries come from a GNU cross compiler or a sysroot."""

from __future__ import annotations

from edgepack.toolchains.gnu import GnuToolchain

__all__ = ["ClangToolchain"]


class ClangToolchain(GnuToolchain):
    """``clang --target=TARGET``."""

    family = "clang"

    def accepts(self, command: list[str]) -> str:
        """Every clang builds for every target, but without a sysroot it takes the libraries of glibc."""
        if self.device.libc == "musl" and not self.sysroot():
            return "needs `sysroot:`, a folder with musl's headers and libraries"
        return ""

    def cpu_flags(self) -> list[str]:
        return [f"--target={self.target.target}", *super().cpu_flags()]
