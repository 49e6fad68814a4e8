"""Operators of layers: products, convolutions, pools, normalisations, images."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.models.drawn_operators.node import NodeDraw, Operator, Recipes
from workbench.models.drawn_operators.reductions import summands, without_nan

__all__ = ["LAYERS"]

LAYERS = Recipes()

_FLOAT = np.dtype("float32")


@LAYERS.of("MatMul")
def _product(draw: NodeDraw) -> Operator:
    dtype = draw.type_of()
    rows, depth, columns = (draw.draw(0, 1, 1, 2, 5, 16, 17) for _ in range(3))
    around = draw.shape(0, 2)
    left = [*around, rows, depth] if draw.chance(0.8) else [depth]
    right = [*draw.broadcast(around), depth, columns] if draw.chance(0.8) else [depth]
    given = [draw.input(summands(draw, dtype, left)), draw.input(summands(draw, dtype, right))]
    return draw.done(given)


@LAYERS.of("Gemm")
def _gemm(draw: NodeDraw) -> Operator:
    dtype = draw.type_of()
    rows, depth, columns = (draw.draw(0, 1, 1, 2, 5, 16, 17) for _ in range(3))
    turned = [draw.whole(0, 1), draw.whole(0, 1)]
    left = [depth, rows] if turned[0] else [rows, depth]
    right = [columns, depth] if turned[1] else [depth, columns]
    given = [draw.input(summands(draw, dtype, left)), draw.input(summands(draw, dtype, right))]
    if draw.chance(0.7) or draw.opset < 11:
        given.append(draw.input(summands(draw, dtype, draw.broadcast([rows, columns]))))
    factors = draw.attributes(alpha=draw.draw(0.5, 2.0), beta=draw.draw(0.0, 0.25, 1.0))
    return draw.done(given, transA=turned[0], transB=turned[1], **(factors if dtype.kind == "f" else {}))


@LAYERS.of("MatMulInteger")
def _integers(draw: NodeDraw) -> Operator:
    left, right = (np.dtype(draw.draw("int8", "uint8")) for _ in range(2))
    rows, depth, columns = (draw.draw(1, 2, 5, 17) for _ in range(3))
    given = [draw.input(draw.numbers(left, [rows, depth])), draw.input(draw.numbers(right, [depth, columns]))]
    if draw.chance():
        given += [draw.input(np.asarray(3, left)), draw.input(np.asarray(2, right))]
    return draw.done(given)


def _windows(draw: NodeDraw, axes: int, *, dilated: bool = True) -> tuple[dict[str, Any], list[int]]:
    """Attributes of windows, and sizes of an image that they fit into."""
    sizes = [draw.whole(1, 3) for _ in range(axes)]
    strides = [draw.whole(1, 3) for _ in range(axes)]
    dilations = [draw.whole(1, 2) if dilated else 1 for _ in range(axes)]
    # A window reads at least one element of the image.
    pads = [draw.whole(0, size - 1) for size in sizes] + [draw.whole(0, size - 1) for size in sizes]
    image = [(s - 1) * d + 1 + draw.whole(0, 5) for s, d in zip(sizes, dilations, strict=True)]
    attributes: dict[str, Any] = {"kernel_shape": sizes, "strides": strides}
    if dilated and max(dilations) > 1:
        attributes["dilations"] = dilations
    how = draw.draw("pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", "none")
    if how.startswith("SAME"):  # what padding a longer step would take is less than none
        attributes["strides"] = [min(pair) for pair in zip(strides, sizes, strict=True)]
    if how == "pads":
        attributes["pads"] = pads
    elif how != "none" and max(dilations) == 1:
        attributes["auto_pad"] = how
    return attributes, image


@LAYERS.of("Conv")
def _conv(draw: NodeDraw) -> Operator:
    attributes, image = _windows(draw, draw.draw(1, 2, 2, 3))
    groups, inner, outer = draw.draw(1, 1, 2, 3), draw.whole(1, 5), draw.whole(1, 5)
    shape = [draw.draw(1, 1, 2), groups * inner, *image]
    weights = draw.numbers("float32", [groups * outer, inner, *attributes["kernel_shape"]], special=False)
    given = [
        draw.input(summands(draw, _FLOAT, shape, part=0.01), constant=0),
        draw.input(weights, constant=0.8),
    ]
    if draw.chance():
        given.append(draw.input(draw.numbers("float32", [groups * outer], special=False), constant=0.8))
    return draw.done(given, group=groups, **attributes)


@LAYERS.of("ConvTranspose")
def _conv_transpose(draw: NodeDraw) -> Operator:
    axes = draw.draw(1, 2, 2)
    attributes, image = _windows(draw, axes)
    groups, inner, outer = draw.draw(1, 1, 2), draw.whole(1, 4), draw.whole(1, 4)
    given = [draw.input(draw.numbers("float32", [1, groups * inner, *image], special=False), constant=0)]
    weights = draw.numbers("float32", [groups * inner, outer, *attributes["kernel_shape"]], special=False)
    given.append(draw.input(weights, constant=0.8))
    if draw.chance():
        given.append(draw.input(draw.numbers("float32", [groups * outer], special=False), constant=0.8))
    return draw.done(given, group=groups, **attributes)


@LAYERS.of("MaxPool", "AveragePool", "LpPool")
def _pool(draw: NodeDraw) -> Operator:
    dilated = draw.has("dilations") and draw.chance(0.3)
    attributes, image = _windows(draw, draw.draw(1, 2, 2, 3), dilated=dilated)
    attributes |= draw.attributes(ceil_mode=draw.draw(0, 0, 1), count_include_pad=draw.whole(0, 1))
    if draw.operator == "LpPool":
        attributes |= draw.attributes(p=draw.draw(1, 2, 3))
    shape = [draw.whole(1, 2), draw.whole(1, 5), *image]
    if draw.operator == "MaxPool":
        values = without_nan(draw.numbers(draw.type_of(without=("float64",)), shape))
    else:
        values = summands(draw, _FLOAT, shape)
    if "ceil_mode" in attributes and "auto_pad" in attributes:
        del attributes["ceil_mode"]
    return draw.done([draw.input(values, constant=0)], **attributes)


@LAYERS.of("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(draw: NodeDraw) -> Operator:
    shape = [1, draw.whole(1, 5), *draw.shape(1, 3, empty=False)]
    return draw.done([draw.input(without_nan(summands(draw, _FLOAT, shape)), constant=0)])


@LAYERS.of("BatchNormalization", "InstanceNormalization")
def _norm(draw: NodeDraw) -> Operator:
    shape = [draw.whole(1, 2), draw.whole(1, 6), *draw.shape(1, 3, empty=False)]
    vectors = 4 if draw.operator == "BatchNormalization" else 2
    given = [draw.input(summands(draw, _FLOAT, shape), constant=0)]
    for number in range(vectors):
        values = draw.numbers("float32", [shape[1]], special=False)
        given.append(draw.input(np.abs(values) if number == 3 else values, constant=0.8))
    return draw.done(given, **draw.attributes(epsilon=draw.draw(1e-5, 1e-2)))


@LAYERS.of("GroupNormalization")
def _group_norm(draw: NodeDraw) -> Operator:
    groups, each = draw.whole(1, 3), draw.whole(1, 3)
    shape = [draw.whole(1, 2), groups * each, *draw.shape(1, 2, empty=False)]
    count = groups if draw.opset < 21 else groups * each
    given = [draw.input(summands(draw, _FLOAT, shape), constant=0)]
    given += [draw.input(draw.numbers("float32", [count], special=False), constant=0.8) for _ in range(2)]
    return draw.done(given, num_groups=groups)


@LAYERS.of("LRN")
def _response(draw: NodeDraw) -> Operator:
    shape = [1, draw.whole(1, 7), *draw.shape(2, 2, empty=False)]
    x = draw.input(draw.numbers("float32", shape, special=False), constant=0)
    return draw.done([x], size=draw.draw(1, 3, 5), **draw.attributes(alpha=0.01, beta=0.6, bias=1.5))


@LAYERS.of("Resize")
def _resize(draw: NodeDraw) -> Operator:
    shape = [1, draw.whole(1, 3), draw.whole(1, 7), draw.whole(1, 7)]
    x = draw.input(draw.numbers("float32", shape, special=False), constant=0)
    mode = draw.draw("nearest", "linear", "cubic") if draw.opset >= 11 else draw.draw("nearest", "linear")
    scales = [1.0, 1.0, draw.draw(0.5, 1.0, 1.5, 2.0, 3.0), draw.draw(0.5, 1.0, 2.0, 2.5)]
    if draw.opset < 11:
        return draw.done([x, draw.constant(scales, "float32")], mode=mode)
    ways = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    attributes = draw.attributes(
        coordinate_transformation_mode=draw.draw(*ways),
        nearest_mode=draw.draw("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        cubic_coeff_a=draw.draw(-0.75, -0.5),
        exclude_outside=draw.whole(0, 1) if mode == "cubic" else 0,
    )
    roi = "" if draw.opset >= 13 else draw.constant([], "float32")
    if draw.chance():
        sizes = [*shape[:2], draw.whole(1, 9), draw.whole(1, 9)]
        none = "" if draw.opset >= 13 else draw.constant([], "float32")
        return draw.done([x, roi, none, draw.constant(sizes)], mode=mode, **attributes)
    return draw.done([x, roi, draw.constant(scales, "float32")], mode=mode, **attributes)


@LAYERS.of("GridSample")
def _samples(draw: NodeDraw) -> Operator:
    shape = [draw.whole(1, 2), draw.whole(1, 3), draw.whole(1, 6), draw.whole(1, 6)]
    grid = draw.rng.normal(0, 0.8, [shape[0], draw.whole(1, 4), draw.whole(1, 4), 2]).astype(np.float32)
    names = ("bilinear", "nearest", "bicubic") if draw.opset < 20 else ("linear", "nearest", "cubic")
    attributes = draw.attributes(
        mode=draw.draw(*names),
        padding_mode=draw.draw("zeros", "border", "reflection"),
        align_corners=draw.whole(0, 1),
    )
    x = draw.input(summands(draw, _FLOAT, shape), constant=0)
    return draw.done([x, draw.input(grid)], **attributes)


@LAYERS.of("Einsum")
def _einsum(draw: NodeDraw) -> Operator:
    sizes = {letter: draw.draw(1, 2, 3, 5) for letter in "abcd"}
    equation = draw.draw(
        *("ab,bc->ac", "abc,acd->abd", "ab,ab->a", "abc->bca", "ab->", "a,b->ab", "abc,bd->acd", "aab->ab"),
        *("ab,bc,cd->ad", "abcd->dacb", "ab->b", "abc,abc->", "...ab,...bc->...ac"),
    )
    around = draw.shape(0, 2, empty=False)
    given = []
    for term in equation.split("->")[0].split(","):
        shape = (around if term.startswith("...") else []) + [sizes[one] for one in term.removeprefix("...")]
        given.append(draw.input(draw.numbers("float32", shape, special=False)))
    return draw.done(given, equation=equation)


@LAYERS.of("RNN", "GRU", "LSTM")
def _recurrent(draw: NodeDraw) -> Operator:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[draw.operator]
    steps, batch, wide, hidden = draw.whole(1, 5), draw.whole(1, 2), draw.whole(1, 5), draw.whole(1, 5)
    direction = draw.draw("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    x = draw.input(draw.numbers("float32", [steps, batch, wide], special=False), constant=0)
    shapes = [[ways, gates * hidden, wide], [ways, gates * hidden, hidden], [ways, 2 * gates * hidden]]
    given = [x, *(draw.constant(draw.rng.normal(0, 0.5, shape), "float32") for shape in shapes)]
    if draw.chance(0.4):
        given[3] = ""
    if draw.chance(0.5):
        given.append(
            draw.input(draw.rng.integers(1, steps + 1, batch).astype(np.int32)) if draw.chance() else ""
        )
        given.append(draw.input(draw.numbers("float32", [ways, batch, hidden], special=False)))
    attributes = draw.attributes(linear_before_reset=draw.whole(0, 1), input_forget=0)
    outputs = 3 if draw.operator == "LSTM" else 2
    return draw.done(given, outputs, hidden_size=hidden, direction=direction, **attributes)
