"""Which rows of its parameters a row of an image is made of that a group without a reduction computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.tirx import Add, Buffer, IntImm, Mul, Sub

from edgepack.compiler.kernels.contract import RowWindow, RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block

__all__ = ["ROWS", "check_image", "row_windows"]

#: The dimension of an image, (1, height, width, channels), that counts rows.
ROWS = 1


def check_image(outputs: Sequence[Buffer]) -> None:
    """Raises RuleError unless there is one output, an image."""
    if len(outputs) != 1 or len(outputs[0].shape) != 4 or int(outputs[0].shape[0]) != 1:
        raise RuleError("rows of what is no image")


def row_windows(blocks: Sequence[Block], params: Sequence[Buffer]) -> tuple[RowWindow, ...]:
    """The rows of each parameter that is an image, read at rows that are known distances apart.

    Args:
        blocks: of the fused function; those that others read are read at their own rows.
    """
    computed = {block.target for block in blocks}
    found: dict[Buffer, set[tuple[int, int] | None]] = {}
    for block in blocks:

        def visit(load: TensorLoad, block: Block = block) -> None:
            rows = _linear(load.indices[ROWS], block.iters[ROWS]) if len(load.indices) == 4 else None
            found.setdefault(load.source, set()).add(rows if len(block.iters) == 4 else None)

        tvm_ffi.structural_walk(block.value, [(TensorLoad, visit)])
    if any(rows != {(1, 0)} for buffer, rows in found.items() if buffer in computed):
        return ()
    windows = (_window(i, param, found.get(param, set())) for i, param in enumerate(params))
    return tuple(window for window in windows if window is not None)


def _window(number: int, param: Buffer, rows: set[tuple[int, int] | None]) -> RowWindow | None:
    """The window of a parameter of which rows ``a * y + b`` are read for row ``y``, (a, b) being ``rows``."""
    known = [row for row in rows if row is not None]
    steps = {step for step, _ in known}
    if not known or len(known) < len(rows) or len(steps) != 1 or min(steps) < 1 or int(param.shape[0]) != 1:
        return None
    starts = [start for _, start in known]
    return RowWindow(number, max(starts) - min(starts) + 1, steps.pop(), -min(starts))


def _linear(value: Any, variable: Any) -> tuple[int, int] | None:
    """(a, b) of ``a * variable + b``; None of another form."""
    if value.same_as(variable):
        return 1, 0
    if isinstance(value, IntImm):
        return 0, int(value)
    if not isinstance(value, Add | Sub | Mul):
        return None
    left, right = _linear(value.a, variable), _linear(value.b, variable)
    if left is None or right is None:
        return None
    if isinstance(value, Mul):
        factor, other = (left[1], right) if not left[0] else (right[1], left)
        return None if left[0] and right[0] else (factor * other[0], factor * other[1])
    sign = 1 if isinstance(value, Add) else -1
    return left[0] + sign * right[0], left[1] + sign * right[1]
