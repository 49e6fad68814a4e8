"""The program that a plan is made of: the calls of the fused module, and the tensors between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

from tvm import relax

from edgepack.compiler.graph.lower import Group, Lowered
from edgepack.compiler.graph.rewrite import is_constant, node_index, numpy_of, op_name
from edgepack.compiler.kernels.contract import Array, Implementation
from edgepack.errors import ModelError
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["Ahead", "Call", "Program", "Value", "read"]


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


@dataclass
class Call:
    """A group with what it reads and writes, and the kernels that were chosen for it.

    Attributes:
        before: a group whose result is the first argument of ``group``, and is computed by the same kernel;
            ``arguments`` are its own, then those of ``group`` from the second on.
        ahead: what its kernels fetch into the caches for a later call.
    """

    group: Group
    arguments: list[Value]
    results: list[Value]
    implementation: Implementation | None = None
    symbols: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    before: Group | None = None
    ahead: Ahead | None = None


@dataclass(frozen=True)
class Ahead:
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


def read(lowered: Lowered) -> Program:
    """The module's main. ModelError for what a static plan cannot hold."""
    function = lowered.module["main"]
    program = Program()
    values: dict[Any, Any] = {param: Value("input", i) for i, param in enumerate(function.params)}
    constants: dict[Any, Value] = {}

    def value(expr: Any) -> Any:
        if expr in values:
            return values[expr]
        if is_constant(expr):
            if expr not in constants:
                program.constants.append(numpy_of(expr))
                constants[expr] = Value("constant", len(program.constants) - 1)
            return constants[expr]
        if isinstance(expr, relax.Tuple):
            return [value(f) for f in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return value(expr.tuple_value)[expr.index]
        raise ModelError(f"the compiled graph has a {type(expr).__name__}, which a static plan cannot hold")

    def buffer(ty: Any) -> Value:
        nbytes = prod(int(d) for d in ty.shape) * DTYPE_BYTES[str(ty.dtype)]
        made = Value("buffer", len(program.buffers), nbytes)
        program.buffers.append(made)
        return made

    for block in function.body.blocks:
        for binding in block.bindings:
            expr = binding.value
            operator = op_name(expr)
            if operator == "relax.call_tir":
                ty = binding.var.ty
                fields = list(ty.fields) if isinstance(ty, relax.TupleType) else None
                results = [buffer(t) for t in (fields or [ty])]
                group = lowered.groups[expr.args[0].name_hint]
                program.calls.append(
                    Call(group, list(value(expr.args[1])), results, nodes=_nodes(group, binding))
                )
                values[binding.var] = results if fields is not None else results[0]
            elif operator == "relax.reshape":
                values[binding.var] = value(expr.args[0])
            elif isinstance(expr, relax.Call):
                raise ModelError(
                    f"operator {operator or expr.op} cannot be compiled ahead of time",
                    hint="Its shape depends on data, or it needs a library that devices do not have.",
                )
            else:
                values[binding.var] = value(expr)
    result = value(function.body.body)
    program.outputs = list(result) if isinstance(result, list) else [result]
    return program


def _nodes(group: Group, binding: Any) -> tuple[int, ...]:
    last = node_index(binding.var)
    return tuple(sorted({*group.nodes, *([] if last is None else [last])}))
