"""Constants that are stored sparse, as TFLite's schema has them (``SparsityParameters``): the format of TACO
(Kjolstad et al., The Tensor Algebra Compiler, OOPSLA 2017), dimension by dimension dense or compressed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.flatbuffer import DamagedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["dense"]


def dense(values: NDArray[Any], shape: Sequence[int], sparsity: Any) -> NDArray[Any]:
    """All elements of a tensor, zeros where none is stored.

    Args:
        values: the stored ones, in the order of the traversal.
        shape: of the tensor.
        sparsity: ``SparsityParametersT``.

    Raises:
        DamagedError: what it says does not fit together, or not the shape.
    """
    import numpy as np

    order = _whole(sparsity.traversalOrder)
    blocks, levels = _whole(sparsity.blockMap), sparsity.dimMetadata or []
    rank = len(shape)
    if sorted(order) != list(range(rank + len(blocks))) or len(levels) != len(order):
        raise DamagedError("a sparse tensor's traversal is none of its dimensions")
    extents = _extents(
        shape, blocks, [int(levels[order.index(rank + at)].denseSize) for at in range(len(blocks))]
    )
    place, coordinates = np.zeros(1, np.int64), dict[int, Any]()
    for dimension, level in zip(order, levels, strict=True):
        place, counts, inner = _entered(level, place, extents[dimension])
        coordinates = {known: np.repeat(values, counts) for known, values in coordinates.items()}
        coordinates[dimension] = inner
    if place.size and int(place.max()) >= values.size:
        raise DamagedError("a sparse tensor has fewer elements than it says")
    found = [coordinates[axis] for axis in range(rank)]
    for block, axis in enumerate(blocks):
        found[axis] = found[axis] * extents[rank + block] + coordinates[rank + block]
    result = np.zeros(tuple(shape), values.dtype)
    result[tuple(found)] = values[place]
    return result


def _whole(given: Any) -> list[int]:
    return [] if given is None else [int(n) for n in given]


def _extents(shape: Sequence[int], blocks: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The extents of all dimensions of the traversal: those of the shape, in blocks where it has such, and
    those of the blocks."""
    extents = [*shape, *sizes]
    for axis, size in zip(blocks, sizes, strict=True):
        if not 0 <= axis < len(shape) or size < 1 or extents[axis] % size:
            raise DamagedError("a sparse tensor's blocks do not fill its shape")
        extents[axis] //= size
    return extents


def _entered(level: Any, place: NDArray[Any], extent: int) -> tuple[NDArray[Any], Any, NDArray[Any]]:
    """The positions on the next level of those on this one, how many each has, and their coordinates.

    Args:
        extent: of the level's dimension; there are no more coordinates, and each once.
    """
    import numpy as np

    if int(level.format) == 0:
        if int(level.denseSize) != extent:
            raise DamagedError("a sparse tensor's dimensions are not those of its shape")
        steps = np.arange(extent, dtype=np.int64)
        return (place[:, None] * extent + steps).ravel(), extent, np.tile(steps, place.size)
    if level.arraySegments is None or level.arrayIndices is None:
        raise DamagedError("a sparse tensor's level has no segments")
    segments, indices = (
        np.asarray([] if one.values is None else one.values, np.int64)
        for one in (level.arraySegments, level.arrayIndices)
    )
    if place.size and int(place.max()) + 1 >= segments.size:
        raise DamagedError("a sparse tensor has too few segments")
    first, last = segments[place], segments[place + 1]
    counts = last - first
    if (counts < 0).any() or (counts > extent).any() or (first < 0).any() or (last > indices.size).any():
        raise DamagedError("a sparse tensor's segments are out of order")
    if ((indices < 0) | (indices >= extent)).any():
        raise DamagedError("a sparse tensor has elements outside of its shape")
    starts = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    inner = starts + np.arange(int(counts.sum()), dtype=np.int64)
    return inner, counts, indices[inner]
