"""Constants that are stored sparse, as TFLite's schema has them (``SparsityParameters``): the format of TACO
(Kjolstad et al., The Tensor Algebra Compiler, OOPSLA 2017), dimension by dimension dense or compressed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
        ValueError, IndexError: what it says does not fit together.
    """
    import numpy as np

    order = [int(n) for n in sparsity.traversalOrder]
    blocks = [] if sparsity.blockMap is None else [int(n) for n in sparsity.blockMap]
    levels, rank = sparsity.dimMetadata, len(shape)
    if sorted(order) != list(range(rank + len(blocks))) or len(levels) != len(order):
        raise ValueError("a sparse tensor's traversal is none of its dimensions")
    place, coordinates = np.zeros(1, np.int64), dict[int, Any]()
    for dimension, level in zip(order, levels, strict=True):
        place, counts, inner = _entered(level, place)
        coordinates = {known: np.repeat(values, counts) for known, values in coordinates.items()}
        coordinates[dimension] = inner
    if place.size and int(place.max()) >= values.size:
        raise ValueError("a sparse tensor has fewer elements than it says")
    found = [coordinates[axis] for axis in range(rank)]
    for block, axis in enumerate(blocks):
        size = int(levels[order.index(rank + block)].denseSize)
        found[axis] = found[axis] * size + coordinates[rank + block]
    result = np.zeros(tuple(shape), values.dtype)
    result[tuple(found)] = values[place]
    return result


def _entered(level: Any, place: NDArray[Any]) -> tuple[NDArray[Any], Any, NDArray[Any]]:
    """The positions on the next level of those on this one, how many each has, and their coordinates."""
    import numpy as np

    if int(level.format) == 0:
        size = int(level.denseSize)
        steps = np.arange(size, dtype=np.int64)
        return (place[:, None] * size + steps).ravel(), size, np.tile(steps, place.size)
    segments, indices = (
        np.asarray(one.values, np.int64) for one in (level.arraySegments, level.arrayIndices)
    )
    first, counts = segments[place], segments[place + 1] - segments[place]
    if (counts < 0).any() or int(counts.sum()) > indices.size:
        raise ValueError("a sparse tensor's segments are out of order")
    starts = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    inner = starts + np.arange(int(counts.sum()), dtype=np.int64)
    return inner, counts, indices[inner]
