"""A reduction as a convolution by 3x3 of stride 1, which Winograd's minimal filtering can compute.

It is recognised by what it computes, not by its operator's name: a sum over rows and columns of a window, and
over channels, in which the first operand depends on a window's position and a row (column) of the result by
their sum alone. Padding, on whatever sides, and what is computed where it is read are parts of that operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import sym, tirx
from tvm.tirx import IntImm, Var

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Array, Packing, RuleError
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import tile_side, transformed
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.expressions.nodes import name_of
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.loop_nests import expanded, substituted
from edgepack.compiler.kernels.gpu.matrix_product import (
    SELECTIONS,
    product_operands,
    selections_in,
    variables_of,
)

__all__ = ["Filtering", "filtering"]

#: Rows and columns of the window.
TAPS = 3


@dataclass(frozen=True)
class Filtering:
    """A convolution by 3x3.

    Attributes:
        block: the reduction.
        images: variables of the images, with their extents.
        row, column, output: variables of a result's row, column and channel.
        height, width, channels, outputs: of results, and channels of a group and of all results.
        groups: of channels.
        data: the first operand, of the images' variables and of :attr:`at`.
        at: by "row", "column", "channel" and "group": the variables of ``data``. Rows and columns are those
            of the padded image, of which there are two more than of the result.
        weights: the second operand: a load of the tensor of weights.
        axes: of the weights: rows, columns, channels, outputs.
    """

    block: Block
    images: tuple[tuple[Any, int], ...]
    row: Any
    column: Any
    output: Any
    height: int
    width: int
    channels: int
    outputs: int
    groups: int
    data: Any
    at: dict[str, Any]
    weights: Any
    axes: tuple[int, ...]

    def tiles(self, m: int) -> int:
        """Tiles of m x m of all images."""
        return prod(n for _, n in self.images) * -(-self.height // m) * -(-self.width // m)

    @property
    def pixels(self) -> int:
        """Pixels of the results of all images."""
        return prod(n for _, n in self.images) * self.height * self.width

    def packing(self, param: int, m: int, dtype: str) -> Packing:
        """The weights for tiles of m x m: [positions of a tile * groups][channels][outputs of a group]."""
        ones = tuple(axis for axis in range(len(self.weights.source.shape)) if axis not in self.axes)

        def transform(array: Array) -> Array:
            window = array.transpose(*ones, *self.axes).reshape(TAPS, TAPS, self.channels, self.outputs)
            u = transformed(window, m).reshape(tile_side(m) ** 2, self.channels, self.groups, -1)
            return np.ascontiguousarray(u.transpose(0, 2, 1, 3)).astype(dtype)

        return Packing(param, f"winograd{m} {dtype} {self.axes} {self.groups}", transform)


def filtering(fused: FusedGroup, kernel: Kernel, block: Block) -> Filtering:
    """A block as such a convolution. RuleError for another one."""
    sizes = dict(zip(block.iters, block.extents, strict=True))
    summed = [v for v in block.reductions if sizes[v] > 1]
    taps = [v for v in summed if sizes[v] == TAPS]
    if len(summed) != TAPS or len(taps) not in (2, 3):
        raise RuleError("no sum over a window of 3x3 and channels")
    data, weights = (expanded(x, kernel.evaluator.inlined) for x in product_operands(block))
    if name_of(weights) != "load" or selections_in(data) > SELECTIONS:
        raise RuleError("the weights, or what is convolved, are computed on the way")
    axes = {v: axis for axis, v in enumerate(weights.indices) if name_of(v) == "variable"}
    column = [v for v in axes if v not in block.reductions and sizes[v] > 1]
    if len(column) != 1 or not set(summed) <= set(axes) or _others(weights) != len(axes):
        raise RuleError("the weights have other dimensions")
    analyzer = sym.Analyzer()
    data = substituted(data, {v: IntImm("int64", 0) for v in block.iters if sizes[v] == 1})
    spatial = [v for v in block.iters if v not in block.reductions and sizes[v] > 1 and v not in column]
    pairs: list[tuple[Any, Any, Any]] = []
    for tap in taps:
        for variable in spatial:
            made = _by_sum(data, variable, tap, sizes[variable], analyzer)
            if made is not None and variable not in [v for v, _, _ in pairs]:
                data = made[0]
                pairs.append((variable, tap, made[1]))
                break
    if len(pairs) != 2:
        raise RuleError("no convolution of stride 1")
    pairs.sort(key=lambda pair: spatial.index(pair[0]))
    (channel,) = (v for v in summed if v not in [tap for _, tap, _ in pairs])
    groups, data, group = _grouped(fused, data, column[0], sizes, analyzer)
    rest = tuple((v, sizes[v]) for v in spatial if v not in [found for found, _, _ in pairs])
    at = {"row": pairs[0][2], "column": pairs[1][2], "channel": channel, "group": group}
    if variables_of(data) & set(block.iters) - {*at.values(), *(v for v, _ in rest)}:
        raise RuleError("what is convolved depends on more")
    return Filtering(
        *(block, rest, pairs[0][0], pairs[1][0], column[0]),
        *(sizes[pairs[0][0]], sizes[pairs[1][0]], sizes[channel], sizes[column[0]], groups),
        *(data, at, weights, tuple(axes[v] for v in (pairs[0][1], pairs[1][1], channel, column[0]))),
    )


def _others(weights: Any) -> int:
    """Dimensions of more than one element."""
    return sum(int(size) > 1 for size in weights.source.shape)


def _by_sum(data: Any, variable: Any, tap: Any, size: int, analyzer: Any) -> tuple[Any, Any] | None:
    """The operand as one of ``variable + tap``, and what stands for that sum; None where it is none."""
    if not {variable, tap} <= variables_of(data):
        return None
    total = Var(f"{variable.name}_padded", tvm.ir.PrimType("int64"))
    analyzer.bind(total, tvm.ir.Range.from_min_extent(0, size + TAPS - 1))
    made = analyzer.simplify(substituted(data, {variable: tirx.Sub(total, tap)}))
    return None if tap in variables_of(made) else (made, total)


def _grouped(
    fused: FusedGroup, data: Any, output: Any, sizes: dict[Any, int], analyzer: Any
) -> tuple[int, Any, Any]:
    """How many groups of channels there are, and the first operand with a variable for the group."""
    group = Var("group", tvm.ir.PrimType("int64"))
    if output not in variables_of(data):
        return 1, data, group
    count = int(fused.anchor.attributes.get("groups", 1)) if fused.anchor is not None else 1
    if count < 2 or sizes[output] % count:
        raise RuleError("what is convolved depends on the result's channel")
    each = sizes[output] // count
    within = Var("within", tvm.ir.PrimType("int64"))
    analyzer.bind(group, tvm.ir.Range.from_min_extent(0, count))
    analyzer.bind(within, tvm.ir.Range.from_min_extent(0, each))
    whole = tirx.Add(tirx.Mul(group, IntImm("int64", each)), within)
    made = analyzer.simplify(substituted(data, {output: whole}))
    if within in variables_of(made):
        raise RuleError("what is convolved depends on the result's channel")
    return count, made, group
