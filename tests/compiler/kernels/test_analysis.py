"""What the analysis of accesses and of rows says of small expressions and rows."""

from __future__ import annotations

import pytest
import tvm
from tvm import te, tirx
from tvm.tirx import PrimFunc

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.analysis.access_analysis import (
    Accesses,
    Axes,
    analyse_accesses,
    merge_axes,
)
from edgepack.compiler.kernels.cpu.analysis.branch_splitting import cover, emit_pieces
from edgepack.compiler.kernels.cpu.emit.affine import IndexVariables
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.tir_blocks import blocks_of
from edgepack.compiler.kernels.cpu.emit.vectors import NeedsSplit

X = te.placeholder((4, 6, 8), name="x")


def _analyse(y: te.Tensor) -> tuple[Axes, Accesses]:
    """Of what computes ``y`` from ``X``."""
    function: PrimFunc = te.create_prim_func([X, y])
    (block,) = blocks_of(function)
    variables = IndexVariables()
    axes = Axes.declare(variables, "a", block.extents)
    env = dict(zip(block.iters, axes.positions, strict=True))
    return axes, analyse_accesses(block.value, env, variables, {}, function.params[:1])


def _steps(axes: Axes, accesses: Accesses) -> list[tuple[int, ...]]:
    """For each load, how far its address moves along each axis."""
    return [
        tuple(axes.step(address, i) for i in range(len(axes.extents))) for _, address in accesses.addresses
    ]


def test_axes_that_are_read_in_step_are_one() -> None:
    found = _analyse(te.compute((4, 6, 8), lambda i, j, k: X[i, j, k] + 1.0))
    assert _steps(*found) == [(48, 8, 1)]
    assert merge_axes(*found) == [[0, 1, 2]]


def test_a_transpose_keeps_the_axes_apart_that_it_moves() -> None:
    found = _analyse(te.compute((6, 8, 4), lambda j, k, i: X[i, j, k]))
    assert _steps(*found) == [(8, 1, 48)]
    assert merge_axes(*found) == [[0, 1], [2]]


def test_an_axis_of_one_element_joins_any_run_and_moves_nothing() -> None:
    found = _analyse(te.compute((4, 1, 6, 8), lambda i, _, j, k: X[i, j, k]))
    assert _steps(*found) == [(48, 0, 8, 1)]
    assert merge_axes(*found) == [[0, 1, 2, 3]]
    assert found[0].variable(1) is None


def test_an_axis_that_decides_a_branch_stays_alone_and_both_sides_are_read() -> None:
    padded = te.compute(
        (4, 6, 9), lambda i, j, k: tirx.if_then_else(k < 8, X[i, j, tirx.min(k, 7)], tirx.const(0.0))
    )
    axes, accesses = _analyse(padded)
    assert axes.variable(2) in accesses.unmergeable
    assert merge_axes(axes, accesses)[-1] == [2]
    assert len(accesses.addresses) >= 1


def test_positions_lead_back_to_their_axes() -> None:
    variables = IndexVariables()
    axes = Axes.declare(variables, "a", (3, 1, 5)).picked([2, 0])
    others = Axes.declare(variables, "r", (3, 1, 5))
    names = [axes.variable(i) for i in range(2)]
    assert [axes.axis(name) for name in names if name is not None] == [0, 1]
    assert axes.axis(others.variable(0) or "") is None


@pytest.mark.parametrize(
    ("extent", "lanes", "expected"),
    [(32, 8, (8, 32, None)), (35, 8, (8, 32, 27)), (7, 8, (4, 4, 3)), (1, 8, (1, 1, None))],
)
def test_cover_ends_with_an_overlapping_vector(
    extent: int, lanes: int, expected: tuple[int, int, int | None]
) -> None:
    covered = cover(extent, lanes)
    assert (covered.lanes, covered.whole, covered.overlapping) == expected


def test_a_row_is_split_where_the_body_asks_for_it() -> None:
    done: list[tuple[int, int]] = []

    def body(low: int, high: int) -> None:
        for at in (3, 7):
            if low < at < high:
                raise NeedsSplit(at)
        done.append((low, high))

    emit_pieces(Emitter(1), 0, 10, body)
    assert done == [(0, 3), (3, 7), (7, 10)]


def test_a_split_outside_of_the_row_is_refused() -> None:
    def body(low: int, high: int) -> None:
        raise NeedsSplit(high)

    with pytest.raises(RuleError, match="outside of the row"):
        emit_pieces(Emitter(1), 0, 10, body)


def test_an_expression_without_a_vector_form_is_refused() -> None:
    with tvm.target.Target("llvm"), pytest.raises(RuleError, match="no vector form"):
        _analyse(te.compute((4, 6, 8), lambda i, j, k: tirx.atan2(X[i, j, k], X[i, j, k])))
