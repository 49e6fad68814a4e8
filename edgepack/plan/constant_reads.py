"""How often a run reads each byte of a constant, estimated from the plan.

A product reads its weights again for each tile of rows of its result (pixels of a convolution), and with them
the tensors of its epilogue, which have a number for each column. The multiply-adds of the kernel, divided by
the weights' elements, are those rows; what else a step reads it reads once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.types import Argument, Constant, Kernel, Plan, Step

__all__ = ["constant_reads"]

_TILE = re.compile(r"([1-9][0-9]*)x[1-9][0-9]*")


def constant_reads(plan: Plan) -> list[float]:
    """Reads of each byte in a run, in the order of ``plan.constants``."""
    kernels = {kernel.symbol: kernel for kernel in plan.kernels}
    reads = [0.0] * len(plan.constants)
    for step in plan.steps:
        if not isinstance(step, Step):
            continue
        for kernel, used in _calls(step, kernels):
            elements = max((_elements(plan.constants[index], kernel) for index in used), default=1)
            times = max(1.0, kernel.flops / 2 / max(1, elements) / _rows(kernel))
            for index in used:
                reads[index] += times
    return reads


def _calls(step: Step, kernels: Mapping[str, Kernel]) -> Iterator[tuple[Kernel, set[int]]]:
    """The kernels that a step calls, each with the constants that it reads."""

    def constants(arguments: Iterable[Argument]) -> set[int]:
        return {argument.index for argument in arguments if argument.kind == "constant"}

    cascade = kernels[step.kernel].cascade
    if cascade is None:
        yield kernels[step.kernel], constants(step.arguments)
        return
    for layer in cascade.layers:
        yield kernels[layer.kernel], constants(step.arguments[i] for i in layer.pointers if i >= 0)


def _elements(constant: Constant, kernel: Kernel) -> int:
    """Elements of a constant, where its kernel reads several of them as one number (``quads of bytes``)."""
    operands = str(kernel.parameters.get("operands", ""))
    width = {"bytes": 1, "int16": 2}.get(operands.rpartition(" ")[2], DTYPE_BYTES[constant.dtype])
    return constant.nbytes // width


def _rows(kernel: Kernel) -> int:
    """Rows of the result that a kernel computes with one read of its weights."""
    tile = _TILE.fullmatch(str(kernel.parameters.get("tile", "")))
    return int(tile[1]) if tile else 1
