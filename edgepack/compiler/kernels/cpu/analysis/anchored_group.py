"""A fused group with an anchor, as kernel rules see it: the operator's tensors and its epilogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm.tirx import Buffer

from edgepack.compiler.graph.fused_group import Anchor, FusedGroup
from edgepack.compiler.kernels.contract import RowWindow, RuleError
from edgepack.compiler.kernels.cpu.analysis.as_2d import As2d
from edgepack.compiler.kernels.cpu.analysis.operands import declare_param, elements_of
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.epilogue import Epilogue
from edgepack.compiler.kernels.cpu.emit.narrowed import narrowed_param, word_params
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block, blocks_of, read_by
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["CONVOLUTIONS", "POOLINGS", "AnchoredGroup", "anchored"]

#: Operators that slide windows over images, and over what :class:`As2d` makes images of.
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
PRODUCTS = (*CONVOLUTIONS, "matmul")
POOLINGS = tuple(f"{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3))


@dataclass(frozen=True)
class AnchoredGroup:
    """A fused group whose anchor writes a tensor and whose other blocks are elementwise operators behind it,
    or beside it where one behind it reads what they compute.

    Attributes:
        anchor: the operator.
        params: the fused function's parameter buffers (without outputs).
        output_shape: shape of the anchor's output and of the fused group's; of a convolution or pooling as
            images, (N, H, W, C).
        epilogue: the operators behind it.
        products: types of the anchor's product, of a pooling or the like those of its elements: those by
            which it may be computed, the preferred ones first. The last are those of the operands as they
            lie in memory; by the others, micro-kernels pack or round them first.
        row_stride: elements from one row of the output to the next; more than the last dimension has where
            the output is part of a wider tensor.
        callers_params: those of ``params`` that lie in the caller's memory, and ``narrow_params`` those that
            are stored as narrower types, ``word_params`` those that share words, see :class:`FusedGroup`.
        by_rows: whether tasks are to be rows of the output, see :class:`FusedGroup`.
        as_2d: how the tensors of a convolution or pooling are images; None for other operators.
    """

    anchor: Anchor
    params: tuple[Buffer, ...]
    output_shape: tuple[int, ...]
    epilogue: Epilogue
    products: tuple[ProductTypes, ...]
    row_stride: int
    callers_params: frozenset[int] = frozenset()
    narrow_params: frozenset[tuple[int, str]] = frozenset()
    word_params: frozenset[tuple[int, int, int]] = frozenset()
    by_rows: bool = False
    as_2d: As2d | None = None

    @property
    def types(self) -> ProductTypes:
        """The types of the product of operands as they lie in memory."""
        return self.products[-1]

    @property
    def unrounded(self) -> tuple[ProductTypes, ...]:
        """The products whose left operand is multiplied as it lies in memory."""
        return tuple(types for types in self.products if types.left == self.types.left)

    @property
    def dtype(self) -> str:
        """Element type of what the anchor computes."""
        return self.types.sums

    @property
    def output_elements(self) -> int:
        """From the output's first element to its last, both included."""
        *outer, row = self.output_shape
        return (prod(outer) - 1) * self.row_stride + row

    def rows(self, size: int, stride: int, pad: int) -> tuple[RowWindow, ...] | None:
        """Which rows of its parameters a row of its output is made of; None where tasks are not to be rows.

        Args:
            size, stride, pad: of the anchor's window, down the image.
        """
        one = self.output_shape[0] == 1 and self.as_2d is not None and not self.as_2d.depth_window
        if not self.by_rows or not one or self.row_stride != self.output_shape[-1]:
            return None
        return (RowWindow(self.operand(0), size, stride, pad), *map(RowWindow, self.epilogue.dense))

    def operand_shape(self, operand: int) -> tuple[int, ...]:
        """Shape of the anchor's operand, in memory."""
        return tuple(int(d) for d in self.params[self.operand(operand)].shape)

    @property
    def image_shape(self) -> tuple[int, int, int, int]:
        """Shape of the first operand of a convolution or pooling, as images."""
        assert self.as_2d is not None
        return self.as_2d.shape(self.operand_shape(0))

    def stored(
        self,
        e: Emitter,
        value: Any,
        position: Sequence[Any],
        lanes: int,
        pointers: Mapping[int, Any],
        here: Mapping[int, tuple[Any, Any]] | None = None,
        *,
        saturates: bool = False,
    ) -> Any:
        """What is stored of the anchor's value: :meth:`Epilogue.apply`, at a position in the images."""
        if self.as_2d is not None and self.epilogue.params:
            position = self.as_2d.position(e, position)
        return self.epilogue.apply(e, value, position, lanes, pointers, here, saturates=saturates)

    def operand(self, operand: int) -> int:
        """Index of the fused function's parameter that is the anchor's operand. RuleError if none is."""
        param = self.anchor.operands[operand]
        if param is None:
            raise RuleError(f"operand {operand} is computed inside the group")
        return param

    def declare_operand(self, e: Emitter, operand: int, elements: int, unit: str) -> Buffer:
        """Declares the anchor's operand, of which a micro-kernel reads ``elements`` of type ``unit``.

        A unit of several elements is one aligned word of the arena's memory, and no more than so many
        elements of the caller's. RuleError if the operand is no parameter.
        """
        param = self.operand(operand)
        stored = str(self.params[param].dtype) if param in self.callers_params else ""
        return e.param(param, elements, unit, stored)

    def declare_epilogue(self, e: Emitter) -> dict[int, Buffer]:
        """Declares the parameters that the epilogue reads; returns the kernel's buffers by parameter."""
        narrow = dict(self.narrow_params)
        found: dict[int, Buffer] = {}
        for p, other, least in sorted(self.word_params):
            if {p, other} <= set(self.epilogue.params):
                found |= word_params(e, p, other, least, elements_of(self.params[p]))
        for p in self.epilogue.params:
            if p not in found:
                found[p] = (
                    narrowed_param(e, p, elements_of(self.params[p]), narrow[p])
                    if p in narrow
                    else declare_param(e, p, self.params[p])
                )
        return found


def anchored(fused: FusedGroup, kinds: Sequence[str]) -> AnchoredGroup:
    """The fused group as an anchor with an elementwise epilogue.

    The anchor's last block is its reduction, or what stands behind it for an average and a norm.

    Args:
        kinds: of the anchor, see :attr:`Anchor.kind`.

    Raises:
        RuleError: if it has another form.
    """
    if fused.anchor is None or fused.anchor.kind not in kinds:
        raise RuleError("another operator")
    buffers = tuple(fused.function.params)
    if fused.outputs != 1:
        raise RuleError("more than one output")
    params, result = buffers[:-1], buffers[-1]
    blocks = blocks_of(fused.function)
    index = _last_reduction(blocks)
    if fused.anchor.kind.startswith("avg_pool") or fused.anchor.kind == "group_norm":
        index += 1
    tail = [*_beside(blocks[:index], blocks[index + 1 :]), *blocks[index + 1 :]]
    epilogue = Epilogue(tail, blocks[index].target, params)
    if not epilogue.target.same_as(result):
        raise RuleError("the output is not the end of the elementwise tail")
    row_stride = fused.row_stride or epilogue.shape[-1]
    found = AnchoredGroup(
        fused.anchor,
        params,
        epilogue.shape,
        epilogue,
        _products(fused, str(epilogue.anchor.dtype), str(result.dtype)),
        row_stride,
        fused.callers_params,
        fused.narrow_params,
        fused.word_params,
        fused.by_rows,
    )
    if fused.anchor.kind in (*CONVOLUTIONS, *POOLINGS):
        as_2d = As2d.of(fused.anchor, found.operand_shape(0), epilogue.shape, _window(found))
        return replace(found, output_shape=as_2d.shape(epilogue.shape), as_2d=as_2d)
    return found


def _products(fused: FusedGroup, sums: str, result: str) -> tuple[ProductTypes, ...]:
    """The types of the anchor's product, see :attr:`AnchoredGroup.products`.

    Raises:
        RuleError: operands, sums and result have several types, and the sums are not wider than the operands:
            no micro-kernel computes that.
    """
    assert fused.anchor is not None
    operands = [i for i in fused.anchor.operands if i is not None]
    read = [str(fused.function.params[i].dtype) for i in operands]
    accumulated = bool(read) and DTYPE_BYTES[sums] > max(DTYPE_BYTES[dtype] for dtype in read)
    if not accumulated and (mixed := {sums, *read} - {result}):
        raise RuleError(f"{result} of {' and '.join(sorted(mixed))}")
    if fused.anchor.kind not in PRODUCTS:
        return (ProductTypes.of(sums),)
    left, right = (read * 2)[:2] if read else (sums, sums)
    found = [ProductTypes(left, right, sums, result)]
    if fused.anchor.operands[1] in fused.float16_params:
        found.insert(0, ProductTypes(left, "float16", sums, result))
    if fused.rounded_to:
        found.insert(0, ProductTypes(fused.rounded_to, fused.rounded_to, sums, result))
    return tuple(found)


def _window(found: AnchoredGroup) -> Sequence[int]:
    """Sizes of the window of a convolution or pooling."""
    pool = found.anchor.attributes.get("pool_size")
    return [int(n) for n in pool] if pool else found.operand_shape(1)[:-2]


def _beside(before: Sequence[Block], behind: Sequence[Block]) -> list[Block]:
    """The blocks before the anchor's that the blocks behind it read, directly or by way of another:
    what a residual goes through before it is added. In order."""
    wanted = {buffer for block in behind for buffer in read_by(block.value)}
    found: list[Block] = []
    for block in reversed(before):
        if block.target in wanted:
            found.append(block)
            wanted |= read_by(block.value)
    return found[::-1]


def _last_reduction(blocks: Sequence[Block]) -> int:
    """The last reduction; what stands before it (padding) the rule does itself."""
    reductions = [i for i, block in enumerate(blocks) if block.reductions]
    if not reductions:
        raise RuleError("the anchor has no reduction")
    return reductions[-1]
