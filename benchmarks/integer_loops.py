"""The inner loops of integer kernels on targets that are not at hand: ``python benchmarks/integer_loops.py``.

As ``assembly.py`` does for float32: a quantised kernel is compiled for each target, the innermost loop that
multiplies most is found in the assembly text, and its instructions are counted. Beside it stands the same
kernel of float32. llvm-mca predicts cycles where it has a model of the CPU.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import onnx
from assembly import arguments, chosen, cycles_of, finish
from markdown import table

from edgepack.compiler.backends.llvm import compile_assembly
from edgepack.config.device import load_device
from edgepack.plan.target import CpuTarget
from tools.inner_loops import AARCH64, ARM, RISCV, WASM, X86, Loop, Machine, Syntax, loops_with
from workbench.compiled import plan_of
from workbench.models.hot_integers import LAYERS

#: A multiply-add of RISC-V's V.
RISCV_PRODUCT = r"^vw(mul|macc)(su|us|u)?\.v|^vf(macc|madd|mul)\.v"

#: By instruction: the multiply-adds that one of it does (of 128 bits).
PRODUCTS: dict[int, tuple[tuple[str, int], ...]] = {
    id(AARCH64): (
        (r"^[su]*mmla\s+v\d+\.4s", 32),
        (r"^[su]+dot\s", 16),
        (r"^(smull2?|smlal2?)\s+v\d+\.8h", 8),
        (r"^(smull2?|smlal2?|fmla|fmul|mla)\s+v\d+\.4s", 4),
    ),
    id(ARM): ((r"^v(mull|mlal)\.s8", 8), (r"^v(mull|mlal)\.s16|^v(fma|mla|mul)\.f32\s+q", 4)),
    id(WASM): (
        (r"^i16x8\.relaxed_dot|^i32x4\.relaxed_dot", 16),
        (r"^i32x4\.dot_i16x8_s", 8),
        (r"^f32x4\.(mul|relaxed_madd)", 4),
    ),
    id(X86): ((r"^vpdpbusd\s.*zmm", 64), (r"^vpdpbusd\s.*ymm", 32), (r"^vfmadd\w+ps\s.*zmm", 16)),
}


def machines() -> Iterator[Machine]:
    """The targets of the table."""

    def of(device: str, **changes: object) -> CpuTarget:
        return replace(load_device(device).cpu_target(), **changes)  # type: ignore[arg-type]

    arm64 = "aarch64-linux-gnu"
    yield Machine("raspberrypi2 (ARMv7)", of("raspberrypi2"), ARM, ("armv7a-linux-gnueabihf", "cortex-a57"))
    yield Machine("raspberrypi4 (cortex-a72)", of("raspberrypi4"), AARCH64, (arm64, "cortex-a72"))
    yield Machine("raspberrypi3 (cortex-a53)", of("raspberrypi3"), AARCH64, (arm64, "cortex-a55"))
    yield Machine("raspberrypi5 (cortex-a76)", of("raspberrypi5"), AARCH64, (arm64, "cortex-a76"))
    yield Machine("linux-aarch64-v8.6", of("linux-aarch64-v8.6"), AARCH64)
    yield Machine("linux-riscv64-v", of("linux-riscv64-v"), RISCV)
    yield Machine("wasm32-wasi", of("wasm32-wasi"), WASM)


def multiply_adds(loop: Loop, syntax: Syntax) -> int:
    if syntax is RISCV:
        return _of_riscv(loop)
    return sum(each * loop.vectors(pattern) for pattern, each in PRODUCTS[id(syntax)])


def _of_riscv(loop: Loop) -> int:
    """As many as there are elements in the registers that an instruction reads, of 128 bits each."""
    total, elements = 0, 0.0
    for line in (loop.setting, *loop.lines):
        setting = re.match(r"vset\w+\s.*\be(\d+), m(f?)([1248])\b", line)
        if setting:
            size = int(setting[3])
            elements = 128 / int(setting[1]) * (1 / size if setting[2] else size)
        total += int(elements) * bool(re.search(RISCV_PRODUCT, line))
    return total


@dataclass(frozen=True)
class Found:
    """The hot loop of a kernel.

    Attributes:
        spills: instructions that touch the stack, in that of the loops that multiply most which has most.
    """

    rule: str
    loop: Loop
    multiply_adds: int
    spills: int
    cycles: float | None


def found(model: onnx.ModelProto, machine: Machine) -> Found:
    """The densest of the loops that multiply most, of the kernel that is a convolution or a product."""
    built = plan_of(model, target=machine.target)
    kernel = next(k for k in built.plan.kernels if k.rule.startswith(("conv2d", "matmul")))
    text = compile_assembly(built.functions, machine.target)
    symbols = [k.symbol for k in built.plan.kernels if k.rule == kernel.rule]
    counted = lambda loop: multiply_adds(loop, machine.syntax)  # noqa: E731
    loops = [loop for symbol in symbols for loop in loops_with(text, symbol, machine, counted)]
    most = max(map(counted, loops))
    loop = max(
        (one for one in loops if counted(one) * 2 >= most), key=lambda one: counted(one) / len(one.lines)
    )
    rule = " ".join(filter(None, (kernel.rule, str(kernel.parameters.get("tile", "")))))
    operands = kernel.parameters.get("operands", "")
    spills = max(one.spills(machine.syntax) for one in loops if counted(one) * 2 >= most)
    cycles = cycles_of(loop.lines, machine, loop.setting)
    return Found(f"{rule} {operands}".strip(), loop, counted(loop), spills, cycles)


def row(machine: Machine, name: str, verbose: bool) -> list[str]:
    layer = LAYERS[name]
    whole, single = found(layer.quantised(-127), machine), found(layer.floats(), machine)
    if verbose:
        print(f"--- {machine.name}: {name}\n" + "\n".join(whole.loop.lines))
    per_cycle = lambda one: one.multiply_adds / one.cycles if one.cycles else 0.0  # noqa: E731
    quotient = per_cycle(whole) / per_cycle(single) if per_cycle(single) else 0.0
    return [
        machine.name,
        name,
        whole.rule,
        str(len(whole.loop.lines)),
        str(whole.multiply_adds),
        f"{len(whole.loop.lines) / whole.multiply_adds:.2f}",
        f"{len(single.loop.lines) / single.multiply_adds:.2f}",
        str(whole.spills),
        f"{per_cycle(whole):.1f}" if whole.cycles else "",
        f"{per_cycle(single):.1f}" if single.cycles else "",
        f"{quotient:.1f}" if quotient else "",
    ]


HEADER = [
    *("target", "kernel", "rule, tile, operands", "instructions", "multiply-adds"),
    *("instructions for one", "float32", "stack", "multiply-adds a cycle", "float32", "times as many"),
]


def main() -> None:
    options = arguments(__doc__)
    rows = []
    for machine in chosen(machines(), options):
        for name in LAYERS:
            if options.kernels in name:
                rows.append(row(machine, name, options.verbose))
                print(" | ".join(rows[-1]), flush=True)
    text = (
        f"{table(HEADER, rows, left=3)}\n\n"
        "One iteration of the innermost loop of a quantised kernel (u8 by s8, weights from -127 to 127), "
        "and of the same kernel of float32, whose 3x3 convolutions of stride 1 are in Winograd's form: it "
        "has fewer multiply-adds. Stack: instructions that touch it, of all inner loops that multiply at "
        "least half as much. Multiply-adds a cycle by llvm-mca's models of Cortex-A57 (for A7 and A72), "
        "A55 and A76; loads hit L1; none was compared with hardware. A55 stands for A53, whose model "
        "commits loads in order: A55 does two FMLA of four numbers in a cycle and A53 one, as both do one "
        "SMULL, SMLAL or SADALP, so that on A53 16 multiply-adds of bytes take three cycles and of "
        "float32 four."
    )
    finish("Inner loops of integers", text, "integer_loops.py", options)


if __name__ == "__main__":
    main()
