"""The operations that TIR expressions are made of, each written once: what it costs, how vectors compute it,
how a GPU's C spells it.

To add an operation, add it to :data:`OPERATIONS`. What needs more than an expression (polynomials, branches,
a call of libm for each lane) has its vector form in ``cpu/emit/arithmetic.py``, under the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

from tvm import tirx

from edgepack.plan.dtypes import DTYPES

__all__ = [
    "CALL_COST",
    "EVERY_OTHER",
    "FLOATS",
    "INTEGERS",
    "NUMBERS",
    "OPERATIONS",
    "Kind",
    "Operands",
    "Operation",
    "VectorForm",
    "form_for",
]

Expr = Any

#: Element types that are computed with: those of half precision are moved and converted only.
INTEGERS = frozenset(dtype for dtype in DTYPES if dtype.startswith(("int", "uint")))
FLOATS = frozenset({"float32", "float64"})
NUMBERS = INTEGERS | FLOATS

#: Stands for every number type that a table of forms does not name.
EVERY_OTHER = "*"

#: Operations that a call of an elementary function counts as.
CALL_COST = 20


class Kind(Enum):
    """What a visitor does with an operation: each kind is one of its methods."""

    CONSTANT = auto()
    VARIABLE = auto()
    LOAD = auto()
    CAST = auto()
    SELECT = auto()
    #: Tells the compiler something, and is its operand.
    HINT = auto()
    LOGICAL = auto()
    COMPARE = auto()
    ARITHMETIC = auto()
    #: Whole quotients, and remainders.
    DIVISION = auto()
    BITWISE = auto()
    SHIFT = auto()
    FUNCTION = auto()
    #: No operation on elements: vectors, pointers, texts.
    OTHER = auto()


class Emits(Protocol):
    """What a vector form asks of the emitter."""

    def let(self, value: Expr) -> Expr:
        """Binds a value to a name, so that it is computed once."""

    def splat(self, value: Expr, lanes: int | None = None) -> Expr:
        """A scalar in every lane."""


@dataclass(frozen=True)
class Operands:
    """What a vector form computes with.

    Attributes:
        exprs: of ``lanes`` lanes each.
        dtype: the first one's element type.
        numbers: the value of each where it is a constant.
    """

    exprs: Sequence[Expr]
    dtype: str
    lanes: int
    numbers: Sequence[float | None]


#: Makes a vector's TIR expression.
VectorForm = Callable[[Emits, Operands], Expr]


@dataclass(frozen=True)
class Operation:
    """What a TIR node computes of its operands.

    Attributes:
        name: of the function that a call calls, or of the node (``floor_div``).
        kind: how a visitor goes on.
        cost: operations that one element counts as, beside those of its operands.
        vector: vector forms by the operands' element type; none where ``cpu/emit/arithmetic.py`` has them.
        gpu: text by the operands' element type; ``{0}`` is the first operand, ``{type}`` its C type.
        positive: the operation that it is where no operand is negative.
    """

    name: str
    kind: Kind
    cost: int = 1
    vector: Mapping[str, VectorForm] = field(default_factory=dict, hash=False)
    gpu: Mapping[str, str] = field(default_factory=dict, hash=False)
    positive: str = ""


def form_for(forms: Mapping[str, Any], dtype: str) -> Any:
    """The form for operands of an element type; None where there is none."""
    return forms.get(dtype) or (forms.get(EVERY_OTHER) if dtype in NUMBERS else None)


def _plain(make: Callable[..., Expr]) -> VectorForm:
    """The form that is one TIR node."""
    return lambda e, x: make(*x.exprs)


def _either(e: Emits, x: Operands) -> Expr:
    """One of two truth values, not both: their vectors have no bits."""
    p, q = x.exprs
    return tirx.Or(tirx.And(p, tirx.Not(q)), tirx.And(tirx.Not(p), q))


def _shift(name: str, make: Callable[..., Expr]) -> Operation:
    return Operation(name, Kind.SHIFT, vector={EVERY_OTHER: _plain(make)}, gpu=_defined(name))


def _defined(function: str) -> dict[str, str]:
    """A function of two integers that is defined for all of them (``backends/gpu_source.py``), in the type
    that C computes in; of shorter ones the lower bits."""
    return {dtype: f"({{type}}){function}_{_computed_in(dtype)}({{0}}, {{1}})" for dtype in INTEGERS}


def _computed_in(dtype: str) -> str:
    if dtype.endswith("64"):
        return f"ep_{dtype}"
    return "uint" if dtype.startswith("uint") else "int"


def _wrapping(sign: str) -> dict[str, str]:
    """Arithmetic of integers: of unsigned ones C defines what does not fit."""
    types = {dtype: "ep_uint64" if dtype.endswith("64") else "uint" for dtype in INTEGERS}
    return {dtype: f"({{type}})(({by}){{0}} {sign} ({by}){{1}})" for dtype, by in types.items()}


def _with_nan(function: str) -> dict[str, str]:
    """A function of two floats that is NaN if one is (``backends/gpu_source.py``), which C's is not."""
    return dict.fromkeys(("float32", "float16"), f"ep_{function}({{0}}, {{1}})")


def _logical(name: str, make: Callable[..., Expr], text: str) -> Operation:
    return Operation(name, Kind.LOGICAL, vector={"bool": _plain(make)}, gpu={"bool": text})


def _comparison(name: str, make: Callable[..., Expr], sign: str) -> Operation:
    text = f"({{0}} {sign} {{1}})"
    both = {EVERY_OTHER: _plain(make), "bool": _plain(make)}
    return Operation(name, Kind.COMPARE, vector=both, gpu={EVERY_OTHER: text, "bool": text, "float16": text})


def _bitwise(name: str, make: Callable[..., Expr], of_bools: VectorForm, sign: str) -> Operation:
    text = f"({{0}} {sign} {{1}})"
    forms = {EVERY_OTHER: _plain(make), "bool": of_bools}
    return Operation(name, Kind.BITWISE, vector=forms, gpu={EVERY_OTHER: text, "bool": text})


def _arithmetic(
    name: str, make: Callable[..., Expr], text: str, integers: Mapping[str, str] | None = None
) -> Operation:
    """``text`` where nothing is undefined: of floats, and of positions; ``integers`` of others."""
    gpu = {EVERY_OTHER: text, "float16": text, **(integers or {})}
    return Operation(name, Kind.ARITHMETIC, vector={EVERY_OTHER: _plain(make)}, gpu=gpu)


def _division(name: str, positive: str) -> Operation:
    return Operation(name, Kind.DIVISION, gpu=_defined(name), positive=positive)


def _function(name: str, text: str = "", **forms: str) -> Operation:
    """A function of float32 numbers, whose vector form is in ``cpu/emit``."""
    gpu = {"float32": text} if text else {}
    return Operation(name, Kind.FUNCTION, CALL_COST, gpu={**gpu, **forms})


#: Functions of float32 numbers that a GPU's C has under TIR's name.
_SAME_NAME = (
    *("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "erf", "fabs"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("floor", "ceil", "trunc"),
)

_ALL = (
    Operation("integer", Kind.CONSTANT, cost=0),
    Operation("float", Kind.CONSTANT, cost=0),
    Operation("variable", Kind.VARIABLE, cost=0),
    Operation("load", Kind.LOAD, cost=0),
    Operation("cast", Kind.CAST),
    Operation("select", Kind.SELECT),
    # Only one side of it is computed.
    Operation("if_then_else", Kind.SELECT, cost=0),
    Operation("likely", Kind.HINT, cost=0),
    # A scalar in every lane: in vectors that were made, not in expressions that are evaluated.
    Operation("broadcast", Kind.OTHER, cost=0),
    _logical("and", tirx.And, "({0} && {1})"),
    _logical("or", tirx.Or, "({0} || {1})"),
    _logical("not", tirx.Not, "(!{0})"),
    _comparison("eq", tirx.EQ, "=="),
    _comparison("ne", tirx.NE, "!="),
    _comparison("lt", tirx.LT, "<"),
    _comparison("le", tirx.LE, "<="),
    _comparison("gt", tirx.GT, ">"),
    _comparison("ge", tirx.GE, ">="),
    _arithmetic("add", tirx.Add, "({0} + {1})", _wrapping("+")),
    _arithmetic("sub", tirx.Sub, "({0} - {1})", _wrapping("-")),
    _arithmetic("mul", tirx.Mul, "({0} * {1})", _wrapping("*")),
    _arithmetic("div", tirx.Div, "({0} / {1})", _defined("div")),
    _arithmetic("max", tirx.Max, "max(({type})({0}), ({type})({1}))", _with_nan("larger")),
    _arithmetic("min", tirx.Min, "min(({type})({0}), ({type})({1}))", _with_nan("smaller")),
    Operation(
        "mod", Kind.DIVISION, gpu={EVERY_OTHER: "({0} % {1})", "float32": "fmod({0}, {1})", **_defined("mod")}
    ),
    _division("floor_div", "div"),
    _division("floor_mod", "mod"),
    _bitwise("bitwise_and", tirx.bitwise_and, _plain(tirx.And), "&"),
    _bitwise("bitwise_or", tirx.bitwise_or, _plain(tirx.Or), "|"),
    _bitwise("bitwise_xor", tirx.bitwise_xor, _either, "^"),
    Operation(
        "bitwise_not",
        Kind.BITWISE,
        vector={EVERY_OTHER: _plain(tirx.bitwise_not), "bool": _plain(tirx.Not)},
        gpu={EVERY_OTHER: "(~{0})", "bool": "(!{0})"},
    ),
    _shift("shift_left", tirx.shift_left),
    _shift("shift_right", tirx.shift_right),
    *(_function(name, f"{name}({{0}})") for name in _SAME_NAME),
    *(_function(name, "rint({0})") for name in ("nearbyint", "round")),
    *(_function(name, f"{name}({{0}}, {{1}})") for name in ("pow", "atan2", "fmod", "hypot", "copysign")),
    *(_function(name, f"({name}({{0}}) != 0)") for name in ("isnan", "isinf", "isfinite")),
    _function("sigmoid", "(1.0f / (1.0f + exp(-({0}))))"),
    _function(
        "abs",
        "fabs({0})",
        **{
            d: f"({{0}} < 0 ? ({{type}})(0 - ({'ep_uint64' if d == 'int64' else 'uint'}){{0}}) : {{0}})"
            for d in INTEGERS
            if d.startswith("int")
        },
    ),
)

#: By name. What is not here is a function that nothing has a form for.
OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _ALL}
