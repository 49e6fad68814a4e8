"""Evaluate the elementwise tail of a fused function on vectors, at the point where a tile is stored.

The tail is read from the fused TIR itself, so every elementwise operator that TVM can fuse behind an anchor
(bias, residual, clip, SiLU, hardswish, GELU, ...) is served by the same code. What joins it from the side (a
residual that is scaled or normalised first) is a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.affine import IndexVariables
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, index
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.cpu.emit.values import DTYPES, Value, Values
from edgepack.compiler.kernels.cpu.emit.vector_math import (
    UNARY,
    elementary,
    is_nan,
    maximum,
    minimum,
    quotient,
)
from edgepack.compiler.kernels.cpu.emit.vector_power import power

__all__ = ["Epilogue"]

BINARY = {"Add", "Sub", "Mul", "Div", "Max", "Min", "LT", "LE", "GT", "GE", "EQ", "NE", "And", "Or"}


#: Calls that are evaluated on the accumulators. Not those of angles, which where these are large call libm: a
#: call takes all vector registers.
CALLS = (UNARY.keys() - {"tirx.sin", "tirx.cos", "tirx.tan"}) | {"tirx.pow", "tirx.isnan"}


class Epilogue:
    """The blocks behind an anchor's block, and those that they read beside it.

    Args:
        blocks: they, in order; each has the anchor's output shape and reads its predecessors at its own
            position.
        anchor: the buffer that the anchor writes.
        params: the group's parameter buffers.

    Attributes:
        params: indices of the group's parameters that the tail reads, in order of first use.

    Raises:
        RuleError: if a block is not elementwise, or uses what has no vector form.
    """

    def __init__(self, blocks: Sequence[Block], anchor: Any, params: Sequence[Any]) -> None:
        self.blocks = tuple(blocks)
        self.anchor = anchor
        self.shape = tuple(int(d) for d in anchor.shape)
        self._known = {anchor, *(block.target for block in blocks)}
        self._params = tuple(params)
        self._param_index = {param: i for i, param in enumerate(params)}
        self.params: list[int] = []
        self._elsewhere: set[int] = set()
        for block in self.blocks:
            self._check(block)

    @property
    def dense(self) -> tuple[int, ...]:
        """The parameters of the output's shape that are read at the position of the output only."""
        return tuple(p for p in self.params if p not in self._elsewhere)

    @property
    def target(self) -> Any:
        """The buffer that the tile's store writes: the last block's, or the anchor's own."""
        return self.blocks[-1].target if self.blocks else self.anchor

    def _check(self, block: Block) -> None:
        if block.reductions or block.extents != self.shape:
            raise RuleError(f"{block.name} is not elementwise over the anchor's output")
        if not all(i.same_as(v) for i, v in zip(block.indices, block.iters, strict=True)):
            raise RuleError(f"{block.name} does not write its own position")
        self._check_value(block.value, block)

    def _check_value(self, x: Any, block: Block) -> None:
        kind = type(x).__name__
        if kind == "TensorLoad":
            self._check_load(x, block)
        elif kind in BINARY:
            self._check_value(x.a, block)
            self._check_value(x.b, block)
        elif kind == "Select":
            for part in (x.condition, x.true_value, x.false_value):
                self._check_value(part, block)
        elif kind == "Not":
            self._check_value(x.a, block)
        elif kind == "Cast" and {str(x.ty.dtype), str(x.value.ty.dtype)} <= DTYPES:
            self._check_value(x.value, block)
        elif kind == "Call" and x.op.name in CALLS and str(x.args[0].ty.dtype) == "float32":
            for argument in x.args:
                self._check_value(argument, block)
        elif kind not in {"FloatImm", "IntImm"}:
            name = str(getattr(getattr(x, "op", None), "name", kind))
            raise RuleError(f"{block.name} uses {name.rpartition('.')[2]}, which has no vector form here")

    def _check_load(self, x: Any, block: Block) -> None:
        if x.source in self._known:
            if not all(i.same_as(v) for i, v in zip(x.indices, block.iters, strict=True)):
                raise RuleError(f"{block.name} reads another position than its own")
            return
        param = self._param_index.get(x.source)
        if param is None:
            raise RuleError(f"{block.name} reads a buffer that is computed elsewhere")
        for i in x.indices:
            if not (type(i).__name__ == "IntImm" or any(i.same_as(v) for v in block.iters)):
                raise RuleError(f"{block.name} reads a parameter at a computed position")
        if any(i.same_as(block.iters[-1]) for i in x.indices[:-1]):
            raise RuleError(f"{block.name} reads a parameter across its rows")
        if param not in self.params:
            self.params.append(param)
        own = all(i.same_as(v) for i, v in zip(x.indices, block.iters, strict=False))
        if not own or tuple(int(d) for d in x.source.shape) != self.shape:
            self._elsewhere.add(param)

    def apply(
        self,
        e: Emitter,
        value: Any,
        position: Sequence[Any],
        lanes: int,
        pointers: Mapping[int, Any],
        here: Mapping[int, tuple[Any, Any]] | None = None,
    ) -> Any:
        """The stored value.

        Args:
            value: the anchor's value: a vector of ``lanes`` elements along the last dimension.
            position: index of the first of them, for each dimension.
            pointers: for each of :attr:`params`, the kernel's flat buffer.
            here: for parameters of :attr:`dense`, a buffer and the index in it of this position, which
                replace ``pointers`` (constant indices into a buffer that starts at the tile cost no
                arithmetic).
        """
        values = {self.anchor: value}
        for param, (buffer, at) in (here or {}).items():
            values[self._params[param]] = e.let(e.vload(buffer, at, lanes))
        for block in self.blocks:
            stored = self._value(e, block.value, block, values, position, lanes, pointers)
            # TVM's analyser has no vectors of truth values, so these get no name.
            values[block.target] = stored if str(block.target.dtype) == "bool" else e.let(stored)
        return values[self.target]

    def _value(
        self,
        e: Emitter,
        x: Any,
        block: Block,
        values: Mapping[Any, Any],
        position: Sequence[Any],
        lanes: int,
        pointers: Mapping[int, Any],
    ) -> Any:
        def again(part: Any) -> Any:
            return self._value(e, part, block, values, position, lanes, pointers)

        kind = type(x).__name__
        if kind == "TensorLoad":
            if x.source in values:
                return values[x.source]
            return e.let(self._load(e, x, block, position, lanes, pointers))
        if kind in {"FloatImm", "IntImm"}:
            return e.splat(x, lanes)
        if kind in {"Max", "Min"}:
            return (maximum if kind == "Max" else minimum)(e, again(x.a), again(x.b))
        if kind == "Div":
            return quotient(e, again(x.a), again(x.b))
        if kind in BINARY:
            return type(x)(again(x.a), again(x.b))
        if kind == "Not":
            return tirx.Not(again(x.a))
        if kind == "Select":
            return tirx.Select(again(x.condition), again(x.true_value), again(x.false_value))
        if kind == "Cast":
            before = Value(again(x.value), lanes, str(x.value.ty.dtype))
            return Values(e, lanes, IndexVariables()).cast(before, str(x.ty.dtype)).expr
        return _call(e, x, [e.let(again(argument)) for argument in x.args], lanes)

    def _load(
        self,
        e: Emitter,
        x: Any,
        block: Block,
        position: Sequence[Any],
        lanes: int,
        pointers: Mapping[int, Any],
    ) -> Any:
        """A parameter at this position: a vector along the last dimension, or one element for all lanes."""
        at: Any = 0
        along_lanes = False
        for dim, i in zip(x.source.shape, x.indices, strict=True):
            at = at * int(dim)
            if type(i).__name__ == "IntImm":
                at = at + int(i)
                continue
            axis = next(n for n, v in enumerate(block.iters) if i.same_as(v))
            along_lanes = along_lanes or axis == len(block.iters) - 1
            at = position[axis] + at
        buffer = pointers[self._param_index[x.source]]
        if along_lanes:
            return e.vload(buffer, at, lanes)
        return e.splat(e.load(buffer, index(at)), lanes)


def _call(e: Emitter, x: Any, arguments: Sequence[Any], lanes: int) -> Any:
    """A call of an elementary function."""
    name = str(x.op.name)
    if name == "tirx.isnan":
        return is_nan(e, arguments[0], lanes)
    if name == "tirx.pow":
        exponent = float(x.args[1].value) if type(x.args[1]).__name__ == "FloatImm" else None
        return power(e, arguments[0], arguments[1], lanes, exponent)
    return elementary(e, name, arguments[0], lanes)
