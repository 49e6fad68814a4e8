"""Why chips with Xtensa cores have no device: said where somebody names one."""

from __future__ import annotations

import re

__all__ = ["NO_XTENSA", "no_xtensa_device"]

#: The end of a sentence.
NO_XTENSA = (
    "the LLVM in TVM makes no code for Xtensa cores (ESP32, ESP32-S2, ESP32-S3, ESP8266): of Espressif's "
    "chips those with RISC-V cores have devices: esp32-p4, which has an FPU as an ESP32-S3 has, and "
    "esp32-c3, esp32-c5 and esp32-c6, which have its radio"
)
#: Of chips, modules and boards (an ESP32-S31 has RISC-V cores).
_NAMES = re.compile(
    r".*esp32[-_]?s[23](?!\d).*|esp32([-_]?(cam|dev|pico|wro(om|ver)).*)?|m5stack-cores3.*|esp8266.*|lx[67]|xtensa.*",
    re.IGNORECASE,
)


def no_xtensa_device(name: str) -> str:
    """Why there is none of this name; "" where that is not the reason."""
    return NO_XTENSA if _NAMES.fullmatch(name) else ""
