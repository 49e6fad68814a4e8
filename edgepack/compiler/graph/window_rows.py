"""Images of one channel, of which each window's row is a pixel of its own: the convolution over these is one
of as many channels as a window has columns.

Instructions that multiply quads of bytes take four neighbouring channels. Of an image of one channel (a
spectrogram) they take four neighbouring pixels of a window's row instead, once these are copied side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax, te

from edgepack.compiler.graph.rewrite import Array, Rewriter, shape_of

__all__ = ["row_weights", "window_rows"]

#: Bytes that an instruction multiplies together.
QUAD = 4


def row_weights(weights: Array) -> Array:
    """Weights (H, W, 1, O) as (H, 1, W, O), W padded with zeros to a multiple of four."""
    return np.pad(weights.transpose(0, 2, 1, 3), [(0, 0), (0, 0), (0, -weights.shape[1] % QUAD), (0, 0)])


def window_rows(
    rewriter: Rewriter, x: relax.Expr, taps: int, window: tuple[Sequence[int], ...], outside: int
) -> relax.Expr:
    """Each window's row side by side: (N, H, columns of the result, taps and what stands behind them, to a
    multiple of four), with the image's padding in it. The convolution over it moves along the height alone.

    Args:
        rewriter: emits.
        x: (N, H, W, 1), bytes.
        taps: of a window's row.
        window: strides, dilation, and padding before rows and columns and behind them.
        outside: what stands beside the image.
    """
    strides, dilation, (top, left, bottom, right) = window
    n, height, width, _ = shape_of(x)
    channels = taps + -taps % QUAD
    columns = (width + left + right - (taps - 1) * dilation[1] - 1) // strides[1] + 1
    # Behind the last column as much as the last window's further taps read.
    read = (columns - 1) * strides[1] + (channels - 1) * dilation[1] + 1
    behind = max(right, read - left - width)
    if any((top, left, bottom, behind)):
        x = rewriter.emit(
            relax.op.nn.pad(x, [0, 0, top, bottom, left, behind, 0, 0], pad_value=float(outside))
        )
    rows = height + top + bottom

    def computed(image: te.Tensor) -> te.Tensor:
        return te.compute(
            (n, rows, columns, channels),
            lambda b, h, w, c: image(b, h, w * strides[1] + c * dilation[1], 0),
            name="window_rows",
        )

    return rewriter.emit(rewriter.builder.call_te(computed, x, primfunc_name_hint="window_rows"))
