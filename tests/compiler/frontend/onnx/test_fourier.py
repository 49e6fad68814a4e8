"""Fourier transforms that are too long for one product, against NumPy's in float64."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgepack.compiler.frontend.onnx.rewrites import apply
from workbench.models.evaluate import run_onnxruntime

#: Shape, axis and length; lengths of small factors, with a large prime factor, and a prime.
CASES = {
    "powers of two": ((2, 4096, 2), 1, None),
    "as long as a frame": ((2, 512, 1), 1, None),
    "small factors": ((2, 3, 3000, 1), 2, None),
    "cut": ((2, 2500, 2), 1, 2000),
    "filled up": ((1, 1100, 1), 1, 1440),
    "one large factor": ((1, 2 * 683, 2), 1, None),
    "prime": ((2, 1031, 2), 1, None),
}


def transform(shape: tuple[int, ...], axis: int, length: int | None, **attributes: int) -> onnx.ModelProto:
    constants = [] if length is None else [numpy_helper.from_array(np.asarray(length, np.int64), "length")]
    node = helper.make_node(
        "DFT", ["x", *(tensor.name for tensor in constants)], ["y"], axis=axis, **attributes
    )
    values = [helper.make_tensor_value_info(name, 1, s) for name, s in (("x", shape), ("y", None))]
    graph = helper.make_graph([node], "dft", values[:1], values[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_long_transforms_are_those_of_numpy(name: str, inverse: int) -> None:
    shape, axis, length = CASES[name]
    check(shape, axis, length, inverse=inverse, onesided=0)


def test_half_of_the_spectrum_of_real_signals() -> None:
    check((2, 1500, 1), 1, None, inverse=0, onesided=1)
    check((2, 751, 2), 1, None, inverse=1, onesided=1)
    check((1, 751, 2), 1, 1501, inverse=1, onesided=1)


def check(shape: tuple[int, ...], axis: int, length: int | None, *, inverse: int, onesided: int) -> None:
    model = apply(transform(shape, axis, length, inverse=inverse, onesided=onesided))
    assert all(node.op_type != "DFT" for node in model.graph.node)
    largest = max(np.prod(tensor.dims) for tensor in model.graph.initializer)
    assert largest < (length or shape[axis]) ** 2, "no matrix of the length's square"
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    numbers = x[..., 0] + 1j * x[..., 1] if shape[-1] == 2 else x[..., 0].astype(np.float64)
    if inverse and onesided:
        wanted = np.fft.irfft(numbers, length or 2 * (shape[axis] - 1), axis=axis)[..., None]
    else:
        found = (np.fft.ifft if inverse else np.fft.fft)(numbers, length, axis=axis)
        if onesided:
            found = np.take(found, range(found.shape[axis] // 2 + 1), axis=axis)
        wanted = np.stack([found.real, found.imag], -1)
    (got,) = run_onnxruntime(model, {"x": x})
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())
