"""Rule ``window``: a work item computes several neighbouring elements, of windows that overlap.

Depthwise convolutions and poolings read each input once for every window that it is in. Neighbouring windows
share most of their inputs and all of their weights: a work item loads what several of them need once, into
registers. All positions are taken apart when the kernel is written, so that equal loads are seen to be equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import TensorLoad
from tvm.tirx import IntImm, Var

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.expressions.nodes import name_of
from edgepack.compiler.kernels.gpu.code import c_type
from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.expressions import unravelled
from edgepack.compiler.kernels.gpu.kernel import Kernel, initial_value
from edgepack.compiler.kernels.gpu.limits import check_group, check_registers
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest, expanded, substituted
from edgepack.compiler.kernels.gpu.matrix_product import SELECTIONS
from edgepack.compiler.kernels.gpu.rule import GpuRule
from edgepack.compiler.kernels.gpu.strides import contiguous
from edgepack.compiler.kernels.schedule import Schedule, ScheduleError, by
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["RULE", "WindowSchedule"]

#: Elements that a work item computes; the first that divides the dimension and leaves enough work items.
TILES = (4, 7, 5, 6, 3, 2)

#: Elements of a work item at most, of a schedule that is given.
MOST_ELEMENTS = 16

#: Terms of an element that are written out, at most and at least.
MOST_TERMS, LEAST_TERMS = 49, 4

#: What a tile may load of what its elements would load each for itself.
SHARED = 0.7


@dataclass(frozen=True)
class _Tile:
    """Elements of one work item.

    Attributes:
        along: the block's variable along which they are neighbours, ``base`` the one of the work item's
            first, divided by ``size``.
        size: how many.
        terms: what is computed of each term: a list for each element.
    """

    along: Any
    base: Any
    size: int
    terms: list[list[Any]]


@dataclass(frozen=True)
class WindowSchedule(Schedule):
    """What is decided about windows that overlap.

    Attributes:
        elements: that a work item computes.
        along: of the result's dimensions that along which they are neighbours, the first one being 1.
        threads: work items of a group.
    """

    elements: int | None = None
    along: int | None = None
    threads: int | None = None


def window(kernel: Kernel, nest: LoopNest, target: GpuTarget, given: WindowSchedule) -> GpuStage:
    """The kernel of a nest whose reduction has few terms that neighbours share. RuleError for another one."""
    block = nest.reduction
    if block is None:
        raise RuleError("no reduction")
    sizes = dict(zip(block.iters, block.extents, strict=True))
    terms = prod(sizes[v] for v in block.reductions)
    if not LEAST_TERMS <= terms <= MOST_TERMS:
        raise RuleError("no small window")
    value = expanded(block.value, kernel.evaluator.inlined)
    own = given.elements is None and given.along is None
    tile = _tile(block, value, target) if own else _given_tile(block, value, target, given)
    size = given.threads or target.group_size
    if size != target.group_size:
        check_group(size, 0, target)
    code, evaluator = kernel.code, kernel.evaluator
    inner, outer = LoopNest(block).spatial[0], nest.spatial[0]
    extents = tuple(sizes[v] // (tile.size if v.same_as(tile.along) else 1) for v in inner)
    total = prod(extents)
    code.line(f"const int at = GROUP(0) * {size} + THREAD(0);")
    with code.block(f"if (at < {total})"):
        positions = dict(zip(inner, unravelled(code, "at", extents), strict=True))
        env = {**positions, tile.base: positions[tile.along]}
        ctype, target_buffer = c_type(str(block.target.dtype)), block.target
        names = [code.name("sum") for _ in range(tile.size)]
        for name in names:
            code.line(f"{ctype} {name} = {initial_value(block, evaluator)};")
        with evaluator.sharing():
            for number in range(terms):
                for name, values in zip(names, tile.terms, strict=True):
                    evaluator.given[target_buffer] = name
                    code.line(f"{name} = {evaluator.value(values[number], env)};")
        for number, name in enumerate(names):
            with evaluator.fresh():
                first = f"{positions[tile.along]} * {tile.size} + {number}"
                place = {**positions, tile.along: code.let("int", first, "i")}
                evaluator.given[target_buffer] = name
                at = {o: place[i] for i, o in zip(inner, outer, strict=True)}
                kernel.store(nest.result, at, name if nest.result is block else None)
    stage = code.stage((-(-total // size), 1, 1), (size, 1, 1))
    along = 1 + [v.same_as(tile.along) for v in inner].index(True)
    return replace(stage, schedule=WindowSchedule(tile.size, along, size))


def _tile(block: Block, value: Any, target: GpuTarget) -> _Tile:
    """The tile that loads least for each element. RuleError where neighbours share little."""
    sizes = dict(zip(block.iters, block.extents, strict=True))
    spatial = LoopNest(block).spatial[0]
    elements = prod(sizes[v] for v in spatial)
    if elements >= 2**31 or len(_selections(value)) > SELECTIONS:
        raise RuleError("no window whose positions can be taken apart")
    neighbours = contiguous(block)  # which neighbouring work items are to read
    best: tuple[float, _Tile] | None = None
    for along in spatial:
        if along in neighbours:
            continue
        least = target.least_groups * target.group_size
        size = next((n for n in TILES if sizes[along] % n == 0 and elements // n >= least), 0)
        if not size:
            continue
        tile = _apart(block, value, along, size)
        share = _loads(tile.terms) / sum(_loads([terms]) for terms in tile.terms)
        if best is None or share < best[0]:
            best = share, tile
    if best is None or best[0] > SHARED:
        raise RuleError("windows that share little, or are few")
    return best[1]


def _given_tile(block: Block, value: Any, target: GpuTarget, given: WindowSchedule) -> _Tile:
    """The tile that is given, or what is left open of it as of the rule's own. ScheduleError where there is
    none."""
    spatial, sizes = LoopNest(block).spatial
    if prod(sizes) >= 2**31 or len(_selections(value)) > SELECTIONS:
        raise RuleError("no window whose positions can be taken apart")
    along, elements = given.along, given.elements
    if along is None or elements is None:
        own = _tile(block, value, target)
        along = along or 1 + [v.same_as(own.along) for v in spatial].index(True)
        elements = elements or own.size
    inside = along <= len(spatial) and 1 < elements <= MOST_ELEMENTS
    if not inside or sizes[along - 1] % elements:
        raise ScheduleError(f"{elements} neighbours along dimension {along} of {by(sizes)}")
    tile = _apart(block, value, spatial[along - 1], elements)
    check_registers(elements + _loads([terms[:1] for terms in tile.terms]), given.threads or 1, target)
    return tile


def _apart(block: Block, value: Any, along: Any, size: int) -> _Tile:
    """Every term of every element of a tile, with numbers for the variables that are summed over."""
    sizes = dict(zip(block.iters, block.extents, strict=True))
    base, analyzer = Var("base", along.ty), sym.Analyzer()
    for variable in block.iters:
        if variable not in block.reductions:
            analyzer.bind(variable, tvm.ir.Range.from_min_extent(0, sizes[variable]))
    analyzer.bind(base, tvm.ir.Range.from_min_extent(0, sizes[along] // size))
    kind = str(along.ty.dtype)
    terms = []
    for number in range(size):
        place = base * IntImm(kind, size) + IntImm(kind, number)
        ranges = [range(sizes[v]) for v in block.reductions]
        terms.append(
            [
                analyzer.simplify(substituted(value, {along: place, **_numbers(block.reductions, at)}))
                for at in product(*ranges)
            ]
        )
    return _Tile(along, base, size, terms)


def _numbers(variables: tuple[Any, ...], at: tuple[int, ...]) -> dict[Any, Any]:
    return {v: IntImm(str(v.ty.dtype), n) for v, n in zip(variables, at, strict=True)}


def _selections(x: Any) -> list[Any]:
    """Where values depend on positions, each once; that NaN is left out of a maximum is none."""
    found: list[Any] = []

    def add(node: Any) -> None:
        condition = node.condition if isinstance(node, tirx.Select) else node
        known = any(tvm_ffi.structural_equal(node, other) for other in found)
        if name_of(condition) != "isnan" and not known:
            found.append(node)

    tvm_ffi.structural_walk(x, [(tirx.Select, add), (tvm.ir.Call, add)])
    return found


def _loads(elements: list[list[Any]]) -> int:
    """How many different elements of tensors are read."""
    different: dict[int, list[Any]] = {}
    for load in _all_loads(elements):
        alike = different.setdefault(tvm_ffi.structural_hash(load), [])
        if not any(tvm_ffi.structural_equal(load, other) for other in alike):
            alike.append(load)
    return sum(len(alike) for alike in different.values())


def _all_loads(elements: list[list[Any]]) -> Iterator[Any]:
    for terms in elements:
        for x in terms:
            found: list[Any] = []
            tvm_ffi.structural_walk(x, (TensorLoad, found.append))
            yield from found


RULE = GpuRule("window", order=500, apply=window, schedule=WindowSchedule)
