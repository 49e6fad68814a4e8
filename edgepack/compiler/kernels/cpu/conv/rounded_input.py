"""A stage that rounds the input of a product to the type in which it is multiplied."""

from __future__ import annotations

from typing import Any

from edgepack.compiler.kernels.contract import Stage
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.float16 import narrowed
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.compiler.kernels.cpu.emit.register_tile import power_of_two_chunks

__all__ = ["rounded_input"]

#: Elements of the input that a task rounds.
TASK_ELEMENTS = 4096


def rounded_input(e: Emitter, param: int, elements: int, dtype: str, stored: str) -> Stage:
    """A stage that rounds float32 numbers to the first temp.

    Args:
        e: a new emitter.
        param: which parameter of the fused function they are, and ``elements`` how many.
        dtype: what they are rounded to: "float16" or "bfloat16".
        stored: the type of its bits in memory.
    """
    x, y = e.param(param, elements), e.temp(0, elements, stored)
    whole, step = elements // TASK_ELEMENTS, 4 * e.lanes

    def run(at: Any, count: int) -> None:
        for first, lanes in power_of_two_chunks(count, e.lanes):
            value = e.let(e.vload(x, at + first, lanes))
            e.vstore(y, at + first, narrowed(e, value, lanes, dtype), lanes)

    def part(first: Any, count: int) -> None:
        e.loop(0, count // step, lambda i: run(e.let(first + i * step), step))
        run(e.let(first + (count - count % step)), count % step)

    def task(t: Any) -> None:
        first = e.let(t * TASK_ELEMENTS)
        rest = elements - whole * TASK_ELEMENTS
        if not whole or not rest:
            part(first, TASK_ELEMENTS if whole else rest)
            return
        e.branch(t < index(whole), lambda: part(first, TASK_ELEMENTS), lambda: part(first, rest))

    e.tasks(task)
    return e.stage(max(1, whole + (elements % TASK_ELEMENTS > 0)))
