"""A GPU kernel in the making: its code, and how the tensors of a fused group are read and written."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tvm.tirx import Buffer

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Operand, RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.gpu.code import Code
from edgepack.compiler.kernels.gpu.expressions import Environment, Evaluator, flat_position
from edgepack.compiler.kernels.gpu.nests import Nests

__all__ = ["Kernel", "initial_value"]


class Kernel:
    """One kernel of a fused group.

    Args:
        fused: the group, and ``nests`` what it is cut into.
        most_parameters: pointers that a kernel can have on the GPU.
        half: float32 tensors whose elements are float16 in memory.

    Attributes:
        code: its text.
        evaluator: writes expressions into it.
    """

    def __init__(
        self, fused: FusedGroup, nests: Nests, most_parameters: int, half: Collection[Buffer] = ()
    ) -> None:
        params = list(fused.function.params)
        first = len(params) - fused.outputs
        self._operands = {
            **{b: Operand("param", i) for i, b in enumerate(params[:first])},
            **{b: Operand("output", i) for i, b in enumerate(params[first:])},
            **{b: Operand("temp", i) for i, b in enumerate(nests.temps)},
        }
        self._half = half
        self.code = Code(most_parameters)
        self.evaluator = Evaluator(self.code, self._operands.get, self._stored, nests.inlined)

    def _stored(self, buffer: Buffer) -> str:
        """The dtype of a tensor's elements in memory."""
        return "float16" if buffer in self._half else str(buffer.dtype)

    def store(self, block: Block, env: Environment, value: str | None = None) -> None:
        """Writes an element of a block's result: what it computes, or the given value."""
        buffer: Buffer = block.target
        text = value if value is not None else self.evaluator.value(block.value, env)
        shape = tuple(int(d) for d in buffer.shape)
        at = flat_position([self.evaluator.position(i, env) for i in block.indices], shape)
        dtype = self._stored(buffer)
        name = self.code.parameter(self._operands[buffer], dtype, written=True)
        half = dtype == "float16"
        self.code.line(f"STORE_HALF({name}, {at}, {text});" if half else f"{name}[{at}] = {text};")


def initial_value(block: Block, evaluator: Evaluator) -> Any:
    """What a reduction starts from. RuleError where that is not known."""
    if block.init is None:
        raise RuleError(f"block {block.name!r} has no initial value")
    return evaluator.value(block.init, {})
