"""Xcode, or its command line tools: Apple's clang, found by xcrun together with the SDK of a system."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import ClassVar

from edgepack.errors import ToolchainError
from edgepack.toolchains.base import Toolchain

__all__ = ["XcodeToolchain"]

_SDKS = {"macos": "macosx", "ios": "iphoneos"}


class XcodeToolchain(Toolchain):
    """``xcrun --sdk macosx clang -target arm64-apple-macos11.0``."""

    family = "xcode"
    archive_options: ClassVar[str] = "rcs"

    @cached_property
    def _xcrun(self) -> list[str]:
        sdk = _SDKS.get(self.device.os)
        if sdk is None:
            raise ToolchainError(
                f"toolchain {self.name} builds for macOS and iOS, not for {self.device.os}",
                hint="Choose another --toolchain.",
            )
        if self.target.target.endswith("-simulator"):
            sdk = "iphonesimulator"
        return [*self.find("xcrun"), "--sdk", sdk]

    def executable(self) -> list[str]:
        return [*self._xcrun, "clang"]

    def version(self) -> str:
        """The first line of ``clang --version`` (``Apple clang version 16.0.0 (clang-1600.0.26.6)``)."""
        text = self._run([*self.executable(), "--version"], "asking for the version")
        return text.strip().splitlines()[0]

    def driver(self) -> list[str]:
        command = [*self.executable(), "-target", self.target.target]
        if self.target.cpu:
            command.append(f"-m{'arch' if self.device.arch == 'x86_64' else 'cpu'}={self.target.cpu}")
        if root := self.sysroot():
            command += ["-isysroot", root]
        return [*command, *self.config.flags, *self.target.flags]

    def archiver(self) -> list[str]:
        return [*self._xcrun, "ar"]

    def strip_debug(self, source: Path, output: Path) -> None:
        self.format.strip_debug(source, output)
