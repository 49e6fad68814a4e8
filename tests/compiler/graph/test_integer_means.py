"""Means of integers are integers of the same type: a wider result would be written beyond its tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from workbench.compiled import Compiled
from workbench.models.builder import Graph

DTYPES = ("int32", "uint32", "int64", "uint64")
AXES: tuple[tuple[int, ...] | None, ...] = (None, (0,), (1, -1))


def mean(dtype: str, axes: tuple[int, ...] | None, keepdims: int) -> onnx.ModelProto:
    g = Graph("mean", opset=18)
    given = [] if axes is None else [g.const(np.array(axes, np.int64))]
    g.output(g.op("ReduceMean", g.input("x", (3, 4, 5), dtype), *given, keepdims=keepdims, name="y"), dtype)
    return g.model()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    folder: Path = tmp_path_factory.mktemp("means")
    models = {f"{d}{i}": mean(d, axes, i % 2) for d in DTYPES for i, axes in enumerate(AXES)}
    return Compiled(models, folder)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_mean_of_integers_is_cut_off_and_of_their_type(compiled: Compiled, dtype: str) -> None:
    least = max(np.iinfo(dtype).min, -(10**6))
    x = np.random.default_rng(3).integers(least, 10**6, (3, 4, 5)).astype(dtype)
    for i, axes in enumerate(AXES):
        wanted = np.trunc(x.astype(np.float64).mean(axis=axes, keepdims=bool(i % 2))).astype(dtype)
        got = compiled.run(f"{dtype}{i}", {"x": x})["y"]
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)
