"""Reductions in slices, whose sums wait in scratch: with a small L2 cache, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import onnx
import pytest

from workbench.compiled import Compiled, Library, on_register_files, target_with
from workbench.models.builder import Graph


def _finish(g: Graph, y: str) -> onnx.ModelProto:
    g.op("Relu", y, name="y")
    g.output("y")
    return g.model()


def _conv(cin: int, cout: int, kernel: int, size: int, batch: int = 1, **attributes: Any) -> onnx.ModelProto:
    g = Graph("conv", seed=1)
    w, b = g.weight(cout, cin, kernel, kernel), g.weight(cout)
    attributes.setdefault("pads", [kernel // 2] * 4)
    return _finish(g, g.op("Conv", g.input("x", [batch, cin, size, size]), w, b, **attributes))


def _matmul(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    g = Graph("matmul", seed=2)
    x, residual = g.input("x", [rows, depth]), g.input("r", [rows, columns])
    return _finish(g, g.op("Add", g.linear(x, depth, columns), residual))


CASES: dict[str, Callable[[], onnx.ModelProto]] = {
    "3x3 stride 2": lambda: _conv(64, 72, 3, 15, strides=[2, 2]),
    "3x3 stride 2, batch": lambda: _conv(64, 40, 3, 9, batch=2, strides=[2, 2]),
    "5x5": lambda: _conv(24, 33, 5, 12),
    "3x3 dilated": lambda: _conv(48, 70, 3, 17, dilations=[2, 2]),
    "1x1": lambda: _conv(448, 100, 1, 9),
    "matmul": lambda: _matmul(50, 768, 200),
    "matmul, one tile of columns": lambda: _matmul(37, 512, 24),
}


#: Windows of one row: there is nothing to slice but a plain product's channels.
WHOLE: dict[str, Callable[[], onnx.ModelProto]] = {
    "1x1 stride 2": lambda: _conv(256, 96, 1, 14, strides=[2, 2]),
    "1x1 padded": lambda: _conv(320, 72, 1, 9, pads=[1, 0, 1, 2]),
    "1x1 stride 2 padded, batch": lambda: _conv(256, 70, 1, 9, batch=2, strides=[2, 1], pads=[1, 1, 1, 1]),
}


SLICED = on_register_files(CASES, ("3x3 stride 2", "matmul"), both=())
UNSLICED = on_register_files(WHOLE, ("1x1 stride 2",), both=())


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    models = {name: make() for name, make in (CASES | WHOLE).items()}
    target = partial(target_with, l2_bytes=64 * 1024)
    return Library(models, SLICED + UNSLICED, tmp_path_factory.mktemp("slices"), target)


@pytest.mark.parametrize(("registers", "case"), SLICED)
def test_reduction_in_slices(library: Library, registers: str, case: str) -> None:
    compiled = library(registers)
    assert _has_sums(compiled, case)
    compiled.check(case, seed=3)


@pytest.mark.parametrize(("registers", "case"), UNSLICED)
def test_reduction_that_cannot_be_sliced(library: Library, registers: str, case: str) -> None:
    compiled = library(registers)
    assert not _has_sums(compiled, case)
    compiled.check(case, seed=3)


def _has_sums(compiled: Compiled, name: str) -> bool:
    """The rule is taken for large weights only; this one uses scratch for nothing but the sums."""
    return any(a.kind == "scratch" for step in compiled.plan(name).steps for a in step.arguments)
