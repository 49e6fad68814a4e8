"""gcc: the machine's own, or a cross compiler whose name begins with its target."""

from __future__ import annotations

from edgepack.toolchains.gnu import GnuToolchain

__all__ = ["GccToolchain"]


class GccToolchain(GnuToolchain):
    """``TARGET-gcc``; the plain ``gcc`` where it builds for the device."""

    family = "gcc"
