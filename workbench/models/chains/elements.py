"""Links of chains that compute windows of an image, and element by element."""

from __future__ import annotations

import numpy as np
import onnx

from workbench.models.chains.builder import ChainBuilder, Links

__all__ = ["ELEMENTS"]

ELEMENTS = Links()

#: Operators of one input that need nothing else.
PLAIN = (
    *("Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Softplus", "Neg", "Abs", "Identity"),
    *("Softsign", "Mish", "Floor", "Exp", "Erf", "Sin"),
)


# Windows --------------------------------------------------------------------------------------------------


@ELEMENTS.link
def conv(chain: ChainBuilder) -> bool:
    size, stride, pad, columns = chain.draw(1, 3), chain.draw(1, 2), chain.draw(0, 1), chain.draw(1, 3, 4)
    if (extents := chain.windows(size, stride, pad)) is None:
        return False
    inputs = [chain.graph.weight(columns, chain.shape[1], size, size)]
    inputs += [chain.graph.weight(columns)] if chain.draw(True, False) else []
    shape = [1, columns, *extents]
    return chain.add("Conv", *inputs, shape=shape, strides=[stride, stride], pads=[pad] * 4)


@ELEMENTS.link
def depthwise(chain: ChainBuilder) -> bool:
    channels = chain.shape[1]
    return chain.add("Conv", chain.graph.weight(channels, 1, 3, 3), group=channels, pads=[1] * 4)


@ELEMENTS.link
def transposed_conv(chain: ChainBuilder) -> bool:
    _, channels, height, width = chain.shape
    weights = chain.graph.weight(channels, 2, 2, 2)
    return chain.add("ConvTranspose", weights, strides=[2, 2], shape=[1, 2, 2 * height, 2 * width])


@ELEMENTS.link
def max_pool(chain: ChainBuilder) -> bool:
    return pool(chain, "MaxPool")


@ELEMENTS.link
def average_pool(chain: ChainBuilder) -> bool:
    return pool(chain, "AveragePool", count_include_pad=chain.draw(0, 1))


def pool(chain: ChainBuilder, operator: str, **attributes: int) -> bool:
    stride, pad = chain.draw(1, 2), chain.draw(0, 1)
    if (extents := chain.windows(3, stride, pad)) is None:
        return False
    window = {"kernel_shape": [3, 3], "strides": [stride, stride], "pads": [pad] * 4}
    return chain.add(operator, shape=[*chain.shape[:2], *extents], **window, **attributes)


@ELEMENTS.link
def lrn(chain: ChainBuilder) -> bool:
    return chain.add("LRN", size=3)


# Element by element ---------------------------------------------------------------------------------------


@ELEMENTS.link
def plain(chain: ChainBuilder) -> bool:
    operator = chain.draw(*PLAIN)
    if operator == "Exp":
        chain.add("Tanh")
    return chain.add(operator)


@ELEMENTS.link
def leaky_relu(chain: ChainBuilder) -> bool:
    return chain.add("LeakyRelu", alpha=chain.draw(0.1, -0.5, 2.0))


@ELEMENTS.link
def prelu(chain: ChainBuilder) -> bool:
    return chain.add("PRelu", chain.graph.uniform(chain.shape[1], 1, 1, low=-0.5, high=0.5))


@ELEMENTS.link
def clip(chain: ChainBuilder) -> bool:
    low, high = chain.draw((0.0, 6.0), (-1.0, 1.0), (-2.0, -1.0), (0.0, 0.5), (0.25, 3.0))
    return chain.add("Clip", chain.floats(low), chain.draw(chain.floats(high), ""))


@ELEMENTS.link
def by_itself(chain: ChainBuilder) -> bool:
    return chain.add(chain.draw("Add", "Mul", "Max", "Sub"), chain.value)


@ELEMENTS.link
def by_special_number(chain: ChainBuilder) -> bool:
    operator, number = (
        chain.draw("Add", "Sub", "Mul", "Div", "Pow"),
        chain.draw(0.0, 1.0, -2.0, 0.5, 2.0, 3.0),
    )
    if operator == "Div" and not number:
        return False
    if operator == "Pow" and number != round(number):
        chain.add("Abs")
    return (operator != "Pow" or number >= 0) and chain.add(operator, chain.floats(number))


@ELEMENTS.link
def by_constant(chain: ChainBuilder) -> bool:
    operator = chain.draw("Add", "Sub", "Mul", "Div", "Max", "Min")
    return chain.add(operator, chain.operand(-2.0, -0.5))


@ELEMENTS.link
def of_constant(chain: ChainBuilder) -> bool:
    return chain.become(
        chain.graph.op(chain.draw("Sub", "Mul", "Add"), chain.operand(-1.0, 2.0), chain.value)
    )


@ELEMENTS.link
def of_positive(chain: ChainBuilder) -> bool:
    chain.add("Abs")
    chain.add("Add", chain.floats(0.5))
    operator = chain.draw("Reciprocal", "Div", "Sqrt", "Log")
    if operator == "Div":
        return chain.become(chain.graph.op("Div", chain.floats(1.0), chain.value))
    return chain.add(operator)


@ELEMENTS.link
def where(chain: ChainBuilder) -> bool:
    condition = chain.op(chain.draw("Greater", "Less"), chain.floats(0.3))
    if chain.draw(True, False):
        condition = chain.graph.op("Not", condition)
    return chain.become(
        chain.graph.op("Where", condition, chain.value, chain.draw(chain.op("Neg"), chain.floats(-1)))
    )


@ELEMENTS.link
def several(chain: ChainBuilder) -> bool:
    return chain.add(chain.draw("Sum", "Mean", "Max", "Min"), chain.op("Abs"), chain.floats(1.0))


@ELEMENTS.link
def gated(chain: ChainBuilder) -> bool:
    return chain.add("Mul", chain.op(chain.draw("Sigmoid", "HardSigmoid", "Tanh", "GlobalAveragePool")))


@ELEMENTS.link
def cast(chain: ChainBuilder) -> bool:
    """To another type and back; not float16, which edgepack computes in float32."""
    kind = chain.draw(onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64, onnx.TensorProto.INT32)
    return chain.add("Cast", to=kind) and chain.add("Cast", to=onnx.TensorProto.FLOAT)


@ELEMENTS.link
def quantised(chain: ChainBuilder) -> bool:
    """Once, or twice by two steps."""
    for _ in range(chain.draw(1, 2)):
        if not chain.steps:
            return False
        scale = chain.floats(chain.steps.pop())
        zero_point = chain.graph.const(np.asarray(chain.draw(0, 128, 200), np.uint8))
        chain.add("QuantizeLinear", scale, zero_point)
        chain.add("DequantizeLinear", scale, zero_point)
    return True
