"""Rule ``reduction``: the work items of a group share the terms of each result, and add theirs up in the end.

A group is a rectangle of work items. One side of it are results, the other side terms of each; the side along
which memory is contiguous is that of neighbouring work items, so that they read neighbouring elements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.expressions.nodes import name_of
from edgepack.compiler.kernels.gpu.code import c_type
from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.expressions import unravelled
from edgepack.compiler.kernels.gpu.kernel import Kernel, initial_value
from edgepack.compiler.kernels.gpu.limits import check_group, check_power
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest
from edgepack.compiler.kernels.gpu.rule import GpuRule
from edgepack.compiler.kernels.gpu.strides import contiguous
from edgepack.compiler.kernels.schedule import Schedule, ScheduleError
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["RULE", "ReductionSchedule", "combination", "given_lanes", "power_of_two"]

#: Fewer terms are summed by one work item.
LEAST_TERMS = 32

#: With more results, each has a work item of its own unless it has very many terms.
MANY_RESULTS, MANY_TERMS = 1 << 16, 512

_COMBINED = {"add": "{a} + {b}", "mul": "{a} * {b}", "max": "max({a}, {b})", "min": "min({a}, {b})"}

#: Of floats, which are NaN if one is.
_COMBINED_FLOATS = {**_COMBINED, "max": "ep_larger({a}, {b})", "min": "ep_smaller({a}, {b})"}

#: What sums and products start from; a maximum may start from any number.
_NEUTRAL = {"add": 0.0, "mul": 1.0}


@dataclass(frozen=True)
class ReductionSchedule(Schedule):
    """What is decided about sums of many terms.

    Attributes:
        lanes: work items that share the terms of a sum.
        threads: work items of a group.
    """

    lanes: int | None = None
    threads: int | None = None


def given_lanes(own: int, lanes: int | None, threads: int, target: GpuTarget) -> int:
    """Lanes as given, or as many of the rule's own as a group of ``threads`` has. ScheduleError where a group
    has no such lanes."""
    check_power("lanes and work items", lanes or own, threads)
    check_group(threads, 0, target)
    if (lanes or 1) > threads:
        raise ScheduleError(f"{lanes} lanes of {threads} work items")
    return lanes or min(own, threads)


def reduction(kernel: Kernel, nest: LoopNest, target: GpuTarget, given: ReductionSchedule) -> GpuStage:
    """The kernel of a nest with a reduction of many terms. RuleError for another one."""
    block = nest.reduction
    if block is None:
        raise RuleError("no reduction")
    variables, extents = nest.spatial
    inner, results = LoopNest(block).spatial[0], prod(extents)
    sizes = dict(zip(block.iters, block.extents, strict=True))
    terms = prod(sizes[v] for v in block.reductions)
    if terms < LEAST_TERMS or (results > MANY_RESULTS and terms < MANY_TERMS) or results >= 2**31:
        raise RuleError("too few terms")
    combined = combination(block)
    along_terms = bool(contiguous(block) & set(block.reductions))
    across = min(target.group_size, power_of_two(terms)) if along_terms else max(8, target.group_size // 32)
    threads = given.threads or target.group_size
    if given != ReductionSchedule():
        across = given_lanes(across, given.lanes, threads, target)
    per_group = threads // across
    code, evaluator = kernel.code, kernel.evaluator
    dtype = str(block.target.dtype)
    ctype = c_type(dtype)
    code.line(f"SHARED {ctype} partial[{threads}];")
    shape = (across, per_group) if along_terms else (per_group, across)
    lane, row = ("THREAD(0)", "THREAD(1)") if along_terms else ("THREAD(1)", "THREAD(0)")
    code.line(f"const int lane = {lane};")
    code.line(f"const int row = {row};")
    code.line(f"const int wanted = GROUP(0) * {per_group} + row;")
    code.line(f"const int at = min(wanted, {results - 1});")
    positions = unravelled(code, "at", extents)
    code.line(f"{ctype} sum = {initial_value(block, evaluator)};")
    with code.block(f"for (int term = lane; term < {terms}; term += {across})"), evaluator.fresh():
        at = unravelled(code, "term", tuple(sizes[v] for v in block.reductions), "r")
        env = {**dict(zip(inner, positions, strict=True)), **dict(zip(block.reductions, at, strict=True))}
        evaluator.given[block.target] = "sum"
        code.line(f"sum = {evaluator.value(block.value, env)};")
    # Neighbouring work items have neighbouring elements, which are in different banks.
    own, apart = (
        (f"row * {across} + lane", "") if along_terms else (f"lane * {per_group} + row", f" * {per_group}")
    )
    first = f"partial[row * {across}]" if along_terms else "partial[row]"
    code.line(f"partial[{own}] = sum;")
    with code.block(f"for (int step = {across // 2}; step > 0; step /= 2)"):
        code.line("BARRIER;")
        with code.block("if (lane < step)"):
            pair = combined.format(a=f"partial[{own}]", b=f"partial[{own} + step{apart}]")
            code.line(f"partial[{own}] = {pair};")
    with code.block(f"if (lane == 0 && wanted < {results})"), evaluator.fresh():
        evaluator.given[block.target] = first
        env = dict(zip(variables, positions, strict=True))
        kernel.store(nest.result, env, evaluator.given[block.target] if nest.result is block else None)
    groups = -(-results // per_group)
    nbytes = threads * DTYPE_BYTES[dtype]
    stage = code.stage((groups, 1, 1), (*shape, 1), local_bytes=nbytes)
    return replace(stage, schedule=ReductionSchedule(across, threads))


def combination(block: Block) -> str:
    """How two partial results become one. RuleError for what is no sum, product, maximum or minimum."""
    value: Any = block.value
    name = name_of(value)
    if name not in _COMBINED or str(block.target.dtype) not in {"float32", "int32"}:
        raise RuleError("no reduction that can be split")
    if not any(_is_target(x, block) for x in (value.a, value.b)):
        raise RuleError("no reduction that can be split")
    # Each work item starts from it.
    neutral = _NEUTRAL.get(name)
    if neutral is not None and float(getattr(block.init, "value", "nan")) != neutral:
        raise RuleError("a sum or product that starts from another number")
    return (_COMBINED_FLOATS if str(block.target.dtype) == "float32" else _COMBINED)[name]


def _is_target(x: Any, block: Block) -> bool:
    return name_of(x) == "load" and x.source == block.target


def power_of_two(number: int) -> int:
    """The largest one that is not above the number."""
    return 1 << (number.bit_length() - 1)


RULE = GpuRule("reduction", order=400, apply=reduction, schedule=ReductionSchedule)
