"""Android where there is no NDK and no phone: the stand-ins of the tests (see docs/use/android.md)."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from edgepack.config.device import Device
from edgepack.toolchains.ndk import ABIS
from workbench.stand_ins.adb import Phones, phone
from workbench.stand_ins.android import bionic, make_ndk

__all__ = ["android"]


@contextmanager
def android(device: Device) -> Iterator[None]:
    """An NDK whose compiler is zig's, and an adb with one device, which runs these programs under qemu."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        phones = Phones(folder / "adb")
        emulator = " ".join(bionic(folder / "bionic", device.arch))
        phones.attach(phone(abis=ABIS[device.arch], emulator=emulator))
        os.environ["ANDROID_NDK_HOME"] = str(make_ndk(folder / "ndk"))
        os.environ["PATH"] = f"{phones.path}{os.pathsep}{before['PATH']}"
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
