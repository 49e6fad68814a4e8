"""The geometry of a convolution, and the order of its weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from edgepack.compiler.kernels.contract import Array, RuleError
from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.analysis.as_2d import DepthWindow
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["Conv2d", "pack_weights"]

#: Layouts of data and weights.
CHANNELS_LAST = ("NWC/WIO", "NHWC/HWIO", "NDHWC/DHWIO")

FLOAT32 = ProductTypes.of("float32")


@dataclass(frozen=True)
class Conv2d:
    """Geometry of a convolution: NHWC input, HWIO weights, one value per dimension (height, width).

    A signal is an image of one row, the planes of volumes are images.

    Attributes:
        batch: images of the output.
        types: of the product of the input and the weights.
        depth_window: how images of the input become those of the output, where that is not one by one.
        outside: value of the input's elements that a window reads outside of the image.
    """

    batch: int
    height: int
    width: int
    in_channels: int
    out_height: int
    out_width: int
    out_channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    pad_top: int
    pad_left: int
    pad_bottom: int
    pad_right: int
    groups: int
    types: ProductTypes = FLOAT32
    depth_window: DepthWindow | None = None
    outside: int = 0

    @classmethod
    def of(cls, fused: AnchoredGroup) -> Conv2d:
        """Reads the geometry off the anchor. RuleError for another layout."""
        a = fused.anchor.attributes
        if a["layout"] not in CHANNELS_LAST or fused.as_2d is None:
            raise RuleError(f"layout {a['layout']}")
        _, h, w, c = fused.image_shape
        *window, _, oc = fused.operand_shape(1)
        n, oh, ow, _ = fused.output_shape
        pads, rank = a["padding"], len(window)
        pair, planes = fused.as_2d.pair, fused.as_2d.depth_window
        kernel, strides, dilation = (pair(v, 1) for v in (window, a["strides"], a["dilation"]))
        (top, left), (bottom, right) = pair(pads[:rank], 0), pair(pads[rank:], 0)
        sizes = (n, h, w, c, oh, ow, oc)
        edges = (top, left, bottom, right)
        outside = int(a.get("outside", 0))
        return cls(*sizes, kernel, strides, dilation, *edges, int(a["groups"]), fused.types, planes, outside)

    @classmethod
    def product(cls, rows: int, depth: int, columns: int, types: ProductTypes) -> Conv2d:
        """The product of matrices (rows, depth) and (depth, columns), as a 1x1 convolution of one row."""
        one = (1, 1)
        return cls(1, 1, rows, depth, 1, rows, columns, one, one, one, 0, 0, 0, 0, 1, types)

    @property
    def inside(self) -> float:
        """The part of all taps of all output pixels that read the image, not padding."""
        part = 1.0
        for number, (size, outputs, pad) in enumerate(
            ((self.height, self.out_height, self.pad_top), (self.width, self.out_width, self.pad_left))
        ):
            taps, step = self.kernel[number], self.dilation[number]
            first = np.arange(outputs)[:, None] * self.strides[number] - pad
            at = first + np.arange(taps)[None, :] * step
            part *= float(np.mean((at >= 0) & (at < size)))
        return part

    @property
    def dtype(self) -> str:
        """Element type of the sums, in which the kernel computes."""
        return self.types.sums

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of the sums' type."""
        return DTYPE_BYTES[self.dtype]

    @property
    def input_elements(self) -> int:
        """Elements of the input of all images."""
        images = (
            self.batch // self.depth_window.out * self.depth_window.size if self.depth_window else self.batch
        )
        return images * self.height * self.width * self.in_channels

    @property
    def padded(self) -> bool:
        """Whether any window reaches into padding."""
        behind = self.depth_window is not None and self.depth_window.padded
        return behind or any((self.pad_top, self.pad_left, self.pad_bottom, self.pad_right))

    @property
    def pointwise(self) -> bool:
        """Whether it is a product of the input, as it lies in memory, and the weights."""
        return self.kernel == self.strides == (1, 1) and not self.padded and self.depth_window is None

    def side_by_side(self) -> Conv2d:
        """The same of images that have the channels of all planes of a window."""
        if self.depth_window is None:
            return self
        return replace(self, in_channels=self.in_channels * self.depth_window.kernel, depth_window=None)

    @property
    def group_sizes(self) -> tuple[int, int]:
        """Input and output channels of one group."""
        return self.group_in, self.group_out

    def in_units(self, group: int) -> Conv2d:
        """The same of input channels that are ``group`` neighbouring ones each."""
        return replace(self, in_channels=self.in_channels // group) if group > 1 else self

    @property
    def depthwise(self) -> bool:
        """Whether each output channel is computed from the input channel of its number."""
        return 1 < self.groups == self.in_channels == self.out_channels

    @property
    def group_in(self) -> int:
        """Input channels of one group."""
        return self.in_channels // self.groups

    @property
    def group_out(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups

    @property
    def pixels(self) -> int:
        """Output pixels of all images."""
        return self.batch * self.out_height * self.out_width

    @property
    def depth(self) -> int:
        """Length of the reduction: products that are summed for one output element."""
        return self.rows * self.kernel[1] * self.group_in

    @property
    def rows(self) -> int:
        """Rows of the window, of all its planes."""
        return self.kernel[0] * (self.depth_window.kernel if self.depth_window else 1)

    @property
    def flops(self) -> int:
        """Floating point operations, a multiply-add counted as two."""
        return 2 * self.multiply_adds

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds when computed directly."""
        return self.pixels * self.out_channels * self.depth


def pack_weights(weights: Array, groups: int, columns: int, zeros: int) -> Array:
    """HWIO to [group][block of columns][KH][KW][IC / groups][columns], then ``zeros`` zeros.

    Args:
        weights: (KH, KW, IC / groups, OC), the output channels of a group next to each other.
        columns: width of a block; the last block of a group has what is left.
    """
    per_group = weights.shape[3] // groups
    parts = []
    for first in range(0, weights.shape[3], per_group):
        for at in range(0, per_group, columns):
            block = weights[..., first + at : first + min(at + columns, per_group)]
            parts.append(np.ascontiguousarray(block).reshape(-1))
    parts.append(np.zeros(zeros, weights.dtype))
    return np.concatenate(parts)
