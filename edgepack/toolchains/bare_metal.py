"""GNU compilers for microcontrollers: one compiler for all cores, which flags choose from."""

from __future__ import annotations

from pathlib import Path

from edgepack.toolchains.gnu import GnuToolchain

__all__ = ["ArmNoneEabiToolchain", "RiscvElfToolchain"]


class _BareMetalToolchain(GnuToolchain):
    """A compiler whose name begins with its target, which says nothing of the core."""

    def accepts(self, command: list[str]) -> str:
        """What is wrong with a compiler for this device, or ""."""
        machine = self.output_of([*command, "-dumpmachine"])
        return "" if machine == self.target.target else f"builds for {machine or 'an unknown machine'}"


class ArmNoneEabiToolchain(_BareMetalToolchain):
    """``arm-none-eabi-gcc`` with newlib's libraries for each float ABI."""

    family = "gcc-arm-none-eabi"


class RiscvElfToolchain(_BareMetalToolchain):
    """``riscv64-unknown-elf-gcc``, for 32 bits too, with picolibc's libraries for each set of extensions."""

    family = "gcc-riscv-elf"

    def strip_debug(self, source: Path, output: Path) -> None:
        # Without the specs: they bring the linker script of whole programs.
        command = [*self.executable(), *self.cpu_flags(), *self.target.flags, "-r", "-nostdlib"]
        command += ["-Wl,--strip-debug", str(source), "-o", str(output)]
        self._run(command, f"stripping {source.name}")
