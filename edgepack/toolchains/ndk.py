"""The Android NDK: clang and lld with bionic's headers and libraries, one for each API level."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from edgepack.config.device import Device
from edgepack.config.toolchain import ToolchainConfig
from edgepack.errors import ConfigError, ToolchainError
from edgepack.toolchains.base import DISCARD_DEBUG
from edgepack.toolchains.gnu import GnuToolchain

__all__ = ["ABIS", "NdkToolchain", "android_sdks", "find_ndk"]

_PREBUILT = Path("toolchains", "llvm", "prebuilt")

#: Android's names of what it runs, by architecture; an app has a folder of libraries for each.
ABIS = {"aarch64": "arm64-v8a", "arm": "armeabi-v7a", "x86_64": "x86_64"}

#: Folders of the compiler, by ``sys.platform`` (the one for macOS is for both of its CPUs).
_HOSTS = {"darwin": "darwin-x86_64", "win32": "windows-x86_64"}

#: The variable that names the compiler in the NDK, not its folder.
_COMPILER = "TVM_NDK_CC"

_TARGET = re.compile(r"(?P<libraries>[a-z0-9_]+-linux-android(?:eabi)?)(?P<level>[0-9]+)")


class NdkToolchain(GnuToolchain):
    """``clang --target=aarch64-linux-android24`` of an NDK since r19.

    The code is C: no C++ runtime is linked, neither shared nor static.
    """

    family = "ndk"
    uses_sdk = True

    def __init__(self, config: ToolchainConfig, device: Device) -> None:
        super().__init__(config, device)
        match = _TARGET.fullmatch(self.target.target)
        if match is None:
            raise ConfigError(
                f"device {device.name}: compilers.ndk.target: {self.target.target!r} is no target of the NDK",
                hint="It ends in the API level: aarch64-linux-android24, armv7a-linux-androideabi24.",
            )
        self.level = int(match["level"])
        self._libraries = match["libraries"].replace("armv7a-", "arm-")

    @cached_property
    def root(self) -> Path:
        """The NDK's folder. ToolchainError if there is none."""
        found = find_ndk(self.config.sdk, os.environ)
        if found is None:
            raise ToolchainError(
                f"toolchain {self.name}: no Android NDK was found",
                detail="Looked for: --sdk, `sdk:` of the toolchain's file, ANDROID_NDK_HOME, "
                "ANDROID_NDK_ROOT, TVM_NDK_CC, the newest in ANDROID_HOME or the SDK's default folder.",
                hint=self.install_hint(),
            )
        return found

    @cached_property
    def prebuilt(self) -> Path:
        """The folder of the compiler for this machine."""
        there = self.root / _PREBUILT
        host = _HOSTS.get(sys.platform, "linux-x86_64")
        system = host.split("-")[0]
        for folder in (there / host, *sorted(there.glob(f"{system}-*"))):  # others' builds have other names
            if folder.is_dir():
                return folder
        names = ", ".join(sorted(path.name for path in there.iterdir())) or "nothing"
        raise ToolchainError(
            f"the NDK {self.root} is for another system: {_PREBUILT.as_posix()} has {names}, not {host}",
            hint=f"Get the NDK for {system}. {self.install_hint()}",
        )

    @cached_property
    def _cc(self) -> list[str]:
        command = self.find("cc")
        libraries = self.prebuilt / "sysroot" / "usr" / "lib" / self._libraries
        if not (libraries / str(self.level)).is_dir():
            levels = sorted(int(path.name) for path in libraries.glob("[0-9]*"))
            has = f"{levels[0]} to {levels[-1]}" if levels else "none"
            raise ToolchainError(
                f"the NDK {self.root} has no API level {self.level} for {self._libraries}; it has {has}",
                hint=f"Change `compilers: {{ndk: {{target: ...}}}}` of {self.device.name}, or the NDK.",
            )
        return command

    def cpu_flags(self) -> list[str]:
        return [f"--target={self.target.target}", *super().cpu_flags()]

    def version(self) -> str:
        """``Android NDK 27.2.12479018, clang 18.0.3``."""
        said = re.search(r"clang version (\S+)", super().version())
        return f"Android NDK {_revision(self.root)}, clang {said[1] if said else 'of an unknown version'}"

    def strip_debug(self, source: Path, output: Path) -> None:
        # lld ignores --strip-debug with -r.
        command = [*self.find("ld"), "-r", str(DISCARD_DEBUG), str(source), "-o", str(output)]
        self._run(command, f"stripping {source.name}")

    def _fill(self, text: str) -> str:
        if "{ndk}" in text:
            text = text.replace("{ndk}", str(self.prebuilt))
        return super()._fill(text)


def find_ndk(sdk: str, environment: Mapping[str, str]) -> Path | None:
    """The NDK's folder; None if nothing says where one is.

    Args:
        sdk: what the user chose; nothing else is looked at then.
        environment: its first variable that is set decides.

    Raises:
        ToolchainError: no NDK is where it should be.
    """
    for origin, path in _places(sdk, environment):
        folders = (path, *path.parents) if origin == _COMPILER else (path,)
        found = next((folder for folder in folders if (folder / _PREBUILT).is_dir()), None) or _newest(path)
        if found is not None:
            return found
        if origin:
            raise ToolchainError(
                f"{origin} is {path}, which is no Android NDK since r19: it has no {_PREBUILT.as_posix()}",
                hint="It must be the folder that has source.properties and ndk-build in it.",
            )
    return None


def _places(sdk: str, environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Where an NDK may be, and who says so; nobody for places where it need not be."""
    if sdk:
        yield "the SDK's folder", Path(sdk)
        return
    for name in ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", _COMPILER):
        if value := environment.get(name):
            yield name, Path(value).expanduser()
    for folder in android_sdks(environment):
        yield "", folder


def android_sdks(environment: Mapping[str, str]) -> list[Path]:
    """Where Android's SDK may be: what the environment says, then where Android Studio puts it."""
    named = [environment.get(name) for name in ("ANDROID_HOME", "ANDROID_SDK_ROOT")]
    home = Path.home()
    usual = ["Android/Sdk", "Library/Android/sdk", "AppData/Local/Android/Sdk"]
    return [*(Path(path).expanduser() for path in named if path), *(home / path for path in usual)]


def _newest(sdk: Path) -> Path | None:
    """The newest NDK in Android's SDK, which keeps them side by side."""
    there = [path for path in (sdk / "ndk").glob("*") if (path / _PREBUILT).is_dir()]
    return max(there, key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)], default=None)


def _revision(root: Path) -> str:
    try:
        text = (root / "source.properties").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "of an unknown version"
    match = re.search(r"^Pkg\.Revision\s*=\s*(\S+)", text, re.MULTILINE)
    return match[1] if match else "of an unknown version"
