"""Reductions along dimensions, and running sums."""

from __future__ import annotations

from workbench.models.tflite.operators.values import (
    Draw,
    Random,
    integers,
    like,
    quantised,
    shape_of,
)
from workbench.models.tflite.writer import Writer

__all__ = ["DRAWN"]


def _axes(random: Random, rank: int) -> list[int]:
    count = int(random.integers(1, rank + 1))
    return [int(n) for n in random.choice(rank, count, replace=False)]


def _reduced(shape: list[int], axes: list[int], *, keep: bool) -> list[int]:
    kept = [1 if axis in axes else n for axis, n in enumerate(shape)]
    return kept if keep else [n for axis, n in enumerate(kept) if axis not in axes]


def _reduction(kind: str, *dtypes: str, rescaled: bool = False, version: int = 2) -> Draw:
    """With ``rescaled`` a result of integers has a scale of its own."""

    def draw(random: Random) -> bytes:
        writer = Writer()
        shape = shape_of(random, int(random.integers(1, 6)))
        axes, keep = _axes(random, len(shape)), bool(random.integers(2))
        given = like(random, *dtypes)
        x = writer.tensor(shape, *given)
        made = _reduced(shape, axes, keep=keep)
        if rescaled and len(given) > 1:
            y = quantised(writer, random, made, given[0])
        else:
            y = writer.tensor(made, *given)
        signed = [axis - len(shape) if random.integers(2) else axis for axis in axes]
        writer.operator(kind, [x, integers(writer, signed)], [y], version, "Reducer", keepDims=keep)
        return writer.finished([x], [y])

    return draw


def _place(kind: str) -> Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        shape = shape_of(random, int(random.integers(1, 5)))
        axis = int(random.integers(len(shape)))
        x = writer.tensor(shape, *like(random, "float32", "int8", "uint8", "int32"))
        kept = [n for place, n in enumerate(shape) if place != axis]
        wide = bool(random.integers(2))
        y = writer.tensor(kept, "int64" if wide else "int32")
        where = integers(writer, axis - len(shape) if random.integers(2) else axis)
        writer.operator(kind, [x, where], [y], 2, outputType=4 if wide else 2)
        return writer.finished([x], [y])

    return draw


def _cumsum(random: Random) -> bytes:
    writer = Writer()
    shape = shape_of(random, int(random.integers(1, 5)))
    given = like(random, "float32", "int32", "int64")
    x, y = writer.tensor(shape, *given), writer.tensor(shape, *given)
    axis = integers(writer, int(random.integers(-len(shape), len(shape))))
    flags = {name: bool(random.integers(2)) for name in ("exclusive", "reverse")}
    writer.operator("CUMSUM", [x, axis], [y], 1, **flags)
    return writer.finished([x], [y])


_NUMBERS = ("float32", "int8", "uint8", "int32", "int64")

DRAWN: dict[str, Draw] = {
    "ARG_MAX": _place("ARG_MAX"),
    "ARG_MIN": _place("ARG_MIN"),
    "CUMSUM": _cumsum,
    "MEAN": _reduction("MEAN", *_NUMBERS, rescaled=True),
    "REDUCE_ALL": _reduction("REDUCE_ALL", "bool", version=1),
    "REDUCE_ANY": _reduction("REDUCE_ANY", "bool", version=1),
    "REDUCE_MAX": _reduction("REDUCE_MAX", *_NUMBERS),
    "REDUCE_MIN": _reduction("REDUCE_MIN", *_NUMBERS),
    "REDUCE_PROD": _reduction("REDUCE_PROD", "float32", "int32", "int64"),
    "SUM": _reduction("SUM", "float32", "uint8", "int32", "int64", rescaled=True),
}
