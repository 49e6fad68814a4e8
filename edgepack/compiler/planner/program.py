"""The program that a plan is made of: the calls of the fused module, and the tensors between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal, TypeAlias

from tvm import relax

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.graph.lower import Lowered
from edgepack.compiler.graph.opaque import REGION
from edgepack.compiler.graph.rewrite import is_constant, node_index, numpy_of, op_name
from edgepack.compiler.kernels.contract import Array, Implementation
from edgepack.compiler.kernels.gpu.contract import GpuImplementation
from edgepack.errors import ModelError
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["Call", "Prefetch", "Program", "Value", "read_program"]


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the program: an input, a constant, or what a call computes.

    Attributes:
        index: of the input, the constant, or the buffer.
        offset: bytes from the start of the buffer, where it is part of one.
    """

    kind: Literal["input", "constant", "buffer"]
    index: int
    nbytes: int = 0
    offset: int = 0


#: What a variable of the module is: a tensor, or those of a tuple.
Values: TypeAlias = Value | list[Value]


@dataclass
class Call:
    """A fused group with what it reads and writes, and the kernels that were selected for it.

    Attributes:
        first: a fused group that the same kernel computes before, whose result is the first argument of
            ``fused``; ``arguments`` are then its own, followed by those of ``fused`` from the second on.
        between: then, that result.
        prefetch: what its kernels fetch into the caches for a later call.
        gpu: the GPU's kernels that compute it; ``symbols`` are then theirs, and there is no
            ``implementation``.
        graphs: of an If or a loop, what is in it; () elsewhere.
    """

    fused: FusedGroup
    arguments: list[Value]
    results: list[Value]
    implementation: Implementation | None = None
    symbols: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    first: FusedGroup | None = None
    prefetch: Prefetch | None = None
    gpu: GpuImplementation | None = None
    between: Value | None = None
    graphs: tuple[Program, ...] = ()

    @property
    def fused_groups(self) -> tuple[FusedGroup, ...]:
        """What the call computes, in order."""
        return (self.fused,) if self.first is None else (self.first, self.fused)


@dataclass(frozen=True)
class Prefetch:
    """Bytes [offset, offset + nbytes) of the first packed constant of ``call``."""

    call: Call
    offset: int
    nbytes: int


@dataclass
class Program:
    """What the module's main does, in order."""

    calls: list[Call] = field(default_factory=list)
    constants: list[Array] = field(default_factory=list)
    buffers: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)

    def new_buffer(self, shape: Sequence[int], dtype: str) -> Value:
        """A tensor that a call computes."""
        made = Value("buffer", len(self.buffers), prod(shape) * DTYPE_BYTES[dtype])
        self.buffers.append(made)
        return made

    def use_counts(self) -> Counter[int]:
        """How often each value, by its ``id``, is an argument or an output."""
        uses = Counter(id(v) for call in self.calls for v in call.arguments)
        uses.update(id(v) for v in self.outputs)
        return uses

    def producers(self) -> dict[int, Call]:
        """The call that computes a value, by the value's ``id``, for calls of one result and one kernel."""
        calls = (call for call in self.calls if len(call.results) == 1 and not call.graphs)
        return {id(call.results[0]): call for call in calls}

    def programs(self) -> Iterator[Program]:
        """This one, and those of its Ifs and loops."""
        yield self
        for call in self.calls:
            for graph in call.graphs:
                yield from graph.programs()

    def kernel_calls(self) -> list[Call]:
        """The calls of kernels, also those in Ifs and loops, in order."""
        return [call for program in self.programs() for call in program.calls if not call.graphs]


def read_program(lowered: Lowered) -> Program:
    """The calls, constants and outputs of the module's main, with those of the graphs inside it.

    Raises:
        ModelError: for what a static plan cannot hold.
    """
    return _Reader(lowered, lowered.graphs).read()


class _Reader:
    """Reads the module's main, binding by binding."""

    def __init__(self, lowered: Lowered, graphs: Mapping[str, Lowered]) -> None:
        self.lowered, self.graphs = lowered, graphs
        self.program = Program()
        self.values: dict[relax.Var, Values] = {}
        self.constants: dict[relax.Expr, Value] = {}

    def read(self) -> Program:
        function = self.lowered.module["main"]
        self.values = {param: Value("input", i) for i, param in enumerate(function.params)}
        for block in function.body.blocks:
            for binding in block.bindings:
                self.values[binding.var] = self._binding(binding)
        result = self._value(function.body.body)
        self.program.outputs = result if isinstance(result, list) else [result]
        self._mark_callers_memory()
        return self.program

    def _mark_callers_memory(self) -> None:
        """Sets :attr:`FusedGroup.callers_params` of all groups."""
        outputs = {id(value) for value in self.program.outputs}
        for call in self.program.calls:
            found = [i for i, v in enumerate(call.arguments) if v.kind == "input" or id(v) in outputs]
            call.fused = replace(call.fused, callers_params=frozenset(found))

    def _binding(self, binding: relax.Binding) -> Values:
        expr = binding.value
        operator = op_name(expr)
        if operator == "relax.call_tir":
            return self._call(binding)
        if operator == "relax.reshape":
            return self._value(expr.args[0])
        if isinstance(expr, relax.Call):
            raise ModelError(
                f"operator {operator or expr.op} cannot be compiled ahead of time",
                hint="Its shape depends on data, or it needs a library that devices do not have.",
            )
        return self._value(expr)

    def _call(self, binding: relax.Binding) -> Values:
        expr, ty = binding.value, binding.var.ty
        is_tuple = isinstance(ty, relax.TupleType)
        results = [self._buffer(t) for t in (ty.fields if is_tuple else [ty])]
        fused = self.lowered.groups[expr.args[0].name_hint]
        last = node_index(binding.var)
        nodes = tuple(sorted({*fused.nodes, *([] if last is None else [last])}))
        call = Call(fused, self._fields(expr.args[1]), results, nodes=nodes, graphs=self._inside(fused))
        self.program.calls.append(call)
        return results if is_tuple else results[0]

    def _inside(self, fused: FusedGroup) -> tuple[Program, ...]:
        """The programs of an If or a loop."""
        if fused.anchor is None or fused.anchor.kind != REGION:
            return ()
        names = str(fused.anchor.attributes["graphs"]).split()
        return tuple(_Reader(self.graphs[name], self.graphs).read() for name in names)

    def _value(self, expr: relax.Expr) -> Values:
        if expr in self.values:
            return self.values[expr]
        if is_constant(expr):
            if expr not in self.constants:
                self.program.constants.append(numpy_of(expr))
                self.constants[expr] = Value("constant", len(self.program.constants) - 1)
            return self.constants[expr]
        if isinstance(expr, relax.Tuple):
            return self._fields(expr)
        if isinstance(expr, relax.TupleGetItem):
            return self._fields(expr.tuple_value)[int(expr.index)]
        raise ModelError(f"the compiled graph has a {type(expr).__name__}, which a static plan cannot hold")

    def _fields(self, expr: relax.Expr) -> list[Value]:
        """The tensors of a tuple, which the compiled graph does not nest."""
        found = [self._value(f) for f in expr.fields] if isinstance(expr, relax.Tuple) else self._value(expr)
        assert isinstance(found, list)
        fields = [field for field in found if isinstance(field, Value)]
        assert len(fields) == len(found)
        return fields

    def _buffer(self, ty: relax.TensorType) -> Value:
        return self.program.new_buffer([int(d) for d in ty.shape], str(ty.dtype))
