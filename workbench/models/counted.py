"""Models whose results have as many entries as the data say, and maxima for them: enough, and too few."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx

from workbench.models.builder import Graph

__all__ = ["CHAINS", "CHOICES", "detector", "suppression"]


def suppression(
    shape: tuple[int, int, int], *, operands: tuple[Any, ...] = (5, 0.4, 0.5), centre: int = 0
) -> onnx.ModelProto:
    """NonMaxSuppression of boxes and scores that are inputs."""
    g = Graph("suppression")
    images, _, boxes = shape
    given = [g.input("boxes", (images, boxes, 4)), g.input("scores", shape)]
    dtypes = ("int64", "float32", "float32")
    for value, dtype in zip(operands, dtypes, strict=False):
        given.append(g.const(np.asarray([value], dtype)))
    g.output(g.op("NonMaxSuppression", *given, name="y", center_point_box=centre), "int64")
    return g.model()


def one(
    operator: str,
    shape: tuple[int, ...],
    dtype: str,
    *,
    outputs: int = 1,
    kept: int = 0,
    **attributes: Any,
) -> onnx.ModelProto:
    """A node of one operator whose first operand is an input; ``kept`` is the size of a condition."""
    g = Graph(operator)
    x = g.input("x", shape, dtype)
    more = [] if not kept else [g.input("kept", (kept,), "bool")]
    names = g.ops(operator, x, *more, outputs=outputs, name="y", **attributes)
    for number, name in enumerate(names):
        g.output(name, dtype if number == 0 and operator != "NonZero" else "int64")
    return g.model()


def picked() -> onnx.ModelProto:
    """x[mask] as exporters write it, and arithmetic with what it finds."""
    g = Graph("picked", seed=2)
    x, mask = g.input("x", (6, 5, 3)), g.input("mask", (6, 5), "bool")
    places = g.op("Transpose", g.op("NonZero", mask, name="found"), perm=[1, 0])
    rows = g.op("GatherND", x, places)
    projected = g.op("Add", g.op("MatMul", rows, g.weight(3, 4)), g.weight(4))
    g.output(g.op("Softmax", projected, axis=-1, name="shares"))
    g.output(g.op("ReduceMax", g.op("Gemm", rows, g.weight(3, 4)), axes=[1], keepdims=0, name="largest"))
    first, second = (g.op("Gather", places, g.const(i), axis=1) for i in (0, 1))
    before = g.op("Sub", first, g.const(2))  # behind the entries it is no position of the table
    g.output(g.op("Gather", g.weight(9, 2), g.op("Add", before, g.const(2)), axis=0, name="table"))
    g.output(g.op("Div", g.const([12]), g.op("Add", second, g.const(1)), name="quotient"), "int64")
    divisor = g.op("Gather", g.const([3, 4, 5, 6, 7, 8]), first)
    minus = g.op("Sub", divisor, g.const(3))  # 0 where the first row is looked up, as the padding does
    wanted = g.op("Where", g.op("Equal", minus, g.const(0)), g.const(1), minus)
    g.output(g.op("Mod", g.const([29]), wanted, name="rest"), "int64")
    g.output(places, "int64")
    return g.model()


def detected() -> onnx.ModelProto:
    """Boxes, scores and classes of what a NonMaxSuppression keeps; some of the first ones alone."""
    g = Graph("detected")
    boxes, scores = g.input("boxes", (1, 12, 4)), g.input("scores", (1, 3, 12))
    kept = g.op(
        "NonMaxSuppression", boxes, scores, *(g.const([4]), g.const([0.6]), g.const([0.1])), name="kept"
    )
    columns = g.ops("Split", kept, g.const([1, 1, 1]), outputs=3, axis=1)
    image, kind, box = (g.op("Squeeze", column, g.const([1])) for column in columns)
    chosen = g.op("Gather", g.op("Squeeze", boxes, g.const([0])), box, axis=0)
    score = g.op("GatherND", scores, kept)
    score = g.op("Unsqueeze", score, g.const([1]))
    kind = g.op("Unsqueeze", g.op("Cast", kind, to=1), g.const([1]))
    everything = g.op("Concat", chosen, score, kind, axis=1, name="detections")
    g.output(everything)
    g.output(g.op("Slice", everything, g.const([0]), g.const([3]), g.const([0]), name="first"))
    size = g.op("Slice", g.op("Shape", kept), g.const([0]), g.const([1]))
    g.output(g.op("ConstantOfShape", size, name="none"))
    wide = g.op("Concat", size, g.const([2]), axis=0)
    g.output(g.op("Add", g.op("Expand", g.const([[1.5]]), wide), score, name="raised"))
    limit = g.op("Squeeze", size, g.const([0]))
    g.output(g.op("Add", g.op("Range", g.const(0), limit, g.const(1)), image, name="numbers"), "int64")
    corners = g.op("Mul", g.op("Clip", chosen, g.const(0.0), g.const(1.0)), g.const(3.0))
    rois = g.op("Add", corners, g.const([[0.0, 0.0, 4.0, 4.0]]))
    crops = g.op("RoiAlign", g.input("planes", (1, 2, 8, 8)), rois, image, output_height=2, output_width=2)
    g.output(g.op("Flatten", g.op("Conv", crops, g.weight(3, 2, 1, 1)), name="features"))
    return g.model()


def uneven() -> onnx.ModelProto:
    """Two that have nothing to do with each other."""
    g = Graph("uneven")
    x = g.input("x", (4, 6))
    kept = g.op("Compress", x, g.input("kept", (6,), "bool"), axis=1, name="columns")
    g.output(g.op("Mul", kept, g.const([[2.0]]), name="twice"))
    g.output(g.op("Reshape", kept, g.const([4, 1, -1]), name="reshaped"))
    values = g.ops("Unique", g.op("Round", x), outputs=4, name="values")
    g.output(g.op("Neg", values[0], name="negative"))
    g.output(values[2], "int64")
    return g.model()


#: By name, a model and maxima of its tensors.
def regulated(*, sounds: bool = True) -> onnx.ModelProto:
    """A length regulator, as of FastSpeech and VITS: each token is as many frames as its duration says.
    ``sounds``: with convolutions that make samples of the frames."""
    g = Graph("regulated", seed=3)
    tokens = g.input("x", (1, 6, 4))
    durations = g.op("Ceil", g.op("Abs", g.op("MatMul", tokens, g.weight(4, 1))))
    ends = g.op("CumSum", g.op("Squeeze", durations, g.const([2])), g.const(1))
    length = g.op("Cast", g.op("ReduceMax", ends, keepdims=0), to=onnx.TensorProto.INT64)
    frames = g.op("Range", g.const(0), length, g.const(1), name="frames")
    place = g.op("Cast", g.op("Unsqueeze", frames, g.const([0, 2])), to=onnx.TensorProto.FLOAT)
    below = g.op("Less", place, g.op("Unsqueeze", ends, g.const([1])))
    inside = g.op("Cast", below, to=onnx.TensorProto.FLOAT)
    before = g.op("Pad", inside, g.const([0, 0, 1, 0, 0, -1]))
    path = g.op("Sub", inside, before)
    spread = g.op("MatMul", path, tokens, name="spread")
    g.output(spread)
    g.output("frames", "int64")
    if not sounds:
        return g.model()
    wave = g.op("Transpose", spread, perm=[0, 2, 1])
    for dilation in (1, 3):
        along = {"dilations": [dilation], "pads": [dilation] * 2}
        wave = g.op("Tanh", g.op("Conv", wave, g.weight(4, 4, 3), g.weight(4), **along))
    for stride, kernel in ((2, 4), (3, 7)):
        pads = [(kernel - stride) // 2] * 2
        wave = g.op("ConvTranspose", wave, g.weight(4, 4, kernel), g.weight(4), strides=[stride], pads=pads)
    g.output(g.op("Conv", wave, g.weight(1, 4, 5), g.weight(1), pads=[1, 3], name="wave"))
    return g.model()


def descending() -> onnx.ModelProto:
    """Numbers of other types, that begin elsewhere and fall."""
    g = Graph("descending")
    limit = g.op("ReduceSum", g.input("x", (2, 3)), keepdims=0)
    start, step = (g.const(np.float32(number)) for number in (2.5, -0.25))
    g.output(g.op("Range", start, limit, step, name="floats"))
    whole = g.op("Cast", limit, to=onnx.TensorProto.INT32)
    numbers = [g.const(np.asarray(number, np.int32)) for number in (-9, 4)]
    g.output(g.op("Range", numbers[0], whole, numbers[1], name="integers"), "int32")
    return g.model()


CHAINS: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, int]]] = {
    "picked": (picked, {"found": 16}),
    "picked, no room": (picked, {"found": 7}),
    "detected": (detected, {"kept": 12}),
    "detected, no room": (detected, {"kept": 2}),
    "uneven": (uneven, {"columns": 6, "values": 5}),
    "regulated": (regulated, {"frames": 24}),
    "regulated, no room": (partial(regulated, sounds=False), {"frames": 3}),
    "descending": (descending, {"floats": 40, "integers": 5}),
}

#: A model and the maximum of its result: more than there are, and fewer.
CHOICES: dict[str, tuple[onnx.ModelProto, int]] = {
    "boxes": (suppression((1, 1, 20)), 8),
    "boxes of classes": (suppression((2, 3, 12), operands=(4, 0.3, 0.2)), 30),
    "boxes by their middle": (suppression((1, 2, 25), centre=1), 20),
    "boxes, no room": (suppression((2, 2, 16), operands=(6, 0.9)), 5),
    "boxes, none wanted": (suppression((1, 1, 6), operands=()), 3),
    "places": (one("NonZero", (3, 4, 5), "float32"), 60),
    "places, no room": (one("NonZero", (6, 7), "int32"), 9),
    "places in a row": (one("NonZero", (17,), "bool"), 20),
    "rows": (one("Compress", (5, 3), "float32", kept=4, axis=0), 5),
    "columns": (one("Compress", (2, 6, 3), "int8", kept=6, axis=1), 2),
    "elements": (one("Compress", (4, 5), "float64", kept=11), 8),
    "values": (one("Unique", (4, 9), "int32", outputs=4), 40),
    "values as they come": (one("Unique", (40,), "int64", outputs=4, sorted=0), 30),
    "values, no room": (one("Unique", (40,), "uint8", outputs=4, sorted=0), 6),
    "floats": (one("Unique", (30,), "float32", outputs=4), 30),
    "slices": (one("Unique", (2, 12, 2), "int8", outputs=4, axis=1), 12),
    "slices as they come": (one("Unique", (10, 2), "float64", outputs=4, axis=0, sorted=0), 10),
}


def detector() -> onnx.ModelProto:
    """A single-shot detector whole: layers, boxes around anchors, scores, and what is found."""
    g = Graph("detector", seed=1)
    x = g.conv_bn(g.conv_bn(g.input("image", (1, 3, 32, 32)), 3, 8, stride=2), 8, 16, stride=2)
    columns = 8

    def head(channels: int) -> str:
        last = g.op("Transpose", g.conv(x, 16, channels, bias=True), perm=[0, 2, 3, 1])
        return g.op("Reshape", last, g.const([1, -1, channels]))

    places, classes = head(4), g.op("Softmax", head(4), axis=-1)
    steps = np.linspace(0, 1, columns, dtype=np.float32)
    anchors = np.stack(np.meshgrid(steps, steps), -1).reshape(1, columns**2, 2)
    offset, size = g.ops("Split", places, g.const([2, 2]), outputs=2, axis=2)
    middle = g.op("Add", g.op("Mul", offset, g.const(0.1)), g.const(anchors))
    half = g.op("Mul", g.op("Exp", g.op("Mul", size, g.const(0.2))), g.const(0.15))
    boxes = g.op("Concat", g.op("Sub", middle, half), g.op("Add", middle, half), axis=2)
    scores = g.op("Transpose", classes, perm=[0, 2, 1])
    limits = [g.const([6]), g.const([0.45]), g.const([0.3])]
    found = g.op("NonMaxSuppression", boxes, scores, *limits, name="found")
    g.output(g.op("GatherND", boxes, g.op("Gather", found, g.const([0, 2]), axis=1), name="boxes"))
    g.output(g.op("GatherND", scores, found, name="scores"))
    g.output(g.op("Cast", g.op("Gather", found, g.const(1), axis=1), to=6, name="classes"), "int32")
    return g.model()
