"""Kernels that differ in numbers only share one function, which reads them from a table: where code lies in
flash, which is short.

Layers of one kind and several sizes have kernels of one form: the same statements with other extents, strides
and multipliers. Those become parameters; what is the same in all of them stays a constant. Distances that
were displacements of an instruction need registers then, so a function is slower: notes/microcontrollers.md.
The tables are code, not params: they say where a kernel reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, PrimType, TensorLoad
from tvm.tirx import (
    Add,
    AllocBuffer,
    Broadcast,
    BufferLoad,
    BufferStore,
    Cast,
    DeclBuffer,
    FloatImm,
    IntImm,
    PrimFunc,
    Ramp,
    SeqStmt,
    Sub,
    Var,
)
from tvm.tirx.buffer import buffer_data_pointer_type
from tvm.tirx.stmt import Bind

from edgepack.compiler.planner.built import Built

__all__ = ["share_kernels"]

#: Types of numbers that may be parameters. Those of float32 are known by their bits.
NUMBERS = ("int32", "int64", "float32")

#: Parameters that a function may have: each is a register or a load where it is used.
MOST = 24

#: A number that differs: its type, and the value in each kernel.
_Column = tuple[str, tuple[int, ...]]

#: What stands for a number in a kernel's form.
_HOLE = {dtype: Var("hole", PrimType(dtype)) for dtype in NUMBERS}


@dataclass(frozen=True)
class _Form:
    """A kernel without its numbers.

    Attributes:
        function: the kernel, in which ``x - 3`` is ``x + -3``: signs are numbers too.
        numbers: types and values of those that may be parameters, in the order in which
            :func:`_with_numbers` meets them.
        tokens: all else, in the order of a walk; forms with the same ones are alike.
    """

    function: PrimFunc
    numbers: tuple[tuple[str, int], ...]
    tokens: tuple[Any, ...]


def share_kernels(built: Built) -> Built:
    """The same plan, with one function for kernels that differ in numbers only."""
    alike: dict[tuple[Any, ...], list[tuple[str, _Form]]] = {}
    for symbol, function in built.functions.items():
        form = _form(function)
        alike.setdefault(form.tokens, []).append((symbol, form))
    functions = dict(built.functions)
    kernels = {kernel.symbol: kernel for kernel in built.plan.kernels}
    for group in alike.values():
        symbols, forms = [symbol for symbol, _ in group], [form for _, form in group]
        columns = _columns(forms)
        if len(group) == 1 or len(columns) > MOST:
            continue
        if columns:  # kernels that are the same need no numbers
            functions[symbols[0]] = _shared(forms, columns)
        for number, symbol in enumerate(symbols):
            numbers = tuple(word for column in columns for word in _words(column, number))
            kernels[symbol] = replace(kernels[symbol], function=symbols[0], numbers=numbers)
        for symbol in symbols[1:]:
            del functions[symbol]
    plan = replace(built.plan, kernels=tuple(kernels[kernel.symbol] for kernel in built.plan.kernels))
    return replace(built, plan=plan, functions=functions)


# The form of a kernel ------------------------------------------------------------------------------------


def _form(function: PrimFunc) -> _Form:
    function = function.with_body(tvm_ffi.structural_map(function.body, (Sub, _as_sum)))
    numbers: list[tuple[str, int]] = []

    def taken(number: Any) -> Any:
        numbers.append((str(number.ty), _bits(number)))
        return _HOLE[str(number.ty)]

    body = _with_numbers(function.body, taken)
    return _Form(function, tuple(numbers), (len(function.params), *_tokens(function.params, body)))


def _bits(number: Any) -> int:
    """The value of a constant, of float32 its bits as int32."""
    if isinstance(number, IntImm):
        return int(number.value)
    return int(np.float32(number.value).view(np.int32))


def _as_sum(node: Sub) -> Any:
    number = node.b
    if isinstance(number, IntImm) and str(number.ty) == "int32" and int(number.value) > -(2**31):
        return Add(node.a, IntImm("int32", -int(number.value)))
    return node


def _with_numbers(body: Any, number: Callable[[Any], Any]) -> Any:
    """The statements with other numbers, where these need not be constants: in intrinsics, shuffles, strides
    of vectors, and indices of arrays that are to be registers they are left."""

    def constant(node: Any, mutator: Any) -> Any:
        return number(node) if str(node.ty) in NUMBERS else node

    def kept(node: Any, mutator: Any) -> Any:
        return node

    def ramp(node: Ramp, mutator: Any) -> Any:
        return Ramp(mutator.mutate(node.base), node.stride, node.lanes)

    def broadcast(node: Broadcast, mutator: Any) -> Any:
        return Broadcast(mutator.mutate(node.value), node.lanes)

    def call(node: Call, mutator: Any) -> Any:
        arguments = [a if isinstance(a, IntImm | FloatImm) else mutator.mutate(a) for a in node.args]
        return Call(node.op, arguments, ret_ty=node.ty)

    def load(node: TensorLoad, mutator: Any) -> Any:
        return node if node.source.scope() == "local" else mutator.default_mutate(node)

    def store(node: BufferStore, mutator: Any) -> Any:
        if node.buffer.scope() != "local":
            return mutator.default_mutate(node)
        return BufferStore(node.buffer, mutator.mutate(node.value), node.indices)

    callbacks = [
        ((Var, AllocBuffer, DeclBuffer, tirx.Shuffle), kept),
        *((Ramp, ramp), (Broadcast, broadcast), (Call, call), (TensorLoad, load), (BufferStore, store)),
        ((IntImm, FloatImm), constant),
    ]
    return tvm_ffi.structural_mutate(body, callbacks)


def _tokens(params: Sequence[Var], body: Any) -> list[Any]:
    """What a walk meets: classes of nodes with what they hold but other nodes, variables by the order in
    which they come, constants."""
    found: list[Any] = []
    seen: dict[Any, int] = {param: i for i, param in enumerate(params)}

    def visit(node: Any) -> Any:
        if isinstance(node, IntImm):
            found.append((str(node.ty), int(node.value)))
        elif isinstance(node, Var) and tirx.is_buffer_var(node):
            local = node.scope() == "local"
            shape = tuple(int(n) for n in node.shape) if local else ()
            found.append((seen.setdefault(node, len(seen)), str(node.dtype), node.scope(), shape))
            return tvm_ffi.WalkResult.SKIP
        elif isinstance(node, Var):
            found.append((seen.setdefault(node, len(seen)), str(node.ty)))
            return tvm_ffi.WalkResult.SKIP
        else:
            found.append(_own(node))
        return None

    tvm_ffi.structural_walk(body, visit, order="pre")
    return found


def _own(node: Any) -> tuple[Any, ...]:
    """The class of a node, and of its fields the values of those that are no nodes."""
    if not isinstance(node, tvm_ffi.Object):
        return (type(node).__name__, repr(node))
    if isinstance(node, tvm_ffi.Array | tvm_ffi.Map):
        return (type(node).__name__, len(node))
    kind: Any = type(node)
    values = (getattr(node, name) for name in _fields(kind))
    return (type(node).__name__, *(None if isinstance(v, tvm_ffi.Object) else repr(v) for v in values))


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    """Names of the fields of a class of nodes that say whether two nodes are equal."""
    found: list[str] = []
    info = kind.__tvm_ffi_type_info__
    while info is not None:
        found += [field.name for field in info.fields if field.c_structural_eq != "ignore"]
        info = info.parent_type_info
    return tuple(found)


# The function that they share ----------------------------------------------------------------------------


def _columns(forms: Sequence[_Form]) -> list[_Column]:
    """The numbers that differ: of each its type and the values in all kernels, each combination once."""
    every = zip(*(form.numbers for form in forms), strict=True)
    found = ((cells[0][0], tuple(value for _, value in cells)) for cells in every)
    return list(dict.fromkeys(column for column in found if len(set(column[1])) > 1))


def _is_wide(column: _Column) -> bool:
    return any(not -(2**31) <= value < 2**31 for value in column[1])


def _words(column: _Column, kernel: int) -> tuple[int, ...]:
    """The number of a kernel as int32; as two, low and high, where one of the column needs 64 bits."""
    value = column[1][kernel]
    low = value & 0xFFFFFFFF
    return (low - (low >> 31 << 32), value >> 32) if _is_wide(column) else (value,)


def _shared(forms: Sequence[_Form], columns: Sequence[_Column]) -> PrimFunc:
    """The function of all forms, with one more pointer, to the numbers, before the tasks."""
    table = tirx.decl_buffer((sum(len(_words(c, 0)) for c in columns),), "int32", "numbers")
    pointer = Var("numbers_p", buffer_data_pointer_type(table))
    before: list[Any] = [DeclBuffer(table, data=pointer)]
    parameters: dict[_Column, Var] = {}
    at = 0
    for column in columns:
        words = [BufferLoad(table, [IntImm("int32", at + i)]) for i in range(len(_words(column, 0)))]
        at += len(words)
        parameters[column] = Var(f"number{len(parameters)}", PrimType(column[0]))
        before.append(Bind(parameters[column], _joined(words, column[0])))
    every = iter(zip(*(form.numbers for form in forms), strict=True))

    def parameter(number: Any) -> Any:
        cells = next(every)
        return parameters.get((cells[0][0], tuple(value for _, value in cells)), number)

    function = forms[0].function
    body = SeqStmt([*before, _with_numbers(function.body, parameter)])
    *pointers, lo, hi = function.params
    return PrimFunc([*pointers, pointer, lo, hi], body, function.ret_type, function.attrs)


def _joined(words: Sequence[Any], dtype: str) -> Any:
    """A number of one word or two."""
    if dtype == "float32":
        return tirx.reinterpret(dtype, words[0])
    if len(words) == 1:
        return words[0] if dtype == "int32" else Cast(dtype, words[0])
    low, high = words
    unsigned = Cast("int64", tirx.reinterpret("uint32", low))
    return tirx.bitwise_or(tirx.shift_left(Cast("int64", high), IntImm("int64", 32)), unsigned)
