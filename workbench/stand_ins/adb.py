#!/usr/bin/env python3
"""An ``adb`` that behaves like the real one (35.0.2), with devices that are folders of this machine.

``Phones`` sets it up for a test; as a program, it is adb. A device is a folder, its ``/data/local/tmp``; its
shell is this machine's, and its programs are run by what ``emulator`` names.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TMP = "/data/local/tmp"

#: What adb prints where a device cannot be used.
REFUSALS = {
    "offline": "adb: device offline",
    "unauthorized": "adb: device unauthorized.\nThis adb server's $ADB_VENDOR_KEYS is not set\n"
    "Try 'adb kill-server' if that seems wrong.\nOtherwise check for a confirmation dialog on your device.",
    "no permissions": "adb: insufficient permissions for device: user in plugdev group; "
    "are your udev rules wrong?",
}


class Phones:
    """The devices that adb sees. ``path`` is the folder with ``adb`` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "path"
        self.path.mkdir(parents=True)
        adb = self.path / "adb"
        adb.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "{folder}" "$@"\n')
        adb.chmod(0o755)
        self.attach()

    def attach(self, *devices: dict[str, Any]) -> None:
        """These devices, and no others; what they hold stays."""
        (self.folder / "devices.json").write_text(json.dumps(devices))

    def files(self, serial: str) -> Path:
        """A device's ``/data/local/tmp``."""
        return _files(self.folder, serial)


def phone(serial: str = "28151FDH300ABC", state: str = "device", **more: Any) -> dict[str, Any]:
    """A device. ``more``: abis, model, emulator (a command), room (bytes), vanish (seconds until it is gone),
    login (what its shell runs in the place of the command, which is ``$COMMAND``)."""
    model = more.pop("model", "Pixel_7")
    return {"serial": serial, "state": state, "model": model, "abis": "arm64-v8a", **more}


def _device_folder(folder: Path, serial: str) -> Path:
    # Its path becomes a part of scripts.
    return folder / (serial if re.fullmatch("[A-Za-z0-9-]+", serial) else serial.encode().hex())


def _files(folder: Path, serial: str) -> Path:
    there = _device_folder(folder, serial) / "tmp"
    there.mkdir(parents=True, exist_ok=True)
    return there


def _fail(text: str) -> int:
    print(text, file=sys.stderr)
    return 1


def _list(devices: list[dict[str, Any]], details: bool) -> int:
    print("List of devices attached")
    for number, device in enumerate(devices, 1):
        state = device["state"]
        if state == "no permissions":
            state = (
                "no permissions (user in plugdev group; are your udev rules wrong?); "
                "see [http://developer.android.com/tools/device.html]"
            )
        known = f" product:panther model:{device['model']} device:panther" if state == "device" else ""
        more = f" usb:1-{number}{known} transport_id:{number}" if details else ""
        serial = device["serial"] or "(no serial number)"
        print(f"{serial:<22} {state}{more}")
    print()
    return 0


def _shell(folder: Path, device: dict[str, Any], script: str) -> int:
    there = _files(folder, device["serial"])
    properties = {
        "ro.product.cpu.abilist": device["abis"],
        "ro.product.model": device["model"].replace("_", " "),
        "ro.build.version.release": "14",
        "ro.build.version.sdk": "34",
    }
    tools = _device_folder(folder, device["serial"]) / "bin"
    tools.mkdir(exist_ok=True)
    getprop = tools / "getprop"
    cases = " ".join(f"{name}) printf '%s\\n' {shlex.quote(value)} ;;" for name, value in properties.items())
    getprop.write_text(f"#!/bin/sh\ncase $1 in {cases} esac\n")
    getprop.chmod(0o755)
    script = script.replace(TMP, str(there))
    if emulator := device.get("emulator"):
        script = re.sub(r"; (\./bin/)", rf"; {emulator} \1", script)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "COMMAND": script}
    process = subprocess.Popen(
        ["sh", "-c", device.get("login", script)],
        env=environment,
        cwd="/",
        stdin=sys.stdin,
        start_new_session="vanish" in device,
    )
    end = time.monotonic() + device.get("vanish", 1e9)
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    if process.poll() is None:  # it was unplugged: nothing more comes from there
        os.killpg(process.pid, signal.SIGKILL)
        return 255
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _push(folder: Path, device: dict[str, Any], files: list[str], target: str) -> int:
    there = Path(target.replace(TMP, str(_files(folder, device["serial"]))))
    if not there.is_dir():
        return _fail(f"adb: error: target '{target}' is not a directory")
    for file in files:
        source = Path(file)
        if not source.exists():
            return _fail(f"adb: error: cannot stat '{file}': No such file or directory")
        if source.stat().st_size > device.get("room", 1e12):
            (there / source.name).write_bytes(source.read_bytes()[: device["room"]])
            return _fail(
                f"adb: error: failed to copy '{file}' to '{target}{source.name}': "
                "remote write failed: No space left on device"
            )
        shutil.copyfile(source, there / source.name)
        (there / source.name).chmod(0o644)
        print(f"{file}: 1 file pushed, 0 skipped. 35.1 MB/s ({source.stat().st_size} bytes in 0.005s)")
    return 0


def main(argv: list[str]) -> int:
    folder, words = Path(argv[0]), argv[1:]
    devices: list[dict[str, Any]] = json.loads((folder / "devices.json").read_text())
    if words[0] == "devices":
        return _list(devices, "-l" in words)
    wanted = ""
    if words[0] == "-s":
        wanted, words = words[1], words[2:]
    found = [device for device in devices if wanted in {"", device["serial"]}]
    if not found:
        return _fail(f"adb: device '{wanted}' not found" if wanted else "adb: no devices/emulators found")
    if len(found) > 1:
        return _fail("adb: more than one device/emulator")
    (device,) = found
    if device["state"] != "device":
        return _fail(REFUSALS[device["state"]])
    if words[0] == "shell":
        return _shell(folder, device, " ".join(words[1:]))
    if words[0] == "push":
        # Wherever they stand; what follows `--` is none, which old versions do not know.
        if option := next((word for word in words[1:] if word.startswith("-")), None):
            return _fail(f"adb: unrecognized option '{option}'")
        return _push(folder, device, words[1:-1], words[-1])
    return _fail(f"adb: unknown command {words[0]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
