"""Products of 8-bit integers at the ends of their ranges, and their values in numpy's integers.

A kernel that adds two products up in 16 bits, as x86's ``vpmaddubsw`` does, saturates on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from workbench.models.builder import Graph

__all__ = ["Expected", "add_product", "integer_model", "product"]

#: Output by name: int64 before it was requantised, or the 8-bit result.
Expected = dict[str, np.ndarray[Any, Any]]

#: Sums have 64 terms, or 32 times 3 x 3 for convolutions: at most 9.5 million, which float32 holds exactly.
SHAPES = {
    "MatMul": ((5, 64), (64, 6)),
    "Conv": ((1, 32, 5, 5), (6, 32, 3, 3)),
}

#: Powers of two, so that requantising is exact but for its own rounding: x, weights, y.
SCALES = np.float32([2**-6, 2**-5, 4.0])

#: The zero points of operands, away from the middle.
ZEROS = {"uint8": 131, "int8": -3}


def add_product(
    g: Graph, op: str, left: str, right: str, *, constant: bool, name: str, zero_points: bool = True
) -> tuple[dict[str, np.ndarray[Any, Any]], Expected]:
    """Adds one product of ``left`` and ``right`` (uint8 or int8) to a graph.

    Args:
        op: MatMulInteger, ConvInteger, QLinearMatMul or QLinearConv.
        constant: whether the right operand is an initializer; otherwise it is an input.
        name: prefix of its inputs, and the name of its output.
        zero_points: False leaves them out, so that they are 0; MatMulInteger and ConvInteger only.

    Returns:
        Inputs by name, and the output's value.
    """
    convolution, quantised = "Conv" in op, op.startswith("QLinear")
    shapes = SHAPES["Conv" if convolution else "MatMul"]
    a = _at_the_ends(g.rng, shapes[0], left, axis=2 if convolution else 0)
    b = _at_the_ends(g.rng, shapes[1], right, axis=0 if convolution else 1)
    inputs = {f"{name}_a": a}
    x = g.input(f"{name}_a", a.shape, left)
    if constant:
        w = g.const(b)
    else:
        w = g.input(f"{name}_b", b.shape, right)
        inputs[f"{name}_b"] = b
    zeros = [np.asarray(ZEROS[kind] if zero_points else 0, kind) for kind in (left, right)]
    attributes = {"pads": [1] * 4} if convolution else {}
    multiply = _convolve if convolution else np.matmul
    exact = multiply(a.astype(np.int64) - int(zeros[0]), b.astype(np.int64) - int(zeros[1]))
    x_zero, w_zero = (g.const(zero) for zero in zeros)
    if not quantised:
        g.op(op, x, w, *([x_zero, w_zero] if zero_points else []), name=name, **attributes)
        g.output(name, "int32", exact.shape)
        return inputs, {name: exact.astype(np.int32)}
    x_scale, w_scale, y_scale = (g.const(scale) for scale in SCALES)
    g.op(op, x, x_scale, x_zero, w, w_scale, w_zero, y_scale, g.const(np.uint8(128)), name=name, **attributes)
    g.output(name, "uint8", exact.shape)
    steps = np.rint(exact * float(SCALES[0] * SCALES[1] / SCALES[2]))  # halves to even, as ONNX says
    return inputs, {name: np.clip(steps + 128, 0, 255).astype(np.uint8)}


def product(
    op: str, left: str, right: str, *, constant: bool, zero_points: bool = True
) -> tuple[onnx.ModelProto, dict[str, np.ndarray[Any, Any]], Expected]:
    """A model of one product, its inputs and its output; the arguments are those of :func:`add_product`."""
    g = Graph(op)
    inputs, expected = add_product(g, op, left, right, constant=constant, zero_points=zero_points, name="y")
    return g.model(), inputs, expected


def integer_model() -> tuple[onnx.ModelProto, dict[str, np.ndarray[Any, Any]], Expected]:
    """Each kind of product that saturates on some CPU, and floats whose last bits differ there.

    Returns:
        The model, all its inputs, and the outputs of the products; those of the floats are left out.
    """
    g = Graph("integer_model")
    inputs: dict[str, np.ndarray[Any, Any]] = {}
    expected: Expected = {}
    for name, op, left, right, constant in (
        ("matmul", "MatMulInteger", "uint8", "int8", True),
        ("product", "MatMulInteger", "uint8", "int8", False),
        ("conv", "ConvInteger", "int8", "uint8", True),
        ("qlinear_matmul", "QLinearMatMul", "uint8", "int8", True),
        ("qlinear_conv", "QLinearConv", "uint8", "int8", True),
    ):
        more, value = add_product(g, op, left, right, constant=constant, name=name)
        inputs |= more
        expected |= value
    inputs["signal"] = g.rng.standard_normal((1, 80, 100)).astype(np.float32)
    hidden = g.op("Conv", g.input("signal", [1, 80, 100]), g.weight(33, 80, 3), pads=[1, 1])
    g.op("Softmax", hidden, axis=1, name="softmax")
    g.output("softmax")
    g.op("LogSoftmax", hidden, axis=2, name="log_softmax")
    g.output("log_softmax")
    return g.model(), inputs, expected


def _at_the_ends(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, *, axis: int
) -> np.ndarray[Any, Any]:
    """Greatest values in the first slice along ``axis``, least ones in the next, either in the one after it;
    any value in the rest."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    array = rng.integers(low, high, shape, endpoint=True)
    slices = np.moveaxis(array, axis, 0)
    slices[0], slices[1] = high, low
    slices[2] = rng.choice([low, high], slices[2].shape)
    return array.astype(dtype)


def _convolve(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convolution of NCHW with OIHW, one pixel of zeros around, in the integers of its operands."""
    kernel = w.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(2, 3))
    products: Callable[..., np.ndarray[Any, Any]] = np.einsum
    return products("nchwij,ocij->nohw", windows, w)
