"""Which products are computed in float16 on a CPU that can (``--precision fp16``): those by constant weights
that float16 holds, where no sum can leave float16.

A sum of a block of products (kernels/cpu/micro/float16_blocks.py) is at most :data:`FLOAT16_TERMS` times the
largest weight times the largest value that was read in the recorded run (frontend/onnx/calibration.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgepack.compiler.kernels.cpu.analysis.anchored_group import CONVOLUTIONS
from edgepack.compiler.kernels.cpu.micro.float16_blocks import FLOAT16_TERMS
from edgepack.compiler.planner.float16_weights import LEAST, lost, said
from edgepack.compiler.planner.program import Call, Program
from edgepack.plan.calibration import LARGEST_FLOAT16, CalibrationRanges

__all__ = ["mark_float16_products"]


def mark_float16_products(
    program: Program, names: Sequence[str], ranges: CalibrationRanges
) -> tuple[str, ...]:
    """Sets :attr:`FusedGroup.rounded_to` of groups at all of whose calls float16 is safe.

    Args:
        names: of the model's nodes.

    Returns:
        Warnings: weights that float16 cannot hold.
    """
    kept: dict[int, str] = {}
    safe: dict[str, bool] = {}
    for call in program.calls:
        index = _weights(call, program)
        nodes = [names[i] for i in call.nodes if i < len(names)]
        here = index is not None and not _too_large(program, index, nodes, ranges)
        if index is not None and here and (why := lost(program.constants[index])):
            kept[index], here = why, False
        safe[call.fused.name] = safe.get(call.fused.name, True) and here
    for call in program.calls:
        if safe[call.fused.name]:
            call.fused = replace(call.fused, rounded_to="float16")
    return tuple(said(kept, program, names))


def _weights(call: Call, program: Program) -> int | None:
    """Which of the program's constants a product is by; None if it is by none, or a small one."""
    anchor = call.fused.anchor
    if anchor is None or anchor.kind not in (*CONVOLUTIONS, "matmul") or anchor.operands[1] is None:
        return None
    value = call.arguments[anchor.operands[1]]
    if value.kind != "constant":
        return None
    array = program.constants[value.index]
    return value.index if array.dtype == np.float32 and array.size >= LEAST else None


def _too_large(program: Program, index: int, nodes: Sequence[str], ranges: CalibrationRanges) -> bool:
    if not ranges.large.isdisjoint(nodes):
        return True
    most = float(np.abs(program.constants[index]).max())
    return (
        not most * max((ranges.read.get(node, 0.0) for node in nodes), default=0.0) * FLOAT16_TERMS
        <= LARGEST_FLOAT16
    )
