"""Evaluate the elementwise tail of a fused function on vectors, at the point where a tile is stored.

The tail is read from the fused TIR itself, so every elementwise operator that TVM can fuse behind an anchor
(bias, residual, clip, SiLU, hardswish, GELU, ...) is served by the same code. What joins it from the side (a
residual that is scaled or normalised first) is a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.arithmetic import DTYPES, Arithmetic, calls_libm, vector_form
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.compiler.kernels.cpu.emit.narrowed import widened
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.cpu.emit.value import Value
from edgepack.compiler.kernels.cpu.emit.values import storage_dtype
from edgepack.compiler.kernels.expressions.nodes import Node, dtype_of, table_position
from edgepack.compiler.kernels.expressions.visitor import Visitor

__all__ = ["Epilogue"]


class Epilogue:
    """The blocks behind an anchor's block, and those that they read beside it.

    Args:
        blocks: they, in order; each has the anchor's output shape and reads its predecessors at its own
            position.
        anchor: the buffer that the anchor writes.
        params: the group's parameter buffers.

    Attributes:
        params: indices of the group's parameters that the tail reads, in order of first use, and ``tables``
            those of them in which bytes look something up.

    Raises:
        RuleError: if a block is not elementwise, or uses what has no vector form.
    """

    def __init__(self, blocks: Sequence[Block], anchor: Any, params: Sequence[Any]) -> None:
        self.blocks = tuple(blocks)
        self.anchor = anchor
        self.shape = tuple(int(d) for d in anchor.shape)
        self._computed = {anchor, *(block.target for block in blocks)}
        self._params = tuple(params)
        self._param_index = {param: i for i, param in enumerate(params)}
        self.params: list[int] = []
        self.tables: set[int] = set()
        self._elsewhere: set[int] = set()
        check = _Check(self)
        for block in self.blocks:
            check.block(block)

    @property
    def dense(self) -> tuple[int, ...]:
        """The parameters of the output's shape that are read at the position of the output only."""
        return tuple(p for p in self.params if p not in self._elsewhere)

    @property
    def target(self) -> Any:
        """The buffer that the tile's store writes: the last block's, or the anchor's own."""
        return self.blocks[-1].target if self.blocks else self.anchor

    def computes(self, buffer: Any) -> bool:
        """Whether a buffer is the anchor's, or written by a block."""
        return buffer in self._computed

    def read_table(self, x: Any, block: Block) -> None:
        """Takes note of a table of bytes that a block looks elements up in. RuleError if it is computed."""
        param = self._param_index.get(x.source)
        if param is None:
            raise RuleError(f"{block.name} looks up in a table that is computed")
        if param not in self.params:
            self.params.append(param)
        self._elsewhere.add(param)
        self.tables.add(param)

    def read_param(self, x: Any, block: Block) -> None:
        """Takes note of a parameter that a block loads. RuleError for another buffer or another position."""
        param = self._param_index.get(x.source)
        if param is None:
            raise RuleError(f"{block.name} reads a buffer that is computed elsewhere")
        for i in x.indices:
            if not (isinstance(i, tirx.IntImm) or any(i.same_as(v) for v in block.iters)):
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
        views: Mapping[int, tuple[Any, Any]] | None = None,
        *,
        saturates: bool = False,
    ) -> Any:
        """The stored value.

        Args:
            value: the anchor's value: a vector of ``lanes`` elements along the last dimension.
            position: index of the first of them, for each dimension.
            pointers: for each of :attr:`params`, the kernel's flat buffer.
            views: for parameters of :attr:`dense`, a buffer and the index in it of this position, which
                replace ``pointers`` (constant indices into a buffer that starts at the tile cost no
                arithmetic).
            saturates: bytes are returned as int32, which the caller narrows with saturation.
        """
        tail = _Tail(e, lanes, position, {self._params[p]: buffer for p, buffer in pointers.items()})
        tail.values[self.anchor] = Value(value, lanes, str(self.anchor.dtype))
        for param, (buffer, at) in (views or {}).items():
            source = self._params[param]
            tail.values[source] = tail.loaded(e.vload(buffer, at, lanes), lanes, str(source.dtype))
        for block in self.blocks:
            stored = tail.visit(block.value, block)
            # TVM's analyser has no vectors of truth values, so these get no name.
            if stored.dtype != "bool":
                stored = replace(stored, expr=e.let(tail.expr(stored, lanes)), lanes=lanes)
            tail.values[block.target] = stored
        found = tail.values[self.target]
        return tail.expr(tail.unbounded(found) if saturates else found, lanes)


class _Check(Visitor[Block, None]):
    """Refuses what is not elementwise, or has no vector form, and notes which parameters are read."""

    def __init__(self, epilogue: Epilogue) -> None:
        self.epilogue = epilogue

    def block(self, block: Block) -> None:
        if block.reductions or block.extents != self.epilogue.shape:
            raise RuleError(f"{block.name} is not elementwise over the anchor's output")
        if not all(i.same_as(v) for i, v in zip(block.indices, block.iters, strict=True)):
            raise RuleError(f"{block.name} does not write its own position")
        self.visit(block.value, block)

    def visit_constant(self, node: Node, block: Block) -> None:
        pass

    def visit_load(self, node: Node, block: Block) -> None:
        byte = table_position(node)
        if byte is not None:
            self.epilogue.read_table(node.expr, block)
            self.visit(byte, block)
        elif not self.epilogue.computes(node.expr.source):
            self.epilogue.read_param(node.expr, block)
        elif not all(i.same_as(v) for i, v in zip(node.operands, block.iters, strict=True)):
            raise RuleError(f"{block.name} reads another position than its own")

    def visit_cast(self, node: Node, block: Block) -> None:
        if not {node.dtype, dtype_of(node.operands[0])} <= DTYPES:
            self.visit_other(node, block)
        self.operands(node, block)

    def visit_select(self, node: Node, block: Block) -> None:
        self.operands(node, block)

    def visit_logical(self, node: Node, block: Block) -> None:
        self.operands(node, block)

    def visit_operation(self, node: Node, block: Block) -> None:
        name, dtype = node.operation.name, dtype_of(node.operands[0])
        if calls_libm(name, dtype):  # and a call takes all vector registers
            self.visit_other(node, block)
        try:
            vector_form(node.operation, dtype)
        except RuleError:
            self.visit_other(node, block)
        self.operands(node, block)

    def visit_other(self, node: Node, block: Block) -> None:
        raise RuleError(f"{block.name} uses {node.operation.name}, which has no vector form here")


class _Tail(Visitor[Block, Value], Arithmetic):
    """Evaluates blocks at one position of a tile.

    Attributes:
        position: index of the first element, for each dimension.
        buffers: the kernel's flat buffers of the parameters.
        values: of buffers at this position, so far.
    """

    def __init__(self, e: Emitter, lanes: int, position: Sequence[Any], buffers: Mapping[Any, Any]) -> None:
        super().__init__(e)
        self.lanes, self.position, self.buffers = lanes, position, buffers
        self.values: dict[Any, Value] = {}

    def visit_constant(self, node: Node, block: Block) -> Value:
        return self.literal(node.expr)

    def visit_load(self, node: Node, block: Block) -> Value:
        source = node.expr.source
        byte = table_position(node)
        if byte is not None:
            return self.looked_up(self.buffers[source], self.visit(byte, block))
        if source not in self.values:
            place = (source, *map(str, node.expr.indices))
            return self.loaded(self._load(node.expr, block), self.lanes, str(source.dtype), place)
        return self.values[source]

    def visit_cast(self, node: Node, block: Block) -> Value:
        return self.cast(self.visit(node.operands[0], block), node.dtype)

    def visit_select(self, node: Node, block: Block) -> Value:
        condition, yes, no = (self.expr(v, self.lanes) for v in self.operands(node, block))
        return Value(tirx.Select(condition, yes, no), self.lanes, node.dtype)

    def visit_logical(self, node: Node, block: Block) -> Value:
        return self.visit_operation(node, block)

    def visit_operation(self, node: Node, block: Block) -> Value:
        return self.operated(node.operation, self.operands(node, block), node.dtype)

    def _load(self, x: Any, block: Block) -> Any:
        """A parameter at this position: a vector along the last dimension, or one element for all lanes."""
        at: Any = 0
        along_lanes = False
        for dim, i in zip(x.source.shape, x.indices, strict=True):
            at = at * int(dim)
            if isinstance(i, tirx.IntImm):
                at = at + int(i)
                continue
            axis = next(n for n, v in enumerate(block.iters) if i.same_as(v))
            along_lanes = along_lanes or axis == len(block.iters) - 1
            at = self.position[axis] + at
        buffer, dtype = self.buffers[x.source], str(x.source.dtype)
        narrow = str(buffer.dtype) != storage_dtype(dtype)

        def load(place: Any, lanes: int) -> Any:
            return widened(self.e, buffer, place, lanes) if narrow else self.e.vload(buffer, place, lanes)

        return load(at, self.lanes) if along_lanes else self.e.splat(load(index(at), 1), self.lanes)
