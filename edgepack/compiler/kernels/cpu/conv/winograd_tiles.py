"""What the transforms of input and output tiles of a Winograd convolution share: loops and memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgepack.compiler.kernels.cpu.conv.winograd_transforms import Transform
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.compiler.kernels.cpu.emit.register_tile import power_of_two_chunks

__all__ = ["LazyVectors", "TransformedTile", "each_line", "each_vector"]


@dataclass(frozen=True)
class TransformedTile:
    """A tile in V or M: position k of its a * a begins at ``at + k * row_stride`` of ``buffer``."""

    buffer: Any
    at: Any
    row_stride: int


def each_vector(e: Emitter, channels: int, body: Callable[[Any, int], None]) -> None:
    """``body(channel, lanes)`` for the vectors of channels; LLVM must not mix them with each other."""
    lanes = e.lanes
    full = channels // lanes
    vector = lambda k: body(e.let(k * lanes), lanes)  # noqa: E731
    rest = power_of_two_chunks(channels - full * lanes, lanes)
    if full > 1 and e.target is not None and e.target.in_order:
        e.no_unroll_loop(full, vector)
    else:
        e.loop(0, e.opaque_bound(full), vector)
    for at, few in rest:

        def part(_: Any, at: int = at, few: int = few) -> None:
            body(index(full * lanes + at), few)

        e.loop(0, e.opaque_bound(1), part)


def each_line(e: Emitter, channels: int, lines: range, body: Callable[[Any, Any, int], None]) -> None:
    """``body(line, channel, lanes)`` for the vectors of channels of one line after the other."""
    end = e.opaque_bound(lines.stop)
    e.loop(lines.start, end, lambda i: each_vector(e, channels, lambda c, n: body(i, c, n)))


class LazyVectors(Sequence[Any]):
    """Vectors that are loaded when first used, for a transform.

    Args:
        converted: what is computed with, of a vector in memory; by default :meth:`Transform.loaded`.
    """

    def __init__(
        self,
        t: Transform,
        places: Sequence[tuple[Any, Any]],
        converted: Callable[[Any], Any] | None = None,
    ) -> None:
        self.t, self.places, self.converted = t, places, converted or t.loaded
        self.loaded: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: Any) -> Any:
        if i not in self.loaded:
            buffer, at = self.places[i]
            e, t = self.t.e, self.t
            self.loaded[i] = self.converted(e.let(e.vload(buffer, at, t.lanes)))
        return self.loaded[i]
