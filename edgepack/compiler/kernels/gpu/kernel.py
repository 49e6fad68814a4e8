"""A GPU kernel in the making: its code, and how the tensors of a fused group are read and written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.tirx import Buffer

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Operand, RuleError
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.gpu.code import Code
from edgepack.compiler.kernels.gpu.contract import FULL, HalfOperands
from edgepack.compiler.kernels.gpu.expressions import Environment, Evaluator, flat_position, unravelled
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest, LoopNests
from edgepack.compiler.kernels.gpu.matrix_product import MatrixProduct, variables_of

__all__ = ["Kernel", "initial_value"]


class Kernel:
    """One kernel of a fused group.

    Args:
        fused: the group, and ``nests`` what it is cut into.
        most_parameters: pointers that a kernel can have on the GPU.
        half: what of the group is float16 in memory.

    Attributes:
        code: its text.
        evaluator: writes expressions into it.
        rounds: whether values on the way to a result may be rounded to float16.
        tf32: whether the operands of products may be rounded to TF32.
    """

    def __init__(
        self,
        fused: FusedGroup,
        nests: LoopNests,
        most_parameters: int,
        half: HalfOperands = FULL,
    ) -> None:
        self._made_of = (fused, nests, most_parameters, half)
        #: The tensor of partial sums, behind what lies between nests.
        self.partial = Operand("temp", len(nests.temps))
        params = list(fused.function.params)
        first = len(params) - fused.outputs
        self._operands = {
            **{b: Operand("param", i) for i, b in enumerate(params[:first])},
            **{b: Operand("output", i) for i, b in enumerate(params[first:])},
            **{b: Operand("temp", i) for i, b in enumerate(nests.temps)},
        }
        self.rounds = half.temps
        self.tf32 = half.tf32
        self._constants = {params[i]: i for i in half.constants}
        self._half = {params[i] for i in half.params}
        if half.temps:
            self._half.update(n.result.target for n in nests.nests if n.is_temp(nests.temps))
        self.code = Code(most_parameters)
        self.evaluator = Evaluator(self.code, self._operands.get, self.stored, nests.inlined)

    def another(self) -> Kernel:
        """An empty kernel of the same group."""
        return Kernel(*self._made_of)

    def constant(self, buffer: Buffer) -> int | None:
        """The index of the parameter that is a constant; None for another tensor."""
        return self._constants.get(buffer)

    def stored(self, buffer: Buffer) -> str:
        """The dtype of a tensor's elements in memory."""
        return "float16" if buffer in self._half else str(buffer.dtype)

    def store(self, block: Block, env: Environment, value: str | None = None) -> None:
        """Writes an element of a block's result: what it computes, or the given value."""
        text = value if value is not None else self.evaluator.value(block.value, env)
        name, at = self._place(block, env)
        half = self.stored(block.target) == "float16"
        self.code.line(f"STORE_HALF({name}, {at}, {text});" if half else f"{name}[{at}] = {text};")

    def _place(self, block: Block, env: Environment) -> tuple[str, str]:
        """The pointer to a block's result, and the position of an element."""
        buffer: Buffer = block.target
        shape = tuple(int(d) for d in buffer.shape)
        at = flat_position([self.evaluator.position(i, env) for i in block.indices], shape)
        return self.code.parameter(self._operands[buffer], self.stored(buffer), written=True), at

    def store_product(self, nest: LoopNest, product: MatrixProduct, value: str) -> None:
        """Writes an element of a matrix product, at the row ``m``, the column ``n`` and the ``batch``, with
        what stands behind it.

        Args:
            value: the sum's text.
        """
        env, given = self._of_product(nest, product, value)
        self.store(nest.result, env, given)

    def columns_together(self, nest: LoopNest, product: MatrixProduct, count: int) -> bool:
        """Whether ``count`` neighbouring columns of a product, from a multiple of that on, lie together in
        the result, as float32."""
        block, result = nest.reduction, nest.result
        if block is None or not product.order["n"] or self.stored(result.target) != "float32":
            return False
        column, extent = product.order["n"][-1]
        column = next((v for v, split in product.splits.items() if split.member.same_as(column)), column)
        pairs = zip(LoopNest(block).spatial[0], nest.spatial[0], strict=True)
        outer = next((o for i, o in pairs if i.same_as(column)), None)
        *others, last = result.indices
        if outer is None or not last.same_as(outer) or any(outer in variables_of(x) for x in others):
            return False
        return extent % count == 0 and int(result.target.shape[-1]) % count == 0

    def store_columns(self, nest: LoopNest, product: MatrixProduct, values: Sequence[str]) -> None:
        """As ``store_product``, the columns from ``n`` on at once: 2 or 4 of which ``columns_together`` says
        that they lie so."""
        code, evaluator = self.code, self.evaluator
        vector = f"float{len(values)}"
        code.line(f"{vector} together;")
        code.line("const int n_first = n;")
        for number, value in enumerate(values):
            with code.block(""), evaluator.fresh():
                code.line(f"const int n = n_first + {number};")
                env, given = self._of_product(nest, product, value)
                text = given if given is not None else evaluator.value(nest.result.value, env)
                code.line(f"together.{'xyzw'[number]} = {text};")
        with evaluator.fresh():
            env, _ = self._of_product(nest, product, values[0])
            name, at = self._place(nest.result, env)
            code.line(f"*(GLOBAL {vector} *)({name} + {at}) = together;")

    def _of_product(
        self, nest: LoopNest, product: MatrixProduct, value: str
    ) -> tuple[Environment, str | None]:
        """The position of the element at ``m``, ``n`` and ``batch``, and its text if nothing stands behind
        the product, whose sum is ``value``."""
        block = nest.reduction
        assert block is not None
        position = {}
        for name, text in (("m", "m"), ("n", "n"), ("b", "batch")):
            pairs = product.order[name]
            texts = unravelled(self.code, text, tuple(size for _, size in pairs))
            position.update({v: at for (v, _), at in zip(pairs, texts, strict=True)})
        for variable, split in product.splits.items():
            group, member = (position.get(part, "0") for part, _ in split.pairs)
            position[variable] = self.code.let("int", f"{group} * {split.size} + {member}", "i")
        inner, outer = LoopNest(block).spatial[0], nest.spatial[0]
        env = {o: position.get(v, "0") for v, o in zip(inner, outer, strict=True)}
        self.evaluator.given[block.target] = value
        return env, value if nest.result is block else None


def initial_value(block: Block, evaluator: Evaluator) -> Any:
    """What a reduction starts from. RuleError where that is not known."""
    if block.init is None:
        raise RuleError(f"block {block.name!r} has no initial value")
    return evaluator.value(block.init, {})
