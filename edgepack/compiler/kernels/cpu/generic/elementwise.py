"""Rule ``elementwise``: fused groups without a reduction (``elementwise_kernel.py``).

Vectors are as wide as the target's, or narrower where these have to be loaded lane by lane and narrower ones
have not.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import tvm_ffi
from tvm.ir import TensorLoad
from tvm.tirx import Buffer

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, Overlap, Packing, RuleError, Stage
from edgepack.compiler.kernels.cpu.analysis.branch_splitting import writes_its_own_position
from edgepack.compiler.kernels.cpu.analysis.image_rows import check_image, row_windows
from edgepack.compiler.kernels.cpu.analysis.operands import elements_of, mixed_lanes
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block, blocks_of
from edgepack.compiler.kernels.cpu.generic.copy_kernel import CopyKernel, copied_lanes
from edgepack.compiler.kernels.cpu.generic.elementwise_kernel import ElementwiseKernel
from edgepack.compiler.kernels.cpu.generic.image_rows_kernel import ImageRowsKernel
from edgepack.compiler.kernels.cpu.generic.interleaved_kernel import InterleavedKernel
from edgepack.compiler.kernels.cpu.generic.short_rows_kernel import ShortRowsKernel, has_short_rows
from edgepack.compiler.kernels.expressions.operations import FLOATS
from edgepack.compiler.kernels.rule import EVERY_DTYPE, Rule
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["elementwise"]

#: Elements of the smallest constant that is read as float16 where it is stored so: tables of embeddings.
LARGE_TABLE = 4096

#: Lanes of the narrowest vectors that are worth more than wider ones that are loaded lane by lane.
LEAST_LANES = 4

#: Lanes of the widest vectors that are made of several: to bring 64 bytes into any order takes five times as
#: long as twice 32 (224x224 pixels of three bytes to planes: 37 us, not 7.7, with AVX-512, 41 with VBMI).
MOST_SHUFFLED = 32


def elementwise(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Applies the rule: one kernel for each output.

    Raises:
        RuleError: for a fused group with a reduction or without a vector form.
    """
    blocks = blocks_of(fused.function)
    if any(block.reductions or not writes_its_own_position(block) for block in blocks):
        raise RuleError("not elementwise")
    buffers = tuple(fused.function.params)
    params, outputs = buffers[: -fused.outputs], buffers[-fused.outputs :]
    by_target = {block.target: block for block in blocks}
    half = [i for i in sorted(fused.float16_params) if elements_of(params[i]) >= LARGE_TABLE]
    lanes = _lanes([str(b.dtype) for b in (*buffers, *by_target)], target)
    copied = 0 if half or fused.by_rows else copied_lanes(blocks, buffers, target)
    stages: list[Stage] = []
    tiled = False
    if fused.by_rows:
        check_image(outputs)
    for number, output in enumerate(outputs):
        if output not in by_target:
            raise RuleError("an output that no block writes")
        made_of = by_target, params, number, by_target[output], target, half
        made: type[ElementwiseKernel] = ImageRowsKernel if fused.by_rows else ElementwiseKernel
        kernel = made(*made_of, lanes=lanes)
        if made is ElementwiseKernel and has_short_rows(kernel):
            made = ShortRowsKernel
            kernel = made(*made_of, lanes=lanes)
        if copied and (moved := _copied(CopyKernel(*made_of, lanes=copied))) is not None:
            kernel = moved
        if kernel.interleaved_axes:
            kernel = InterleavedKernel(kernel)
        built = kernel.build()
        if kernel.shuffled and lanes > MOST_SHUFFLED:
            kernel = made(*kernel.made_of, lanes=MOST_SHUFFLED)
            built = kernel.build()
        if kernel.gathered and (narrower := _without_gathers(kernel, made)) is not None:
            kernel, built = narrower
        stages += built.stages
        tiled = tiled or kernel.tile is not None
    parameters = {**kernel.parameters(), "tiled": tiled}
    flops = sum(prod(block.extents) for block in blocks if block.target.dtype in FLOATS)
    packed = tuple(Packing(i, "float16", lambda table: table.astype(np.float16)) for i in half)
    alike = _read_at_position(blocks, params, outputs) if kernel.stores_once and not half else ()
    return Implementation(
        "elementwise",
        tuple(stages),
        packed,
        overlaps=tuple(Overlap(i) for i in alike if params[i].dtype == outputs[0].dtype),
        rows=row_windows(blocks, params) if fused.by_rows and kernel.walks_rows else None,
        parameters=parameters,
        flops=flops,
    )


def _copied(kernel: CopyKernel) -> CopyKernel | None:
    """A kernel that copies, made anew, if its rows lie in what it reads as they do in what it writes; else
    None."""
    kernel.build()
    if kernel.tile is not None or kernel.interleaved_axes or kernel.gathered or kernel.shuffled:
        return None
    return CopyKernel(*kernel.made_of, lanes=kernel.lanes)


def _read_at_position(
    blocks: Sequence[Block], params: Sequence[Buffer], outputs: Sequence[Buffer]
) -> tuple[int, ...]:
    """The parameters of the shape of the only output of which only the element is read that stands where the
    result does. In the place of one of its type the result may be computed."""
    if len(outputs) != 1:
        return ()
    (output,) = outputs
    read: set[Buffer] = set()
    elsewhere: set[Buffer] = set()
    for block in blocks:

        def visit(load: TensorLoad, block: Block = block) -> None:
            read.add(load.source)
            if not _is_position(load.indices, block):
                elsewhere.add(load.source)

        tvm_ffi.structural_walk(block.value, [(TensorLoad, visit)])
    if any(block.target in elsewhere or not _is_alike(block.target, output) for block in blocks):
        return ()
    return tuple(
        i for i, param in enumerate(params) if param in read - elsewhere and _is_alike(param, output)
    )


def _is_position(indices: Sequence[Any], block: Block) -> bool:
    """Whether they are the position at which the block stores."""
    own = zip(indices, block.iters, strict=False)
    return len(indices) == len(block.iters) and all(i.same_as(v) for i, v in own)


def _is_alike(buffer: Buffer, other: Buffer) -> bool:
    """Whether both have one shape."""
    return [int(d) for d in buffer.shape] == [int(d) for d in other.shape]


def _lanes(dtypes: Sequence[str], target: CpuTarget) -> int:
    """Elements of a vector: as many bytes as a register holds, where all is bytes, else as many words."""
    lanes = mixed_lanes(target)
    bytes_only = all(DTYPE_BYTES[dtype] == 1 for dtype in dtypes)
    return target.lanes("int8") if bytes_only and lanes > 1 else lanes


def _without_gathers(
    wide: ElementwiseKernel, made: type[ElementwiseKernel]
) -> tuple[ElementwiseKernel, Implementation] | None:
    """The same with narrower vectors, the widest that gather nothing: a row of 7 elements that is repeated is
    two vectors of 4, where vectors of 8 or 16 are loaded lane by lane. None where all of them gather."""
    lanes = wide.lanes // 2
    while lanes >= LEAST_LANES:
        kernel = made(*wide.made_of, lanes=lanes)
        built = kernel.build()
        if not kernel.gathered:
            return kernel, built
        lanes //= 2
    return None


RULE = Rule("elementwise", order=1000, dtypes=EVERY_DTYPE, apply=elementwise, kind="blocks", heeds_rows=True)
