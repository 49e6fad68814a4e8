"""A 1x1 convolution of an image whose channels are multiplied by a factor each, as a squeeze-and-excitation
block does (Hu et al., "Squeeze-and-Excitation Networks", 2018) before its projection: the weights are
multiplied instead.

A stage multiplies the packed weights by the factor of their input channel; the product reads these. So an
image that has more pixels than the convolution has outputs is neither read nor written once more:
notes/2026-11-27-squeeze-and-excitation.md says what that brings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.analysis.anchored_group import CONVOLUTIONS, AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.conv.computed_weights import by_computed_weights, scaled_by_channels
from edgepack.compiler.kernels.cpu.conv.gemm_schedule import GemmSchedule
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import OPEN, ImplicitGemm
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.register_tile import half_width_vectors
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.compiler.kernels.cpu.micro.registry import micro_kernel_for
from edgepack.compiler.kernels.rule import FLOAT32, PairRule
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["scaled_conv2d"]

#: Elements of the image for each weight, at least. Scaled weights are read by all threads, most of them from
#: the L2 cache of another core.
LEAST_ELEMENTS = 2


def scaled_conv2d(
    first: FusedGroup,
    second: FusedGroup,
    target: CpuTarget,
    constants: Sequence[frozenset[int]],
    given: GemmSchedule = OPEN,
) -> Implementation:
    """``conv2d.scaled``: ``first`` multiplies an image by a factor for each channel, ``second`` is a 1x1
    convolution of the product, which nothing else reads.

    Parameters of the implementation are those of ``first``, then those of ``second`` from its second one on.

    Args:
        constants: of each group, the parameters that are constant at every call.
        given: of the schedule. Where anything is given, it is not asked whether two kernels are faster.

    Raises:
        RuleError: if the two are not such groups, or two kernels are faster.
    """
    image, factors = _operands(first)
    found = anchored(second, CONVOLUTIONS)
    conv = Conv2d.of(found)
    if conv.kernel != (1, 1) or conv.groups != 1 or conv.batch != 1 or conv.depth_window:
        raise RuleError("not a 1x1 convolution of one image")
    if found.operand(0) != 0 or found.operand_shape(0) != _shape(first, -1):
        raise RuleError("a reshape stands between them")
    if 0 in found.epilogue.params:
        raise RuleError("the second one's tail reads what lies between too")
    if found.operand(1) not in constants[1]:
        raise RuleError("the weights are not constant")
    if target.strict_math:
        raise RuleError("strict math multiplies the image")
    if target.freestanding:
        raise RuleError("the weights stay in flash")
    if given == OPEN and LEAST_ELEMENTS * conv.depth * conv.out_channels > conv.input_elements:
        raise RuleError("there are fewer pixels than weights")
    vectors = half_width_vectors(target, conv.out_channels, conv.dtype)
    micro = micro_kernel_for(found.products, conv.group_sizes, vectors, constant=True)
    if not micro.left_unit == micro.right_unit == "float32" or micro.matrix:
        raise RuleError(f"products of {micro.types.left} and {micro.types.right}")
    return _ScaledInput((image, factors), len(first.function.params) - 1, conv, found, micro).build(given)


def _operands(fused: FusedGroup) -> tuple[int, int]:
    """The parameters of a group that are an image and its channels' factors. RuleError for another group."""
    if fused.operators != ("multiply",) or fused.outputs != 1 or fused.row_stride is not None:
        raise RuleError("not a product")
    if len(fused.function.params) != 3:
        raise RuleError("one operand")
    whole, channels = _shape(fused, -1), _shape(fused, -1)[-1]
    for image, factors in ((0, 1), (1, 0)):
        *outer, last = _shape(fused, factors)
        if _shape(fused, image) == whole and last == channels and set(outer) <= {1}:
            return image, factors
    raise RuleError("not a factor for each channel")


def _shape(fused: FusedGroup, number: int) -> tuple[int, ...]:
    """Of a parameter, or of the output, the last one."""
    return tuple(int(d) for d in fused.function.params[number].shape)


class _ScaledInput:
    """Builds the kernels.

    Args:
        operands: the first group's parameters that are the image and the factors.
        outer_params: how many parameters the first group has.
        conv: of the group ``found``.
    """

    def __init__(
        self,
        operands: tuple[int, int],
        outer_params: int,
        conv: Conv2d,
        found: AnchoredGroup,
        micro: MicroKernel,
    ) -> None:
        self.image, self.factors = operands
        self.outer_params, self.conv, self.found, self.micro = outer_params, conv, found, micro

    def _number(self, param: int) -> int:
        """The number of the second group's parameter among those of both."""
        return self.outer_params + param - 1 if param else self.image

    def build(self, given: GemmSchedule) -> Implementation:
        micro, conv = self.micro, self.conv
        emitter = micro.emitter()
        with emitter.renumbered(param=self._number):
            product = ImplicitGemm("conv2d.scaled", "conv2d:1", conv, self.found, micro, given, emitter)
        packings = (replace(one, param=self._number(one.param)) for one in product.packings())
        columns = micro.panel_columns or product.tile.columns
        e = Emitter(product.lanes, micro.target, micro.right_unit)
        scaled = scaled_by_channels(e, conv, self.factors, columns, product.zeros)
        elements = conv.depth * conv.out_channels + product.zeros
        nbytes = elements * DTYPE_BYTES[micro.right_unit]
        made = by_computed_weights(product.build(), scaled, nbytes)
        return replace(
            made,
            packed=tuple(packings),
            parameters={**made.parameters, "weights": "scaled"},
            flops=made.flops + conv.input_elements,
            weights=conv.depth * conv.out_channels * DTYPE_BYTES[micro.right_unit],
            with_prefetch=lambda nbytes: self.build(replace(product.schedule, prefetch_bytes=nbytes)),
        )


PAIR_RULE = PairRule(
    "conv2d.scaled",
    order=300,
    dtypes=FLOAT32,
    apply=scaled_conv2d,
    schedule=GemmSchedule,
)
