"""The planes of a volume that a window reads: loops around the rows of windows over images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.analysis.as_2d import DepthWindow
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import div, index, mod

__all__ = ["each_plane", "first_plane"]


def first_plane(e: Emitter, window: DepthWindow | None, image: Any) -> tuple[Any, Any]:
    """Where the window of an image of the output begins.

    Returns:
        The number of an image of the input, and of that in its volume, negative in the padding; an image and
        0 where windows have no depth.
    """
    if window is None:
        return image, 0
    volume = 0 if isinstance(image, int) else e.let(div(image, window.out))
    plane = e.let(mod(image, window.out) * window.stride - window.pad)
    return e.let(volume * window.size + plane), plane


def each_plane(e: Emitter, window: DepthWindow | None, plane: Any, body: Callable[[Any, Any], None]) -> None:
    """Calls ``body`` with the number of each plane of the window that lies inside of the volume, and with how
    many images it is behind the first.

    Args:
        plane: the first one in the volume, see :func:`first_plane`.
    """
    if window is None:
        body(0, 0)
        return
    d = window.dilation
    begin, end = index(0), index(window.kernel)
    if window.padded:
        begin = e.let(tirx.max(begin, div(d - 1 - plane, d)))
        end = e.let(tirx.min(end, div(window.size - plane + (d - 1), d)))
    e.loop(begin, end, lambda k: body(k, k * d))
