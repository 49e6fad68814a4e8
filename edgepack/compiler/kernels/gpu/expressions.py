"""TIR expressions as C expressions, with what they read inlined where it is not in memory.

Positions are computed in int (no tensor has 2**31 elements), values in their own type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isinf, isnan
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import sym
from tvm.ir import Call, TensorLoad
from tvm.tirx import Buffer, Var

from edgepack.compiler.kernels.contract import Operand, RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.expressions.nodes import Node, dtype_of, operation_of
from edgepack.compiler.kernels.expressions.operations import (
    EVERY_OTHER,
    INTEGERS,
    OPERATIONS,
    Kind,
    Operation,
    form_for,
)
from edgepack.compiler.kernels.expressions.visitor import Visitor
from edgepack.compiler.kernels.gpu.code import Code, c_type

__all__ = ["Environment", "Evaluator", "flat_position", "unravelled"]

Expr = Any
#: Texts of variables, by variable.
Environment = Mapping[Any, str]

#: Stands for the type of positions, which no operation of them leaves.
POSITION = "position"

#: A number other than 0, with its type.
_WRITTEN = re.compile(r"(\(\w+\))?0*[1-9]\d*")

#: What has its own type in a position too.
_VALUES = {Kind.LOAD, Kind.SELECT, Kind.FUNCTION, Kind.HINT}


def flat_position(texts: list[str], shape: tuple[int, ...]) -> str:
    """The row-major position of an element, from its positions along the dimensions."""
    flat = ""
    for text, size in zip(texts, shape, strict=True):
        if size == 1:
            continue
        flat = f"({flat}) * {size} + {_sum(text)}" if flat else _sum(text)
    return flat or "0"


def unravelled(code: Code, flat: str, extents: tuple[int, ...], prefix: str = "i") -> list[str]:
    """The position along each of ``extents`` of a flat, row-major one; 0 along those of size one."""
    found: list[str] = []
    for axis in reversed(range(len(extents))):
        if extents[axis] == 1:
            found.append("0")
            continue
        outermost = all(extent == 1 for extent in extents[:axis])
        found.append(code.let("int", flat if outermost else f"{flat} % {extents[axis]}", prefix))
        flat = flat if outermost else code.let("int", f"{flat} / {extents[axis]}", prefix)
    return found[::-1]


def _sum(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


class Evaluator(Visitor[Environment, str]):
    """Writes the value of expressions.

    Args:
        code: the kernel that they are a part of.
        operand: what a buffer is to the kernel; None for one that is not in memory.
        stored: the dtype of a buffer's elements in memory.
        inlined: blocks whose results are computed where they are read, by buffer.
        given: texts of buffers' values that the kernel has at hand, whatever the position.

    Attributes:
        row_values: buffers of which the kernel has the current row at hand: the array with the text before
            the element's number in the row, and the dimensions along the row with their extents.
    """

    def __init__(
        self,
        code: Code,
        operand: Callable[[Buffer], Operand | None],
        stored: Callable[[Buffer], str],
        inlined: Mapping[Buffer, Block],
        given: Mapping[Buffer, str] | None = None,
    ) -> None:
        self.code, self.operand, self.stored, self.inlined = code, operand, stored, inlined
        self.given: dict[Any, str] = dict(given or {})
        self.row_values: dict[Any, tuple[str, list[tuple[int, int]]]] = {}
        self._guarded = 0
        self._shared: dict[int, list[tuple[Any, str]]] | None = None
        self._computed: dict[tuple[Buffer, tuple[str, ...]], str] = {}

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Inside, nothing is bound to a name: what is written is evaluated under a condition."""
        self._guarded += 1
        yield
        self._guarded -= 1

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Inside, what was computed outside is known; what is computed inside is not known afterwards."""
        before = dict(self._computed)
        yield
        self._computed = before

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Inside, what is read of memory is bound to a name, and equal expressions of the same variables are
        read once. The variables' texts must stay the same."""
        self._shared = {}
        with self.fresh():
            yield
        self._shared = None

    # Positions -------------------------------------------------------------------------------------------

    def position(self, x: Expr, env: Environment) -> str:
        """An integer expression as an int."""
        operation = operation_of(x)
        if operation.name == "integer":
            return str(int(x.value))
        if operation.kind is Kind.VARIABLE:
            return self._variable(x, env)
        if operation.kind is Kind.CAST:
            whole = dtype_of(x.value) in INTEGERS
            return self.position(x.value, env) if whole else f"to_int({self.value(x.value, env)})"
        if operation.kind in _VALUES or dtype_of(x) == "bool":
            return f"(int)({self.value(x, env)})"
        node = Node(x, operation)
        return self._spelt(node, [self.position(operand, env) for operand in node.operands], POSITION)

    def _variable(self, x: Any, env: Environment) -> str:
        if x not in env:
            raise RuleError(f"the position depends on {x.name}, which is unknown")
        return env[x]

    def _spelt(self, node: Node, texts: list[str], dtype: str) -> str:
        """An operation on what is written of its operands, which are computed in ``dtype``."""
        operation = node.operation
        if (folded := _folded(operation.name, texts)) is not None:
            return folded
        if operation.positive and all(_never_negative(x) for x in node.operands):
            operation = OPERATIONS[operation.positive]
        form = _form(operation, texts, dtype)
        dtype = "int32" if dtype == POSITION else dtype
        if form is None:
            raise RuleError(f"{operation.name} of {dtype} has no form on a GPU")
        used_twice = [form.count(f"{{{n}}}") > 1 for n in range(len(texts))]
        texts = [self.named(x, dtype) if twice else x for x, twice in zip(texts, used_twice, strict=True)]
        return str(form.format(*texts, type=c_type(dtype)))

    # Values ----------------------------------------------------------------------------------------------

    def value(self, x: Expr, env: Environment) -> str:
        """An expression in its own type; of a bool, an int."""
        if self._shared is not None and not self._guarded and self._is_read(x):
            return self._read_once(x, env, self._shared)
        return self._value(x, env)

    def _is_read(self, x: Expr) -> bool:
        """Whether an expression reads memory, under a condition or without one."""
        kind = operation_of(x).kind
        return kind is Kind.SELECT or (kind is Kind.LOAD and x.source not in self.given)

    def _read_once(self, x: Expr, env: Environment, shared: dict[int, list[tuple[Any, str]]]) -> str:
        alike = shared.setdefault(tvm_ffi.structural_hash(x), [])
        for other, name in alike:
            if tvm_ffi.structural_equal(x, other):
                return name
        name = self.named(self._value(x, env), dtype_of(x))
        alike.append((x, name))
        return name

    def _value(self, x: Expr, env: Environment) -> str:
        c_type(dtype_of(x))  # RuleError for a type that no GPU computes with
        return self.visit(x, env)

    def visit_constant(self, node: Node, env: Environment) -> str:
        if node.operation.name == "float":
            return _number(node.number)
        return str(node.number) if node.dtype in {"int32", "bool"} else f"({c_type(node.dtype)}){node.number}"

    def visit_variable(self, node: Node, env: Environment) -> str:
        return f"({c_type(node.dtype)}){self._variable(node.expr, env)}"

    def visit_cast(self, node: Node, env: Environment) -> str:
        (operand,), dtype = node.operands, node.dtype
        inner, source = self.value(operand, env), dtype_of(operand)
        if dtype == "bool":
            return f"({inner} != 0)"
        if dtype == "float16" != source:
            return f"ROUND_HALF((float)({inner}))"
        if (source, dtype) == ("float16", "float32"):
            return inner
        if source in {"float16", "float32"} and dtype in INTEGERS:
            return _whole(inner, dtype)
        return inner if source == dtype else f"({c_type(dtype)})({inner})"

    def visit_select(self, node: Node, env: Environment) -> str:
        """What is read on one side only is read under the condition."""
        condition, a, b = node.operands
        test = self.value(condition, env)
        if test in {"0", "1"}:
            return self.value(a if test == "1" else b, env)
        with self.guarded():
            texts = [self.value(x, env) for x in (a, b)]
        return f"({test} ? {texts[0]} : {texts[1]})"

    def visit_hint(self, node: Node, env: Environment) -> str:
        return self.value(node.operands[0], env)

    def visit_operation(self, node: Node, env: Environment) -> str:
        operands = node.operands
        if node.operation.kind is Kind.COMPARE and all(_is_position(x) for x in operands):
            return self._spelt(node, [self.position(x, env) for x in operands], POSITION)
        return self._spelt(node, [self.value(x, env) for x in operands], dtype_of(operands[0]))

    def visit_other(self, node: Node, env: Environment) -> str:
        raise RuleError(f"{node.operation.name} has no form on a GPU")

    def named(self, text: str, dtype: str) -> str:
        """The text bound to a name, so that it is computed once; as it is where it may not be computed
        always."""
        return text if self._guarded else self.code.let(c_type(dtype), text)

    def visit_load(self, node: Node, env: Environment) -> str:
        x, buffer = node.expr, node.expr.source
        if buffer in self.given:
            return self.given[buffer]
        if buffer in self.row_values:
            before, axes = self.row_values[buffer]
            texts = [self.position(x.indices[axis], env) for axis, _ in axes]
            return f"{before}{flat_position(texts, tuple(extent for _, extent in axes))}]"
        block = self.inlined.get(buffer)
        if block is not None:
            inner = {
                variable: self._index(self.position(at, env))
                for variable, at in zip(block.iters, x.indices, strict=True)
            }
            key = (buffer, tuple(inner.values()))
            if key not in self._computed:
                text = self.named(self.value(block.value, inner), str(buffer.dtype))
                if self._guarded:
                    return text
                self._computed[key] = text
            return self._computed[key]
        dtype = self.stored(buffer)
        name, at = self.place(x, env)
        loaded = f"LOAD_HALF({name}, {at})" if dtype == "float16" else f"{name}[{at}]"
        return f"({loaded} != 0)" if str(buffer.dtype) == "bool" else loaded

    def place(self, x: Any, env: Environment) -> tuple[str, str]:
        """The pointer to the tensor that is read, and the position of the element."""
        operand = self.operand(x.source)
        if operand is None:
            raise RuleError(f"{x.source.name} is not in memory")
        name = self.code.parameter(operand, self.stored(x.source))
        shape = tuple(int(d) for d in x.source.shape)
        return name, flat_position([self.position(i, env) for i in x.indices], shape)

    def _index(self, text: str) -> str:
        return text if self._guarded else self.code.let("int", text, "i")


def _form(operation: Operation, texts: list[str], dtype: str) -> Any:
    """The text of an operation; None where it has none. Sums and products of positions fit, and a quotient by
    a number that is written down, and is not 0, is defined."""
    divides = operation.name == "div" or operation.kind is Kind.DIVISION
    plain = not divides or _WRITTEN.fullmatch(texts[1])
    if EVERY_OTHER in operation.gpu and plain and (dtype == POSITION or (divides and dtype in INTEGERS)):
        return operation.gpu[EVERY_OTHER]
    return form_for(operation.gpu, "int32" if dtype == POSITION else dtype)


def _is_position(x: Any) -> bool:
    """Whether an integer expression reads no tensor, so that it stays in the range of an int."""
    found: list[Any] = []
    tvm_ffi.structural_walk(x, [(TensorLoad, found.append), (Call, found.append)])
    return not found and dtype_of(x) in INTEGERS


def _never_negative(x: Any) -> bool:
    """Whether TVM can tell that an integer is not negative, of variables that count from 0."""
    if not _is_position(x):
        return False
    analyzer = sym.Analyzer()
    bound = analyzer.const_int_bound(_with_counters(x, analyzer))
    return int(bound.min_value) >= 0


def _with_counters(x: Any, analyzer: Any) -> Any:
    """Tells the analyzer that variables of blocks are not negative."""

    def bind(variable: Any) -> None:
        analyzer.bind(variable, tvm.ir.Range.from_min_extent(0, 2**31 - 1), allow_override=True)

    tvm_ffi.structural_walk(x, (Var, bind))
    return x


def _whole(text: str, dtype: str) -> str:
    """A number as the nearest integer of a type towards 0 (``backends/gpu_source.py``)."""
    if dtype in {"int32", "uint32", "int64", "uint64"}:
        return f"to_{c_type(dtype)}({text})"
    limits = np.iinfo(dtype)
    return f"({c_type(dtype)})max({limits.min}, min({limits.max}, to_int({text})))"


def _number(value: float) -> str:
    """A float32 constant, exactly: nine digits tell all of them apart."""
    if isnan(value):
        return "NAN"
    if isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    single = float(np.float32(value))
    if isinf(single):
        return "INFINITY" if single > 0 else "(-INFINITY)"
    text = f"{single:.9g}"
    text = f"{text}f" if "." in text or "e" in text else f"{text}.0f"
    return f"({text})" if single < 0 else text


def _folded(name: str, texts: list[str]) -> str | None:
    """Sums and products of numbers, and with 0 or 1."""
    if name not in {"add", "mul"}:
        return None
    a, b = texts
    if a.isdigit() and b.isdigit():
        return str(int(a) + int(b) if name == "add" else int(a) * int(b))
    if name == "add" and "0" in texts:
        return b if a == "0" else a
    if name == "mul" and "1" in texts:
        return b if a == "1" else a
    return None
