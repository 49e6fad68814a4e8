"""Models whose dtypes, inputs or outputs are unusual: ``ODD[name]()``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.compose
import onnx.version_converter
from onnx import TensorProto, helper

from workbench.models.builder import Graph

__all__ = ["ODD", "together"]


def float16_conv() -> onnx.ModelProto:
    """All float16: convolution, bias, ReLU, pool, Gemm, softmax."""
    g = Graph("float16_conv")
    x = g.op(
        "Conv", g.input("x", [1, 3, 16, 16], "float16"), g.weight(8, 3, 3, 3, dtype="float16"), pads=[1] * 4
    )
    x = g.op("Relu", g.op("Add", x, g.weight(1, 8, 1, 1, std=0.1, dtype="float16")))
    x = g.op("Flatten", g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    x = g.op("Gemm", x, g.weight(10, 512, dtype="float16"), g.weight(10, std=0.1, dtype="float16"), transB=1)
    g.op("Softmax", x, axis=-1, name="y")
    g.output("y", "float16")
    return g.model()


def float16_inside() -> onnx.ModelProto:
    """float32 in and out, float16 inside, as converters make them."""
    g = Graph("float16_inside")
    x = g.op("Cast", g.input("x", [4, 32]), to=TensorProto.FLOAT16)
    x = g.op("Relu", g.op("MatMul", x, g.weight(32, 16, std=0.2, dtype="float16")))
    g.op("Cast", g.op("MatMul", x, g.weight(16, 8, std=0.2, dtype="float16")), to=TensorProto.FLOAT, name="y")
    g.output("y")
    return g.model()


def float16_layernorm() -> onnx.ModelProto:
    g = Graph("float16_layernorm")
    gamma, beta = g.uniform(16, low=0.5, high=1.5, dtype="float16"), g.weight(16, std=0.1, dtype="float16")
    g.op("LayerNormalization", g.input("x", [2, 5, 16], "float16"), gamma, beta, name="y")
    g.output("y", "float16")
    return g.model()


def float64_dense() -> onnx.ModelProto:
    g = Graph("float64_dense")
    g.op("MatMul", g.input("x", [3, 4], "float64"), g.weight(4, 5, dtype="float64"), name="y")
    g.output("y", "float64")
    return g.model()


def _arithmetic(dtype: str) -> Callable[[], onnx.ModelProto]:
    def build() -> onnx.ModelProto:
        g = Graph(f"arithmetic_{dtype}", opset=14)
        a, b = g.input("a", [3, 4], dtype), g.input("b", [4], dtype)
        g.op("Mul", g.op("Add", a, b), g.const(np.asarray(2, dtype)), name="y")
        g.output("y", dtype)
        return g.model()

    return build


def uint8_image() -> onnx.ModelProto:
    """A camera's bytes, scaled and normalised inside the model."""
    g = Graph("uint8_image")
    x = g.op("Transpose", g.input("image", [1, 8, 8, 3], "uint8"), perm=[0, 3, 1, 2])
    x = g.op("Div", g.op("Cast", x, to=TensorProto.FLOAT), g.const(255.0))
    g.op("GlobalAveragePool", g.conv(x, 3, 4, 3), name="y")
    g.output("y")
    return g.model()


def bool_logic() -> onnx.ModelProto:
    g = Graph("bool_logic")
    a, b = g.input("a", [2, 3], "bool"), g.input("b", [3], "bool")
    g.op("Or", g.op("Not", a), b, name="y")
    g.output("y", "bool")
    return g.model()


def scalars() -> onnx.ModelProto:
    """Scalar inputs and outputs, float and integer."""
    g = Graph("scalars")
    a, n = g.input("a", []), g.input("n", [], "int64")
    g.op("Mul", g.input("x", [2, 3]), a, name="scaled")
    g.op("ReduceSum", "scaled", keepdims=0, name="total")
    g.op("Add", n, g.const(1), name="next")
    g.output("scaled")
    g.output("total")
    g.output("next", "int64")
    return g.model()


def many_inputs_outputs() -> onnx.ModelProto:
    g = Graph("many_inputs_outputs")
    a, b, c = g.input("a", [2, 3]), g.input("b", [2, 3]), g.input("c", [3], "int32")
    g.op("Add", a, b, name="sum")
    g.op("Cast", g.op("Greater", a, b), to=TensorProto.UINT8, name="greater")
    g.op("Mul", c, c, name="square")
    g.output("square", "int32")
    g.output("sum")
    g.output("greater", "uint8")
    return g.model()


def output_is_input() -> onnx.ModelProto:
    """The input itself is an output, once under its own name and once through Identity."""
    g = Graph("output_is_input")
    x = g.input("x", [2, 3])
    g.op("Identity", x, name="same")
    g.op("Relu", x, name="y")
    g.output("x")
    g.output("same")
    g.output("y")
    return g.model()


def output_is_constant() -> onnx.ModelProto:
    """An initializer as an output, and one that is folded to a constant."""
    g = Graph("output_is_constant")
    g.op("Relu", g.input("x", [2, 3]), name="y")
    g.const(np.float32([1, 2, 3]), name="table")
    g.op("Shape", "y", name="shape")
    g.output("y")
    g.output("table")
    g.output("shape", "int64")
    return g.model()


def only_constants() -> onnx.ModelProto:
    """No output depends on the input."""
    g = Graph("only_constants")
    g.input("x", [2, 3])
    g.op("Add", g.const([1.0, 2.0]), g.const([3.0, 5.0]), name="y")
    g.output("y")
    return g.model()


def shared_outputs() -> onnx.ModelProto:
    """Outputs that are the same buffer: an intermediate value, its Identity, and two reshapes of it."""
    g = Graph("shared_outputs")
    g.op("Relu", g.input("x", [2, 6]), name="y")
    g.op("Identity", "y", name="same")
    g.op("Reshape", "y", g.const([3, 4]), name="reshaped")
    g.op("Flatten", "y", axis=0, name="flat")
    g.op("Neg", "y", name="negated")
    for name in ("y", "same", "reshaped", "flat", "negated"):
        g.output(name)
    return g.model()


def reshaped_input() -> onnx.ModelProto:
    """The only output is a view of the input."""
    g = Graph("reshaped_input")
    g.op("Reshape", g.input("x", [2, 6]), g.const([3, 4]), name="y")
    g.output("y")
    return g.model()


def unused_input() -> onnx.ModelProto:
    g = Graph("unused_input")
    x = g.input("x", [2, 3])
    g.input("spare", [5], "int64")
    g.op("Relu", x, name="y")
    g.output("y")
    return g.model()


def odd_names() -> onnx.ModelProto:
    """Names that are no identifiers, and that become equal once characters are replaced."""
    g = Graph("odd names / with: punctuation")
    names = ["a.b", "a_b", "0", "größe", "x:0", "serving default/x", "main"]
    total = ""
    for name in names:
        x = g.input(name, [2])
        total = g.op("Add", total, g.op("Mul", x, g.const(float(len(total) + 1)))) if total else x
    g.op("Neg", total, name="out.put:0")
    g.op("Abs", total, name="out_put_0")
    g.output("out.put:0")
    g.output("out_put_0")
    return g.model()


def old_initializer_inputs() -> onnx.ModelProto:
    """IR version 3: the weights are listed as inputs too."""
    g = Graph("old_initializer_inputs", opset=9, ir_version=3)
    weight = g.weight(4, 3, 3, 3)
    g.op("Conv", g.input("x", [1, 3, 6, 6]), g.input(weight, [4, 3, 3, 3]), name="y")
    g.output("y")
    return g.model()


def local_function() -> onnx.ModelProto:
    """A function of the model's own, as torch's newer exporter writes."""
    function = helper.make_function(
        "custom", "ScaledRelu", ["x", "s"], ["y"],
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Mul", ["r", "s"], ["y"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    g = Graph("local_function")
    g.op("ScaledRelu", g.input("x", [2, 3]), g.const(1.5), domain="custom", name="y")
    g.output("y", shape=[2, 3])
    model = g.model()
    model.functions.append(function)
    return model


def multiple_consumers() -> onnx.ModelProto:
    """One convolution feeds several branches: it must be computed once."""
    g = Graph("multiple_consumers")
    y = g.conv(g.input("x", [1, 4, 8, 8]), 4, 4, 3)
    left, right = g.op("Relu", y), g.op("Sigmoid", y)
    g.op("Concat", g.op("Add", left, y), g.op("Mul", right, y), axis=1, name="y")
    g.output("y")
    return g.model()


#: Models with functions of their own, and of another version of the file format.
_NOT_LIKE_THE_OTHERS = ("local_function", "old_initializer_inputs")

ODD: dict[str, Callable[[], onnx.ModelProto]] = {
    build.__name__: build
    for build in (
        float16_conv,
        float16_inside,
        float16_layernorm,
        float64_dense,
        uint8_image,
        bool_logic,
        scalars,
        many_inputs_outputs,
        output_is_input,
        output_is_constant,
        only_constants,
        shared_outputs,
        reshaped_input,
        unused_input,
        odd_names,
        old_initializer_inputs,
        local_function,
        multiple_consumers,
    )
} | {f"arithmetic_{dtype}": _arithmetic(dtype) for dtype in ("float16", "int8", "uint8", "int32", "int64")}


def together() -> onnx.ModelProto:
    """All that differ in their graph only as one model: parts that share nothing, the names of each behind
    its own."""
    g = Graph("odd")
    merged = g.model()
    for name, build in ODD.items():
        if name in _NOT_LIKE_THE_OTHERS:
            continue
        model = onnx.version_converter.convert_version(build(), g.opset)
        graph = onnx.compose.add_prefix(model, f"{name}.").graph
        for field in ("node", "input", "output", "initializer"):
            getattr(merged.graph, field).extend(getattr(graph, field))
    return merged
