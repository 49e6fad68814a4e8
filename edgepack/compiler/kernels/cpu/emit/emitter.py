"""An emitter of flat, already vectorised TIR.

Kernels are written as Python that unrolls at generation time and emits loads, stores and arithmetic on
vectors (Ramp, Broadcast). No TIR pass runs on them, only LLVM: what is written is what is compiled. An
accumulator tile is a "local" buffer with constant indices, which LLVM's SROA turns into registers.

Index arithmetic is int32; a tensor of 2**31 elements or more is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call
from tvm.tirx import (
    AllocBuffer,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    Evaluate,
    FloatImm,
    For,
    ForKind,
    IfThenElse,
    PrimFunc,
    Ramp,
    SeqStmt,
    Var,
)
from tvm.tirx.buffer import buffer_data_pointer_type
from tvm.tirx.stmt import Bind, Return

from edgepack.compiler.kernels.contract import Operand, OperandKind, RuleError, Stage
from edgepack.compiler.kernels.cpu.emit.analysis_cost import LARGEST_COST, analysis_cost
from edgepack.compiler.kernels.cpu.emit.indices import Index, index
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CACHE_LINE_BYTES, CpuTarget

__all__ = ["Emitter"]

Expr = Any

#: Architectures of CPUs for which LLVM unrolls loops of less than twelve instructions, whatever their end is.
CORTEX_M = ("thumbv6m", "thumbv7m", "thumbv7em", "thumbv8m.main")


class Emitter:
    """Builds one kernel: its operands (:meth:`param`, :meth:`output`, ...), :meth:`tasks`, :meth:`stage`.

    Args:
        lanes: elements of a vector.
        target: what the kernel is for; None for one that is the same everywhere.
        dtype: element type that the kernel computes with, and that operands and arrays have by default.

    Attributes:
        line: elements of a cache line.
        short: whether code is to be short rather than fast, and alike for different numbers.
        operands: what the kernel's pointer parameters are, in order.
        readers: of parameters whose numbers have no elements of their own (:mod:`.narrowed`).
        scratch_bytes: sizes of the scratch operands, by number.
    """

    def __init__(self, lanes: int, target: CpuTarget | None = None, dtype: str = "int32") -> None:
        self.lanes, self.target, self.dtype = lanes, target, dtype
        self.line = CACHE_LINE_BYTES // DTYPE_BYTES[dtype]
        self.strict_math = target is not None and target.strict_math
        self.short = target is not None and target.optimize == "size"
        self.few_registers = target is not None and target.few_registers
        self.params: list[Any] = []
        self.operands: list[Operand] = []
        self.scratch_bytes: list[int] = []
        self._renumber: dict[str, Callable[[int], int]] = {}
        self.blocks: list[list[Any]] = [[]]
        self.counter = 0
        self._costs: dict[str, int] = {}
        self._narrow: dict[Buffer, Buffer] = {}
        self.readers: dict[Buffer, Callable[[Index, int], Expr]] = {}

    # Names and statements ------------------------------------------------------------------------------

    def name(self, prefix: str) -> str:
        """A name that nothing else in the kernel has."""
        self.counter += 1
        return f"{prefix}{self.counter}"

    def add(self, statement: Any) -> None:
        """Appends a TIR statement to the innermost block."""
        self.blocks[-1].append(statement)

    def block(self, body: Callable[[], None]) -> Any:
        """Runs ``body`` and returns what it emitted as one statement."""
        self.blocks.append([])
        body()
        statements = self.blocks.pop()
        if len(statements) == 1:
            return statements[0]
        return SeqStmt(statements) if statements else Evaluate(index(0))

    # Operands ------------------------------------------------------------------------------------------

    def operand(
        self, kind: OperandKind, number: int, elements: int, dtype: str = "", stored: str = ""
    ) -> Buffer:
        """Declares the kernel's next pointer parameter; returns it as a flat buffer of ``elements``.

        Loads and stores assume the natural alignment only, that of an element of ``stored``.

        Args:
            kind, number: as in :class:`Operand`.
            dtype: that of the kernel unless given.
            stored: a narrower dtype, several elements of which are loaded as one of ``dtype``; nothing is
                stored then. Unless given, it is ``dtype``.

        Raises:
            RuleError: for a tensor that int32 indices cannot address.
        """
        self.operands.append(Operand(kind, self.number(kind, number)))
        return self._pointer(elements, dtype or self.dtype, stored)

    def param(self, number: int, elements: int, dtype: str = "", stored: str = "") -> Buffer:
        """Declares a parameter of the fused function."""
        return self.operand("param", number, elements, dtype, stored)

    def output(self, number: int, elements: int, dtype: str = "") -> Buffer:
        """Declares a result of the fused function."""
        return self.operand("output", number, elements, dtype)

    def packed(self, number: int, elements: int, dtype: str = "") -> Buffer:
        """Declares a constant in the kernel's own layout (:attr:`Implementation.packed`)."""
        return self.operand("packed", number, elements, dtype)

    def temp(self, number: int, elements: int, dtype: str = "") -> Buffer:
        """Declares a buffer in the arena that stages share (:attr:`Implementation.temps`)."""
        return self.operand("temp", number, elements, dtype)

    def scratch(self, elements: int, dtype: str = "") -> Buffer:
        """Declares memory of the thread's own; the first one has number 0 in :attr:`scratch_bytes`."""
        self.scratch_bytes.append(elements * DTYPE_BYTES[dtype or self.dtype])
        return self.operand("scratch", len(self.scratch_bytes) - 1, elements, dtype)

    def prefetched(self, nbytes: int) -> Buffer:
        """Declares the constants of a later call, of which the kernel is to fetch ``nbytes``."""
        return self.operand("prefetch", 0, nbytes // DTYPE_BYTES[self.dtype])

    @contextmanager
    def renumbered(self, **numbers: Callable[[int], int]) -> Iterator[None]:
        """Inside, a part of a kernel declares operands of the given kinds as if it were the whole one: with
        ``renumbered(packed=lambda i: i + 1)`` its first packed constant is the second one of the kernel."""
        before, self._renumber = self._renumber, {**self._renumber, **numbers}
        try:
            yield
        finally:
            self._renumber = before

    def number(self, kind: OperandKind, number: int) -> int:
        """The number of an operand in the whole kernel, see :meth:`renumbered`."""
        return self._renumber.get(kind, int)(number)

    # Memory --------------------------------------------------------------------------------------------

    def _pointer(self, elements: int, dtype: str, stored: str) -> Buffer:
        """A pointer parameter to a flat array."""
        if elements >= 2**31:
            raise RuleError(f"a tensor of {elements} elements does not fit int32 indices")
        buffer = tirx.decl_buffer((max(elements, 1),), dtype, self.name("b"))
        var = Var(self.name("p"), buffer_data_pointer_type(buffer))
        self.params.append(var)
        self.add(DeclBuffer(buffer, data=var))
        if stored and DTYPE_BYTES[stored] < DTYPE_BYTES[dtype]:
            self._declare_narrow(buffer, var, stored)
        return buffer

    def _declare_narrow(self, buffer: Buffer, var: Var, stored: str) -> None:
        """Makes loads from a buffer loads of the elements that are stored there."""
        count = DTYPE_BYTES[str(buffer.dtype)] // DTYPE_BYTES[stored]
        narrow = tirx.decl_buffer((int(buffer.shape[0]) * count,), stored, self.name("b"))
        self.add(DeclBuffer(narrow, data=var))
        self._narrow[buffer] = narrow

    def rebased(self, buffer: Any, at: Index, elements: int, name: str = "") -> Buffer:
        """The same memory from element ``at`` on, as a buffer of its own.

        Constant indices into it become displacements of one pointer, so many rows need one register.

        Args:
            name: what the buffer is called in the TIR.
        """
        return self._view((buffer,), elements, name, lambda _: self._place(buffer, at))

    def either(self, condition: Expr, a: tuple[Any, Index], b: tuple[Any, Index], elements: int) -> Buffer:
        """The memory of ``a`` (buffer, first element) if the condition holds, else that of ``b``."""

        def chosen(var: Var) -> Expr:
            places = [self._place(buffer, at) for buffer, at in (a, b)]
            return Call("prim.if_then_else", [condition, *places], ret_ty=var.ty)

        return self._view((a[0], b[0]), elements, "row", chosen)

    def _place(self, buffer: Any, at: Index) -> Expr:
        """The address of an element, whose position is computed once."""
        at = at if isinstance(at, int | Var) else self.let(at)
        return self.address(buffer, at)

    def _view(self, of: Sequence[Buffer], elements: int, name: str, address: Callable[[Var], Expr]) -> Buffer:
        """A flat buffer of elements of one of some buffers, at the address that is given for its pointer."""
        view = tirx.decl_buffer((max(elements, 1),), str(of[0].dtype), self.name(name or "view"))
        var = Var(self.name(f"{name}_p" if name else "p"), buffer_data_pointer_type(view))
        self.add(Bind(var, address(var)))
        self.add(DeclBuffer(view, data=var))
        for narrow in [self._narrow[buffer] for buffer in of if buffer in self._narrow][:1]:
            self._declare_narrow(view, var, str(narrow.dtype))
        return view

    def local(self, elements: int, dtype: str = "") -> Buffer:
        """An array on the stack or, where all indices are constants, in registers."""
        buffer = tirx.decl_buffer(
            (elements,), dtype or self.dtype, self.name("local"), scope="local", data_alignment=64
        )
        self.add(AllocBuffer(buffer))
        return buffer

    def vload(self, buffer: Any, at: Index, lanes: int | None = None) -> Expr:
        """``lanes`` neighbouring elements from ``at`` on, a vector's by default; for one lane a scalar."""
        lanes = self.lanes if lanes is None else lanes
        if buffer in self._narrow:
            return self._wide_load(buffer, at, lanes)
        return self.load(buffer, at) if lanes == 1 else BufferLoad(buffer, [Ramp(index(at), index(1), lanes)])

    def _wide_load(self, buffer: Any, at: Index, lanes: int) -> Expr:
        """Elements of a buffer in which narrower ones are stored, aligned as these are."""
        narrow, dtype = self._narrow[buffer], str(buffer.dtype)
        count = DTYPE_BYTES[dtype] // DTYPE_BYTES[str(narrow.dtype)]
        stored = BufferLoad(narrow, [Ramp(index(at) * count, index(1), lanes * count)])
        return tirx.reinterpret(dtype if lanes == 1 else f"{dtype}x{lanes}", stored)

    def vstore(self, buffer: Any, at: Index, value: Expr, lanes: int | None = None) -> None:
        """Stores ``lanes`` neighbouring elements, see :meth:`vload`."""
        lanes = self.lanes if lanes is None else lanes
        where = index(at) if lanes == 1 else Ramp(index(at), index(1), lanes)
        self.add(BufferStore(buffer, value, [where]))

    def load(self, buffer: Any, at: Index) -> Expr:
        """One element."""
        return self._wide_load(buffer, at, 1) if buffer in self._narrow else BufferLoad(buffer, [index(at)])

    def address(self, buffer: Any, at: Index) -> Expr:
        """Where an element lies."""
        return tirx.address_of(BufferLoad(buffer, [index(at)]))

    def prefetch(self, buffer: Any, at: Index, locality: int = 2) -> None:
        """Asks for the cache line, where that pays; ``locality`` 0 to 3 as in ``llvm.prefetch``."""
        if self.target is not None and not self.target.prefetches:
            return
        address = self.address(buffer, at)
        hints = [index(0), index(locality), index(1)]
        self.add(Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch.p0", address, *hints)))

    # Values --------------------------------------------------------------------------------------------

    def let(self, value: Index) -> Expr:
        """Binds the value to a name, so that it is computed once and here.

        One that TVM's analyser would take long over goes by way of an array of one vector, which LLVM turns
        into a register; the analyser does not look behind a load.
        """
        if isinstance(value, int):
            return index(value)
        cost = analysis_cost(value, self._costs)
        if cost > LARGEST_COST and (kept := self._kept(value)) is not None:
            value, cost = kept, 1
        var = Var(self.name("v"), value.ty)
        self._costs[var.name] = cost
        self.add(Bind(var, value))
        return var

    def _kept(self, value: Expr) -> Expr | None:
        """The value, stored and loaded; None for one of a type that is not stored."""
        dtype, _, count = str(value.ty).partition("x")  # float32x8
        if dtype not in DTYPE_BYTES or dtype == "bool":
            return None
        lanes = int(count or 1)
        register = self.local(lanes, dtype)
        self.vstore(register, 0, value, lanes)
        return self.vload(register, 0, lanes)

    def splat(self, value: Expr, lanes: int | None = None) -> Expr:
        """The scalar in every lane."""
        lanes = self.lanes if lanes is None else lanes
        return value if lanes == 1 else Broadcast(value, lanes)

    def f32(self, value: float, lanes: int | None = None) -> Expr:
        """A float32 number in every lane."""
        return self.splat(FloatImm("float32", float(value)), lanes)

    def multiply_add(self, a: Expr, b: Expr, c: Expr) -> Expr:
        """c + a * b: one instruction where the target has it.

        LLVM makes one of the two, but for WebAssembly: there the program must ask for an instruction that is
        rounded once or twice, as the machine does it (relaxed SIMD).
        """
        relaxed = self.target is not None and self.target.relaxed_multiply_add
        if relaxed and str(c.ty) == "float32x4":
            return tirx.call_llvm_intrin("float32x4", "llvm.wasm.relaxed.madd.v4f32", a, b, c)
        return c + a * b

    # Control -------------------------------------------------------------------------------------------

    def loop(self, begin: Index, end: Index, body: Callable[[Any], None]) -> None:
        """for i in [begin, end); nothing is emitted for an empty range, no loop for one iteration."""
        if isinstance(begin, int) and isinstance(end, int) and end - begin <= 1:
            if end > begin:
                body(index(begin))
            return
        self._for(begin, index(end) - index(begin), body)

    def _for(self, begin: Index, extent: Expr, body: Callable[[Any], None]) -> None:
        var = Var(self.name("i"), tvm.ir.PrimType("int32"))
        statement = self.block(lambda: body(var))
        self.add(For(var, index(begin), extent, ForKind.SERIAL, statement))

    def each(self, count: int, body: Callable[[Any], None]) -> None:
        """for i in [0, count); with ``--optimize size`` also one iteration is a loop, which kernels share."""
        self._for(0, index(count), body) if self.short else self.loop(0, count, body)

    def opaque_bound(self, count: Index) -> Expr:
        """``count`` as the end of a loop that LLVM must not unroll, as it would mix the iterations and spill.

        It is written in terms of the thread's first task, so that LLVM does not know that it is constant.
        """
        return self.let(tirx.max(index(count), -self.params[-2]))

    def no_unroll_loop(self, count: Index, body: Callable[[Any], None]) -> None:
        """for i in [0, count), in a form that LLVM unrolls neither whole nor in part.

        Also not for CPUs that work in order, for which it unrolls loops of unknown length four times: this
        one's counter lies in memory, and its end depends on the thread's first task. Short ones it unrolls
        all the same for Cortex-M4 and the like, unless there is a vector in them. With ``--optimize size``
        there is one, of which no instruction is made.
        """
        everything = self.let(tirx.min(index(-1), self.params[-2]))
        counter = self.local(1, "int32")
        self.vstore(counter, 0, index(0), 1)

        def iteration() -> None:
            i = self.let(self.load(counter, 0))
            body(i)
            self.not_unrolled(i)
            self.vstore(counter, 0, i + 1, 1)

        more = tirx.bitwise_and(self.load(counter, 0), everything) < index(count)
        self.add(tirx.While(more, self.block(iteration)))

    def not_unrolled(self, i: Any) -> None:
        """Has LLVM not unroll the loop around the current block, of counter ``i`` (a number: there is none),
        with ``--optimize size``: it does for Cortex-M, of any length, unless there is a vector in it."""
        scalar = self.target and self.target.arch in CORTEX_M and not self.target.vector_bits
        if self.short and scalar and not isinstance(i, tirx.IntImm):
            self.add(Evaluate(tirx.call_llvm_intrin("void", "llvm.fake.use", self.splat(i, 2))))

    def branch(
        self, condition: Expr, then: Callable[[], None], otherwise: Callable[[], None] | None = None
    ) -> None:
        """if (condition) then else otherwise; the condition is a scalar."""
        first = self.block(then)
        self.add(IfThenElse(condition, first, self.block(otherwise) if otherwise else None))

    def switch(self, runs: list[tuple[int, int, Any]], value: Index, body: Callable[[Any], None]) -> None:
        """``body(key)`` of the run of :func:`run_lengths` in which ``value`` lies."""
        if len(runs) == 1:
            body(runs[0][2])
            return
        self.branch(
            index(value) < index(runs[0][1]),
            lambda: body(runs[0][2]),
            lambda: self.switch(runs[1:], value, body),
        )

    def task_range(self) -> tuple[Any, Any]:
        """Declares ``lo`` and ``hi``, the thread's tasks."""
        lo, hi = (Var(name, tvm.ir.PrimType("int32")) for name in ("lo", "hi"))
        self.params += [lo, hi]
        return lo, hi

    def tasks(self, body: Callable[[Any], None]) -> None:
        """Emits ``body(task)`` for each of the thread's tasks."""
        lo, hi = self.task_range()
        self.loop(lo, hi, body)

    def stage(self, tasks: int) -> Stage:
        """Ends the kernel and returns it with its operands; it has ``tasks`` tasks."""
        assert len(self.operands) == len(self.params) - 2, "lo and hi follow the operands"
        self.add(Return(index(0)))
        function = PrimFunc(self.params, SeqStmt(self.blocks[0]), tvm.ir.PrimType("int32"))
        return Stage(function.with_attr("tirx.noalias", True), tasks, tuple(self.operands))
