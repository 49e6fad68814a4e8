"""How qemu shows a board to a firmware image."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["EMULATORS", "Emulator"]


class Emulator(NamedTuple):
    """qemu for one architecture.

    Attributes:
        program: its name.
        package: Debian's and Ubuntu's package with it.
        options: what it takes for an image to be alone in the board's memory.
        icount: the value of -icount by which the board's counter advances with the instructions, by at least
            a tick for each, so that counts are exact.
    """

    program: str
    package: str
    icount: str
    options: tuple[str, ...] = ()

    def command(self, machine: str, cpu: str, program: str = "") -> list[str]:
        """The first words of a command: this program or another, board and CPU ("": the board's)."""
        words = [program or self.program, *self.options, "-M", machine]
        return [*words, "-cpu", cpu] if cpu else words


#: By architecture, as devices name it.
EMULATORS = {
    # 128 ns for an instruction; the counter's ticks are 31 to 50 ns.
    "arm": Emulator("qemu-system-arm", "qemu-system-arm", "shift=7,sleep=off"),
    # Else the board starts OpenSBI, at the image's address.
    "riscv32": Emulator("qemu-system-riscv32", "qemu-system-misc", "shift=0,sleep=off", ("-bios", "none")),
}
