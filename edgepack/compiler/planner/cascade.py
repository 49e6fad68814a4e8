"""Calls that become one: their kernels compute some rows at a time, so that windows of rows lie between them
instead of whole tensors (:mod:`edgepack.plan.cascade`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from edgepack.compiler.kernels.contract import Implementation, Operand, Packing, RowWindow, Stage
from edgepack.compiler.planner.arena import aligned
from edgepack.compiler.planner.program import Call, Value
from edgepack.compiler.planner.select import KernelSelector
from edgepack.plan.cascade import Cascade, CascadeLayer, CascadeRead
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["RowCall", "by_rows", "cascade_of", "merged", "reads_rows", "window_bytes"]


@dataclass(frozen=True)
class RowCall:
    """A call whose kernel has as many tasks for each row of its result.

    Attributes:
        call: with that kernel.
        shape: of the result, (1, height, width, channels), and ``row_bytes`` the size of a row.
        windows: the rows of each parameter of which that is known.
    """

    call: Call
    shape: tuple[int, ...]
    row_bytes: int
    windows: tuple[RowWindow, ...]

    @property
    def rows(self) -> int:
        """Of the result."""
        return self.shape[1]

    @property
    def implementation(self) -> Implementation:
        """Of the call."""
        assert self.call.implementation is not None
        return self.call.implementation


def by_rows(call: Call, selector: KernelSelector) -> RowCall | None:
    """The call with a kernel by rows; None where there is none, or where it computes no image of rows."""
    if call.gpu is not None or call.first is not None or call.prefetch is not None or len(call.results) != 1:
        return None
    (result,) = call.results
    output = call.fused.function.params[-1]
    shape = tuple(int(d) for d in output.shape)
    row_bytes = prod(shape[2:]) * DTYPE_BYTES[str(output.dtype)]
    if len(shape) != 4 or shape[0] != 1 or shape[1] < 2 or result.nbytes != shape[1] * row_bytes:
        return None
    if call.fused.row_stride is not None or result.offset:
        return None
    made = replace(call, fused=replace(call.fused, by_rows=True), implementation=None, symbols=())
    if not selector.try_select(made):
        return None
    implementation = made.implementation
    if implementation is None or implementation.rows is None or implementation.temps:
        return None
    one = len(implementation.stages) == 1 and implementation.stages[0].tasks % shape[1] == 0
    return RowCall(made, shape, row_bytes, implementation.rows) if one else None


def reads_rows(reader: RowCall, maker: RowCall) -> bool:
    """Whether all that a call reads of another one's result are rows, which are known, of the image that this
    is."""
    (result,) = maker.call.results
    known = {window.param for window in reader.windows}
    params = reader.call.fused.function.params
    return all(
        i in known and tuple(int(d) for d in params[i].shape) == maker.shape
        for i, value in enumerate(reader.call.arguments)
        if value is result
    )


def cascade_of(calls: Sequence[RowCall], step: int, alignment: int) -> Cascade:
    """The cascade of calls, but for the pointers of its kernels.

    Args:
        step: rows of a result that are computed at a time.
        alignment: of windows, in bytes.
    """
    numbers = _numbers(calls)
    reads = tuple(
        CascadeRead(numbers[id(value)], reader, window.size, window.stride, window.pad)
        for reader, one in enumerate(calls)
        for window in one.windows
        if id(value := one.call.arguments[window.param]) in numbers
    )
    layers = tuple(
        CascadeLayer(
            one.call.symbols[0], (), one.rows, one.row_bytes, one.implementation.stages[0].tasks // one.rows
        )
        for one in calls
    )
    cascade = Cascade(layers, reads, step)
    at, placed = 0, []
    for layer, window in zip(layers, cascade.windows(), strict=True):
        placed.append(replace(layer, window=window, offset=at if window else 0))
        at += aligned(window * layer.row_bytes, alignment)
    return replace(cascade, layers=tuple(placed))


def merged(calls: Sequence[RowCall], cascade: Cascade, selector: KernelSelector) -> Call:
    """One call that computes the last result.

    Args:
        cascade: what :func:`cascade_of` made of the calls.
    """
    return _Merge(calls, cascade).call(selector)


def window_bytes(cascade: Cascade) -> int:
    """Of all windows together."""
    return max(layer.offset + layer.window * layer.row_bytes for layer in cascade.layers)


def _numbers(calls: Sequence[RowCall]) -> dict[int, int]:
    """The number of the call that computes a value, by the value's ``id``."""
    return {id(one.call.results[0]): number for number, one in enumerate(calls)}


class _Merge:
    """Numbers the operands of several kernels as those of one."""

    def __init__(self, calls: Sequence[RowCall], cascade: Cascade) -> None:
        self.calls, self.cascade = calls, cascade
        self.numbers = _numbers(calls)
        self.arguments: list[Value] = []
        self.packed: list[Packing] = []
        self.scratch: list[int] = []
        self.operands: list[Operand] = [Operand("temp", 0)]

    def call(self, selector: KernelSelector) -> Call:
        """The call, with its kernel."""
        calls, last = self.calls, self.calls[-1].call
        layers = tuple(map(self._layer, range(len(calls))))
        kernels = [selector.kernels[layer.kernel] for layer in layers]
        cascade = replace(self.cascade, layers=layers)
        implementation = Implementation(
            "cascade",
            (Stage(last.fused.function, 1, tuple(self.operands)),),
            tuple(self.packed),
            (window_bytes(self.cascade),),
            scratch=tuple(self.scratch),
            parameters={
                "layers": len(layers),
                "rows": cascade.step,
                "moved": cascade.moved(),
            },
            flops=sum(kernel.flops for kernel in kernels),
            cascade=cascade,
        )
        operators = tuple(operator for one in calls for operator in one.call.fused.operators)
        symbols = selector.add(implementation, operators, sum(kernel.bytes_moved for kernel in kernels))
        nodes = tuple(sorted({node for one in calls for node in one.call.nodes}))
        return Call(last.fused, self.arguments, last.results, implementation, symbols, nodes)

    def _layer(self, number: int) -> CascadeLayer:
        operands = self.calls[number].implementation.stages[0].operands
        pointers = tuple(self._pointer(number, operand) for operand in operands)
        return replace(self.cascade.layers[number], pointers=pointers)

    def _pointer(self, number: int, operand: Operand) -> int:
        """What a pointer of a layer's kernel is, see :attr:`CascadeLayer.pointers`."""
        one = self.calls[number]
        match operand.kind:
            case "param":
                value = one.call.arguments[operand.index]
                if id(value) in self.numbers:
                    assert not operand.offset
                    return -1 - self.numbers[id(value)]
                own = replace(operand, index=self._argument(value))
                if operand.beside:
                    other, least = operand.beside
                    own = replace(own, beside=(self._argument(one.call.arguments[other]), least))
                return self._own(own)
            case "output":
                if number < len(self.calls) - 1:
                    return -1 - number
                return self._own(operand)
            case "packed":
                packing = one.implementation.packed[operand.index]
                packing = replace(packing, param=self._argument(one.call.arguments[packing.param]))
                self.packed.append(packing)
                return self._own(Operand("packed", len(self.packed) - 1))
            case "scratch":
                nbytes = one.implementation.scratch[operand.index]
                self.scratch += [0] * (operand.index + 1 - len(self.scratch))
                self.scratch[operand.index] = max(self.scratch[operand.index], nbytes)
                return self._own(operand)
            case _:
                raise AssertionError(operand.kind)

    def _argument(self, value: Value) -> int:
        """The index of a value among the arguments."""
        for index, known in enumerate(self.arguments):
            if known is value:
                return index
        self.arguments.append(value)
        return len(self.arguments) - 1

    def _own(self, operand: Operand) -> int:
        """The index of the cascade's pointer that is this operand."""
        if operand not in self.operands:
            self.operands.append(operand)
        return self.operands.index(operand)
