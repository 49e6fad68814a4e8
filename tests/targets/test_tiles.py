"""Quantised networks for CPUs with AMX: which kernels a library takes, and its program on emulated tiles."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

import edgepack
from edgepack.config.device import load_device
from edgepack.config.host import TILES, probe
from workbench.models import save
from workbench.models.builder import Graph
from workbench.models.quantise import quantise
from workbench.tiles import emulator_library, without_tiles

AMX = "linux-x86_64-amx"
pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the device is of Linux on x86-64"
)
HAS_TILES = probe().features >= TILES


def _network() -> onnx.ModelProto:
    g = Graph("tiles")
    x = g.conv_bn(g.input("x", (1, 3, 24, 24)), 3, 64, 3)
    x = g.op("Add", x, g.conv_bn(x, 64, 64, 3))
    x = g.conv_bn(g.conv_bn(x, 64, 96, 3, stride=2), 96, 128, 1)
    pooled = g.op("Flatten", g.op("GlobalAveragePool", x))
    g.output(g.gemm(pooled, 128, 10))
    return g.model()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> edgepack.Bundle:
    folder = tmp_path_factory.mktemp("tiles")
    device = folder / "mine.yaml"
    device.write_text(f"extends: linux-x86_64\nvariants: [{AMX}, linux-x86_64-v3]\n", encoding="utf-8")
    return edgepack.pack(save(quantise(_network(), "u8s8"), folder), str(device), folder / "out")


def _run(program: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.stdout, done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _program(bundle: edgepack.Bundle) -> Path:
    artifact = bundle.manifest.artifact("program")
    assert artifact is not None
    return bundle.path / artifact.path


def test_kernels_for_tiles_are_taken_where_the_cpu_has_them(bundle: edgepack.Bundle) -> None:
    """They are the first to be asked for, and elsewhere refused by name."""
    assert next(variant.name for variant in bundle.verify().variants) == AMX
    test = str(bundle.path / "test")
    taken = _run(_program(bundle), "verify", test)
    assert (taken["status"], taken["variant"] == AMX) == ("ok", HAS_TILES)
    asked = _run(_program(bundle), "verify", test, "--variant", AMX)
    assert asked.get("code") == (None if HAS_TILES else "EP_E_CPU")


@pytest.mark.skipif(HAS_TILES, reason="this CPU has tiles: nothing is to be emulated")
def test_the_bundles_program_is_right_on_emulated_tiles(bundle: edgepack.Bundle, tmp_path: Path) -> None:
    """As it is but for its question whether the CPU has tiles; each of its threads has its own."""
    device = load_device(AMX)
    if not set(device.cpu_requires) - TILES <= probe().features:
        pytest.skip("this CPU lacks AVX-512 and VNNI")
    kernels = bundle.manifest.code(AMX).kernels
    assert "tiles of bytes" in {kernel.parameters.get("operands") for kernel in kernels}
    copy = shutil.copytree(bundle.path, tmp_path / "copy")
    program = copy / _program(bundle).relative_to(bundle.path)
    without_tiles(program, device.cpu_requires)
    preloaded = str(emulator_library(tmp_path))
    for threads in ("1", "3"):
        result = _run(
            program, "verify", str(bundle.path / "test"), "--threads", threads, LD_PRELOAD=preloaded
        )
        assert (result["status"], result.get("variant")) == ("ok", AMX), result
