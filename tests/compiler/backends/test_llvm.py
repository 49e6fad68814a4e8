"""Machine code has the instructions that the target's rules count on."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from edgepack.compiler.backends.llvm import compile_assembly
from edgepack.config.device import load_device
from workbench.compiled import plan_of
from workbench.models.builder import Graph


@pytest.mark.parametrize(
    ("device", "fused", "apart"),
    [
        ("raspberrypi2", r"\tvfma\.f32\tq", r"\tvmul\.f32\tq"),
        ("raspberrypi4", r"\tfmla\tv", r"\tfmul\tv"),
        ("linux-x86_64-v3", r"\tvfmadd\d+ps\t", r"\tvmulps\t"),
        ("linux-riscv64", r"\tfmadd\.s\t", r"\tfmul\.s\t"),
        ("linux-riscv64-v", r"\tvfmacc\.v[vf]\t", r"\tvfmul\.v"),
    ],
)
def test_multiply_adds_are_fused_where_the_cpu_can(device: str, fused: str, apart: str) -> None:
    g = Graph("product")
    g.op("Identity", g.linear(g.input("x", [24, 64]), 64, 64), name="y")
    g.output("y")
    target = load_device(device).cpu_target()
    built = plan_of(g.model(), target=target)
    code = compile_assembly(built.functions, target)
    assert re.search(fused, code)
    assert not re.search(apart, code)
    if device == "raspberrypi2":  # ARMv7 without VFPv4 has no such instruction
        older = replace(target, fma=False, cpu="generic", features=("+neon", "+vfp3"))
        assert not re.search(fused, compile_assembly(built.functions, older))
