"""Layers that are computed a few rows at a time, one after the other, so that windows of rows lie in memory
instead of whole tensors. Plain data.

Patch-based inference (Lin et al., "MCUNetV2", 2021) computes what lies at the borders of patches again. Rows
are as wide as the image, and those that are read once more are kept, as in the rolling buffers of Arm's Vela
("cascaded operators"): nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Cascade", "CascadeLayer", "CascadeRead", "Visit"]


@dataclass(frozen=True)
class CascadeLayer:
    """One kernel of a cascade, whose tasks are the rows of its output in order.

    Attributes:
        kernel: its symbol.
        pointers: what each of the kernel's pointers is: an index of the cascade's own pointers, or ``-1 - i``
            for the rows of layer ``i``.
        rows: of the output, and ``row_bytes`` the size of one.
        tasks: of the kernel for each row.
        window: rows that are in memory at once, and ``offset`` where they lie in the cascade's first pointer,
            in bytes. The last layer writes the cascade's output and has none.
    """

    kernel: str
    pointers: tuple[int, ...]
    rows: int
    row_bytes: int
    tasks: int
    window: int = 0
    offset: int = 0


@dataclass(frozen=True)
class CascadeRead:
    """That row ``y`` of layer ``reader`` is made of ``size`` rows of layer ``source``, from row
    ``y * stride - pad`` on, as far as that has them."""

    source: int
    reader: int
    size: int
    stride: int
    pad: int


@dataclass(frozen=True)
class Visit:
    """One call of a layer's kernel.

    Attributes:
        begin, end: rows [begin, end) are computed.
        low: the first row of the layer that is still read.
    """

    layer: int
    begin: int
    end: int
    low: int


@dataclass(frozen=True)
class Cascade:
    """Layers in order, each of which reads earlier ones and what the cascade is given.

    The last layer wants its next rows; a layer computes its own when those are there of which they are made,
    and before that these are wanted. So windows are no larger than what one layer reads at once.

    Attributes:
        reads: what the layers read of each other, by reader.
        step: rows that a layer computes at a time.
    """

    layers: tuple[CascadeLayer, ...]
    reads: tuple[CascadeRead, ...]
    step: int

    def visits(self) -> Iterator[Visit]:
        """What is computed, in order. ``templates/runtime/cascade/cascade.h`` says the same in C."""
        layers, last = self.layers, len(self.layers) - 1
        done = [0] * len(layers)
        while done[last] < layers[last].rows:
            layer: int | None = last
            while layer is not None:
                at = layer
                end = min(done[at] + self.step, layers[at].rows)
                layer = next(
                    (r.source for r in self.reads if r.reader == at and self._wants(r, done, end)), None
                )
            firsts = (max(0, done[r.reader] * r.stride - r.pad) for r in self.reads if r.source == at)
            yield Visit(at, done[at], end, min(done[at], *firsts, done[at]))
            done[at] = end

    def _wants(self, read: CascadeRead, done: Sequence[int], end: int) -> bool:
        """Whether a reader's rows up to ``end`` need rows of the source that are not computed yet."""
        needed = (end - 1) * read.stride - read.pad + read.size
        return done[read.source] < min(needed, self.layers[read.source].rows)

    def windows(self) -> list[int]:
        """Rows that each layer's window has to hold; of the last one 0."""
        found = [0] * len(self.layers)
        for visit in self.visits():
            found[visit.layer] = max(found[visit.layer], visit.end - visit.low)
        return [*found[:-1], 0]

    def moved(self) -> int:
        """Bytes of rows that a run moves to the beginning of their window, to make room."""
        total, low = 0, [0] * len(self.layers)
        for visit in self.visits():
            layer = self.layers[visit.layer]
            if layer.window and visit.end - low[visit.layer] > layer.window:
                total += (visit.begin - visit.low) * layer.row_bytes
                low[visit.layer] = visit.low
        return total

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Cascade:
        """Of what ``dataclasses.asdict`` made."""
        layers = (CascadeLayer(**{**one, "pointers": tuple(one["pointers"])}) for one in data["layers"])
        return cls(tuple(layers), tuple(CascadeRead(**one) for one in data["reads"]), data["step"])
