"""What a plan computes in float32 on a CPU that has no instruction for it: each operation is a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tvm.tirx import PrimFunc

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import blocks_of
from edgepack.compiler.kernels.expressions.nodes import Node, dtype_of
from edgepack.compiler.kernels.expressions.visitor import Visitor
from edgepack.compiler.planner.program import Call
from edgepack.errors import ModelError
from edgepack.plan.target import CpuTarget

__all__ = ["FloatWork", "describe_float_calls", "float_work", "operations_of"]

#: Kinds of anchors that multiply tensors.
PRODUCTS = frozenset({"conv1d", "conv2d", "conv3d", "matmul", "attention", "recurrent"})

#: Functions that round, and the operations that each is: a large number is added and subtracted.
ROUNDING, ROUNDED = frozenset({"nearbyint", "round", "rint", "floor", "ceil", "trunc"}), 2

#: Instructions of a run below which nobody waits for them, some milliseconds; and from which on products are
#: refused where the device says so.
UNNOTICED, REFUSED = 100_000, 1_000_000


@dataclass(frozen=True)
class FloatWork:
    """Operations on floats of one run.

    Attributes:
        products: those of convolutions, matrix products and the like, a multiply-add counted as two.
        others: all others.
    """

    products: int = 0
    others: int = 0

    @property
    def count(self) -> int:
        """All of them."""
        return self.products + self.others


def operations_of(function: PrimFunc) -> int:
    """Operations on floats of a fused function, each element of each block computed once."""
    try:
        blocks = blocks_of(function)
    except RuleError:  # another form: some operations for each element
        floats = [b for b in function.params if str(b.dtype).startswith("float")]
        return sum(prod(int(d) for d in b.shape) for b in floats)
    return sum(prod(b.extents) * _Floats().visit(b.value, None) for b in blocks)


def describe_float_calls(work: FloatWork, target: CpuTarget) -> str:
    """What operations on floats cost, in a sentence; "" where they are few.

    Raises:
        ModelError: the model multiplies tensors of floats, they are not few, and the device has these
            refused.
    """
    count, each = work.count, target.float_call_instructions
    if work.products and not target.soft_float and count * each >= REFUSED:
        raise ModelError(
            f"The model multiplies tensors of float32, and this CPU has no FPU: a run would make about "
            f"{_count(count)} calls of the compiler's library, of some {each} instructions each: "
            f"{_count(count * each)} in all.",
            hint="Quantise it: an ONNX file by `edgepack quantize MODEL --calibrate FOLDER`, a .tflite file "
            "by TFLite's converter, to int8. To pack it all the same, take a device file that extends this "
            "device and says `cpu: {soft_float: true}`.",
        )
    if count * each < UNNOTICED:
        return ""
    otherwise = "" if work.products else "; a .tflite file of int8 is computed by integers alone"
    return (
        f"this CPU has no FPU: a run computes with float32 about {_count(count)} times, each a call of some "
        f"{each} instructions, {_count(count * each)} in all{otherwise}"
    )


def float_work(calls: Sequence[Call], target: CpuTarget) -> FloatWork:
    """What a plan computes with floats; nothing where the CPU has instructions for them."""
    products = others = 0
    if target.computes_floats:
        return FloatWork()
    for call in calls:
        for group in call.fused_groups:
            count = operations_of(group.function)
            if count and group.anchor is not None and group.anchor.kind in PRODUCTS and _of_floats(call):
                products += count
            else:
                others += count
    return FloatWork(products, others)


def _of_floats(call: Call) -> bool:
    """Whether the anchor of a call reads floats, of which a quantised product has only what follows it."""
    for group in call.fused_groups:
        anchor = group.anchor
        read = [group.function.params[i] for i in anchor.operands if i is not None] if anchor else []
        if any(str(buffer.dtype).startswith("float") for buffer in read):
            return True
    return False


def _count(number: int) -> str:
    """A number with two digits that count: 5.3 million."""
    for unit, name in ((10**9, " billion"), (10**6, " million"), (10**3, ",000")):
        if number >= unit:
            value = number / unit
            return f"{value:.0f}{name}" if value >= 10 or name == ",000" else f"{value:.1f}{name}"
    return str(number)


class _Floats(Visitor[None, int]):
    """Counts the operations on floats of one element; positions count nothing."""

    def visit_load(self, node: Node, context: None) -> int:
        return 0

    def visit_constant(self, node: Node, context: None) -> int:
        return 0

    def visit_variable(self, node: Node, context: None) -> int:
        return 0

    def visit_select(self, node: Node, context: None) -> int:
        return sum(self.operands(node, context))

    def visit_operation(self, node: Node, context: None) -> int:
        dtypes = (node.dtype, *map(dtype_of, node.operands))
        cost = ROUNDED if node.operation.name in ROUNDING else node.operation.cost
        own = cost if any(dtype.startswith("float") for dtype in dtypes) else 0
        return own + sum(self.operands(node, context))

    def visit_other(self, node: Node, context: None) -> int:
        return 0
