"""Windows along entries: convolutions that give as many results, or a number of them for each entry."""

from __future__ import annotations

from edgepack.compiler.frontend.onnx.bounded_shapes.node import MixedError, PaddedNode

__all__ = ["convolution", "padding", "transposed_convolution"]

_WINDOWS = "its windows or channels would be entries, of which some are padding"


def convolution(n: PaddedNode) -> None:
    """A Conv whose windows move by one entry, with as much padding as there are results of one less: it reads
    0 behind the last entry, as the model does."""
    axis, entries = n.first
    if axis == 0:
        n.done(0, entries)
        return
    stride, span, pads = _window(n, axis)
    if stride != 1 or pads != span - 1:
        raise MixedError("there would not be as many windows as entries")
    n.guard(0)
    n.done(axis, entries)


def transposed_convolution(n: PaddedNode) -> None:
    """A ConvTranspose that gives as many results for each entry as its stride is."""
    axis, entries = n.first
    if axis == 0:
        n.done(0, entries)
        return
    stride, span, pads = _window(n, axis)
    more = n.values.get("output_padding")
    if n.values.get("output_shape") or span - pads + (more[axis - 2] if more else 0) != stride:
        raise MixedError("there would not be as many results for each entry as it moves on")
    n.guard(0)
    n.done(axis, n.graph.times(entries, stride))


def _window(n: PaddedNode, axis: int) -> tuple[int, int, int]:
    """Along an axis: the stride, the entries from a window's first to its last, and all padding."""
    automatic = n.values.get("auto_pad", "NOTSET")
    automatic = automatic.decode() if isinstance(automatic, bytes) else automatic
    if axis == 1 or (n.op == "ConvTranspose" and automatic != "NOTSET"):
        raise MixedError(_WINDOWS)
    at, weights = axis - 2, n.shape(n.node.input[1])
    spatial = len(weights) - 2
    strides, dilations = (n.values.get(name) or [1] * spatial for name in ("strides", "dilations"))
    pads = n.values.get("pads") or [0] * (2 * spatial)
    span = dilations[at] * (weights[axis] - 1) + 1
    padded = span - 1 if automatic.startswith("SAME") else pads[at] + pads[at + spatial]
    return strides[at], span, padded


def padding(n: PaddedNode) -> None:
    """A Pad along other axes."""
    axis, entries = n.first
    rank = len(n.shape(n.node.input[0]))
    given, axes = n.constant(1), n.constant(3)
    pads = n.values.get("pads") if given is None else given.reshape(-1).tolist()
    along = list(range(rank)) if axes is None else [int(one) % rank for one in axes.reshape(-1)]
    if pads is None or (axis in along and any(pads[along.index(axis) :: len(along)])):
        raise MixedError("what it puts behind the entries would stand behind their padding")
    n.done(axis, entries)
