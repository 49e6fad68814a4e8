"""How ELF images for bare metal are linked: to fixed addresses, by the device's own script; nothing loads
them."""

from __future__ import annotations

from edgepack.objectfiles.auditor import Auditor
from edgepack.objectfiles.elf.format import Elf

__all__ = ["Firmware"]


class Firmware(Elf):
    """ELF images for bare metal. The options are those of GNU ld and lld."""

    #: Fixed addresses need no table of them, and what is not a kernel had better be small.
    compile_flags = ("-fno-pic", "-Os")

    def program(self) -> list[str]:
        """The linker script is the caller's. Symbols stay: audit and estimate of the stack need them."""
        return [
            *("-static", "-nostartfiles", "-Wl,--gc-sections", "-Wl,--build-id=none"),
            # For GNU ld, which else warns of newlib's objects: they do not say that they need none.
            "-Wl,-z,noexecstack",
        ]

    def auditor(self) -> Auditor:
        from edgepack.objectfiles.elf.firmware_audit import FirmwareAuditor

        return FirmwareAuditor(self.device)
