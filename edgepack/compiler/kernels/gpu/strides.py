"""Along which variables what a block reads is contiguous in memory."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import sym
from tvm.ir import TensorLoad

from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.expressions.nodes import name_of

__all__ = ["contiguous", "contiguous_in"]


def contiguous(block: Block) -> set[Any]:
    """The block's variables by one of which the position in the largest tensor that it reads moves by one
    element."""
    return contiguous_in(block.value, block)


def contiguous_in(expression: Any, block: Block) -> set[Any]:
    """The same of a part of the block's expression."""
    loads: list[Any] = []
    tvm_ffi.structural_walk(expression, (TensorLoad, loads.append))
    loads = [load for load in loads if load.source != block.target and len(load.indices)]
    if not loads:
        return set()
    largest = max(loads, key=lambda load: _elements(load.source))
    last = largest.indices[-1]
    found = set()
    for variable in block.iters:
        coefficients = sym.detect_linear_equation(last, [variable])
        if len(coefficients) and name_of(coefficients[0]) == "integer" and int(coefficients[0]) == 1:
            found.add(variable)
    return found


def _elements(buffer: Any) -> int:
    count = 1
    for dimension in buffer.shape:
        count *= int(dimension)
    return count
