"""Lowering of TVM's schedules: from a ``PrimFunc`` with buffers and parallel loops to kernels of the plain C
signature, one for each parallel loop.
"""

from __future__ import annotations

from math import prod

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, IRModule, TensorLoad
from tvm.ir.transform import Pass
from tvm.tirx import (
    AllocBuffer,
    Buffer,
    BufferStore,
    DeclBuffer,
    For,
    ForKind,
    IntImm,
    PrimFunc,
    SeqStmt,
    Stmt,
    Var,
)
from tvm.tirx.buffer import buffer_data_pointer_type
from tvm.tirx.stmt import Bind, Return

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, Operand, RuleError, Stage
from edgepack.compiler.kernels.expressions.operations import FLOATS
from edgepack.compiler.tvm_target import llvm_target
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget
from edgepack.plan.types import ALIGNMENT

__all__ = ["count_flops", "implementation_of"]

#: Buffers inside of a task up to this size stay on its stack, in bytes; larger ones are the thread's scratch.
STACK_BYTES = 1024

#: TIR calls that leave the kernel for TVM's runtime or its contributed libraries.
FOREIGN_CALLS = {"tvm_call_packed", "tvm_call_cpacked", "call_packed", "call_cpacked", "call_extern"}


def _passes() -> list[Pass]:
    """TVM's lowering for CPUs, without what is for GPUs or for its own runtime's calling convention."""
    s, t = s_tir.transform, tirx.transform
    return [
        s.CanonicalizeLoop(),
        s.LowerInitBlock(),
        s.PlanAndUpdateBufferAllocationLocation(),
        s.ConvertBlocksToOpaque(),
        s.CompactBufferAllocation(),
        s.LowerMatchBuffer(),
        s.StmtSimplify(),
        s.LowerOpaqueBlock(),
        t.FlattenBuffer(),
        t.BF16ComputeLegalize(),
        t.NarrowDataType(32),
        s.LoopPartition(),
        t.VectorizeLoop(True),
        t.StorageRewrite(),
        s.HoistIfThenElse(),
        t.UnrollLoop(),
        s.RenormalizeSplitPattern(),
        t.StmtSimplify(),
        t.RemoveNoOp(),
        s.RewriteUnsafeSelect(),
        t.CommonSubexprElim(),
        t.FP8ComputeLegalize(),
        t.LowerIntrin(),
    ]


def count_flops(function: PrimFunc) -> int:
    """Floating point operations of one execution as TVM counts them; 0 where it cannot."""
    try:
        module = IRModule({"main": function.with_attr("global_symbol", "main")})
        return int(s_tir.analysis.estimate_tir_flops(module))
    except Exception:  # the number is for reports only
        return 0


def implementation_of(rule: str, scheduled: PrimFunc, fused: FusedGroup, target: CpuTarget) -> Implementation:
    """Lowers the scheduled function of a fused group to kernels.

    Each parallel loop at the top level becomes a kernel whose tasks are its iterations; what stands between
    them becomes a kernel of one task. Buffers at the top level become temps, larger buffers inside of loops
    scratch.

    Args:
        rule: name of the rule that scheduled it.
        scheduled: the group's function, or what a schedule made of it.

    Raises:
        RuleError: if the lowered function calls what the device will not have.
    """
    splitter = _Splitter(_lowered(scheduled, target), fused.outputs)
    return Implementation(
        rule,
        splitter.split(),
        temps=tuple(_nbytes(b) for b in splitter.temps),
        scratch=tuple(_nbytes(b) for b in splitter.scratch),
        flops=count_flops(fused.function),
    )


def _lowered(function: PrimFunc, target: CpuTarget) -> PrimFunc:
    """Flat buffers, vectors and plain loops instead of blocks."""
    function = function.with_body(_with_nan(function.body))
    module = IRModule({"main": function.with_attr("global_symbol", "main")})
    tvm_target = llvm_target(target)
    module = tirx.transform.BindTarget(tvm_target)(module)
    with tvm_target:
        module = tvm.transform.Sequential(_passes())(module)
    return module["main"]


def _with_nan(body: Stmt) -> Stmt:
    """Larger and smaller numbers that are NaN if one is, as those of vectors are (``emit/vector_math.py``):
    TVM's give the second one where the first is NaN."""

    def propagating(node: tirx.Max | tirx.Min) -> tirx.Expr:
        kind, (a, b) = type(node), (node.a, node.b)
        if str(a.ty) not in FLOATS or isinstance(a, tirx.FloatImm):
            return node
        if isinstance(b, tirx.FloatImm):
            return kind(b, a)
        if isinstance(b, TensorLoad):  # the short one is written twice
            a, b = b, a
        return tirx.Select(tirx.isnan(a), a, kind(a, b))

    return tvm_ffi.structural_map(body, [(tirx.Max, propagating), (tirx.Min, propagating)])


def _statements(statement: Stmt) -> list[Stmt]:
    return list(statement.seq) if isinstance(statement, SeqStmt) else [statement]


def _nbytes(buffer: Buffer) -> int:
    """Bytes of a buffer in the arena or in scratch."""
    element, _, lanes = str(buffer.dtype).partition("x")  # "float32x16": a vector per element
    size = prod(int(d) for d in buffer.shape) * DTYPE_BYTES[element] * int(lanes or 1)
    return -(-size // ALIGNMENT) * ALIGNMENT


class _Splitter:
    """Splits one lowered function into stages.

    Args:
        outputs: how many of the function's last buffers are outputs.

    Attributes:
        temps: buffers between the stages.
        scratch: buffers inside of a task that are too large for the stack.
    """

    def __init__(self, function: PrimFunc, outputs: int) -> None:
        self.function = function
        self.buffers = list(function.params)
        self.outputs = outputs
        self.temps: list[Buffer] = []
        self.scratch: list[Buffer] = []

    def split(self) -> tuple[Stage, ...]:
        """The stages; :attr:`temps` and :attr:`scratch` are known then."""
        pieces: list[tuple[Stmt, int]] = []
        serial: list[Stmt] = []
        shared: list[Stmt] = []  # bindings that every stage needs
        for statement in _statements(self.function.body):
            if isinstance(statement, AllocBuffer):
                self.temps.append(statement.buffer)
            elif isinstance(statement, DeclBuffer | Bind):
                shared.append(statement)
            elif isinstance(statement, For) and statement.kind == ForKind.PARALLEL:
                if serial:
                    pieces.append((SeqStmt(serial) if len(serial) > 1 else serial[0], 1))
                    serial = []
                pieces.append((statement, int(statement.extent)))
            else:
                serial.append(statement)
        if serial:
            pieces.append((SeqStmt(serial) if len(serial) > 1 else serial[0], 1))
        return tuple(self._stage(body, tasks, shared) for body, tasks in pieces)

    def _stage(self, body: Stmt, tasks: int, shared: list[Stmt]) -> Stage:
        """The kernel of a statement: a parallel loop, or what is done in one task."""
        body = self._move_to_scratch(body)
        used = _used_vars([*shared, body])
        candidates = [
            *((b, self._param_operand(i)) for i, b in enumerate(self.buffers)),
            *((b, Operand("temp", i)) for i, b in enumerate(self.temps)),
            *((b, Operand("scratch", i)) for i, b in enumerate(self.scratch)),
        ]
        params: list[Var] = []
        declarations: list[Stmt] = []
        operands: list[Operand] = []
        for buffer, operand in candidates:
            if buffer not in used:
                continue
            var = Var(f"p{len(params)}", buffer_data_pointer_type(buffer))
            params.append(var)
            declarations += [*_layout_variables(buffer), DeclBuffer(buffer, data=var)]
            operands.append(operand)
        lo, hi = (Var(name, tvm.ir.PrimType("int32")) for name in ("lo", "hi"))
        looped = self._tasks(body, lo, hi) if tasks > 1 else _serial(body)
        statements = [*declarations, *shared, looped, Return(IntImm("int32", 0))]
        stage = PrimFunc([*params, lo, hi], SeqStmt(statements), tvm.ir.PrimType("int32"))
        return Stage(stage.with_attr("tirx.noalias", True), tasks, tuple(operands))

    def _tasks(self, loop: For, lo: Var, hi: Var) -> Stmt:
        """The parallel loop over [lo, hi)."""
        dtype = str(loop.loop_var.ty.dtype)
        begin, end = (lo, hi) if dtype == "int32" else (lo.astype(dtype), hi.astype(dtype))
        return For(loop.loop_var, begin, end - begin, ForKind.SERIAL, _serial(loop.body))

    def _param_operand(self, i: int) -> Operand:
        first = len(self.buffers) - self.outputs
        return Operand("param", i) if i < first else Operand("output", i - first)

    def _move_to_scratch(self, body: Stmt) -> Stmt:
        """The statement without the allocation of buffers that are too large for the stack, which become
        scratch."""

        def replace(statement: AllocBuffer) -> Stmt:
            if _nbytes(statement.buffer) <= STACK_BYTES:
                return statement
            self.scratch.append(statement.buffer)
            return tirx.Evaluate(IntImm("int32", 0))

        return tvm_ffi.structural_map(body, (AllocBuffer, replace))


def _serial(body: Stmt) -> Stmt:
    """Parallel loops inside of a task are plain loops."""

    def replace(loop: For) -> For:
        if loop.kind == ForKind.PARALLEL:
            return For(loop.loop_var, loop.min, loop.extent, ForKind.SERIAL, loop.body)
        return loop

    return tvm_ffi.structural_map(body, (For, replace))


def _layout_variables(buffer: Buffer) -> list[Stmt]:
    """Kernels that TVM writes by hand (cumsum, sort) leave the offset of their buffers free: it is 0 here."""
    offset = buffer.elem_offset
    return [Bind(offset, IntImm(str(offset.ty.dtype), 0))] if isinstance(offset, Var) else []


def _used_vars(statements: list[Stmt]) -> set[Var]:
    """Buffers that are loaded, stored or taken the address of."""
    used: set[Var] = set()

    def call(node: Call) -> None:
        if str(getattr(node.op, "name", "")).rpartition(".")[2] in FOREIGN_CALLS:
            raise RuleError(f"it calls {node.args[0]}, which the device does not have")

    callbacks = [
        (TensorLoad, lambda load: used.add(load.source)),
        (BufferStore, lambda store: used.add(store.buffer)),
        (Call, call),
        (Var, used.add),
    ]
    for statement in statements:
        tvm_ffi.structural_walk(statement, callbacks)
    return used
