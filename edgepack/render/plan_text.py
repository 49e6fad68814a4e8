"""A plan as text for people: what runs in which order, on which memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from edgepack.plan.types import AnyStep, Argument, Copy, Launch, Plan, TensorSpec
from edgepack.render.formatting import human_bytes, human_count, shape_text
from edgepack.text.columns import columns

__all__ = ["plan_text"]


def plan_text(plan: Plan, prefix: str = "") -> str:
    """Steps, kernels, constants and arena of a plan, each as a table.

    Args:
        prefix: of the kernels' symbols, left out.
    """
    arena = plan.arena
    peak = f"most of it live at step {arena.peak_step}" if arena.peak_step >= 0 else "empty"
    memory = [
        f"params {human_bytes(plan.params_bytes)} in {len(plan.constants)} constants",
        f"arena {human_bytes(arena.nbytes)} (least possible {human_bytes(arena.lower_bound)}; {peak})",
        f"scratch {human_bytes(arena.scratch_bytes)} for each thread, {arena.threads} of them in the arena",
    ]
    if plan.gpu_api:
        memory.append(f"arena of the GPU {human_bytes(plan.gpu_arena.nbytes)}")
    parts = [
        [f"{plan.name}: {len(plan.steps)} steps, {len(plan.kernels)} kernels", "", *memory],
        _tensors(plan),
        _steps(plan, prefix),
        _kernels(plan, prefix),
        _constants(plan),
        _buffers(plan),
    ]
    return "\n".join("\n".join([*part, ""]) for part in parts if part)


def _table(title: str, header: Sequence[str], rows: list[list[str]], right: Sequence[int]) -> list[str]:
    return [f"{title}:", *columns([header, *rows], right)] if rows else []


def _tensors(plan: Plan) -> list[str]:
    def row(kind: str, number: int, tensor: TensorSpec) -> list[str]:
        shape, size = shape_text(tensor.shape), human_bytes(tensor.nbytes)
        return [f"{kind}{number}", tensor.name, tensor.dtype, shape, size]

    rows = [row("input", i, tensor) for i, tensor in enumerate(plan.inputs)]
    rows += [row("output", i, tensor) for i, tensor in enumerate(plan.outputs)]
    return _table("inputs and outputs", ["", "name", "dtype", "shape", "size"], rows, [4])


def _steps(plan: Plan, prefix: str) -> list[str]:
    rows = []
    for number, step in enumerate(plan.steps):
        nodes = "" if isinstance(step, Copy) else ", ".join(step.nodes)
        rows.append([str(number), *_what(step, prefix), nodes])
    header = ["step", "runs", "tasks", "scratch", "arguments", "nodes of the model"]
    return _table("steps", header, rows, [0, 2, 3])


def _what(step: AnyStep, prefix: str) -> list[str]:
    """What a step runs, how many tasks that has, its scratch, and its arguments."""
    if isinstance(step, Copy):
        source, target = (step.host, step.device) if step.upload else (step.device, step.host)
        return ["copy", "", "", f"{_argument(source)} to {_argument(target)}"]
    arguments = " ".join(map(_argument, step.arguments))
    kernel = step.kernel.removeprefix(prefix)
    if isinstance(step, Launch):
        groups, threads = shape_text(step.groups), shape_text(step.threads)
        return [kernel, f"{prod(step.groups)}", "", f"groups {groups} of {threads}: {arguments}"]
    return [kernel, str(step.tasks), human_bytes(step.scratch_bytes) if step.scratch_bytes else "", arguments]


def _argument(argument: Argument) -> str:
    """``input0``, ``constant3``, ``arena+4096``."""
    offset = f"+{argument.offset}" if argument.offset else ""
    if argument.kind in {"input", "output", "constant"}:
        return f"{argument.kind}{argument.index}{offset}"
    return f"{argument.kind}+{argument.offset}"


def _kernels(plan: Plan, prefix: str) -> list[str]:
    rows = [
        [
            kernel.symbol.removeprefix(prefix),
            kernel.rule,
            kernel.backend,
            f"{human_count(kernel.flops)}FLOP",
            human_bytes(kernel.bytes_moved),
            " ".join(kernel.ops),
            " ".join(f"{key}={value}" for key, value in sorted(kernel.parameters.items())),
        ]
        for kernel in plan.kernels
    ]
    return _table("kernels", ["kernel", "rule", "on", "work", "data", "operators", "chosen"], rows, [3, 4])


def _constants(plan: Plan) -> list[str]:
    rows = [
        [str(number), str(one.offset), str(one.nbytes), one.dtype, shape_text(one.shape), one.name]
        for number, one in enumerate(plan.constants)
    ]
    header = ["constant", "offset", "bytes", "dtype", "shape", "name"]
    return _table("constants", header, rows, [0, 1, 2])


def _buffers(plan: Plan) -> list[str]:
    arenas = [("arena", plan.arena), ("device", plan.gpu_arena)]
    rows = [
        [name, str(b.offset), str(b.nbytes), f"{b.first_step} to {b.last_step}", b.name]
        for name, arena in arenas
        for b in arena.buffers
    ]
    return _table("arena", ["in", "offset", "bytes", "steps", "buffer"], rows, [1, 2])
