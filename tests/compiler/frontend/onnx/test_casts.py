from __future__ import annotations

import numpy as np
import onnx
import pytest

from workbench.compiled import Compiled
from workbench.models.builder import Graph

PAIRS = (("float32", "int32"), ("float32", "uint8"), ("float32", "int64"), ("float16", "int16"))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {}
    for source, target in PAIRS:
        g = Graph("cast")
        code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(target))
        g.output(g.op("Cast", g.input("x", [3, 37], source), to=code), target)
        models[f"{source} to {target}"] = g.model()
    return Compiled(models, tmp_path_factory.mktemp("casts"))


@pytest.mark.parametrize("pair", PAIRS)
def test_numbers_become_integers_as_with_onnxruntime(compiled: Compiled, pair: tuple[str, str]) -> None:
    """What no int32 (int64) holds becomes the least one; narrower types wrap around."""
    name = " to ".join(pair)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3, 37)) * np.exp(rng.uniform(-2, 8, (3, 37)))
    x[0, :6] = [np.nan, np.inf, -np.inf, 3e9, -3e9, -(2.0**31)] if pair[0] == "float32" else 0
    inputs = {"x": x.astype(pair[0])}
    (got,), (want,) = compiled.run(name, inputs).values(), compiled.expected(name, inputs).values()
    np.testing.assert_array_equal(got, want)
    rules = {kernel.rule for kernel in compiled.plan(name).kernels}
    assert rules == {"elementwise"}
