"""Elementwise kernels whose rows are shorter than vectors: the channels of a pixel, made of planes.

Vectors run along the axis before the last one, as what is read does. Those of all elements of a row are
interleaved in registers, which gives whole rows, and stored at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.affine import Affine, constant
from edgepack.compiler.kernels.cpu.emit.vectors import Vectors
from edgepack.compiler.kernels.cpu.generic.elementwise_kernel import ElementwiseKernel

__all__ = ["InterleavedKernel"]


class InterleavedKernel(ElementwiseKernel):
    """Emits the kernel of one output whose rows are short.

    Args:
        kernel: of the same output, whose :attr:`ElementwiseKernel.interleaved_axes` are some.
    """

    def __init__(self, kernel: ElementwiseKernel) -> None:
        super().__init__(*kernel.made_of, lanes=kernel.lanes)
        self.tile = None
        self.outer, self.length = self.extents[:-2], self.extents[-2]
        self.cost *= self.extents[-1]
        self.splittable = bool(self.unmergeable.intersection(self.interleaved_axes))

    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), "interleaved": self.extents[-1]}

    def vector(self, reader: Callable[[], Vectors], first: Sequence[Affine]) -> None:
        """Evaluates and stores as many rows as a vector has lanes."""
        along, columns = first[-1] + Affine(0, (), 1), range(self.extents[-1])
        readers = [reader() for _ in columns]
        values = [
            self.evaluated(one, [*first[:-1], along, constant(column)])
            for column, one in zip(columns, readers, strict=True)
        ]
        lanes = readers[0].lanes
        whole = self.e.let(tirx.Shuffle(values, [c * lanes + lane for lane in range(lanes) for c in columns]))
        at = readers[0].variables.scalar(self.address([*first, constant(0)]))
        self.e.vstore(self.output, at, whole, lanes * len(columns))
