"""Comparisons, logic, and choices between elements."""

from __future__ import annotations

from workbench.models.tflite.operators.values import Draw, Random, like, quantised, shape_of
from workbench.models.tflite.writer import Writer

__all__ = ["DRAWN"]


def _pair(random: Random) -> tuple[list[int], list[int], list[int]]:
    """Two shapes, and what they are broadcast to."""
    shape = shape_of(random, int(random.integers(1, 5)))
    other = [n if random.integers(3) else 1 for n in shape]
    return (shape, other, shape) if random.integers(2) else (other, shape, shape)


def _comparison(kind: str, *more: str) -> Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        first, second, made = _pair(random)
        dtype = str(random.choice(["float32", "int32", "int64", "int8", "uint8", *more]))
        if dtype in {"int8", "uint8"}:
            x, y = (quantised(writer, random, shape, dtype) for shape in (first, second))
        else:
            x, y = (writer.tensor(shape, dtype) for shape in (first, second))
        z = writer.tensor(made, "bool")
        writer.operator(kind, [x, y], [z], 2)
        return writer.finished([x, y], [z])

    return draw


def _logical(kind: str) -> Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        first, second, made = _pair(random)
        x, y, z = (writer.tensor(shape, "bool") for shape in (first, second, made))
        writer.operator(kind, [x, y], [z], 1)
        return writer.finished([x, y], [z])

    return draw


def _not(random: Random) -> bytes:
    writer = Writer()
    shape = shape_of(random, 3)
    x, y = writer.tensor(shape, "bool"), writer.tensor(shape, "bool")
    writer.operator("LOGICAL_NOT", [x], [y], 1)
    return writer.finished([x], [y])


def _extreme(kind: str) -> Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        given = like(random, "float32", "int8", "uint8", "int32", "int64")
        x, y, z = (writer.tensor(shape, *given) for shape in _pair(random))
        writer.operator(kind, [x, y], [z], 3, "MaximumMinimum")
        return writer.finished([x, y], [z])

    return draw


def _select(kind: str) -> Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        shape = shape_of(random, int(random.integers(1, 5)))
        given = like(random, "float32", "int8", "uint8", "int32", "int64", "bool")
        condition, first = shape, shape
        if kind == "SELECT" and random.integers(2):
            condition = shape[:1]
        elif kind == "SELECT_V2":
            condition, first = ([n if random.integers(3) else 1 for n in shape] for _ in range(2))
        c, x = writer.tensor(condition, "bool"), writer.tensor(first, *given)
        y, z = writer.tensor(shape, *given), writer.tensor(shape, *given)
        writer.operator(kind, [c, x, y], [z], 1)
        return writer.finished([c, x, y], [z])

    return draw


DRAWN: dict[str, Draw] = {
    "EQUAL": _comparison("EQUAL", "bool"),
    "GREATER": _comparison("GREATER"),
    "GREATER_EQUAL": _comparison("GREATER_EQUAL"),
    "LESS": _comparison("LESS"),
    "LESS_EQUAL": _comparison("LESS_EQUAL"),
    "LOGICAL_AND": _logical("LOGICAL_AND"),
    "LOGICAL_NOT": _not,
    "LOGICAL_OR": _logical("LOGICAL_OR"),
    "MAXIMUM": _extreme("MAXIMUM"),
    "MINIMUM": _extreme("MINIMUM"),
    "NOT_EQUAL": _comparison("NOT_EQUAL", "bool"),
    "SELECT": _select("SELECT"),
    "SELECT_V2": _select("SELECT_V2"),
}
