"""The ``.ARM.attributes`` section of 32-bit ARM objects (ARM IHI 0045, "Addenda to the ABI")."""

from __future__ import annotations

__all__ = [
    "CPU_ARCH",
    "FP_ARCH",
    "SIMD_ARCH",
    "TAG_CPU_ARCH",
    "TAG_FP_ARCH",
    "TAG_SIMD_ARCH",
    "attributes",
    "hard_float_object",
]

TAG_CPU_ARCH, TAG_FP_ARCH, TAG_SIMD_ARCH = 6, 10, 12

#: Names of the values of these tags.
CPU_ARCH = (
    *("before ARMv4", "ARMv4", "ARMv4T", "ARMv5T", "ARMv5TE", "ARMv5TEJ", "ARMv6", "ARMv6KZ", "ARMv6T2"),
    *("ARMv6K", "ARMv7", "ARMv6-M", "ARMv6S-M", "ARMv7E-M", "ARMv8-A", "ARMv8-R", "ARMv8-M baseline"),
    *("ARMv8-M mainline", "ARMv8.1-A", "ARMv8.2-A", "ARMv8.3-A", "ARMv8.1-M mainline", "ARMv9-A"),
)
FP_ARCH = (
    *("no FPU", "VFPv1", "VFPv2", "VFPv3", "VFPv3-D16", "VFPv4", "VFPv4-D16", "ARMv8's FPU"),
    "ARMv8's FPU of 16 registers",
)
SIMD_ARCH = ("no NEON", "NEON", "NEON with FMA", "ARMv8's NEON", "ARMv8.1's NEON")

_TAG_FILE = 1
_TAG_CPU_RAW_NAME, _TAG_CPU_NAME, _TAG_COMPATIBILITY = 4, 5, 32
_TAG_ABI_VFP_ARGS = 28


def hard_float_object(section: bytes) -> bool:
    """Whether an object passes floats in VFP registers; an object that does not say so does not."""
    return attributes(section).get(_TAG_ABI_VFP_ARGS) == 1


def attributes(section: bytes) -> dict[int, int | str]:
    """Tag -> value of the file-wide "aeabi" attributes; empty for a section that is not understood."""
    if section[:1] != b"A":
        return {}
    position = 1
    while position + 4 <= len(section):
        length = int.from_bytes(section[position : position + 4], "little")
        vendor, _, body = section[position + 4 : position + length].partition(b"\0")
        if vendor == b"aeabi" and len(body) > 5 and body[0] == _TAG_FILE:
            size = int.from_bytes(body[1:5], "little")
            return _pairs(body[5:size])
        position += max(length, 4)
    return {}


def _pairs(data: bytes) -> dict[int, int | str]:
    found: dict[int, int | str] = {}
    position = 0
    while position < len(data):
        tag, position = _uleb(data, position)
        if tag == _TAG_COMPATIBILITY:
            _, position = _uleb(data, position)
        if tag in {_TAG_CPU_RAW_NAME, _TAG_CPU_NAME, _TAG_COMPATIBILITY} or (tag > 32 and tag % 2):
            end = data.find(b"\0", position)
            end = len(data) if end < 0 else end
            found[tag] = data[position:end].decode("latin-1")
            position = end + 1
        else:
            found[tag], position = _uleb(data, position)
    return found


def _uleb(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned LEB128 number, and the position after it."""
    value = shift = 0
    while position < len(data):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    return value, position
