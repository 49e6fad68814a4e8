"""Rules ``generic``, ``rows`` and ``plain``: schedules for fused groups that no other rule serves.

``generic`` sees a fused function as a chain of blocks. Blocks that compute one element from others are
inlined into their readers where that costs nothing. If the blocks that remain agree on leading dimensions
(the rows of a softmax, the pixels of a normalisation), one task computes all of them for some positions of
those dimensions, and what lies between them stays in a slice of the thread's own memory. Otherwise each block
is a kernel of its own and hands its result on in the arena. Its last dimension is vectorised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import tvm
import tvm_ffi
from tvm import s_tir
from tvm.ir import Expr, TensorLoad
from tvm.s_tir import SBlockRealize, Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import Buffer, BufferStore, For, IterVar, PrimFunc, Select, Var

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.analysis.operands import mixed_lanes
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block, blocks_of
from edgepack.compiler.kernels.cpu.generic.lowering import implementation_of
from edgepack.compiler.kernels.expressions.nodes import nodes_in
from edgepack.compiler.kernels.expressions.operations import Kind
from edgepack.compiler.kernels.rule import EVERY_DTYPE, Rule
from edgepack.plan.opt_level import PLAIN
from edgepack.plan.target import CpuTarget

__all__ = ["generic", "plain", "rows"]

#: An elementwise expression with at most this many operations is recomputed rather than stored.
CHEAP_OPERATIONS = 8

#: What counts as one.
COUNTED = {Kind.ARITHMETIC, Kind.SELECT, Kind.FUNCTION}

#: Selections in the expression of a block at most: TVM's simplifier takes time exponential in those that are
#: nested in each other's conditions (0.5 s for 6, 50 s for 12).
SELECTIONS = 3

#: Work of one task at least, in elements of the output: below it, starting a task costs more than it saves.
TASK_ELEMENTS = 2048


def plain(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Applies the rule ``plain``: the function as TVM wrote it, in one task; LLVM vectorises what it can."""
    return replace(implementation_of("plain", fused.function, fused, target), slow=True)


def generic(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Applies the rule ``generic``: inlined, vectorised, in tasks of what blocks share."""
    schedule = Schedule(tvm.IRModule({"main": fused.function}), error_render_level="detail")
    _Scheduler(schedule, _without_float16_vectors(target, fused)).run()
    return replace(implementation_of("generic", schedule.mod["main"], fused, target), slow=True)


def _without_float16_vectors(target: CpuTarget, fused: FusedGroup) -> CpuTarget:
    """The target; without vectors where the group has float16 and LLVM no vectors of it for the target."""
    if target.vector_bits and not target.float16_vectors and "float16" in str(fused.function):
        return replace(target, vector_bits=0)
    return target


def rows(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Applies the rule ``rows``: blocks of any form (argmax writes two buffers), the leading loops of each as
    tasks. Scatters are opaque blocks whose loops say themselves which are parallel.

    Raises:
        RuleError: if no block has an independent leading loop.
    """
    body = fused.function.body
    if isinstance(body, SBlockRealize) and body.block.name_hint != "root":
        # A scatter is one opaque block. Of its loops, which say themselves that they are parallel, each
        # outermost one becomes a stage once no block is around them.
        bare = PrimFunc(fused.function.params, body.block.body, fused.function.ret_type)
        slow = not _writes_rows(bare, mixed_lanes(target))
        return replace(implementation_of("rows", bare, fused, target), slow=slow)
    schedule = Schedule(tvm.IRModule({"main": fused.function}), error_render_level="none")
    parallel = 0
    for handle in schedule.get_child_blocks(schedule.get_sblock("root")):
        loops = schedule.get_loops(handle)
        kinds = [iv.iter_type for iv in schedule.get(handle).iter_vars]
        if len(loops) != len(kinds):
            continue
        leading = next((i for i, kind in enumerate(kinds) if kind != IterVar.DataPar), len(kinds))
        if leading:
            schedule.parallel(schedule.fuse(*loops[:leading]) if leading > 1 else loops[0])
            parallel += 1
    if not parallel:
        raise RuleError("no block has an independent leading loop")
    slow = not _writes_rows(fused.function, mixed_lanes(target))
    return replace(implementation_of("rows", schedule.mod["main"], fused, target), slow=slow)


def _writes_rows(function: PrimFunc, lanes: int) -> bool:
    """Whether each innermost loop that writes where data say writes at least ``lanes`` elements that lie
    behind each other: those of ScatterND, which copy or add a row of the updates. LLVM vectorises them."""
    rows: list[bool] = []

    def visit(loop: For) -> None:
        store = loop.body
        if isinstance(store, BufferStore) and _reads_memory(store.indices):
            rows.append(int(loop.extent) >= lanes and store.indices[-1].same_as(loop.loop_var))

    tvm_ffi.structural_walk(function.body, (For, visit))
    return bool(rows) and all(rows)


def _reads_memory(indices: Sequence[Expr]) -> bool:
    found: list[TensorLoad] = []
    for index in indices:
        tvm_ffi.structural_walk(index, (TensorLoad, found.append))
    return bool(found)


class _Scheduler:
    """Schedules a fused function for ``generic``, in place."""

    def __init__(self, schedule: Schedule, target: CpuTarget) -> None:
        self.schedule, self.target = schedule, target

    def run(self) -> None:
        """Inlines, then puts all blocks into shared loops, or each into loops of its own."""
        self._inline()
        blocks = self._blocks()
        loops = self._shared_loops(blocks)
        if not loops:
            for block in blocks:
                self._alone(block)
            return
        for block in reversed(blocks[:-1]):
            self.schedule.compute_at(self._handle(block), loops[-1], preserve_unit_loops=True)
        initialised = [(block, self._vectorise(block, self._inside(block, loops))[1]) for block in blocks]
        self._parallel(loops)
        self._split_inits(initialised)

    def _shared_loops(self, blocks: Sequence[Block]) -> list[LoopRV]:
        """The last block's loops around all that one task does; empty if the blocks do not share any."""
        if len(blocks) == 1:
            return []
        shared = _shared_dimensions(blocks)
        last = blocks[-1]
        lanes = mixed_lanes(self.target)
        loops = list(self.schedule.get_loops(self._handle(last)))
        if shared == len(last.iters):
            if last.extents[-1] % lanes == 0:
                block, _ = self.schedule.split(loops[-1], [None, lanes])
                return [*loops[:-1], block]
            shared -= 1
        return loops[:shared] if prod(last.extents[:shared]) > 1 else []

    def _inside(self, block: Block, outer: Sequence[LoopRV]) -> list[tuple[LoopRV, int, bool]]:
        """The block's loops inside of ``outer``: (loop, extent, whether it is a reduction)."""
        loops = self.schedule.get_loops(self._handle(block))[len(outer) :]
        handle = self.schedule.get(self._handle(block))
        reductions = {str(iv.var.name) for iv in handle.iter_vars if iv.iter_type == IterVar.CommReduce}
        bindings = self._bindings(block)
        found = []
        for loop in loops:
            node = self.schedule.get(loop)
            reduces = any(name in reductions and node.loop_var in used for name, used in bindings.items())
            found.append((loop, int(node.extent), reduces))
        return found

    def _bindings(self, block: Block) -> dict[str, set[Var]]:
        """For each iteration variable of the block, the loop variables that it is made of."""
        found: dict[str, set[Var]] = {}

        def visit(realize: SBlockRealize) -> None:
            if realize.block.name_hint != block.name:
                return
            for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
                used: set[Var] = set()
                tvm_ffi.structural_walk(value, (Var, used.add))
                found[str(iv.var.name)] = used

        tvm_ffi.structural_walk(self.schedule.mod["main"].body, (SBlockRealize, visit))
        return found

    def _split_inits(self, initialised: Sequence[tuple[Block, LoopRV | None]]) -> None:
        """Gives reductions their initial value in a loop of its own, just before they start."""
        for block, loop in initialised:
            if loop is not None:
                self.schedule.decompose_reduction(self._handle(block), loop)

    # Reading -------------------------------------------------------------------------------------------

    def _blocks(self) -> list[Block]:
        return blocks_of(self.schedule.mod["main"])

    def _handle(self, block: Block) -> SBlockRV:
        return self.schedule.get_sblock(block.name)

    # Inlining ------------------------------------------------------------------------------------------

    def _inline(self) -> None:
        outputs = set(self.schedule.mod["main"].params)
        for block in self._blocks():
            if block.reductions or block.target in outputs:
                continue
            blocks = self._blocks()
            current = next(b for b in blocks if b.name == block.name)
            readers = [b for b in blocks if b.name != block.name and _reads(b.value, block.target)]
            if _worth_inlining(current, readers):
                try:
                    self.schedule.compute_inline(self._handle(block))
                except s_tir.ScheduleError:
                    continue

    # Loops ---------------------------------------------------------------------------------------------

    def _alone(self, block: Block) -> None:
        """A kernel of its own: leading spatial loops are the tasks, the last one is vectorised."""
        schedule = self.schedule
        loops = schedule.get_loops(self._handle(block))
        if len(loops) != len(block.iters) or not loops:
            return
        spatial = [lp for lp, v in zip(loops, block.iters, strict=True) if v not in block.reductions]
        if not spatial:
            return
        if not block.reductions and _is_flat(block):
            self._flat(schedule.fuse(*loops) if len(loops) > 1 else loops[0], prod(block.extents))
            return
        outer, reduction = self._vectorise(block, self._inside(block, []))
        if outer:
            self._parallel(outer)
        self._split_inits([(block, reduction)])

    def _flat(self, loop: LoopRV, extent: int) -> None:
        """One long loop over contiguous memory."""
        schedule = self.schedule
        lanes = mixed_lanes(self.target)
        tasks = max(
            (t for t in range(1, 65) if extent % (t * lanes) == 0 and extent // t >= TASK_ELEMENTS), default=1
        )
        if extent % lanes == 0:
            task, _, vector = schedule.split(loop, [tasks, None, lanes])
            schedule.vectorize(vector)
        else:
            tasks = max(
                (t for t in range(1, 65) if extent % t == 0 and extent // t >= TASK_ELEMENTS), default=1
            )
            task, _ = schedule.split(loop, [tasks, None])
        schedule.parallel(task)

    def _vectorise(
        self, block: Block, loops: Sequence[tuple[LoopRV, int, bool]]
    ) -> tuple[list[LoopRV], LoopRV | None]:
        """Vectorises the block's last spatial loop and puts its reductions just outside of the vector.

        Args:
            loops: the block's loops inside of those that are shared.

        Returns:
            (the spatial loops outside of the reductions, the outermost reduction or None).
        """
        schedule = self.schedule
        spatial = [(loop, extent) for loop, extent, reduces in loops if not reduces]
        reductions = [loop for loop, _, reduces in loops if reduces]
        if not spatial:
            return [], reductions[0] if reductions else None
        last, extent = spatial[-1]
        outer = [loop for loop, _ in spatial[:-1]]
        lanes = mixed_lanes(self.target)
        vector = None
        if extent == lanes:
            vector = last
        elif extent % lanes == 0:
            blocks, vector = schedule.split(last, [None, lanes])
            outer.append(blocks)
        elif 1 < extent < 2 * lanes and self.target.vector_bits:
            vector = last
        else:
            outer.append(last)
        if reductions:
            schedule.reorder(*outer, *reductions, *([vector] if vector is not None else []))
        if vector is not None:
            schedule.vectorize(vector)
        return outer, reductions[0] if reductions else None

    def _parallel(self, loops: Sequence[LoopRV]) -> None:
        """The loops together are the tasks."""
        loop = self.schedule.fuse(*loops) if len(loops) > 1 else loops[0]
        self.schedule.parallel(loop)


def _reads(x: Expr, buffer: Buffer) -> int:
    """How often an expression reads a buffer."""
    found = 0

    def visit(load: TensorLoad) -> None:
        nonlocal found
        found += load.source.same_as(buffer)

    tvm_ffi.structural_walk(x, (TensorLoad, visit))
    return found


def _selections(x: Expr) -> int:
    found: list[Select] = []
    tvm_ffi.structural_walk(x, (Select, found.append))
    return len(found)


def _operations(x: Expr) -> tuple[int, bool]:
    """Number of nodes that compute, and whether one of them is a call of an elementary function."""
    kinds = [node.operation.kind for node in nodes_in(x)]
    return sum(kind in COUNTED for kind in kinds), Kind.FUNCTION in kinds


def _worth_inlining(block: Block, readers: Sequence[Block]) -> bool:
    """Whether computing the block at each read costs no more than storing it, and is soon compiled."""
    own = _selections(block.value)
    if any(own and _selections(r.value) + own * _reads(r.value, block.target) > SELECTIONS for r in readers):
        return False
    if len(readers) == 1 and not readers[0].reductions:
        return True
    operations, calls = _operations(block.value)
    return not calls and operations <= CHEAP_OPERATIONS


def _is_flat(block: Block) -> bool:
    """Whether the block reads and writes every buffer at its own position only."""
    flat = all(i.same_as(v) for i, v in zip(block.indices, block.iters, strict=True))

    def visit(load: TensorLoad) -> None:
        nonlocal flat
        same = len(load.indices) == len(block.iters)
        flat = flat and same and all(i.same_as(v) for i, v in zip(load.indices, block.iters, strict=True))

    tvm_ffi.structural_walk(block.value, (TensorLoad, visit))
    return flat


def _shared_dimensions(blocks: Sequence[Block]) -> int:
    """How many leading dimensions all blocks walk in step.

    Block b may run inside the loops of the last block's first d dimensions if each block's first d iteration
    variables are spatial with the same extents, and every read of what another block wrote is at exactly
    those positions.
    """
    last = blocks[-1]
    written = {block.target for block in blocks}
    shared = min(len(block.iters) for block in blocks)
    for block in blocks:
        for axis in range(shared):
            if block.extents[axis] != last.extents[axis] or block.iters[axis] in block.reductions:
                shared = axis
                break
            if not (len(block.indices) > axis and block.indices[axis].same_as(block.iters[axis])):
                shared = axis
                break
    for block in blocks:
        shared = _limit_by_reads(block, written, shared)
    return shared if any(block.reductions for block in blocks) else 0


def _limit_by_reads(block: Block, written: set[Buffer], shared: int) -> int:
    """At most ``shared``: the leading dimensions along which the block reads what others wrote at its own
    position."""

    def visit(node: TensorLoad) -> None:
        nonlocal shared
        if node.source in written and not node.source.same_as(block.target):
            for axis in range(shared):
                if axis >= len(node.indices) or not node.indices[axis].same_as(block.iters[axis]):
                    shared = axis
                    return

    tvm_ffi.structural_walk(block.value, (TensorLoad, visit))
    return shared


GENERIC = Rule("generic", order=1100, dtypes=EVERY_DTYPE, apply=generic, kind="fallback", level=PLAIN)
ROWS = Rule("rows", order=1200, dtypes=EVERY_DTYPE, apply=rows, kind="fallback", level=PLAIN)
PLAIN_LOOPS = Rule(
    "plain",
    order=1300,
    dtypes=EVERY_DTYPE,
    apply=plain,
    kind="fallback",
    level=PLAIN,
    warning="no schedule serves it; it runs in one thread, not vectorised",
)
