"""Dense convolution by :class:`ImplicitGemm`, and grouped convolution where no other rule is faster."""

from __future__ import annotations

from dataclasses import replace

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.cpu.analysis.anchored_group import CONVOLUTIONS, anchored
from edgepack.compiler.kernels.cpu.conv.computed_weights import by_computed_weights, packed_by_columns
from edgepack.compiler.kernels.cpu.conv.gemm_schedule import GemmSchedule, by_rows
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import OPEN, ImplicitGemm
from edgepack.compiler.kernels.cpu.conv.tile_gemm import implicit_product
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.register_tile import half_width_vectors
from edgepack.compiler.kernels.cpu.micro.registry import micro_kernel_for
from edgepack.compiler.kernels.rule import PRODUCTS, Rule
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["conv2d"]


def conv2d(
    fused: FusedGroup, target: CpuTarget, constants: frozenset[int], given: GemmSchedule = OPEN
) -> Implementation:
    """Rule ``conv2d.igemm``."""
    found = anchored(fused, CONVOLUTIONS)
    conv = Conv2d.of(found)
    constant = found.operand(1) in constants
    # Weights that are computed are packed for the kernel at hand, whatever others read.
    own = target if constant else replace(target, library_vector_bits=())
    vectors = half_width_vectors(own, conv.group_out, conv.dtype)
    micro = micro_kernel_for(found.products, conv.group_sizes, vectors, constant=constant)
    layout = f"conv2d:{conv.groups}"
    if fused.by_rows:
        given = by_rows(conv, given)
    if constant:
        return implicit_product("conv2d.igemm", layout, conv, found, micro, given).build()
    gemm = ImplicitGemm("conv2d.igemm", layout, conv, found, micro, given)
    emitter = Emitter(gemm.lanes, vectors, micro.right_unit)
    pack = packed_by_columns(emitter, conv, found.operand(1), gemm.tile.columns, gemm.zeros)
    elements = conv.depth * conv.out_channels + gemm.zeros
    return by_computed_weights(gemm.build(), pack, elements * DTYPE_BYTES[micro.right_unit])


RULE = Rule(
    "conv2d.igemm",
    order=400,
    dtypes=PRODUCTS,
    apply=conv2d,
    heeds_row_stride=True,
    heeds_rows=True,
    schedule=GemmSchedule,
)
