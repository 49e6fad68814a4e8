"""Isolate bytes that are added to what another convolution computes: they lie in memory as bytes.

Where a block's shortcut is a convolution (a projection), an addition has two of them behind it, each with a
tail that rounds its sums to bytes and then takes these times their scale. TVM fuses the addition with one of
the two, and all that is before it with the other, which would write four times as many bytes and leave the
first to read them. A view ends a group, so the pass puts two that cancel each other behind the bytes: what
widens them is computed where they are added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.integer_operands import BYTES
from edgepack.compiler.graph.legalize import ANCHOR
from edgepack.compiler.graph.rewrite import Rewriter, dtype_of, op_name, readers, shape_of

__all__ = ["isolate_added_bytes"]

#: The largest TVM pattern of an operator that computes each element from elements at its own position.
BROADCAST = 1


@dataclass(frozen=True)
class _Tail:
    """What elementwise operators make of an anchor's result.

    Attributes:
        anchor: the number of its binding.
        narrow: the last of their results that is of bytes; None where none is.
    """

    anchor: int
    narrow: relax.Var | None = None


def _calls(module: IRModule) -> Iterator[tuple[relax.Var, relax.Call]]:
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            if op_name(call) == "relax.call_tir" and isinstance(call.ty, relax.TensorType):
                yield binding.var, call


def _to_isolate(module: IRModule) -> set[relax.Var]:
    """Bytes that only a tail widens which ends in an operator that another anchor's tail has too."""
    read_by, tails, found = readers(module), dict[relax.Expr, _Tail](), set[relax.Var]()
    for number, (result, call) in enumerate(_calls(module)):
        attrs = module[call.args[0]].attrs or {}
        if ANCHOR in attrs:
            tails[result] = _Tail(number)
            continue
        if int(attrs.get("op_pattern", BROADCAST + 1)) > BROADCAST:
            continue
        size = prod(shape_of(call))
        before = [
            tails[operand]
            for operand in call.args[1].fields
            if operand in tails and len(read_by[operand]) == 1 and prod(shape_of(operand)) == size
        ]
        if len(before) == 2 and before[0].anchor != before[1].anchor:
            # TVM goes on from the first anchor.
            first, last = sorted(before, key=lambda tail: tail.anchor)
            if last.narrow is None:
                continue
            found.add(last.narrow)
            before = [first]
        if len(before) == 1:
            (tail,) = before
            tails[result] = _Tail(tail.anchor, result if dtype_of(call) in BYTES else tail.narrow)
    return found


class _IsolateAddedBytes(Rewriter):
    def __init__(self, module: IRModule, bytes_: set[relax.Var]) -> None:
        super().__init__(module)
        self.bytes = bytes_

    def visit_binding(self, binding: relax.Binding) -> None:
        super().visit_binding(binding)
        if binding.var in self.bytes:
            self.bind(binding.var, self.isolated(self.env[binding.var]))


def isolate_added_bytes(module: IRModule) -> IRModule:
    """Ends fused groups behind bytes that are added to what another anchor's group computes.

    Args:
        module: legalised, with TVM's operator patterns annotated (``AnnotateTIROpPattern``).
    """
    found = _to_isolate(module)
    return _IsolateAddedBytes(module, found).run() if found else module
