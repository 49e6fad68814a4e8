"""Groups that only move elements, for chips that are short of memory: in vectors, with no call of memcpy."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import onnx
import onnx.parser
import pytest

from edgepack.compiler.backends.llvm import compile_assembly
from edgepack.config.device import load_device
from edgepack.plan.target import CpuTarget
from workbench.compiled import Compiled, plan_of, target_with

#: Signature and body by name; what follows "!" is served by another kernel, element by element.
BODIES = {
    "rows behind rows": ("int8[1,12,48] x, int8[1,1,48] z) => (int8[1,13,48] y", "y = Concat<axis=1>(x, z)"),
    "odd rows": ("int8[2,5,19] x, int8[2,3,19] z) => (int8[2,8,19] y", "y = Concat<axis=1>(x, z)"),
    "within a row": ("uint8[3,21] x, uint8[3,90] z) => (uint8[3,111] y", "y = Concat<axis=1>(x, z)"),
    "short rows": ("int8[4,3] x, int8[1,3] z) => (int8[5,3] y", "y = Concat<axis=0>(x, z)"),
    "one piece": ("int8[1,13,1,48] x) => (int8[1,12,1,48] y", "y = Slice(x, one, most, one)"),
    "pieces of rows": ("int8[7,100] x) => (int8[7,99] y", "y = Slice(x, one, most, one)"),
    "words": ("int16[5,33] x, int16[2,33] z) => (int16[7,33] y", "y = Concat<axis=0>(x, z)"),
    "floats": ("float[5,37] x, float[1,37] z) => (float[6,37] y", "y = Concat<axis=0>(x, z)"),
    "! columns": ("int8[40,24] x) => (int8[24,40] y", "y = Transpose(x)"),
    "! every other": ("int8[3,40] x) => (int8[3,20] y", "y = Slice(x, none, most, one, two)"),
    "! another type": ("int8[3,40] x) => (int16[3,40] y", "y = Cast<to=5>(x)"),
    "! sums": ("int8[3,40] x) => (int8[3,40] y", "y = Add(x, x)"),
}
KEPT = "int64[1] none = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] most = {1000}"


@cache
def model(name: str) -> onnx.ModelProto:
    signature, body = BODIES[name]
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18]> graph ({signature}) <{KEPT}> {{ {body} }}'
    )


def chip(registers: str) -> CpuTarget:
    """A target without an operating system, of which kernels can be compiled for this machine."""
    return replace(target_with(registers), triple="x86_64-unknown-none-elf", threads=1)


@pytest.mark.parametrize("registers", ["scalar", "128x16"])
def test_they_are_right(registers: str, tmp_path: Path) -> None:
    models = {name: model(name) for name in BODIES}
    compiled = Compiled(models, tmp_path, chip(registers), machine=target_with(registers), optimised=True)
    for name in models:
        assert {kernel.rule for kernel in compiled.plan(name).kernels} == {"elementwise"}
        compiled.check(name)


@pytest.mark.parametrize("device", ["cortex-m4", "cortex-m55", "cortex-m0plus", "esp32-c3"])
def test_no_copy_is_a_call(device: str) -> None:
    target = load_device(device).cpu_target()
    for name in BODIES:
        if name.startswith("!"):
            continue
        built = plan_of(model(name), "m", target)
        lanes = {kernel.parameters["lanes"] for kernel in built.plan.kernels}
        assert lanes == {16 // int({"words": 2, "floats": 4}.get(name, 1))}, name
        assert "memcpy" not in compile_assembly(built.functions, target), name


def test_with_an_operating_system_they_are_as_before() -> None:
    plan = plan_of(model("rows behind rows"), "m", target_with("scalar")).plan
    assert [kernel.parameters["lanes"] for kernel in plan.kernels] == [1]
