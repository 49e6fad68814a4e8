"""No number of an input is undefined in a kernel: operands at the ends of their types."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.kernels.test_gpu import target as gpu_target
from tests.support.opencl import OpenClExecutor, driver
from workbench.compiled import SWEPT, Compiled, plan_of, target_with
from workbench.models import ends

MODELS = {
    **{dtype: ends.arithmetic(dtype) for dtype in ends.INTEGERS},
    **{f"constants {dtype}": ends.constants(dtype) for dtype in ("int32", "int64", "uint8")},
    **{f"numbers {source}": ends.conversions(source) for source in ends.FLOATS},
}


@pytest.fixture(scope="module", params=("scalar", *SWEPT))
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(MODELS, tmp_path_factory.mktemp("ends"), target_with(request.param))


def _ends(dtype: str) -> list[int]:
    return sorted({0, 3, np.iinfo(dtype).min, np.iinfo(dtype).max} | ({-1} if dtype[0] == "i" else set()))


@pytest.mark.parametrize("dtype", ends.INTEGERS)
def test_divisions_shifts_and_sums_of_any_integers_are_what_is_said(compiled: Compiled, dtype: str) -> None:
    """By a tensor, by a number for all elements, and by one of rank 0: 0, the least and -1 among them."""
    inputs = ends.inputs_of(dtype)
    for number in _ends(dtype):
        inputs["one"][:], inputs["scalar"] = number, np.array(number, dtype)
        found, wanted = compiled.run(dtype, inputs), ends.expected(dtype, inputs)
        for name, values in wanted.items():
            np.testing.assert_array_equal(found[name], values, err_msg=f"{name} by {number}")


@pytest.mark.parametrize("dtype", ("int32", "int64", "uint8"))
def test_a_divisor_that_is_a_constant_zero_gives_zero(compiled: Compiled, dtype: str) -> None:
    a = ends.inputs_of(dtype)["a"]
    found = compiled.run(f"constants {dtype}", {"a": a})
    for name, values in ends.expected_of_constants(dtype, a).items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize("source", ends.FLOATS)
def test_numbers_become_the_same_integers_on_every_register_file(compiled: Compiled, source: str) -> None:
    with np.errstate(over="ignore"):
        x = np.array(ends.NUMBERS).astype(source)
    found = compiled.run(f"numbers {source}", {"x": x})
    for dtype, values in ends.converted(x).items():
        np.testing.assert_array_equal(found[dtype], values, err_msg=dtype)


def test_a_gpus_integers_are_what_is_said(tmp_path: Path) -> None:
    dtypes = ("int32", "uint8")
    models = {**{dtype: MODELS[dtype] for dtype in dtypes}, "numbers": MODELS["numbers float32"]}
    built = {name: plan_of(model, f"m{i}", gpu_target()) for i, (name, model) in enumerate(models.items())}
    executor = OpenClExecutor(built, tmp_path / "kernels", driver(tmp_path / "pocl"))
    x = np.array(ends.NUMBERS).astype("float32")
    inputs = {dtype: ends.inputs_of(dtype) for dtype in dtypes} | {"numbers": {"x": x}}
    wanted = {dtype: ends.expected(dtype, inputs[dtype]) for dtype in dtypes} | {"numbers": ends.converted(x)}
    for name, one in built.items():
        found = executor.run(name, [inputs[name][spec.name] for spec in one.plan.inputs])
        for spec, values in zip(one.plan.outputs, found, strict=True):
            np.testing.assert_array_equal(values, wanted[name][spec.name], err_msg=f"{name} {spec.name}")
