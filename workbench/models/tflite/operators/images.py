"""Blocks of images, borders, and other sizes."""

from __future__ import annotations

import math

from workbench.models.tflite.operators.values import Draw, Random, integers, like, shape_of
from workbench.models.tflite.writer import Writer

__all__ = ["DRAWN"]

_MOVED = ("float32", "int8", "uint8", "int32", "int64")


def _block(kind: str) -> Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        n, rows, columns, channels = shape_of(random)
        by, given = int(random.integers(1, 4)), like(random, *_MOVED)
        space, depth = [n, rows * by, columns * by, channels], [n, rows, columns, channels * by * by]
        shapes = (space, depth) if kind == "SPACE_TO_DEPTH" else (depth, space)
        x, y = (writer.tensor(shape, *given) for shape in shapes)
        writer.operator(kind, [x], [y], 1, blockSize=by)
        return writer.finished([x], [y])

    return draw


def _batches(kind: str) -> Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        n, channels = (int(v) for v in random.integers(1, 4, 2))
        count = int(random.integers(1, 3))
        blocks = [int(v) for v in random.integers(1, 4, count)]
        parts = [int(v) for v in random.integers(1, 5, count)]
        edges = [
            [int(random.integers(0, 2 if part * by > 2 else 1)) for _ in range(2)]
            for part, by in zip(parts, blocks, strict=True)
        ]
        image = [part * by - sum(edge) for part, by, edge in zip(parts, blocks, edges, strict=True)]
        given = like(random, *_MOVED)
        space, batches = [n, *image, channels], [n * math.prod(blocks), *parts, channels]
        shapes = (space, batches) if kind == "SPACE_TO_BATCH_ND" else (batches, space)
        x, y = (writer.tensor(shape, *given) for shape in shapes)
        operands = [x, integers(writer, blocks), integers(writer, edges)]
        writer.operator(kind, operands, [y], 3, "SpaceToBatchND" if kind[0] == "S" else "BatchToSpaceND")
        return writer.finished([x], [y])

    return draw


def _mirror_pad(random: Random) -> bytes:
    writer = Writer()
    shape, mode = shape_of(random, int(random.integers(1, 5))), int(random.integers(2))
    widths = [[int(v) for v in random.integers(0, n + mode, 2)] for n in shape]
    given = like(random, *_MOVED)
    x = writer.tensor(shape, *given)
    y = writer.tensor([n + sum(width) for n, width in zip(shape, widths, strict=True)], *given)
    writer.operator("MIRROR_PAD", [x, integers(writer, widths)], [y], 2, mode=mode)
    return writer.finished([x], [y])


def _resize(kind: str) -> Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        n, rows, columns, channels = (int(v) for v in random.integers(1, 8, 4))
        sizes = [int(v) for v in random.integers(1, 17, 2)]
        if random.integers(2):
            sizes = [rows * 2, columns * 2]
        form = int(random.integers(3))
        given = like(random, "float32", "int8", "uint8")
        if given[0] == "uint8" and kind == "RESIZE_BILINEAR":  # of sizes between which no product is rounded
            sizes, form = [rows * 2, columns * 4], int(random.choice([0, 2]))
        x, y = (
            writer.tensor([n, rows, columns, channels], *given),
            writer.tensor([n, *sizes, channels], *given),
        )
        flags = {"alignCorners": form == 1, "halfPixelCenters": form == 2}
        writer.operator(kind, [x, integers(writer, sizes)], [y], 3, **flags)
        return writer.finished([x], [y])

    return draw


DRAWN: dict[str, Draw] = {
    "BATCH_TO_SPACE_ND": _batches("BATCH_TO_SPACE_ND"),
    "DEPTH_TO_SPACE": _block("DEPTH_TO_SPACE"),
    "MIRROR_PAD": _mirror_pad,
    "RESIZE_BILINEAR": _resize("RESIZE_BILINEAR"),
    "RESIZE_NEAREST_NEIGHBOR": _resize("RESIZE_NEAREST_NEIGHBOR"),
    "SPACE_TO_BATCH_ND": _batches("SPACE_TO_BATCH_ND"),
    "SPACE_TO_DEPTH": _block("SPACE_TO_DEPTH"),
}
