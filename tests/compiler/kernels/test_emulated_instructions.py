"""Kernels for CPUs that this machine need not be, their instructions replaced by what these do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.target.codegen import llvm_lookup_intrinsic_id
from tvm.tirx import IntImm

from edgepack.config.device import load_device
from tests.compiler.kernels.test_quantised import MODELS, defined
from workbench.compiled import plan_of
from workbench.executor import Executor

Expr = Any

#: By device: bits of its vectors of bytes, and what its kernels compute.
DEVICES = {
    "linux-x86_64-vnni": ("512", ("window, u8s8", "product, u8s8", "depthwise, u8s8")),
    "linux-x86_64-avxvnni": ("256", ("first layer, u8s8", "groups, u8s8")),
}


def _splat(number: int, lanes: int) -> Expr:
    return tirx.Broadcast(IntImm("int32", number), lanes)


def _part(x: Expr, place: int, bits: int, lanes: int, *, signed: bool) -> Expr:
    """A field of each int32, as int32."""
    lifted = tirx.shift_left(x, _splat(32 - bits - place * bits, lanes))
    field = tirx.shift_right(lifted, _splat(32 - bits, lanes))
    return field if signed else tirx.bitwise_and(field, _splat((1 << bits) - 1, lanes))


def _dot(lanes: int, bits: int, *, signed: bool, adds: bool) -> Callable[..., Expr]:
    """Products of neighbours of ``bits``, added to each other and to sums where the instruction does that."""

    def made(*operands: Expr) -> Expr:
        a, b = (tirx.reinterpret(f"int32x{lanes}", x) for x in operands[-2:])
        total = operands[0] if adds else _splat(0, lanes)
        for place in range(32 // bits):
            left = _part(a, place, bits, lanes, signed=signed)
            total = total + left * _part(b, place, bits, lanes, signed=True)
        return total

    return made


def _nearest(lanes: int) -> Callable[..., Expr]:
    def made(x: Expr, *mode: Expr) -> Expr:
        return tirx.Cast(f"int32x{lanes}", tirx.call_llvm_pure_intrin(f"float32x{lanes}", "llvm.rint", x))

    return made


INSTRUCTIONS = {
    **{
        f"llvm.x86.avx512.vpdpbusd.{32 * lanes}": _dot(lanes, 8, signed=False, adds=True)
        for lanes in (4, 8, 16)
    },
    "llvm.x86.avx512.pmaddw.d.512": _dot(16, 16, signed=True, adds=False),
    "llvm.x86.avx2.pmadd.wd": _dot(8, 16, signed=True, adds=False),
    "llvm.x86.sse2.pmadd.wd": _dot(4, 16, signed=True, adds=False),
    "llvm.x86.avx512.mask.cvtps2dq.512": _nearest(16),
    "llvm.x86.avx.cvt.ps2dq.256": _nearest(8),
    "llvm.x86.sse2.cvtps2dq": _nearest(4),
}


def emulated(function: tirx.PrimFunc, seen: set[str]) -> tirx.PrimFunc:
    """The function with ordinary operations in place of instructions, whose names are added to ``seen``."""
    names = {llvm_lookup_intrinsic_id(name): name for name in INSTRUCTIONS}

    def instead(call: Call) -> Expr:
        if getattr(call.op, "name", "") != "tirx.call_llvm_pure_intrin":
            return call
        name = names.get(int(call.args[0]))
        if name is None:
            return call
        seen.add(name)
        return INSTRUCTIONS[name](*call.args[1:])

    made: tirx.PrimFunc = tvm_ffi.structural_map(function, (Call, instead))
    return made


@pytest.mark.parametrize("device", DEVICES)
def test_sums_of_bytes_are_exact(device: str, tmp_path: Path) -> None:
    width, names = DEVICES[device]
    target, seen = load_device(device).cpu_target(), set[str]()
    built = {}
    for number, name in enumerate(names):
        made = plan_of(MODELS[name], f"m{number}", target)
        functions = {symbol: emulated(f, seen) for symbol, f in made.functions.items()}
        built[name] = replace(made, functions=functions)
    assert f"llvm.x86.avx512.vpdpbusd.{width}" in seen
    executor, rng = Executor(built, tmp_path), np.random.default_rng(3)
    for name in names:
        (spec,) = built[name].plan.inputs
        info = np.iinfo(spec.dtype)
        for values in ([info.min, info.max], range(info.min, info.max + 1)):
            x = rng.choice(np.array(values, spec.dtype), spec.shape)
            np.testing.assert_array_equal(executor.run(name, [x])[0], defined(MODELS[name], x))
