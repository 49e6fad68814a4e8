"""Operators that move elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.models.drawn_operators.node import NodeDraw, Operator, Recipes

__all__ = ["MOVES"]

MOVES = Recipes()


def _x(draw: NodeDraw, shape: list[int]) -> str:
    return draw.input(draw.numbers(draw.type_of(), shape), constant=0)


@MOVES.of("Transpose")
def _transpose(draw: NodeDraw) -> Operator:
    shape = draw.shape()
    perm = [int(axis) for axis in draw.rng.permutation(len(shape))]
    return draw.done([_x(draw, shape)], **(draw.attributes(perm=perm) if shape else {}))


@MOVES.of("Flatten")
def _flatten(draw: NodeDraw) -> Operator:
    shape = draw.shape()
    low = -len(shape) if draw.opset >= 11 else 0
    return draw.done([_x(draw, shape)], axis=draw.whole(low, len(shape)))


@MOVES.of("Reshape")
def _reshape(draw: NodeDraw) -> Operator:
    shape = draw.shape()
    parts = [1]
    for size in shape:
        parts = [*parts, size] if draw.chance() else [*parts[:-1], parts[-1] * size]
    allowed = draw.opset >= 14 and 0 in parts
    wanted = list(parts)
    if not allowed:
        for axis, size in enumerate(wanted):
            if axis < len(shape) and size == shape[axis] and draw.chance(0.3):
                wanted[axis] = 0
    if not allowed and 0 not in parts and draw.chance(0.4):
        wanted[draw.whole(0, len(wanted) - 1)] = -1
    return draw.done([_x(draw, shape), draw.constant(wanted)], **({"allowzero": 1} if allowed else {}))


@MOVES.of("Squeeze")
def _squeeze(draw: NodeDraw) -> Operator:
    shape = draw.shape(1)
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    chosen = [axis for axis in ones if draw.chance()]
    if not chosen:
        return draw.done([_x(draw, shape)])
    if draw.opset >= 11:
        chosen = [axis - len(shape) * draw.whole(0, 1) for axis in chosen]
    x = _x(draw, shape)
    given, more = draw.parameter("axes", chosen, 1)
    return draw.done([x, *more], **given)


@MOVES.of("Unsqueeze")
def _unsqueeze(draw: NodeDraw) -> Operator:
    shape = draw.shape(0, 4)
    count = draw.whole(1, 2)
    rank = len(shape) + count
    axes = [int(axis) for axis in draw.rng.permutation(rank)[:count]]
    axes = [axis - rank * draw.whole(0, 1) for axis in axes] if draw.opset >= 11 else sorted(axes)
    x = _x(draw, shape)
    given, more = draw.parameter("axes", axes, 1)
    return draw.done([x, *more], **given)


@MOVES.of("Expand")
def _expand(draw: NodeDraw) -> Operator:
    whole = draw.shape()
    return draw.done([_x(draw, draw.broadcast(whole)), draw.constant(whole)])


@MOVES.of("Tile")
def _tile(draw: NodeDraw) -> Operator:
    shape = draw.shape(1, 4)
    return draw.done([_x(draw, shape), draw.constant([draw.draw(1, 1, 2, 3, 0) for _ in shape])])


@MOVES.of("Concat")
def _concat(draw: NodeDraw) -> Operator:
    shape, dtype = draw.shape(1), draw.type_of()
    axis = draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1)
    parts = []
    for _ in range(draw.whole(1, 4)):
        one = list(shape)
        one[axis] = draw.draw(0, 1, 2, 5)
        parts.append(draw.input(draw.numbers(dtype, one)))
    return draw.done(parts, axis=axis)


@MOVES.of("Split")
def _split(draw: NodeDraw) -> Operator:
    shape = draw.shape(1)
    axis = draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1)
    sizes = [draw.draw(0, 1, 2, 3) for _ in range(draw.whole(1, 4))]
    if draw.has("num_outputs") and draw.chance(0.3) and shape[axis] > 2:
        return draw.done([_x(draw, shape)], 2, axis=axis, num_outputs=2)
    shape[axis] = sum(sizes)
    x = _x(draw, shape)
    given, more = draw.parameter("split", sizes, 1)
    return draw.done([x, *more], len(sizes), axis=axis, **given)


@MOVES.of("Slice")
def _slice(draw: NodeDraw) -> Operator:
    shape = draw.shape(1)
    axes = [int(a) for a in draw.rng.permutation(len(shape))[: draw.whole(1, len(shape))]]
    far = draw.draw(2, 40, 2**31 - 1)
    ends = [[draw.draw(draw.whole(-9, 9), far, -far) for _ in axes] for _ in range(2)]
    x = _x(draw, shape)
    if draw.has("starts"):
        return draw.done([x], starts=ends[0], ends=ends[1], axes=axes)
    kind = draw.draw("int32", "int64")
    given: list[Any] = [*ends, [axis - len(shape) * draw.whole(0, 1) for axis in axes]]
    if draw.chance(0.7):
        given.append([draw.draw(1, 1, 2, 3, -1, -2) for _ in axes])
    return draw.done([x, *(draw.constant(one, kind) for one in given)])


@MOVES.of("Pad")
def _pad(draw: NodeDraw) -> Operator:
    shape, dtype = draw.shape(1, 4), draw.type_of()
    mode = draw.draw("constant", "constant", "edge", "reflect", *(["wrap"] if draw.opset >= 19 else []))
    if mode != "constant":
        shape = [max(size, 4) for size in shape]
    low = -1 if mode == "constant" and draw.chance(0.3) and min(shape) >= 2 else 0
    pads = [draw.whole(low, 3) for _ in range(2 * len(shape))]
    x = draw.input(draw.numbers(dtype, shape), constant=0)
    if draw.has("pads"):
        return draw.done([x], mode=mode, pads=pads, **draw.attributes(value=1.5))
    value = draw.input(draw.numbers(dtype, [])) if mode == "constant" and draw.chance() else ""
    return draw.done([x, draw.constant(pads), value], mode=mode)


def _indices(draw: NodeDraw, extent: int, shape: list[int]) -> np.ndarray:
    low = -extent if draw.opset >= 11 else 0
    return draw.rng.integers(low, max(extent, 1), shape).astype(draw.draw("int32", "int64"))


@MOVES.of("Gather")
def _gather(draw: NodeDraw) -> Operator:
    shape = draw.shape(1, 4, empty=False)
    axis = draw.axis(len(shape))
    indices = _indices(draw, shape[axis], draw.shape(0, 3))
    return draw.done([_x(draw, shape), draw.input(indices)], axis=axis)


@MOVES.of("GatherElements")
def _gather_elements(draw: NodeDraw) -> Operator:
    shape = draw.shape(1, 4, empty=False)
    axis = draw.axis(len(shape))
    smaller = [draw.whole(0 if draw.chance(0.1) else 1, size) for size in shape]
    smaller[axis] = draw.whole(1, 6)
    return draw.done([_x(draw, shape), draw.input(_indices(draw, shape[axis], smaller))], axis=axis)


@MOVES.of("GatherND")
def _gather_points(draw: NodeDraw) -> Operator:
    shape = draw.shape(1, 4, empty=False)
    batch = draw.whole(0, len(shape) - 1) if draw.has("batch_dims") else 0
    depth = draw.whole(1, len(shape) - batch)
    around = shape[:batch] + draw.shape(0, 2)
    bounds = np.asarray(shape[batch : batch + depth])
    low = -bounds if draw.opset >= 11 else 0 * bounds
    indices = draw.rng.integers(low, bounds, [*around, depth])
    attributes = {"batch_dims": batch} if batch else {}
    return draw.done([_x(draw, shape), draw.input(indices)], **attributes)


@MOVES.of("ScatterElements", "Scatter")
def _scatter_elements(draw: NodeDraw) -> Operator:
    shape, dtype = draw.shape(1, 4, empty=False), draw.type_of()
    axis = draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1)
    part = [draw.whole(1, size) for size in shape]
    # Each position once: which of two that meet is the last is not defined.
    lines = np.argsort(
        draw.rng.random([*part[: axis % len(shape)], shape[axis], *part[axis % len(shape) + 1 :]]),
        axis=axis % len(shape),
    )
    indices = np.take(lines, range(part[axis]), axis=axis)
    if draw.opset >= 11:
        indices = np.where(draw.rng.random(indices.shape) < 0.3, indices - shape[axis], indices)
    kinds = ["none", "add", "mul"] if draw.opset >= 16 else []
    kinds += ["max", "min"] if draw.opset >= 18 else []
    kinds = [kind for kind in kinds if kind == "none" or dtype.kind != "b"]
    attributes = draw.attributes(reduction=draw.draw(*kinds)) if kinds else {}
    data, updates = draw.numbers(dtype, shape), draw.numbers(dtype, part)
    kind = draw.draw("int32", "int64")
    given = [draw.input(data), draw.input(indices.astype(kind)), draw.input(updates)]
    return draw.done(given, axis=axis, **attributes)


@MOVES.of("ScatterND")
def _scatter_points(draw: NodeDraw) -> Operator:
    shape, dtype = draw.shape(1, 4, empty=False), draw.type_of()
    depth = draw.whole(1, len(shape))
    places = draw.rng.permutation(int(np.prod(shape[:depth])))[: draw.whole(0, 6)]
    indices = np.stack(np.unravel_index(places, shape[:depth]), axis=-1).reshape(len(places), depth)
    if draw.opset >= 11 and draw.chance(0.3):
        indices = indices - np.asarray(shape[:depth])
    updates = draw.numbers(dtype, [len(places), *shape[depth:]])
    kinds = ["none", "add", "mul"] if draw.opset >= 16 else []
    kinds += ["max", "min"] if draw.opset >= 18 else []
    kinds = [kind for kind in kinds if kind == "none" or dtype.kind != "b"]
    attributes = draw.attributes(reduction=draw.draw(*kinds)) if kinds else {}
    given = [draw.numbers(dtype, shape), indices.astype(np.int64), updates]
    return draw.done([draw.input(array) for array in given], **attributes)


@MOVES.of("Trilu")
def _triangle(draw: NodeDraw) -> Operator:
    shape = draw.shape(2, 4)
    given = [_x(draw, shape)]
    if draw.chance(0.7):
        given.append(draw.constant(draw.whole(-9, 9)))
    return draw.done(given, **draw.attributes(upper=draw.whole(0, 1)))


@MOVES.of("DepthToSpace", "SpaceToDepth")
def _blocks(draw: NodeDraw) -> Operator:
    block = draw.whole(1, 3)
    n, c, h, w = (draw.whole(1, 3) for _ in range(4))
    wide = draw.operator == "SpaceToDepth"
    shape = [n, c, h * block, w * block] if wide else [n, c * block * block, h, w]
    return draw.done([_x(draw, shape)], blocksize=block, **draw.attributes(mode=draw.draw("DCR", "CRD")))


@MOVES.of("ReverseSequence")
def _reverse(draw: NodeDraw) -> Operator:
    shape = draw.shape(2, 4, empty=False)
    batch = draw.whole(0, 1)
    lengths = draw.rng.integers(1, shape[1 - batch] + 1, shape[batch])
    given = [_x(draw, shape), draw.input(lengths.astype(np.int64))]
    return draw.done(given, batch_axis=batch, time_axis=1 - batch)


@MOVES.of("Compress")
def _compress(draw: NodeDraw) -> Operator:
    shape = draw.shape(1, 4, empty=False)
    if draw.chance(0.3):
        kept = draw.numbers("bool", [draw.whole(1, int(np.prod(shape)))])
        return draw.done([_x(draw, shape), draw.constant(kept, "bool")])
    axis = draw.axis(len(shape)) if draw.opset >= 11 else draw.whole(0, len(shape) - 1)
    kept = draw.numbers("bool", [draw.whole(1, shape[axis])])
    return draw.done([_x(draw, shape), draw.constant(kept, "bool")], axis=axis)


@MOVES.of("OneHot")
def _one_hot(draw: NodeDraw) -> Operator:
    shape, depth = draw.shape(0, 3), draw.whole(1, 6)
    indices = draw.rng.integers(-depth - 1, depth + 2, shape).astype(draw.draw("int64", "int32"))
    values = draw.numbers(draw.draw("float32", "int64"), [2])
    rank = len(shape) + 1
    axis = draw.axis(rank) if draw.opset >= 11 else draw.whole(-1, rank - 1)
    given = [draw.input(indices, constant=0), draw.constant([depth]), draw.input(values)]
    return draw.done(given, axis=axis)


@MOVES.of("EyeLike", "Size", "Shape")
def _about(draw: NodeDraw) -> Operator:
    square = draw.operator == "EyeLike"
    shape = draw.shape(2, 2) if square else draw.shape()
    ends = {} if square else draw.attributes(start=draw.whole(-3, 3), end=draw.whole(-3, 3))
    return draw.done([_x(draw, shape)], **(draw.attributes(k=draw.whole(-2, 2)) if square else ends))


@MOVES.of("CenterCropPad")
def _cropped(draw: NodeDraw) -> Operator:
    shape = draw.shape(1, 4, empty=False)
    axes = [int(a) for a in draw.rng.permutation(len(shape))[: draw.whole(1, len(shape))]]
    sizes = [draw.whole(1, 9) for _ in axes]
    return draw.done([_x(draw, shape), draw.constant(sizes)], axes=axes)
