"""Chains of a few operators on an image, drawn by a seed: what an optimiser's patterns may meet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx

from workbench.models.builder import Graph

__all__ = ["INPUTS", "LINKS", "Chain"]

#: Ranges of inputs that a chain is to be run with: around zero, of negative numbers alone, and large ones.
INPUTS = {"around zero": (-2.0, 2.0), "negative": (-1.5, -0.5), "large": (-30.0, 30.0)}

#: Names of links that are drawn four times as often, because patterns of optimisers have them.
OFTEN = ("conv", "depthwise", "max_pool", "average_pool", "pad", "quantised", "batch_norm", "by_constant")

#: Elements of a tensor, of which no chain goes on.
LARGEST = 4096

#: Steps of quantisations to 8 bits, of which a chain has each once: means of multiples of one are not in
#: the middle between two steps of another, where the last bit would decide.
STEPS = (0.0541, 0.1009, 0.0199, 0.0773, 0.0311, 0.0677, 0.0467, 0.0887)

#: Operators of one input that need nothing else.
PLAIN = (
    *("Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Softplus", "Neg", "Abs", "Identity"),
    *("Softsign", "Mish", "Floor", "Exp", "Erf", "Sin"),
)

_T = TypeVar("_T")

Link = Callable[["Chain"], bool]

#: By name what appends an operator, or two; false where it does not fit the tensor.
LINKS: dict[str, Link] = {}


def link(function: Link) -> Link:
    LINKS[function.__name__] = function
    return function


class Chain:
    """A model of float32[1,C,H,W] with one input ``x`` and one output ``y``, an opset 18 model.

    Attributes:
        input_shape: of ``x``.
        shape: of the last tensor, ``value``.
        links: the names of what was drawn.
    """

    def __init__(self, seed: int, longest: int = 4) -> None:
        self.graph = Graph(f"chain{seed}", seed=seed, opset=18)
        self.rng = self.graph.rng
        self.shape = [1, self.draw(3, 4), self.draw(7, 8), self.draw(7, 8)]
        self.input_shape = tuple(self.shape)
        self.value = self.graph.input("x", self.shape)
        self.links: list[str] = []
        self.steps = [float(step) for step in self.rng.permutation(STEPS)]
        count = int(self.rng.integers(2, longest + 1))
        while len(self.links) < count and math.prod(self.shape) < LARGEST:
            name = self.draw(*LINKS, *OFTEN * 3)
            if LINKS[name](self):
                self.links.append(name)
        self.graph.op("Identity", self.value, name="y")
        self.graph.output("y")

    @property
    def model(self) -> onnx.ModelProto:
        return self.graph.model()

    def draw(self, *choices: _T) -> _T:
        return choices[int(self.rng.integers(len(choices)))]

    def floats(self, value: object) -> str:
        return self.graph.const(np.asarray(value, np.float32))

    def integers(self, *values: int) -> str:
        return self.graph.const(np.asarray(values, np.int64))

    def op(self, operator: str, *others: str, **attributes: Any) -> str:
        """An operator of the last value and others, whose result is not the last value yet."""
        return self.graph.op(operator, self.value, *others, **attributes)

    def add(self, operator: str, *others: str, shape: Sequence[int] | None = None, **attributes: Any) -> bool:
        """Appends an operator of the last value and others; its result has ``shape``, or the same."""
        return self.become(self.op(operator, *others, **attributes), shape)

    def become(self, value: str, shape: Sequence[int] | None = None) -> bool:
        self.value, self.shape = value, list(self.shape if shape is None else shape)
        return True

    def windows(self, size: int, stride: int, pad: int) -> list[int] | None:
        """Height and width of what a window reads; None where it is larger than the image."""
        found = [(extent + 2 * pad - size) // stride + 1 for extent in self.shape[2:]]
        return found if min(found) > 0 else None

    def operand(self, low: float, high: float) -> str:
        """A constant of some of the axes."""
        _, channels, height, width = self.shape
        shapes = [
            (),
            (channels, 1, 1),
            (1, channels, 1, 1),
            (width,),
            (1, 1, height, width),
            tuple(self.shape[1:]),
        ]
        return self.graph.uniform(*self.draw(*shapes), low=low, high=high)


# Windows --------------------------------------------------------------------------------------------------


@link
def conv(chain: Chain) -> bool:
    size, stride, pad, columns = chain.draw(1, 3), chain.draw(1, 2), chain.draw(0, 1), chain.draw(1, 3, 4)
    if (extents := chain.windows(size, stride, pad)) is None:
        return False
    inputs = [chain.graph.weight(columns, chain.shape[1], size, size)]
    inputs += [chain.graph.weight(columns)] if chain.draw(True, False) else []
    shape = [1, columns, *extents]
    return chain.add("Conv", *inputs, shape=shape, strides=[stride, stride], pads=[pad] * 4)


@link
def depthwise(chain: Chain) -> bool:
    channels = chain.shape[1]
    return chain.add("Conv", chain.graph.weight(channels, 1, 3, 3), group=channels, pads=[1] * 4)


@link
def transposed_conv(chain: Chain) -> bool:
    _, channels, height, width = chain.shape
    weights = chain.graph.weight(channels, 2, 2, 2)
    return chain.add("ConvTranspose", weights, strides=[2, 2], shape=[1, 2, 2 * height, 2 * width])


@link
def max_pool(chain: Chain) -> bool:
    return pool(chain, "MaxPool")


@link
def average_pool(chain: Chain) -> bool:
    return pool(chain, "AveragePool", count_include_pad=chain.draw(0, 1))


def pool(chain: Chain, operator: str, **attributes: int) -> bool:
    stride, pad = chain.draw(1, 2), chain.draw(0, 1)
    if (extents := chain.windows(3, stride, pad)) is None:
        return False
    window = {"kernel_shape": [3, 3], "strides": [stride, stride], "pads": [pad] * 4}
    return chain.add(operator, shape=[*chain.shape[:2], *extents], **window, **attributes)


@link
def lrn(chain: Chain) -> bool:
    return chain.add("LRN", size=3)


# Element by element ---------------------------------------------------------------------------------------


@link
def plain(chain: Chain) -> bool:
    operator = chain.draw(*PLAIN)
    if operator == "Exp":
        chain.add("Tanh")
    return chain.add(operator)


@link
def leaky_relu(chain: Chain) -> bool:
    return chain.add("LeakyRelu", alpha=chain.draw(0.1, -0.5, 2.0))


@link
def prelu(chain: Chain) -> bool:
    return chain.add("PRelu", chain.graph.uniform(chain.shape[1], 1, 1, low=-0.5, high=0.5))


@link
def clip(chain: Chain) -> bool:
    low, high = chain.draw((0.0, 6.0), (-1.0, 1.0), (-2.0, -1.0), (0.0, 0.5), (0.25, 3.0))
    return chain.add("Clip", chain.floats(low), chain.draw(chain.floats(high), ""))


@link
def by_itself(chain: Chain) -> bool:
    return chain.add(chain.draw("Add", "Mul", "Max", "Sub"), chain.value)


@link
def by_special_number(chain: Chain) -> bool:
    operator, number = (
        chain.draw("Add", "Sub", "Mul", "Div", "Pow"),
        chain.draw(0.0, 1.0, -2.0, 0.5, 2.0, 3.0),
    )
    if operator == "Div" and not number:
        return False
    if operator == "Pow" and number != round(number):
        chain.add("Abs")
    return (operator != "Pow" or number >= 0) and chain.add(operator, chain.floats(number))


@link
def by_constant(chain: Chain) -> bool:
    operator = chain.draw("Add", "Sub", "Mul", "Div", "Max", "Min")
    return chain.add(operator, chain.operand(-2.0, -0.5))


@link
def of_constant(chain: Chain) -> bool:
    return chain.become(
        chain.graph.op(chain.draw("Sub", "Mul", "Add"), chain.operand(-1.0, 2.0), chain.value)
    )


@link
def of_positive(chain: Chain) -> bool:
    chain.add("Abs")
    chain.add("Add", chain.floats(0.5))
    operator = chain.draw("Reciprocal", "Div", "Sqrt", "Log")
    if operator == "Div":
        return chain.become(chain.graph.op("Div", chain.floats(1.0), chain.value))
    return chain.add(operator)


@link
def where(chain: Chain) -> bool:
    condition = chain.op(chain.draw("Greater", "Less"), chain.floats(0.3))
    if chain.draw(True, False):
        condition = chain.graph.op("Not", condition)
    return chain.become(
        chain.graph.op("Where", condition, chain.value, chain.draw(chain.op("Neg"), chain.floats(-1)))
    )


@link
def several(chain: Chain) -> bool:
    return chain.add(chain.draw("Sum", "Mean", "Max", "Min"), chain.op("Abs"), chain.floats(1.0))


@link
def gated(chain: Chain) -> bool:
    return chain.add("Mul", chain.op(chain.draw("Sigmoid", "HardSigmoid", "Tanh", "GlobalAveragePool")))


@link
def cast(chain: Chain) -> bool:
    """To another type and back; not float16, which edgepack computes in float32."""
    kind = chain.draw(onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64, onnx.TensorProto.INT32)
    return chain.add("Cast", to=kind) and chain.add("Cast", to=onnx.TensorProto.FLOAT)


@link
def quantised(chain: Chain) -> bool:
    """Once, or twice by two steps."""
    for _ in range(chain.draw(1, 2)):
        if not chain.steps:
            return False
        scale = chain.floats(chain.steps.pop())
        zero_point = chain.graph.const(np.asarray(chain.draw(0, 128, 200), np.uint8))
        chain.add("QuantizeLinear", scale, zero_point)
        chain.add("DequantizeLinear", scale, zero_point)
    return True


# Sums and norms -------------------------------------------------------------------------------------------


@link
def batch_norm(chain: Chain) -> bool:
    return chain.become(chain.graph.batch_norm(chain.value, chain.shape[1]))


@link
def instance_norm(chain: Chain) -> bool:
    numbers = [chain.graph.uniform(chain.shape[1], low=-1, high=1) for _ in range(2)]
    return chain.add("InstanceNormalization", *numbers)


@link
def layer_norm(chain: Chain) -> bool:
    numbers = [chain.graph.uniform(chain.shape[3], low=-1, high=1) for _ in range(2)]
    return chain.add("LayerNormalization", *numbers, axis=-1)


@link
def centred(chain: Chain) -> bool:
    return chain.add("Sub", chain.op("ReduceMean", chain.integers(chain.draw(1, 2, 3)), keepdims=1))


@link
def reduced(chain: Chain) -> bool:
    operator, axis = chain.draw("ReduceMax", "ReduceMin", "ReduceSum", "ReduceL2"), chain.draw(1, 2, 3)
    shape = [1 if i == axis else extent for i, extent in enumerate(chain.shape)]
    return chain.add(operator, chain.integers(axis), keepdims=1, shape=shape)


@link
def softmax(chain: Chain) -> bool:
    return chain.add(chain.draw("Softmax", "LogSoftmax"), axis=chain.draw(1, 2, -1))


@link
def product(chain: Chain) -> bool:
    width = chain.shape[3]
    chain.add("MatMul", chain.graph.weight(width, 5), shape=[*chain.shape[:3], 5])
    return chain.draw(True, False) or chain.add("Add", chain.graph.weight(5))


@link
def gemm(chain: Chain) -> bool:
    _, channels, height, width = chain.shape
    chain.add("Reshape", chain.integers(channels * height, width))
    inputs = [chain.graph.weight(6, width), chain.graph.weight(6)]
    chain.add("Gemm", *inputs, transB=1, alpha=chain.draw(1.0, 0.5), beta=chain.draw(1.0, -1.0))
    return chain.add("Reshape", chain.integers(1, channels, height, 6), shape=[1, channels, height, 6])


# What moves elements --------------------------------------------------------------------------------------


@link
def pad(chain: Chain) -> bool:
    before, after = ([0, chain.draw(0, 0, 1), *(chain.draw(0, 1, 2) for _ in range(2))] for _ in range(2))
    shape = [sum(one) for one in zip(chain.shape, before, after, strict=True)]
    if chain.draw(True, True, True, False):
        return chain.add(
            "Pad", chain.integers(*before, *after), chain.floats(chain.draw(0.0, 0.0, 1.0, -2.5)), shape=shape
        )
    if any(max(pads) >= extent for *pads, extent in zip(before, after, chain.shape, strict=True)):
        return False
    return chain.add("Pad", chain.integers(*before, *after), mode=chain.draw("edge", "reflect"), shape=shape)


@link
def transposed(chain: Chain) -> bool:
    order = chain.draw([0, 1, 3, 2], [0, 2, 3, 1], [0, 3, 1, 2])
    return chain.add("Transpose", perm=order, shape=[chain.shape[i] for i in order])


@link
def reshaped(chain: Chain) -> bool:
    _, channels, height, width = chain.shape
    chain.add("Reshape", chain.integers(0, channels * height, width))
    return chain.add("Reshape", chain.integers(0, -1, height, width))


@link
def squeezed(chain: Chain) -> bool:
    return chain.add("Unsqueeze", chain.integers(2)) and chain.add("Squeeze", chain.integers(2))


@link
def sliced(chain: Chain) -> bool:
    axis, start = chain.draw(1, 2, 3), chain.draw(0, 1)
    if chain.shape[axis] < 2:
        return False
    shape = [extent - start if i == axis else extent for i, extent in enumerate(chain.shape)]
    ends = chain.integers(chain.draw(chain.shape[axis], 2**31))
    return chain.add("Slice", chain.integers(start), ends, chain.integers(axis), shape=shape)


@link
def gathered(chain: Chain) -> bool:
    axis = chain.draw(1, 2, 3)
    order = [int(i) for i in chain.rng.permutation(chain.shape[axis])]
    return chain.add("Gather", chain.integers(*order), axis=axis)


@link
def split(chain: Chain) -> bool:
    """The two parts change places."""
    axis = chain.draw(1, 2, 3)
    if chain.shape[axis] < 2:
        return False
    sizes = chain.integers(1, chain.shape[axis] - 1)
    first, second = chain.graph.ops("Split", chain.value, sizes, outputs=2, axis=axis)
    return chain.become(chain.graph.op("Concat", second, first, axis=axis))


@link
def joined(chain: Chain) -> bool:
    axis = chain.draw(1, 2, 3)
    shape = [2 * extent if i == axis else extent for i, extent in enumerate(chain.shape)]
    return chain.add("Concat", chain.op(chain.draw("Neg", "Relu")), axis=axis, shape=shape)


@link
def expanded(chain: Chain) -> bool:
    if chain.shape[1] != 1:
        return chain.add("Expand", chain.integers(1, 1, 1, 1))
    return chain.add("Expand", chain.integers(1, 3, 1, 1), shape=[1, 3, *chain.shape[2:]])


@link
def resized(chain: Chain) -> bool:
    _, channels, height, width = chain.shape
    scales = chain.floats([1, 1, 2, 2])
    mode = chain.draw("nearest", "linear")
    return chain.add("Resize", "", scales, mode=mode, shape=[1, channels, 2 * height, 2 * width])


@link
def blocks(chain: Chain) -> bool:
    """Depth becomes space, or space depth, where it can be divided."""
    _, channels, height, width = chain.shape
    if channels % 4 == 0 and chain.draw(True, False):
        return chain.add("DepthToSpace", blocksize=2, shape=[1, channels // 4, 2 * height, 2 * width])
    if height % 2 or width % 2:
        return False
    return chain.add("SpaceToDepth", blocksize=2, shape=[1, channels * 4, height // 2, width // 2])
