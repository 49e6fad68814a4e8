"""What is known of a tensor of a graph that is followed, and that something is not known."""

from __future__ import annotations

from dataclasses import dataclass

from edgepack.compiler.frontend.onnx.growing.extents import Dim, Extent

__all__ = ["UnknownError", "Value", "unknown"]


class UnknownError(Exception):
    """A node cannot be computed with padding; the text says why."""


@dataclass(frozen=True)
class Value:
    """What is known of a tensor.

    Attributes:
        name: what it is called in the graph that is written.
        element: ONNX's number of its element type; 0 if that is not known.
        dims: None if they are not known.
        numbers: of whole numbers of rank 0 or 1, each as far as it is known; None if none is.
        zero: axes along which the padding is 0, but for what is padding along others too.
        why: the sizes are not known.
    """

    name: str
    element: int = 0
    dims: tuple[Dim, ...] | None = None
    numbers: tuple[Dim | None, ...] | None = None
    zero: frozenset[int] = frozenset()
    why: str = ""

    @property
    def padded(self) -> list[int]:
        """Axes along which there is padding."""
        return [axis for axis, dim in enumerate(self.dims or ()) if isinstance(dim, Extent)]


def unknown(name: str, value: Value) -> str:
    """That the shape of a tensor is not known."""
    return f"the shape of {name!r}, which it reads, is not known" + (
        f", for {value.why}" if value.why else ""
    )
