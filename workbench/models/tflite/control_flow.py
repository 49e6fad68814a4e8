"""TFLite models with branches and loops that the data decide."""

from __future__ import annotations

import numpy as np

from workbench.models.tflite.writer import Writer

__all__ = ["counting", "long_branches"]


def long_branches(dtype: str) -> bytes:
    """One of two layers of x, where its maximum is above 10 or not; the other one stays."""
    scales = {"scale": 0.5, "zero": 3} if dtype == "int8" else {}
    writer, random = Writer(), np.random.default_rng(3)
    x = writer.tensor([2, 8], dtype, **scales, name="x")
    y = writer.tensor([2, 5], dtype, **scales, name="y")
    axes = writer.tensor([2], "int32", data=np.array([0, 1], np.int32))
    most = writer.tensor([], dtype, **scales)
    bound = writer.tensor([], dtype, **scales, data=np.array(10, dtype))
    above = writer.tensor([], "bool")
    writer.operator("REDUCE_MAX", [x, axes], [most], 1, "Reducer")
    writer.operator("GREATER", [most, bound], [above], 1)
    writer.operator("IF", [above, x], [y], 1, thenSubgraphIndex=1, elseSubgraphIndex=2)
    for turns in (0, 1):
        writer.next_subgraph([0], [1])
        a = writer.tensor([2, 8], dtype, **scales, name="x")
        b = writer.tensor([2, 5], dtype, **scales, name="y")
        weights = random.integers(-127, 128, (5, 8)).astype(dtype)
        quantised = {"scale": 0.01} if dtype == "int8" else {}
        w = writer.tensor([5, 8], dtype, **quantised, data=weights)
        if turns:
            between = writer.tensor([2, 8], dtype, **scales)
            writer.operator("RELU", [a], [between], 2)
            a = between
        writer.operator("FULLY_CONNECTED", [a, w, -1], [b], 4)
    return writer.finished([0], [1])


def counting(trips: int, dtype: str) -> bytes:
    """x multiplied by a matrix, until it was so ``trips`` times or its maximum is above 90; it is halved by
    a trip that begins with a large one."""
    scales = {"scale": 0.5, "zero": 0} if dtype == "int8" else {}
    writer = Writer()
    weights = np.random.default_rng(2).integers(-127, 128, (4, 4)).astype(dtype)

    def carried() -> tuple[int, int]:
        return writer.tensor([], "int32", name="count"), writer.tensor([1, 4], dtype, **scales, name="x")

    def number(value: int, kind: str = "int32") -> int:
        quantised = scales if kind == "int8" else {}
        return writer.tensor([], kind, **quantised, data=np.array(value, kind))

    def below(x: int, bound: int) -> int:
        axes = writer.tensor([2], "int32", data=np.array([0, 1], np.int32))
        most, is_below = writer.tensor([], dtype, **scales), writer.tensor([], "bool")
        writer.operator("REDUCE_MAX", [x, axes], [most], 1, "Reducer")
        writer.operator("LESS", [most, number(bound, dtype)], [is_below], 1)
        return is_below

    start, x = number(0), writer.tensor([1, 4], dtype, **scales, name="x")
    count, y = writer.tensor([], "int32", name="trips"), writer.tensor([1, 4], dtype, **scales, name="y")
    writer.operator("WHILE", [start, x], [count, y], 1, condSubgraphIndex=1, bodySubgraphIndex=2)
    writer.next_subgraph([x], [count, y])
    count, x = carried()
    more, both = writer.tensor([], "bool"), writer.tensor([], "bool")
    writer.operator("LESS", [count, number(trips)], [more], 1)
    writer.operator("LOGICAL_AND", [more, below(x, 90)], [both], 1)
    writer.next_subgraph([0, 1], [both])
    count, x = carried()
    after, product = writer.tensor([], "int32"), writer.tensor([1, 4], dtype, **scales)
    writer.operator("ADD", [count, number(1)], [after], 1)
    quantised = {"scale": 0.012} if dtype == "int8" else {}
    w = writer.tensor([4, 4], dtype, **quantised, data=weights)
    chosen = writer.tensor([1, 4], dtype, **scales)
    writer.operator("IF", [below(x, 40), x], [chosen], 1, thenSubgraphIndex=3, elseSubgraphIndex=4)
    writer.operator("FULLY_CONNECTED", [chosen, w, -1], [product], 4)
    writer.next_subgraph([0, 1], [after, product])
    writer.tensor([1, 4], dtype, **scales)
    writer.next_subgraph([0], [0])
    x, half = writer.tensor([1, 4], dtype, **scales), writer.tensor([1, 4], dtype, **scales)
    writer.operator("MINIMUM", [x, number(20, dtype)], [half], 1)
    return writer.finished([x], [half])
