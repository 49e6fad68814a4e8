"""Transposed convolution as a plain one with more output channels (sub-pixel convolution).

With stride s, an output pixel at q = o + pad has phase r = q mod s and sees only the taps r, r + s, r + 2
s, ... of the kernel, at the input pixels q div s, q div s - 1, ... So the transposed convolution is a plain
one of T = ceil(k / s) taps with s * s times the output channels, whose result is spread over the image (Shi
et al., Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural
Network, 2016).
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from edgepack.compiler.graph.rewrite import Array, OptionalExpr, Rewriter, constant, numpy_of, shape_of

__all__ = ["conv2d_of_transpose"]


def phase_weights(weights: Array, strides: tuple[int, int]) -> Array:
    """(IC, OC, KH, KW) of the transposed convolution to HWIO (TH, TW, IC, SH * SW * OC) of the plain one."""
    channels, out, kh, kw = weights.shape
    (sh, sw), (th, tw) = strides, (-(-kh // strides[0]), -(-kw // strides[1]))
    padded = np.zeros((channels, out, th * sh, tw * sw), weights.dtype)
    padded[:, :, :kh, :kw] = weights
    taps = padded.reshape(channels, out, th, sh, tw, sw)[:, :, ::-1, :, ::-1, :]
    return np.ascontiguousarray(taps.transpose(2, 4, 0, 3, 5, 1).reshape(th, tw, channels, sh * sw * out))


def conv2d_of_transpose(rewriter: Rewriter, data: relax.Expr, call: relax.Call) -> OptionalExpr:
    """The transposed convolution ``call`` of ``data``, both NHWC; None for one that has groups or dilation.

    Args:
        data: the input, channels last.
        call: ``relax.nn.conv2d_transpose`` with constant weights, channels first.
    """
    a = call.attrs
    if int(a.groups) != 1 or any(int(d) != 1 for d in a.dilation):
        return None
    weights = numpy_of(call.args[1])
    strides = (int(a.strides[0]), int(a.strides[1]))
    top, left = int(a.padding[0]), int(a.padding[1])
    batch, out, height, width = shape_of(call)
    taps = phase_weights(weights, strides)
    # Positions q div s that are needed, from 0: the last one is that of the last output pixel.
    rows, columns = (top + height - 1) // strides[0] + 1, (left + width - 1) // strides[1] + 1
    _, in_height, in_width, _ = shape_of(data)
    padding = [taps.shape[0] - 1, taps.shape[1] - 1, rows - in_height, columns - in_width]
    if min(padding) < 0:
        return None
    wide = rewriter.emit(
        relax.op.nn.conv2d(data, constant(taps), padding=padding, data_layout="NHWC", kernel_layout="HWIO")
    )
    spread = rewriter.emit(relax.op.reshape(wide, (batch, rows, columns, *strides, out)))
    spread = rewriter.emit(relax.op.permute_dims(spread, [0, 1, 3, 2, 4, 5]))
    image = rewriter.emit(relax.op.reshape(spread, (batch, rows * strides[0], columns * strides[1], out)))
    if (top, left) == (0, 0) and shape_of(image) == (batch, height, width, out):
        return image
    return rewriter.emit(relax.op.strided_slice(image, [1, 2], [top, left], [top + height, left + width]))
