"""The pass that makes operations defined: what it proves stays as it is, what it cannot prove is guarded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx import IntImm, PrimFunc, Var
from tvm.tirx.buffer import buffer_data_pointer_type
from tvm.tirx.stmt import DeclBuffer, Return

from edgepack.compiler.backends.defined import defined
from edgepack.compiler.kernels.expressions.nodes import name_of
from workbench.compiled import Compiled, target_with
from workbench.models.builder import Graph
from workbench.models.quantised import QUANTISED

Expr = Any


def _kernel(make: Callable[..., Expr], source: str, result: str) -> PrimFunc:
    """Stores what is made of two elements of memory and of the number of a task."""
    buffers = [
        tirx.decl_buffer((64,), dtype, name) for dtype, name in ((source, "a"), (source, "b"), (result, "c"))
    ]
    params = [Var(f"p{i}", buffer_data_pointer_type(buffer)) for i, buffer in enumerate(buffers)]
    lo, hi = (Var(name, tvm.ir.PrimType("int32")) for name in ("lo", "hi"))
    a, b, c = buffers
    value = make(a.vload([lo]), b.vload([lo]), lo)
    body = [
        *(DeclBuffer(buffer, data=param) for buffer, param in zip(buffers, params, strict=True)),
        tirx.BufferStore(c, value, [lo]),
        Return(IntImm("int32", 0)),
    ]
    return PrimFunc([*params, lo, hi], tirx.SeqStmt(body), tvm.ir.PrimType("int32"))


def _f32(value: float) -> Expr:
    return tirx.FloatImm("float32", value)


def _i32(value: int) -> Expr:
    return IntImm("int32", value)


PROVED: dict[str, tuple[Callable[..., Expr], str, str]] = {
    "by a constant": (lambda a, b, i: tirx.truncdiv(a, _i32(7)), "int32", "int32"),
    "by what is at least one": (lambda a, b, i: tirx.truncmod(a, tirx.max(b, _i32(1))), "int32", "int32"),
    "by what is chosen": (
        lambda a, b, i: tirx.Div(tirx.max(a, _i32(0)), tirx.Select(tirx.EQ(b, _i32(0)), _i32(1), b)),
        "int32",
        "int32",
    ),
    "a position": (lambda a, b, i: i * 3 + 1, "int32", "int32"),
    "products of short integers": (
        lambda a, b, i: tirx.Cast("int32", a) * tirx.Cast("int32", b),
        "int16",
        "int32",
    ),
    "a masked shift": (lambda a, b, i: tirx.shift_right(a, tirx.bitwise_and(b, _i32(31))), "int32", "int32"),
    "a bounded number": (
        lambda a, b, i: tirx.Cast("uint8", tirx.Min(tirx.Max(tirx.round(a), _f32(0)), _f32(255))),
        "float32",
        "uint8",
    ),
    "a number below a bound": (
        lambda a, b, i: tirx.Cast(
            "int32",
            tirx.Select(tirx.call_intrin("float32", "tirx.fabs", a) < _f32(2.0**31), a, _f32(-(2.0**31))),
        ),
        "float32",
        "int32",
    ),
}

GUARDED: dict[str, tuple[Callable[..., Expr], str, str]] = {
    "a quotient": (lambda a, b, i: tirx.truncdiv(a, b), "int32", "int32"),
    "a quotient of positive numbers": (lambda a, b, i: tirx.Div(a, b), "uint8", "uint8"),
    "a remainder by what may be -1": (
        lambda a, b, i: tirx.truncmod(a, tirx.max(b, _i32(-1))),
        "int32",
        "int32",
    ),
    "a sum of data": (lambda a, b, i: a + b, "int32", "int32"),
    "a product of data and a position": (lambda a, b, i: a * i, "int32", "int32"),
    "a shift": (lambda a, b, i: tirx.shift_left(a, b), "uint32", "uint32"),
    "a number": (lambda a, b, i: tirx.Cast("int32", a), "float32", "int32"),
    # The first operand of a maximum may be NaN: its result is the second one. The second may not.
    "a number whose bounds let NaN through": (
        lambda a, b, i: tirx.Cast("uint8", tirx.Min(_f32(255), tirx.Max(_f32(0), a))),
        "float32",
        "uint8",
    ),
    "a comparison with NaN": (lambda a, b, i: tirx.Cast("int32", tirx.NE(a, b)), "float32", "int32"),
}


@pytest.mark.parametrize("name", PROVED)
def test_what_is_proved_stays_as_it_is(name: str) -> None:
    before = _kernel(*PROVED[name])
    assert tvm_ffi.structural_equal(defined(before), before)


@pytest.mark.parametrize("name", GUARDED)
def test_what_is_not_proved_is_guarded(name: str) -> None:
    before = _kernel(*GUARDED[name])
    assert not tvm_ffi.structural_equal(defined(before), before)


def test_chains_of_divisions_take_a_time_that_grows_with_their_length(tmp_path: Path) -> None:
    """TVM's analyser puts in place of names what they stand for: sides of a choice within each other would be
    looked at for hours."""
    g = Graph("chain", opset=17)
    y, b = g.input("a", (3,), "int64"), g.input("b", (3,), "int64")
    for _ in range(24):
        y = g.op("Add", g.op("Div", y, b), g.op("Mod", b, y))
    g.op("Neg", y, name="y")
    g.output("y", "int64")
    compiled = Compiled({"chain": g.model()}, tmp_path, target_with("scalar"))
    found = compiled.run("chain", {"a": np.int64([5, 0, -9]), "b": np.int64([0, -1, 3])})
    assert found["y"].shape == (3,)


#: What LLVM's intrinsics in kernels are named: none of them has a result that is undefined for an operand.
#: ``lrint``'s is some integer, which is always clamped.
DEFINED_INTRINSICS = (
    *("llvm.x86.", "llvm.aarch64.", "llvm.arm.", "llvm.fma", "llvm.fmuladd", "llvm.sqrt", "llvm.fabs"),
    *("llvm.floor", "llvm.ceil", "llvm.trunc", "llvm.round", "llvm.nearbyint", "llvm.rint", "llvm.lrint"),
    *("llvm.exp", "llvm.log", "llvm.pow", "llvm.sin", "llvm.cos", "llvm.arithmetic.fence", "llvm.prefetch"),
    *(
        "llvm.fptosi.sat",
        "llvm.fptoui.sat",
        "llvm.sadd.sat",
        "llvm.uadd.sat",
        "llvm.ssub.sat",
        "llvm.usub.sat",
    ),
    *("llvm.masked.", "llvm.vector.", "llvm.umin", "llvm.umax", "llvm.smin", "llvm.smax", "llvm.fshl"),
)


@pytest.mark.slow
def test_kernels_call_no_intrinsic_of_which_a_result_is_undefined() -> None:
    """Such as ``llvm.ctlz`` of 0: whoever adds one makes it defined, and adds it here."""
    from tvm.ir import Call
    from tvm.target.codegen import llvm_get_intrinsic_name

    from workbench.compiled import plan_of

    called: set[str] = set()

    def note(x: Any) -> None:
        if name_of(x).startswith("call_llvm"):
            called.add(llvm_get_intrinsic_name(int(x.args[0].value)))

    for name in list(QUANTISED)[::6]:
        for registers in ("scalar", "512x32"):
            built = plan_of(QUANTISED[name](), target=target_with(registers))
            for function in built.functions.values():
                tvm_ffi.structural_walk(defined(function).body, (Call, note))
    assert called
    assert {name for name in called if not name.startswith(DEFINED_INTRINSICS)} == set()
