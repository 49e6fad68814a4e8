"""What gcc and clang share: a driver named by `cc`, binutils or LLVM's ar, -march or -mcpu."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from edgepack.toolchains.base import Toolchain

__all__ = ["GnuToolchain"]

#: Architectures whose CPU is named by -march (the others: -mcpu).
_BY_MARCH = {"x86_64", "riscv32", "riscv64"}


class GnuToolchain(Toolchain):
    """Base of the families whose driver takes GNU options."""

    def accepts(self, command: list[str]) -> str:
        """What is wrong with a compiler for this device, or ""."""
        machine = self.output_of([*command, "-dumpmachine"])
        first = machine.split("-", 1)[0]
        arch = {"i686": "x86", "arm64": "aarch64"}.get(first, "arm" if first.startswith("arm") else first)
        if arch != self.device.arch:
            return f"builds for {machine or 'an unknown machine'}"
        if arch == "arm" and machine.endswith("hf") != self.device.hard_float:
            return f"builds for {machine}, whose float ABI is another"
        # Debian's musl-gcc is the system's gcc with other libraries: only its name tells.
        musl = "musl" in machine or "musl" in Path(command[0]).name
        if self.device.os == "linux" and musl != (self.device.libc == "musl"):
            return f"builds for {machine}, whose libc is another than {self.device.libc}"
        return ""

    def install_hint(self) -> str:
        if self.device.libc != "musl":
            return super().install_hint()
        if self.device.arch == "x86_64" and self.family == "gcc":
            return "Install it: apt install musl-tools (Debian, Ubuntu)."
        return "Debian and Ubuntu have none: name your compiler in a toolchain file, or use zig."

    @cached_property
    def _cc(self) -> list[str]:
        return self.find("cc", self.accepts)

    def executable(self) -> list[str]:
        return self._cc

    def cpu_flags(self) -> list[str]:
        """The option that names the CPU."""
        if not self.target.cpu:
            return []
        return [f"-m{'arch' if self.device.arch in _BY_MARCH else 'cpu'}={self.target.cpu}"]

    def driver(self) -> list[str]:
        command = [*self._cc, *self.cpu_flags()]
        if root := self.sysroot():
            command.append(f"--sysroot={root}")
        return [*command, *self.config.flags, *self.target.flags]

    def archiver(self) -> list[str]:
        return self.find("ar")

    def version(self) -> str:
        """The first line of ``--version``."""
        text = self._run([*self._cc, "--version"], "asking for the version")
        return text.strip().splitlines()[0]

    def strip_debug(self, source: Path, output: Path) -> None:
        command = [*self.driver(), "-r", "-nostdlib", "-Wl,--strip-debug", str(source), "-o", str(output)]
        self._run(command, f"stripping {source.name}")
