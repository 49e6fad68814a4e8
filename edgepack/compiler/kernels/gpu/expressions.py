"""TIR expressions as C expressions, with what they read inlined where it is not in memory.

Positions are computed in int (no tensor has 2**31 elements), values in their own type.
"""

from __future__ import annotations

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
from edgepack.compiler.kernels.gpu.code import Code, c_type

__all__ = ["Environment", "Evaluator", "flat_position", "unravelled"]

Expr = Any
#: Texts of variables, by variable.
Environment = Mapping[Any, str]

_OPERATORS = {
    **{"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%"},
    **{"BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^", "LShift": "<<", "RShift": ">>"},
    **{"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "And": "&&", "Or": "||"},
}
_COMPARISONS = {"EQ", "NE", "LT", "LE", "GT", "GE"}
_BITWISE = {
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "shift_left": "<<",
    "shift_right": ">>",
}

#: TIR's names of functions on float32 to C's. Those that the GPU's C has under the same name, with the
#: arguments' type.
_FUNCTIONS = {
    **{name: name for name in ("exp", "exp2", "exp10", "log", "log2", "log10", "sqrt", "rsqrt", "pow")},
    **{name: name for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "atan2")},
    **{name: name for name in ("asinh", "acosh", "atanh", "erf", "floor", "ceil", "trunc", "fmod")},
    **{"fabs": "fabs", "nearbyint": "rint", "round": "rint", "log1p": "log1p", "hypot": "hypot"},
    **{"copysign": "copysign"},
}
_CLASSES = {"isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite"}


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


class Evaluator:
    """Writes the value of expressions.

    Args:
        code: the kernel that they are a part of.
        operand: what a buffer is to the kernel; None for one that is not in memory.
        stored: the dtype of a buffer's elements in memory.
        inlined: blocks whose results are computed where they are read, by buffer.
        given: texts of buffers' values that the kernel has at hand, whatever the position.

    Attributes:
        kept: buffers of which the kernel has the current row at hand: the array with the text before the
            element's number in the row, and the dimensions along the row with their extents.
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
        self.kept: dict[Any, tuple[str, list[tuple[int, int]]]] = {}
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
        kind = type(x).__name__
        if kind == "IntImm":
            return str(int(x.value))
        if kind == "Var":
            return self._variable(x, env)
        if kind == "Cast":
            whole = _is_integer(_dtype(x.value))
            return self.position(x.value, env) if whole else f"(int)({self.value(x, env)})"
        if kind in {"TensorLoad", "Call", "Select"} or _dtype(x) == "bool":
            return f"(int)({self.value(x, env)})"
        a, b = self.position(x.a, env), self.position(x.b, env)
        return self._arithmetic(kind, a, b, x, "int")

    def _variable(self, x: Any, env: Environment) -> str:
        if x not in env:
            raise RuleError(f"the position depends on {x.name}, which is unknown")
        return env[x]

    def _arithmetic(self, kind: str, a: str, b: str, x: Any, ctype: str) -> str:
        if kind in _OPERATORS:
            return _folded(kind, a, b) or f"({a} {_OPERATORS[kind]} {b})"
        if kind in {"Min", "Max"}:
            return f"{kind.lower()}(({ctype})({a}), ({ctype})({b}))"
        if kind in {"FloorDiv", "FloorMod"}:
            if _never_negative(x.a) and _never_negative(x.b):
                return f"({a} {'/' if kind == 'FloorDiv' else '%'} {b})"
            suffix = "64" if ctype.endswith("int64") else ""
            return f"floor_{'div' if kind == 'FloorDiv' else 'mod'}{suffix}({a}, {b})"
        raise RuleError(f"a {kind} has no form on a GPU")

    # Values ----------------------------------------------------------------------------------------------

    def value(self, x: Expr, env: Environment) -> str:
        """An expression in its own type; of a bool, an int."""
        if self._shared is not None and not self._guarded and self._is_read(x):
            return self._read_once(x, env, self._shared)
        return self._value(x, env)

    def _is_read(self, x: Expr) -> bool:
        """Whether an expression reads memory, under a condition or without one."""
        kind = type(x).__name__
        if kind == "TensorLoad":
            return x.source not in self.given
        return kind == "Select" or (kind == "Call" and str(x.op.name).endswith("if_then_else"))

    def _read_once(self, x: Expr, env: Environment, shared: dict[int, list[tuple[Any, str]]]) -> str:
        alike = shared.setdefault(tvm_ffi.structural_hash(x), [])
        for other, name in alike:
            if tvm_ffi.structural_equal(x, other):
                return name
        name = self.named(self._value(x, env), _dtype(x))
        alike.append((x, name))
        return name

    def _value(self, x: Expr, env: Environment) -> str:
        kind, dtype = type(x).__name__, _dtype(x)
        ctype = c_type(dtype)
        if kind == "IntImm":
            number = int(x.value)
            return str(number) if dtype in {"int32", "bool"} else f"({ctype}){number}"
        if kind == "FloatImm":
            return _number(float(x.value))
        if kind == "Var":
            return f"({ctype}){self._variable(x, env)}"
        if kind == "Cast":
            return self._cast(x, env, ctype)
        if kind == "TensorLoad":
            return self._load(x, env)
        if kind == "Select":
            return self._choice(x.condition, x.true_value, x.false_value, env)
        if kind in {"Not", "BitwiseNot"}:
            return f"({'!' if kind == 'Not' or dtype == 'bool' else '~'}{self.value(x.a, env)})"
        if kind == "Mod" and dtype == "float32":
            return f"fmod({self.value(x.a, env)}, {self.value(x.b, env)})"
        if kind == "Call":
            return self._call(x, env)
        if kind in _COMPARISONS and _is_position(x.a) and _is_position(x.b):
            return f"({self.position(x.a, env)} {_OPERATORS[kind]} {self.position(x.b, env)})"
        return self._arithmetic(kind, self.value(x.a, env), self.value(x.b, env), x, c_type(_dtype(x.a)))

    def _cast(self, x: Any, env: Environment, ctype: str) -> str:
        inner, source, dtype = self.value(x.value, env), _dtype(x.value), _dtype(x)
        if dtype == "bool":
            return f"({inner} != 0)"
        if dtype == "float16" != source:
            return f"ROUND_HALF((float)({inner}))"
        if (source, dtype) == ("float16", "float32"):
            return inner
        return inner if source == dtype else f"({ctype})({inner})"

    def _choice(self, condition: Any, a: Any, b: Any, env: Environment) -> str:
        """What is read on one side only is read under the condition."""
        test = self.value(condition, env)
        if test in {"0", "1"}:
            return self.value(a if test == "1" else b, env)
        with self.guarded():
            texts = [self.value(x, env) for x in (a, b)]
        return f"({test} ? {texts[0]} : {texts[1]})"

    def _call(self, x: Any, env: Environment) -> str:
        name = str(x.op.name).rpartition(".")[2]
        if name == "if_then_else":
            return self._choice(x.args[0], x.args[1], x.args[2], env)
        if name == "likely":
            return self.value(x.args[0], env)
        if name in _BITWISE or name == "bitwise_not":
            texts = [self.value(a, env) for a in x.args]
            return f"(~{texts[0]})" if name == "bitwise_not" else f"({texts[0]} {_BITWISE[name]} {texts[1]})"
        if name in _CLASSES and _dtype(x.args[0]) == "float32":
            return f"({_CLASSES[name]}({self.value(x.args[0], env)}) != 0)"
        if name == "abs" and _dtype(x).startswith("int"):
            text = self.named(self.value(x.args[0], env), _dtype(x))
            return f"({text} < 0 ? -{text} : {text})"
        if name == "sigmoid" and _dtype(x) == "float32":
            return f"(1.0f / (1.0f + exp(-({self.value(x.args[0], env)}))))"
        known = {"abs": "fabs", **_FUNCTIONS}
        if name in known and all(_dtype(a) == "float32" for a in x.args):
            return f"{known[name]}({', '.join(self.value(a, env) for a in x.args)})"
        raise RuleError(f"the function {name} of {_dtype(x)} has no form on a GPU")

    def named(self, text: str, dtype: str) -> str:
        """The text bound to a name, so that it is computed once; as it is where it may not be computed
        always."""
        return text if self._guarded else self.code.let(c_type(dtype), text)

    def _load(self, x: Any, env: Environment) -> str:
        buffer: Buffer = x.source
        if buffer in self.given:
            return self.given[buffer]
        if buffer in self.kept:
            before, axes = self.kept[buffer]
            texts = [self.position(x.indices[axis], env) for axis, _ in axes]
            return f"{before}{flat_position(texts, tuple(extent for _, extent in axes))}]"
        block = self.inlined.get(buffer)
        if block is not None:
            inner = {
                variable: self._kept(self.position(at, env))
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

    def _kept(self, text: str) -> str:
        return text if self._guarded else self.code.let("int", text, "i")


def _dtype(x: Any) -> str:
    return str(x.ty.dtype) if hasattr(x.ty, "dtype") else str(x.ty)


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def _is_position(x: Any) -> bool:
    """Whether an integer expression reads no tensor, so that it stays in the range of an int."""
    found: list[Any] = []
    tvm_ffi.structural_walk(x, [(TensorLoad, found.append), (Call, found.append)])
    return not found and _is_integer(_dtype(x))


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


def _folded(kind: str, a: str, b: str) -> str | None:
    """Sums and products of numbers, and with 0 or 1."""
    if a.isdigit() and b.isdigit() and kind in {"Add", "Mul"}:
        return str(int(a) + int(b) if kind == "Add" else int(a) * int(b))
    if kind == "Add" and "0" in (a, b):
        return b if a == "0" else a
    if kind == "Mul" and "1" in (a, b) and (a.isdigit() or b.isdigit()):
        return b if a == "1" else a
    if kind == "Mul" and a.isdigit() and b.isdigit() and "0" in (a, b):
        return "0"
    return None
