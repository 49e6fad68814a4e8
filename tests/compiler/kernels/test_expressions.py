"""An operation is one entry of a table: vectors, tails of products, texts of GPUs and costs have it then."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from edgepack.compiler.backends.llvm import compile_object
from edgepack.compiler.graph.fused_group import Anchor, FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.generic.elementwise import elementwise
from edgepack.compiler.kernels.cpu.matmul.activations import RULE as BATCHED
from edgepack.compiler.kernels.estimate import work_of
from edgepack.compiler.kernels.expressions.nodes import name_of, nodes_in, operands_of, operation_of
from edgepack.compiler.kernels.expressions.operations import OPERATIONS, Kind, Operands, Operation
from edgepack.compiler.kernels.implement_gpu import implement_on_gpu
from edgepack.config.device import load_device
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.target import CpuTarget
from edgepack.toolchains import resolve
from workbench.compiled import FREE_COPIES, target_with

ROWS, DEPTH, COLUMNS = 5, 9, 37
#: A multiplier in fixed point with 31 digits, and how far its products are shifted to the right.
MULTIPLIER, DIGITS, SHIFT = 1_500_000_000, 31, 3


def _fixed_point(e: Any, x: Operands) -> Expr:
    """TVM's ``q_multiply_shift``: x y 2**-(q + s) of int32, rounded half up."""
    a, b, q, s = x.exprs
    wide, narrow = (dtype if x.lanes == 1 else f"{dtype}x{x.lanes}" for dtype in ("int64", "int32"))
    places = e.let(tirx.Cast(wide, e.let(q + s)))
    one = e.splat(tirx.const(1, "int64"), x.lanes)
    half = tirx.shift_left(one, e.let(places - one))
    product = e.let(tirx.Cast(wide, a) * tirx.Cast(wide, b) + half)
    return tirx.Cast(narrow, tirx.shift_right(product, places))


ADDED = Operation(
    "q_multiply_shift",
    Kind.FUNCTION,
    cost=4,
    vector={"int32": _fixed_point},
    gpu={"int32": "(int)(((ep_int64){0} * {1} + ((ep_int64)1 << ({2} + {3} - 1))) >> ({2} + {3}))"},
)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ADDED.name not in OPERATIONS
    monkeypatch.setitem(OPERATIONS, ADDED.name, ADDED)


def _scaled(x: Expr) -> Expr:
    return tirx.q_multiply_shift(x, *(tirx.const(n, "int32") for n in (MULTIPLIER, DIGITS, SHIFT)))


def _exactly(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    places = DIGITS + SHIFT
    return ((x.astype(np.int64) * MULTIPLIER + (1 << (places - 1))) >> places).astype(np.int32)


def _alone() -> FusedGroup:
    x = te.placeholder((ROWS, COLUMNS), "int32", "x")
    y = te.compute(x.shape, lambda i, j: _scaled(x[i, j]) + 1, "y")
    return FusedGroup("scaled", te.create_prim_func([x, y]), 1, ("scaled",), None)


def _behind_a_product() -> FusedGroup:
    a, b = te.placeholder((ROWS, DEPTH), "int32", "a"), te.placeholder((DEPTH, COLUMNS), "int32", "b")
    k = te.reduce_axis((0, DEPTH), "k")
    sums = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(a[i, k] * b[k, j], k), "matmul")
    y = te.compute(sums.shape, lambda i, j: _scaled(sums[i, j]), "y")
    anchor = Anchor("matmul", {}, (0, 1), 0)
    return FusedGroup("scaled", te.create_prim_func([a, b, y]), 1, ("matmul", "scaled"), anchor)


def _run(
    made: Implementation, target: CpuTarget, folder: Path, *inputs: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    (stage,) = made.stages
    compile_object({"k": stage.function}, target, folder / "k.o")
    resolve(load_device("host")).link_shared([folder / "k.o"], folder / "k.so", exported=["k"], soname="k.so")
    result = np.zeros((ROWS, COLUMNS), np.int32)
    memory = {"param": inputs, "output": (result,)}
    pointers = [ctypes.c_void_p(memory[o.kind][o.index].ctypes.data) for o in stage.operands]
    assert ctypes.CDLL(str(folder / "k.so")).k(*pointers, 0, stage.tasks) == 0
    return result


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("registers", ["scalar", "128x16", "256x16"])
def test_an_added_operation_has_vectors_and_is_computed_behind_a_product(
    registers: str, tmp_path: Path
) -> None:
    target, rng = target_with(registers), np.random.default_rng(1)
    x = rng.integers(-(2**31), 2**31, (ROWS, COLUMNS)).astype(np.int32)
    alone, behind = tmp_path / "alone", tmp_path / "behind"
    alone.mkdir()
    behind.mkdir()
    got = _run(elementwise(_alone(), target, frozenset()), target, alone, x)
    np.testing.assert_array_equal(got, _exactly(x) + 1)
    a, b = (rng.integers(-99, 99, shape).astype(np.int32) for shape in ((ROWS, DEPTH), (DEPTH, COLUMNS)))
    got = _run(BATCHED.implement(_behind_a_product(), target, frozenset()), target, behind, a, b)
    np.testing.assert_array_equal(got, _exactly(a @ b))


@pytest.mark.usefixtures("added")
def test_an_added_operation_has_a_text_and_a_cost() -> None:
    assert work_of(_alone().function).operations == ROWS * COLUMNS * (ADDED.cost + 1)
    gpu = GpuTarget("opencl", target_with("128x16"), speed=FREE_COPIES)
    assert f"(ep_int64)1 << ({DIGITS} + {SHIFT} - 1)" in implement_on_gpu(_alone(), gpu).stages[0].text


def test_an_operation_that_is_in_no_table_is_refused_by_name() -> None:
    for group, rule in ((_alone(), elementwise), (_behind_a_product(), BATCHED.implement)):
        with pytest.raises(RuleError, match="q_multiply_shift"):
            rule(group, target_with("128x16"), frozenset())


def test_nodes_are_operations_on_operands() -> None:
    i, x = tirx.Var("i", "int32"), tirx.Var("x", "float32")
    expression = tirx.Select(i < 3, tirx.exp(x), tirx.Cast("float32", i << 2))
    assert name_of(expression) == "select"
    assert [name_of(operand) for operand in operands_of(expression)] == ["lt", "exp", "cast"]
    names = [node.operation.name for node in nodes_in(expression)]
    assert names == [
        "select",
        "lt",
        "variable",
        "integer",
        "exp",
        "variable",
        "cast",
        "shift_left",
        *names[-2:],
    ]
    assert operation_of(tirx.if_then_else(i < 3, x, x)).kind is Kind.SELECT
    assert operation_of(tirx.likely(i < 3)).kind is Kind.HINT
