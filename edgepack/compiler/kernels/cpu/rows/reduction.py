"""A reduction block of a fused function: what it reduces, along which axes, and how results are combined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm.ir import Expr, TensorLoad
from tvm.tirx import Var

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.arithmetic import Arithmetic
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.cpu.emit.value import Value
from edgepack.compiler.kernels.expressions.nodes import operation_of
from edgepack.compiler.kernels.expressions.operations import Operation

__all__ = ["Reduction", "is_among"]


#: What a sum and a product start from.
_NEUTRAL = {"add": 0, "mul": 1}


def is_among(variable: Expr, variables: Sequence[Expr]) -> bool:
    """Whether a TIR node is one of these, by identity."""
    return any(variable.same_as(v) for v in variables)


@dataclass(frozen=True)
class Reduction:
    """A sum, product, maximum or minimum.

    Attributes:
        block: that accumulates it.
        combine: the operation "add", "mul", "max" or "min".
        value: what is accumulated.
        identity: what the accumulator starts from.
    """

    block: Block
    combine: Operation
    value: Expr
    identity: float

    @classmethod
    def of(cls, block: Block) -> Reduction:
        """The reduction that a block computes. RuleError if it is none of these."""
        value = block.value
        combine = operation_of(value)
        if combine.name not in {"add", "mul", "max", "min"} or block.init is None:
            raise RuleError(f"{block.name} is not a sum, product, maximum or minimum")
        for accumulator, other in ((value.a, value.b), (value.b, value.a)):
            if isinstance(accumulator, TensorLoad) and accumulator.source.same_as(block.target):
                init = getattr(block.init, "value", None)
                if init is None or init != _NEUTRAL.get(combine.name, init):
                    raise RuleError(f"{block.name} does not start from the identity")
                return cls(block, combine, other, init)
        raise RuleError(f"{block.name} does not accumulate")

    @property
    def dtype(self) -> str:
        return str(self.block.target.dtype)

    @property
    def spatial(self) -> list[Var]:
        """The iteration variables that are not reduced."""
        return [v for v in self.block.iters if not is_among(v, self.block.reductions)]

    def axes(self) -> list[tuple[Var, int]]:
        """The reduced iteration variables and their extents."""
        pairs = zip(self.block.iters, self.block.extents, strict=True)
        return [(v, n) for v, n in pairs if is_among(v, self.block.reductions)]

    def combined(self, e: Emitter, a: Expr, b: Expr) -> Expr:
        """Two partial results as one."""
        values = [Value(x, e.lanes, self.dtype) for x in (a, b)]
        return Arithmetic(e).operated(self.combine, values, self.dtype).expr
