"""The nearest integers of float32 vectors, halves to the even one, by the instructions that CPUs have for
it."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.tvm_target import has_feature
from edgepack.plan.target import CpuTarget

__all__ = ["nearest_integers", "nearest_lanes"]

Expr = Any

#: LLVM's names: of what brings an instruction, and of the instruction, by its number of lanes. x86 rounds as
#: its mode says, which is to the nearest.
X86 = {
    4: ("sse2", "llvm.x86.sse2.cvtps2dq"),
    8: ("avx", "llvm.x86.avx.cvt.ps2dq.256"),
    16: ("avx512f", "llvm.x86.avx512.mask.cvtps2dq.512"),
}
#: RISC-V's of vectors of any length: VFCVT, which rounds as its mode says too. One that truncates, as a cast
#: does, makes qemu 7.2 end with a failed assertion where it stands behind VSETVLI.
RISCV = "llvm.lrint"
AARCH64 = "llvm.aarch64.neon.fcvtns.v4i32.v4f32"


def nearest_lanes(target: CpuTarget) -> int:
    """Lanes of the widest vector that one instruction rounds to integers; 0 where none does."""
    if target.rounds_to_integers:
        return min(4, target.word_lanes) if target.word_lanes >= 4 else 0
    if has_feature(target, "v"):
        return target.word_lanes
    return max(
        (n for n, (feature, _) in X86.items() if n <= target.word_lanes and has_feature(target, feature)),
        default=0,
    )


def nearest_integers(e: Emitter, x: Expr, lanes: int) -> Expr | None:
    """int32 of float32 below 2**31; None where no instruction does it."""
    widest = nearest_lanes(e.target) if e.target is not None else 0
    width = min(widest, lanes)
    if e.target is None or width < 2 or lanes % width:
        return None
    if not has_feature(e.target, "v") and width not in ({4} if e.target.rounds_to_integers else X86):
        return None
    x = e.let(x)
    parts = [
        _rounded(e, x if width == lanes else e.let(tirx.Shuffle([x], list(range(at, at + width)))), width)
        for at in range(0, lanes, width)
    ]
    return parts[0] if len(parts) == 1 else e.let(tirx.Shuffle(parts, list(range(lanes))))


def _rounded(e: Emitter, x: Expr, lanes: int) -> Expr:
    assert e.target is not None
    vector = f"int32x{lanes}"
    if e.target.rounds_to_integers:
        return e.let(tirx.call_llvm_pure_intrin(vector, AARCH64, x))
    if has_feature(e.target, "v"):
        return e.let(tirx.call_llvm_pure_intrin(vector, RISCV, x))
    name = X86[lanes][1]
    if lanes < 16:
        return e.let(tirx.call_llvm_pure_intrin(vector, name, x))
    everywhere, mode = tirx.const(-1, "int16"), tirx.const(4, "int32")
    nothing = e.splat(IntImm("int32", 0), lanes)
    return e.let(tirx.call_llvm_pure_intrin(vector, name, x, nothing, everywhere, mode))
