"""Whether numbers of the params decide where a kernel reads and writes.

Gathers and scatters bring their positions into range, constants too. Other tables of the params (decision
trees) are believed by their kernels. So they are as good as machine code, and a library with such ones
compares all its params with their hash before it uses them (``EP_PARAMS_PLACES``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.tirx import BufferStore, DeclBuffer, Evaluate, For, IfThenElse, PrimFunc, SeqStmt, While
from tvm.tirx.stmt import Bind

from edgepack.compiler.kernels.expressions.nodes import (
    Node,
    name_of,
    operands_of,
    operation_of,
    table_position,
)
from edgepack.compiler.planner.built import Built
from edgepack.plan.types import Launch, Plan, Step

__all__ = ["decides_places", "has_places_in_params"]

#: How the names of rules begin whose kernels read where their loops say, by construction: products and
#: windows. They are the long ones, and take seconds to look through.
_BY_LOOPS = ("conv1d", "conv2d", "conv3d", "matmul", "pool2d", "attention")

#: The sides on which a number has no bound that the kernel gives it.
_Open = frozenset[str]
_NONE: _Open = frozenset()
_BOTH: _Open = frozenset({"above", "below"})


def has_places_in_params(built: Built) -> bool:
    """Whether a kernel reads, writes or counts by what is in the params.

    Of kernels on a GPU and of a user's C it is not known what they do with integers.
    """
    plan, known = built.plan, {kernel.symbol: kernel for kernel in built.plan.kernels}
    seen: dict[tuple[str, frozenset[int]], bool] = {}
    for step in plan.steps:
        if not isinstance(step, Step):
            if isinstance(step, Launch) and plan.gpu_api and _has_integers(plan):
                return True
            continue
        kernel, integers = known[step.kernel], _integers(plan, step)
        if not integers or kernel.branch is not None or kernel.rule.startswith(_BY_LOOPS):
            continue
        function = built.functions.get(kernel.function or kernel.symbol)
        if function is None:  # a user's C, or layers by rows
            return True
        key = kernel.function or kernel.symbol, integers
        if key not in seen:
            seen[key] = decides_places(function, integers)
        if seen[key]:
            return True
    return False


def _integers(plan: Plan, step: Step) -> frozenset[int]:
    """Which of a step's arguments are constants of integers."""
    return frozenset(
        number
        for number, argument in enumerate(step.arguments)
        if argument.kind == "constant" and "int" in plan.constants[argument.index].dtype
    )


def _has_integers(plan: Plan) -> bool:
    return any("int" in constant.dtype for constant in plan.constants)


def decides_places(function: PrimFunc, params: frozenset[int]) -> bool:
    """Whether what these parameters of a kernel hold decides where it reads or writes, or how often a loop
    goes round. What lies between two numbers of the kernel's own (a minimum and a maximum) does not."""
    memory = {str(function.params[number].name): _BOTH for number in params}
    return _Kernel(function.body, memory).decides()


class _Kernel:
    """What is known of a kernel's variables and memory, by their names; those of one name are one.

    Attributes:
        memory: of that which holds numbers of the params, on which sides these have no bound.
        variables: the same.
        same: another name of the same memory.
    """

    def __init__(self, body: Any, memory: Mapping[str, _Open]) -> None:
        self.statements = list(_statements(body))
        self.same: dict[str, str] = {}
        for one in self.statements:
            if type(one) is DeclBuffer:
                self._alias(str(one.buffer.name), one.data)
            elif type(one) is Bind and _is_pointer(one.value):
                self._alias(str(one.var.name), one.value)
        self.memory = {self._first(name): sides for name, sides in memory.items()}
        self.variables: dict[str, _Open] = {}

    def _alias(self, name: str, value: Any) -> None:
        """A pointer of this name leads where those in a value lead."""
        pending = [value]
        while pending:
            x = pending.pop()
            if type(x) is TensorLoad or (type(x) is tirx.Var and _is_pointer(x)):
                one, other = (
                    self._first(name),
                    self._first(str((x.source if type(x) is TensorLoad else x).name)),
                )
                if one != other:
                    self.same[one] = other
            if type(x) is not TensorLoad:
                pending += _operands(x)

    def _first(self, name: str) -> str:
        """The one name that stands for all of the same memory."""
        while name in self.same:
            name = self.same[name]
        return name

    def decides(self) -> bool:
        while self._spread():
            pass
        return any(map(self._is_decided, self.statements))

    def _spread(self) -> bool:
        """One more pass of what is stored and bound; whether something new was found."""
        before = dict(self.memory), dict(self.variables)
        for one in self.statements:
            kind = type(one)
            if kind is Bind:
                self._add(self.variables, str(one.var.name), self.open(one.value))
            elif kind is BufferStore:
                self._add(self.memory, self._first(str(one.buffer.name)), self.open(one.value))
        return before != (self.memory, self.variables)

    @staticmethod
    def _add(known: dict[str, _Open], name: str, sides: _Open) -> None:
        if sides:
            known[name] = known.get(name, _NONE) | sides

    def _is_decided(self, one: Any) -> bool:
        kind = type(one)
        if kind is For:
            return bool(self.open(one.min) | self.open(one.extent)) or self._reads(one.min, one.extent)
        if kind is While:
            return bool(self.open(one.condition))
        if kind is BufferStore:
            return any(map(self.open, one.indices)) or self._reads(one.value, *one.indices)
        if kind is DeclBuffer:
            return self._reads(one.data)
        return self._reads(one.value if kind in (Bind, Evaluate) else one.condition)

    def _reads(self, *values: Any) -> bool:
        """Whether a position of a load in an expression, or an address that it computes, is decided."""
        pending = list(values)
        while pending:
            x = pending.pop()
            kind = type(x)
            if kind is TensorLoad and table_position(Node(x, operation_of(x))) is None:
                if any(map(self.open, x.indices)):
                    return True
            elif kind is Call and _is_pointer(x) and self._leads(x):
                return True
            pending += _operands(x)
        return False

    def _leads(self, call: Any) -> bool:
        """Whether an address is made of an open number. Of a load it takes the place, not the number."""
        return any(self.open(one) for one in call.args if type(one) is not TensorLoad)

    def open(self, x: Any) -> _Open:
        """On which sides a number has no bound of the kernel's own, where it comes from the params."""
        kind = type(x)
        if _is_pointer(x):  # where it leads is looked at where it is made
            return _NONE
        if kind is tirx.Var:
            return self.variables.get(str(x.name), _NONE)
        if kind is TensorLoad:
            return self.memory.get(self._first(str(x.source.name)), _NONE)
        name, operands = name_of(x), _operands(x)
        if name in ("select", "if_then_else"):
            operands = operands[1:]
        sides = [self.open(one) for one in operands]
        if name in ("min", "max") and len(sides) == 2:
            other = "above" if name == "min" else "below"
            return (sides[0] | sides[1]) - ({other} if _NONE in sides else _NONE)
        if kind is tirx.Cast or name in ("select", "if_then_else", "likely", "broadcast"):
            return _NONE.union(*sides)
        return _BOTH if any(sides) else _NONE


def _operands(x: Any) -> tuple[Any, ...]:
    """What an expression is made of, also one that stands only among positions and vectors."""
    kind = type(x)
    if kind is tirx.Ramp:
        return x.base, x.stride
    if kind is tirx.Shuffle:
        return (*x.vectors, *x.indices)
    if kind is tirx.Let:
        return x.value, x.body
    return operands_of(x)


def _is_pointer(x: Any) -> bool:
    return not hasattr(x.ty, "dtype") or "handle" in str(x.ty.dtype)


def _statements(body: Any) -> Iterator[Any]:
    """All that compute something, at any depth."""
    pending = [body]
    while pending:
        one = pending.pop()
        if type(one) is SeqStmt:
            pending.extend(one.seq)
        elif type(one) in (Bind, BufferStore, DeclBuffer, Evaluate):
            yield one
        elif type(one) is IfThenElse:
            yield one
            pending += [one.then_case, *([one.else_case] if one.else_case is not None else [])]
        else:
            if type(one) in (For, While):
                yield one
            if getattr(one, "body", None) is not None:
                pending.append(one.body)
