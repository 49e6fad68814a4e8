"""The inner loops of hot kernels stay in registers, also on CPUs that are not at hand."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from edgepack.compiler.backends.llvm import compile_assembly
from tools import inner_loops
from workbench.compiled import plan_of
from workbench.models.hot import KERNELS
from workbench.models.hot_integers import LAYERS
from workbench.models.single import conv

MACHINES = {machine.name: machine for machine in inner_loops.machines()}


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("x86-64-v3 (AVX2)", "7x7 stride 2, 3 to 64"),
        *(
            pytest.param(machine, kernel, marks=pytest.mark.slow)
            for machine, kernel in (
                ("x86-64-v3 (AVX2)", "1x1, 64 to 128"),
                ("x86-64-v3 (AVX2)", "3x3 stride 1, 64 to 64"),
                ("x86-64 (SSE2)", "3x3 stride 1, 64 to 64"),
                ("riscv64 V (128 bit)", "3x3 stride 1, 64 to 64"),
                ("riscv64 V (128 bit)", "signal, 3 taps, 64 to 64"),
                ("raspberrypi2 (ARMv7)", "7x7 stride 2, 3 to 64"),
            )
        ),
        ("x86-64-v4 (AVX-512)", "3x3 stride 1, 256 to 256, cut tiles"),
        ("x86-64-v3 (AVX2)", "3x3 stride 1, 256 to 256, cut tiles"),
        ("x86-64 (SSE2)", "3x3 stride 1, 256 to 256, cut tiles"),
        ("raspberrypi2 (ARMv7)", "3x3 stride 1, 256 to 256, cut tiles"),
        ("riscv64 V (128 bit)", "3x3 stride 1, 256 to 256, cut tiles"),
        ("x86-64-v3 (AVX2)", "signal, 5 taps, 64 to 64"),
        ("x86-64-v4 (AVX-512)", "signal, 7 taps, 64 to 64"),
        ("raspberrypi4 (cortex-a72)", "signal, 3 taps, 64 to 64"),
        ("raspberrypi4 (cortex-a72)", "1x1, 64 to 128"),
        ("raspberrypi4 (cortex-a72)", "3x3 stride 1, 64 to 64"),
        ("raspberrypi4 (cortex-a72)", "matmul 128x384x1536"),
        ("raspberrypi2 (ARMv7)", "1x1, 64 to 128"),
    ],
)
def test_no_stack_in_inner_loop(name: str, kernel: str) -> None:
    machine = MACHINES[name]
    built = plan_of(KERNELS[kernel](), target=machine.target)
    hot = next(k.rule for k in built.plan.kernels if k.rule.startswith(("conv2d", "matmul")))
    text = compile_assembly(built.functions, machine.target)
    symbols = [k.symbol for k in built.plan.kernels if k.rule == hot]
    loops = [loop for symbol in symbols for loop in inner_loops.loops_of(text, symbol, machine)]
    found = inner_loops.hot_loops(loops, machine, hot)
    assert found
    assert max(inner_loops.arithmetic(loop, machine) for _, loop in found) >= 8
    for loop in loops:  # those of other sizes of tiles, and of borders, too
        assert loop.spills(machine.syntax) == 0, "\n".join(loop.lines)


@pytest.mark.parametrize(
    ("machine", "layer", "product"),
    [
        ("raspberrypi4 (cortex-a72)", "1x1, 64 to 128", r"^smull\s+v\d+\.8h"),
        ("raspberrypi4 (cortex-a72)", "grouped 3x3, 8 per group", r"^smull\s+v\d+\.8h"),
        ("cortex-a53", "matmul 1x512x1000", r"^smull\s+v\d+\.8h"),
        ("raspberrypi4 (cortex-a72)", "3x3 stride 1, 64 to 64", r"^smlal\s+v\d+\.4s"),
        ("raspberrypi2 (ARMv7)", "3x3 stride 2, 64 to 128", r"^vmull\.s8"),
        ("riscv64 V (128 bit)", "1x1, 64 to 128", r"^vwmacc\.vv"),
    ],
)
def test_no_stack_in_loops_of_bytes(machine: str, layer: str, product: str) -> None:
    on = MACHINES[machine]
    built = plan_of(LAYERS[layer].quantised(-127), target=on.target)
    (hot,) = (k for k in built.plan.kernels if "operands" in k.parameters)
    text = compile_assembly(built.functions, on.target)
    loops = inner_loops.loops_with(text, hot.symbol, on, lambda loop: loop.count(product))
    most = max(loop.count(product) for loop in loops)
    assert most >= 6, most
    for loop in loops:
        if loop.count(product) * 2 >= most:
            assert loop.spills(on.syntax) == 0, "\n".join(loop.lines)


def test_avx512_asks_no_register_that_the_instruction_does_not_reach() -> None:
    """LLVM's SLP vectoriser makes vectors of this convolution's conditions; the results were wrong."""
    model = conv((2, 8, 6, 6, 6), 4, (3, 1, 2), pads=[1, 0, 1, 0, 0, 0])
    target = replace(MACHINES["x86-64-v4 (AVX-512)"].target, threads=1)
    text = compile_assembly(plan_of(model, target=target).functions, target)
    assert "vfmadd" in text
    assert not re.search(r"vmovmskp[sd]\s+%[xyz]mm(1[6-9]|2\d|3[01])", text)


def test_immediates_are_not_comments() -> None:
    text = "k:\n.LBB0_1:\n\tldr\tq0, [sp, #16]\n\tfmla\tv1.4s, v0.4s, v2.s[0] // note\n\tb.ne\t.LBB0_1\n"
    (loop,) = inner_loops.loops_of(text, "k", MACHINES["cortex-a76"])
    assert loop.lines[0] == "ldr q0, [sp, #16]"
    assert loop.spills(inner_loops.AARCH64) == 1
