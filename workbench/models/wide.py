"""Single operators on shapes that fill several vectors and leave a rest: where a CPU's kernels show."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from workbench.models.builder import Graph

__all__ = ["wide_models"]

Case = tuple[onnx.ModelProto, dict[str, np.ndarray[Any, Any]]]

_ELEMENTWISE = (
    *("Abs", "Atan", "Celu", "Ceil", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish"),
    *("LeakyRelu", "Mish", "Neg", "Relu", "Round", "Selu", "Sigmoid", "Sin", "Sinh", "Softplus", "Softsign"),
    *("Tan", "Tanh"),
)
_REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceProd", "ReduceSum"),
    "ReduceSumSquare",
)
_PRODUCTS = (
    *((1, 1, 1), (1, 300, 1), (1, 257, 100), (1, 256, 1000), (5, 300, 1), (7, 129, 33), (2, 1025, 17)),
    *((64, 64, 64), (97, 513, 61), (3, 17, 129), (16, 3, 300)),
)
#: Channels in and out, kernel, groups, stride, height and width.
_CONVOLUTIONS = (
    *((3, 32, 7, 1, 2, 65), (16, 33, 3, 1, 1, 29), (24, 24, 3, 24, 1, 31), (24, 24, 5, 24, 2, 31)),
    *((64, 17, 1, 1, 1, 19), (8, 16, 3, 2, 1, 19), (32, 64, 1, 1, 2, 15), (48, 96, 3, 1, 1, 7)),
)


def wide_models() -> dict[str, Case]:
    """Models and seeded inputs by name."""
    made = _Cases()
    made.elementwise()
    made.rows()
    made.products()
    made.convolutions()
    made.sequences()
    return made.cases


class _Cases:
    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}
        self.rng = np.random.default_rng(3)

    def normal(self, *shape: int) -> np.ndarray[Any, Any]:
        return self.rng.standard_normal(shape).astype(np.float32)

    def add(
        self,
        name: str,
        op: str,
        *inputs: np.ndarray[Any, Any],
        constants: tuple[Any, ...] = (),
        outputs: int = 1,
        opset: int = 21,
        **attributes: Any,
    ) -> None:
        g = Graph(name, opset=opset, ir_version=10)
        names = [g.input(f"x{i}", array.shape, str(array.dtype)) for i, array in enumerate(inputs)]
        consts = [g.const(value) for value in constants]
        results = g.ops(op, *names, *consts, outputs=outputs, name="y", **attributes)
        g.outputs += [onnx.ValueInfoProto(name=result) for result in results]
        self.cases[name] = (g.model(), dict(zip(names, inputs, strict=True)))

    def elementwise(self) -> None:
        x = 3 * self.normal(3, 1037)
        positive = np.abs(x) + np.float32(0.01)
        for op in _ELEMENTWISE:
            self.add(op, op, x)
        for op in ("Log", "Reciprocal", "Sqrt"):
            self.add(op, op, positive)
        for kind in ("none", "tanh"):
            self.add(f"Gelu {kind}", "Gelu", x, approximate=kind)
        self.add("Pow", "Pow", positive, self.normal(3, 1037))
        self.add("Div", "Div", x, positive)
        for dtype in (np.uint8, np.int8):
            self.add(
                f"Quantize {dtype.__name__}", "QuantizeLinear", x, constants=(np.float32(0.02), dtype(3))
            )
        self.add("DynamicQuantize", "DynamicQuantizeLinear", x, outputs=3)
        self.add("to float16", "Cast", x, to=onnx.TensorProto.FLOAT16)
        self.add("from float16", "Cast", x.astype(np.float16), to=onnx.TensorProto.FLOAT)

    def rows(self) -> None:
        for size in (1, 3, 15, 16, 17, 33, 100, 197, 1000):
            for op in ("Softmax", "LogSoftmax"):
                self.add(f"{op} {size}", op, self.normal(5, size))
        self.add("Softmax inside", "Softmax", self.normal(5, 37, 9), axis=1)
        for op in _REDUCTIONS:
            for axes in ([0], [1], [2], [1, 2]):
                self.add(f"{op} {axes}", op, self.normal(3, 37, 129), constants=(np.int64(axes),))
        for size in (197, 768):
            gamma, beta = self.normal(size), self.normal(size)
            self.add(f"LayerNorm {size}", "LayerNormalization", self.normal(7, size), constants=(gamma, beta))
        image, scale, bias = self.normal(2, 8, 19, 19), self.normal(8), self.normal(8)
        self.add("InstanceNorm", "InstanceNormalization", image, constants=(scale, bias))
        self.add("GroupNorm", "GroupNormalization", image, constants=(scale, bias), num_groups=4)
        self.add(
            "BatchNorm", "BatchNormalization", image, constants=(scale, bias, self.normal(8), np.abs(scale))
        )
        self.add("LRN", "LRN", image, size=5)
        self.add("CumSum", "CumSum", self.normal(3, 333), constants=(np.int64(1),))

    def products(self) -> None:
        for m, k, n in _PRODUCTS:
            a, b = self.normal(m, k), self.normal(k, n)
            shape = f"{m}x{k}x{n}"
            self.add(f"MatMul {shape}", "MatMul", a, constants=(b,))
            self.add(f"MatMul of activations {shape}", "MatMul", a, b)
            self.add(f"Gemm {shape}", "Gemm", a, constants=(b.T.copy(), self.normal(n)), transB=1)
            self.add(f"Gemm of columns {shape}", "Gemm", a.T.copy(), constants=(b,), transA=1, alpha=0.7)
            self.add(f"MatMul float64 {shape}", "MatMul", a.astype(np.float64), b.astype(np.float64))
            self.add(f"MatMul float16 {shape}", "MatMul", a.astype(np.float16), b.astype(np.float16))
        q, k = self.normal(3, 4, 17, 64), self.normal(3, 4, 64, 17)
        self.add("MatMul of heads", "MatMul", q, k)
        self.add("Einsum", "Einsum", q[0], k[0], equation="bij,bjk->bik")
        heads = [self.normal(1, 4, 17, 32) for _ in range(3)]
        self.add("Attention", "Attention", *heads, opset=23)

    def convolutions(self) -> None:
        for cin, cout, kernel, groups, stride, size in _CONVOLUTIONS:
            x, w = self.normal(1, cin, size, size), self.normal(cout, cin // groups, kernel, kernel)
            attributes = {"group": groups, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
            name = f"Conv {cin}-{cout} {kernel}x{kernel} groups {groups} stride {stride}"
            self.add(name, "Conv", x, constants=(w, self.normal(cout)), **attributes)
        self.add("Conv1d", "Conv", self.normal(1, 80, 100), constants=(self.normal(64, 80, 3),), pads=[1, 1])
        self.add("Conv3d", "Conv", self.normal(1, 3, 8, 16, 16), constants=(self.normal(16, 3, 3, 3, 3),))
        weights = self.normal(16, 8, 4, 4)
        self.add(
            "ConvTranspose", "ConvTranspose", self.normal(1, 16, 9, 9), constants=(weights,), strides=[2, 2]
        )
        image = self.normal(1, 7, 33, 33)
        for op in ("AveragePool", "MaxPool", "LpPool"):
            self.add(op, op, image, kernel_shape=[3, 3], strides=[2, 2])
        self.add("GlobalAveragePool", "GlobalAveragePool", image)
        for mode in ("linear", "cubic", "nearest"):
            sizes = (np.zeros(0, np.float32), np.float32([1, 1, 1.7, 0.4]))
            self.add(f"Resize {mode}", "Resize", image, constants=sizes, mode=mode)
        grid = np.clip(self.normal(1, 9, 9, 2), -1, 1)
        self.add("GridSample", "GridSample", image, grid)

    def sequences(self) -> None:
        x = self.normal(9, 2, 24)
        for op, gates, outputs in (("LSTM", 4, 3), ("GRU", 3, 2), ("RNN", 1, 2)):
            rows = gates * 33
            weights = (self.normal(1, rows, 24), self.normal(1, rows, 33), self.normal(1, 2 * rows))
            self.add(op, op, x, constants=weights, outputs=outputs, hidden_size=33)
