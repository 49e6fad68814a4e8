"""clang: one driver for all targets; headers and libraries come from a GNU cross compiler or a sysroot."""

from __future__ import annotations

from pathlib import Path

from edgepack.toolchains.gnu import GnuToolchain

__all__ = ["ClangToolchain"]

#: Where Debian's packages have GCC's libraries.
_GCC = "/usr/lib"


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

    def driver(self) -> list[str]:
        return [*super().driver(), *self._own_libraries()]

    def _own_libraries(self) -> list[str]:
        """The folders of the cross compiler's libraries, where clang would take others for Linux: those of a
        GCC for bare metal (riscv64-unknown-elf) that is installed too."""
        target = self.target.target
        bare = Path(_GCC, "gcc", f"{target.partition('-')[0]}-unknown-elf")
        versions = sorted(Path(_GCC, "gcc-cross", target).glob("[0-9]*"))
        if self.sysroot() or not bare.is_dir() or not versions:
            return []
        folders = [str(versions[-1]), f"/usr/{target}/lib"]
        search = [option + folder for folder in folders for option in ("-B", "-L")]
        return ["-Wno-unused-command-line-argument", "-isystem", f"/usr/{target}/include", *search]
