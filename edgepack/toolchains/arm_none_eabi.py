"""Arm's GNU compiler for microcontrollers: one compiler for all cores, which flags choose from."""

from __future__ import annotations

from edgepack.toolchains.gnu import GnuToolchain

__all__ = ["ArmNoneEabiToolchain"]


class ArmNoneEabiToolchain(GnuToolchain):
    """``arm-none-eabi-gcc`` with newlib's libraries for each float ABI."""

    family = "gcc-arm-none-eabi"

    def accepts(self, command: list[str]) -> str:
        """What is wrong with a compiler for this device, or ""."""
        machine = self.output_of([*command, "-dumpmachine"])
        return "" if machine == self.target.target else f"builds for {machine or 'an unknown machine'}"
