"""Cumulative sums along every axis: rows side by side, blocks of columns, vectors that overlap."""

from __future__ import annotations

import onnx
import pytest

from workbench.compiled import SWEPT, Library
from workbench.models.builder import Graph

#: Shape, axis, attributes, dtype.
CASES: dict[str, tuple[tuple[int, ...], int, dict[str, int], str]] = {
    "rows": ((11, 23), 1, {}, "float32"),
    "one row": ((50,), 0, {"reverse": 1}, "int64"),
    "columns": ((2, 9, 35), 1, {"exclusive": 1}, "float32"),
    "few columns": ((7, 9, 3), 1, {"reverse": 1, "exclusive": 1}, "float32"),
    "blocks of columns": ((3, 4, 130), -2, {}, "float32"),
    "whole blocks and a rest": ((4, 257), 0, {"reverse": 1}, "int32"),
    "double": ((5, 6, 9), 0, {}, "float64"),
}


def _model(shape: tuple[int, ...], axis: int, attributes: dict[str, int], dtype: str) -> onnx.ModelProto:
    g = Graph("scan")
    g.op("CumSum", g.input("x", shape, dtype), g.const(axis), name="y", **attributes)
    g.output("y", dtype)
    return g.model()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    models = {name: _model(*case) for name, case in CASES.items()}
    pairs = [(registers, name) for registers in SWEPT for name in models]
    return Library(models, pairs, tmp_path_factory.mktemp("scan"))


@pytest.mark.parametrize("registers", SWEPT)
@pytest.mark.parametrize("name", CASES)
def test_sums_are_those_of_the_elements_before(library: Library, registers: str, name: str) -> None:
    compiled = library(registers)
    assert [kernel.rule for kernel in compiled.plan(name).kernels] == ["scan"]
    compiled.check(name)
