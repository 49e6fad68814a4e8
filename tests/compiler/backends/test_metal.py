"""The Metal language: one library of all kernels, as far as a compiler of C++ can tell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgepack.compiler.backends.metal import metal_source, write_metal
from edgepack.pipeline.versions import package_versions, tool_versions
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.types import Launch, Step
from edgepack.resources import TEMPLATES
from workbench.compiled import plan_of
from workbench.executor import host_target
from workbench.models.builder import Graph
from workbench.models.gpu import convolution, products, rows
from workbench.models.odd import ODD
from workbench.models.operators import CASES

SHIM = TEMPLATES / "shim"
TRIPLE = "arm64-apple-macosx11.0"


def target(**capabilities: Any) -> GpuTarget:
    return GpuTarget("metal", host_target(), least_groups=4, **capabilities)


def kernels() -> dict[str, str]:
    """Of each rule."""
    found: dict[str, str] = {}
    matrices = ({"family": 7}, {"family": 7, "precision": "fp16"})
    for number, make in enumerate((convolution, products, rows)):
        found |= plan_of(make(), f"m{number}", target()).gpu_kernels
    for number, capabilities in enumerate(matrices):
        built = plan_of(products(), f"p{number}", target(**capabilities))
        assert "metal.simdgroup_matrix" in {kernel.rule for kernel in built.plan.kernels}
        found |= built.gpu_kernels
    return found


def compiled(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As C++, with no more of Metal than templates/shim/metal/msl.h has."""
    source = folder / "kernels.cpp"
    source.write_text(f'#include "msl.h"\n{text}', encoding="utf-8")
    command = [sys.executable, "-m", "ziglang", "c++", "-std=c++17", "-O0", "-fsigned-char", "-c"]
    flags = ["-Wall", "-Werror", "-Wno-unknown-attributes", "-Wno-unused-function", "-Wno-unused-variable"]
    includes = [f"-I{SHIM / 'metal'}", f"-I{SHIM / 'common'}"]
    return subprocess.run(
        [*command, *flags, *includes, source, "-o", folder / "kernels.o"],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_all_kernels_are_one_library(tmp_path: Path) -> None:
    texts = kernels()
    (binary,) = write_metal(texts, TRIPLE, tmp_path, pytest.fail)
    text = (tmp_path / binary.file).read_text(encoding="utf-8")
    assert (binary.backend, binary.kind) == ("metal", "source")
    assert text.count("#include") == 1
    assert sorted(re.findall(r"^KERNEL.* void (\w+)\(", text, re.MULTILINE)) == sorted(texts)
    done = compiled(text, tmp_path)
    assert done.returncode == 0, done.stderr


def test_what_metal_lacks_does_not_compile(tmp_path: Path) -> None:
    """The check above would see it."""
    text = metal_source(
        {
            "k": "KERNEL(1, 1, 1) void k(GLOBAL float *RESTRICT p BUFFER(0) POSITIONS) {\n"
            "  p[0] = expm1(p[1]);\n}\n"
        }
    )
    assert "expm1" in compiled(text, tmp_path).stderr


def test_more_tensors_than_metal_has_buffers_are_the_cpus() -> None:
    """A kernel has 31 at most; OpenCL's take this one."""
    g = Graph("many", seed=2)
    g.op("Concat", *(g.input(f"x{i}", (1, 3 + i)) for i in range(40)), axis=1, name="y")
    g.output("y")
    steps = {api: plan_of(g.model(), "m", GpuTarget(api, host_target())).plan for api in ("metal", "opencl")}
    kinds = {api: {type(step) for step in plan.steps} for api, plan in steps.items()}
    assert Launch in kinds["opencl"]
    assert Step not in kinds["opencl"]
    assert Step in kinds["metal"]
    assert [text for text in steps["metal"].warnings if "more groups or tensors" in text]


XCRUN = """#!/bin/sh
echo "$@" >> "$0.log"
case "$*" in
*--version) echo "Apple metal version 1" ;;
*metallib*) for output; do :; done; printf MTLB > "$output" ;;
*) [ -z "$REFUSES" ] || { echo "kernels.metal:1:1: error: no"; exit 1; } ;;
esac
"""


@pytest.mark.parametrize("triple", [TRIPLE, "arm64-apple-ios14.0"])
def test_xcode_compiles_it(triple: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of a stand-in; Xcode has not been here."""
    xcrun = tmp_path / "xcrun"
    xcrun.write_text(XCRUN, encoding="utf-8")
    xcrun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    before = tool_versions("metal")
    assert before["metal"] == "Apple metal version 1"
    assert package_versions("compile", "onnx", "metal")["metal"] == before["metal"]
    made = write_metal({}, triple, tmp_path, pytest.fail)
    assert [binary.kind for binary in made] == ["source", "metallib"]
    assert (tmp_path / made[1].file).read_bytes() == b"MTLB"
    asked = (tmp_path / "xcrun.log").read_text(encoding="utf-8").splitlines()
    assert "-fno-fast-math -c" in asked[-2]
    wanted = "-std=ios-metal2.3 -mios-version-min=14.0" if "ios" in triple else "-mmacosx-version-min=11.0"
    assert wanted in asked[-2]
    monkeypatch.setenv("REFUSES", "1")
    warnings: list[str] = []
    made = write_metal({}, triple, tmp_path, warnings.append)
    assert [binary.kind for binary in made] == ["source"]
    assert len(warnings) == 1
    assert "error: no" in warnings[0]


@pytest.mark.slow
def test_the_kernels_of_all_small_models_compile(tmp_path: Path) -> None:
    texts: dict[str, str] = {}
    for number, make in enumerate({**CASES, **ODD}.values()):
        texts |= plan_of(make(), f"m{number}", target()).gpu_kernels
    done = compiled(metal_source(texts), tmp_path)
    assert done.returncode == 0, done.stderr
