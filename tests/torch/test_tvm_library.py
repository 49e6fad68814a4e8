"""Libraries of ``edgepack.torch.export_library`` under TVM's runtime, here and for 64-bit ARM under qemu.

The runtime for ARM is in the wheels that ``make build/tvm-aarch64`` downloads (100 MB).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tvm_ffi

from edgepack.config.device import load_device
from edgepack.toolchains import resolve
from tests.support.c_sources import SOURCES
from tests.torch.test_compile import PLACE, ROOT

pytestmark = pytest.mark.slow

#: Where `make build/tvm-aarch64` puts the wheels.
WHEELS = ROOT / "build" / "tvm-aarch64"
LIBRARIES = ("libtvm_runtime.so", "libtvm_ffi.so")
#: The loader and libstdc++ of Debian's g++-aarch64-linux-gnu.
SYSROOT = "/usr/aarch64-linux-gnu"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("libraries")


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    """What ``tests/support/tvm_library.py`` prints."""
    path = os.pathsep.join(filter(None, [str(PLACE), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "tests.support.tvm_library", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    parts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return parts


def test_sizes_that_are_open_stay_open(found: dict[str, Any]) -> None:
    assert found["opened"] < 1e-6


def test_what_tvm_does_not_take_is_said_all_at_once(found: dict[str, Any]) -> None:
    said = found["not_taken"]["said"]
    assert said["unknown"][0] == said["training"][0] == "ModelError"
    assert "special_bessel_j0" in said["unknown"][1] and "special_bessel_j1" in said["unknown"][1]
    assert "training mode" in said["training"][1]
    assert found["not_taken"]["there"] == "mine"


def test_tvms_runtime_for_arm_runs_a_library(found: dict[str, Any], folder: Path) -> None:
    qemu = shutil.which("qemu-aarch64")
    wheels = sorted(WHEELS.glob("*_aarch64.whl"))
    if qemu is None or len(wheels) < 2 or not Path(SYSROOT, "lib", "libstdc++.so.6").exists():
        pytest.skip("needs make build/tvm-aarch64, qemu-user and g++-aarch64-linux-gnu")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(LIBRARIES):
                    (folder / Path(name).name).write_bytes(archive.read(name))
    toolchain = resolve(load_device("linux-aarch64"))
    headers = [Path(tvm_ffi.libinfo.find_include_path()), Path(tvm_ffi.libinfo.find_dlpack_include_path())]
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    toolchain.compile_c(SOURCES / "run_with_tvm.c", folder / "run.o", include=headers, flags=strict)
    options = [f"-L{folder}", "-Wl,--no-as-needed", "-ltvm_runtime", "-ltvm_ffi"]
    options.append("-Wl,--allow-shlib-undefined")  # libstdc++ is the system's
    toolchain.link_program([folder / "run.o"], folder / "run", flags=options)
    command = [qemu, "-L", SYSROOT, "-E", f"LD_LIBRARY_PATH={folder}", str(folder / "run")]
    command += [str(folder / "aarch64.so"), "1x5", str(folder / "past.bin")]
    command += ["1x3x16x16", str(folder / "image.bin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    results = [[float(number) for number in line.split()] for line in done.stdout.splitlines()]
    assert results == [pytest.approx(one, abs=1e-5) for one in found["streamed"]["expected"]]
