"""ONNX Runtime's own operators."""

from __future__ import annotations

import numpy as np

from workbench.models.drawn_operators.node import NodeDraw, Operator, Recipes
from workbench.models.drawn_operators.reductions import summands

__all__ = ["CONTRIBUTED"]

CONTRIBUTED = Recipes()

_FLOAT = np.dtype("float32")
_DOMAIN = "com.microsoft"


@CONTRIBUTED.of(f"{_DOMAIN}.Gelu", f"{_DOMAIN}.QuickGelu")
def _gelu(draw: NodeDraw) -> Operator:
    x = draw.input(draw.numbers("float32", draw.shape()), constant=0)
    return draw.done([x], **({"alpha": draw.draw(1.0, 1.702)} if draw.operator == "QuickGelu" else {}))


@CONTRIBUTED.of(f"{_DOMAIN}.FastGelu", f"{_DOMAIN}.BiasGelu")
def _biased(draw: NodeDraw) -> Operator:
    shape = draw.shape(1)
    given = [draw.input(draw.numbers("float32", shape), constant=0)]
    if draw.operator == "BiasGelu" or draw.chance():
        given.append(draw.input(draw.numbers("float32", shape[-1:], special=False)))
    return draw.done(given)


@CONTRIBUTED.of(f"{_DOMAIN}.FusedMatMul")
def _matmul(draw: NodeDraw) -> Operator:
    rows, depth, columns = (draw.draw(1, 1, 2, 5, 16, 17) for _ in range(3))
    around, turned = draw.shape(0, 2, empty=False), [draw.whole(0, 1), draw.whole(0, 1)]
    left = [*around, *((depth, rows) if turned[0] else (rows, depth))]
    right = [*around, *((columns, depth) if turned[1] else (depth, columns))]
    given = [draw.input(summands(draw, _FLOAT, left)), draw.input(summands(draw, _FLOAT, right))]
    return draw.done(given, transA=turned[0], transB=turned[1], alpha=draw.draw(1.0, 0.25))


@CONTRIBUTED.of(f"{_DOMAIN}.FusedConv")
def _conv(draw: NodeDraw) -> Operator:
    inner, outer = draw.whole(1, 4), draw.whole(1, 4)
    x = draw.input(draw.numbers("float32", [1, inner, 6, 5], special=False), constant=0)
    weights = draw.input(draw.numbers("float32", [outer, inner, 3, 3], special=False), constant=0.8)
    name, numbers = draw.draw(
        ("Relu", []),
        ("Tanh", []),
        ("Sigmoid", []),
        ("LeakyRelu", [0.2]),
        ("Clip", [-0.5, 3.0]),
        ("HardSigmoid", [0.3, 0.4]),
    )
    bias = draw.input(draw.numbers("float32", [outer], special=False), constant=0.8) if draw.chance() else ""
    attributes = {"activation": name} | ({"activation_params": numbers} if numbers else {})
    return draw.done([x, weights, bias], pads=[1, 1, 1, 1], **attributes)


@CONTRIBUTED.of(f"{_DOMAIN}.SkipLayerNormalization", f"{_DOMAIN}.SkipSimplifiedLayerNormalization")
def _skip_norm(draw: NodeDraw) -> Operator:
    shape = draw.shape(3, 3, empty=False)
    given = [draw.input(draw.numbers("float32", shape, special=False), constant=0)]
    given += [draw.input(draw.numbers("float32", shape, special=False))]
    vectors = 1 if draw.operator == "SkipSimplifiedLayerNormalization" else 2
    given += [
        draw.input(draw.numbers("float32", shape[-1:], special=False), constant=0.8) for _ in range(vectors)
    ]
    return draw.done(given, epsilon=1e-5)


@CONTRIBUTED.of(f"{_DOMAIN}.QLinearAdd", f"{_DOMAIN}.QLinearMul")
def _quantised(draw: NodeDraw) -> Operator:
    kind = np.dtype(draw.draw("int8", "uint8"))
    shape = draw.shape(1, 4)
    given = []
    for one in (shape, draw.broadcast(shape)):
        given += [draw.input(draw.numbers(kind, one)), draw.constant(draw.draw(0.0541, 0.3127), "float32")]
        given.append(draw.constant(draw.whole(0, 9), kind.name))
    given += [draw.constant(draw.draw(0.1009, 0.6773), "float32"), draw.constant(draw.whole(0, 9), kind.name)]
    return draw.done(given)
