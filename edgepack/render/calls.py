"""Calls of kernels in the C of a model, and its functions that call the kernels of cascades."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.plan.branch import Branch
from edgepack.plan.cascade import Cascade, CascadeLayer
from edgepack.plan.types import Kernel, Plan

__all__ = ["branch_call", "cascade_values", "kernel_call", "table_name"]


def table_name(kernel: Kernel) -> str:
    """Name of the array of a kernel's numbers."""
    return f"{kernel.symbol}_numbers"


def kernel_call(kernel: Kernel, pointers: Sequence[str], tasks: Sequence[str]) -> str:
    """The call of a kernel's machine code, as a C expression.

    Args:
        tasks: the first task, and the one behind the last.
    """
    numbers = [f"(void *){table_name(kernel)}"] if kernel.numbers else []
    return f"{kernel.function or kernel.symbol}({', '.join([*pointers, *numbers, *tasks])})"


def branch_call(branch: Branch, pointers: Sequence[str]) -> str:
    """The call of what decides where a run goes on, as a C expression."""
    if branch.kind == "always":
        return "1"
    if branch.kind in {"unless", "require", "forbid"}:
        return f"ep_{branch.kind}({pointers[0]})"
    given = iter(pointers)
    counter = next(given)
    trips = next(given) if branch.trips else "NULL"
    condition = next(given) if branch.condition else "NULL"
    most = f"INT64_C({branch.most}), {int(branch.bounded)}"
    return f"ep_loop_{branch.kind}({counter}, {trips}, {condition}, {most})"


def cascade_values(plan: Plan, kernel: Kernel, cascade: Cascade) -> dict[str, object]:
    """What ``model.c.j2`` names of a cascade of the plan, the kernel that steps call."""
    layers, reads = cascade.layers, cascade.reads
    firsts = [sum(read.reader < number for read in reads) for number in range(len(layers) + 1)]
    sizes = [(one.rows, one.row_bytes, one.window, one.offset) for one in layers]
    rows = f"{cascade.step} row{'s' if cascade.step > 1 else ''}"
    return {
        "symbol": kernel.symbol,
        "parameters": ", ".join(f"void *p{i}" for i in range(kernel.pointers)),
        "about": f"{len(layers)} layers, {rows} at a time.",
        "layers": [
            ", ".join(map(str, (*size, f"{first}u")))
            for size, first in zip([*sizes, (0, 0, 0, 0)], firsts, strict=True)
        ],
        "reads": [f"{r.source}u, {r.reader}u, {r.size}, {r.stride}, {r.pad}" for r in reads],
        "step": cascade.step,
        "last": len(layers) - 1,
        "rows": layers[-1].rows,
        "calls": [_layer_call(plan, layers, number) for number in range(len(layers))],
    }


def _layer_call(plan: Plan, layers: Sequence[CascadeLayer], number: int) -> str:
    """The call of a layer's kernel for its rows of a stripe."""
    layer = layers[number]
    times = f" * {layer.tasks}" if layer.tasks > 1 else ""
    pointers = [f"p{i}" if i >= 0 else _rows_of(layers, -1 - i) for i in layer.pointers]
    tasks = [f"rows[{number}].{bound}{times}" for bound in ("begin", "end")]
    return kernel_call(plan.kernel(layer.kernel), pointers, tasks)


def _rows_of(layers: Sequence[CascadeLayer], number: int) -> str:
    """Where row 0 of a layer would lie, with the rows that are in its window where they are."""
    layer = layers[number]
    return f"(void *)((uintptr_t)p0 + {layer.offset}u - (uintptr_t)rows[{number}].low * {layer.row_bytes}u)"
