"""Decision trees as tables that are walked without a branch.

All numbers are compared as integers that are ordered as the floats are (:func:`keys_of`), which costs the
same on a CPU without an FPU. Each question "is x <= t?" is a record, and the records of its two answers lie
side by side, so that the next record is ``here + offset + (key <= threshold)``. A leaf asks a key that is
greater than all thresholds, and its offset is 0: it leads to itself. So every tree is walked by a fixed
number of steps.

Other questions become some of these (:func:`intervals`): equality is two, membership of a set a search among
its bounds. The features are there twice where a model has nodes of both kinds: NaN is greater than all
numbers in the one copy, and less than all in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["BadTreesError", "Forest", "Tables", "intervals", "keys_of", "search", "tables_of"]

#: Features and offsets below it have 16 bits each in a record, others 32.
NARROW = 1 << 16

#: What part of their tree's depth leaves lie at on average that lie evenly.
_EVEN = 0.85


class BadTreesError(ValueError):
    """What the nodes lead to is no tree; the text goes on behind "it"."""


@dataclass
class Forest:
    """Trees whose nodes ask ``key <= threshold``; all arrays are of one element for each node, but roots.

    Attributes:
        features: int64, index of the feature in a row of keys; of a leaf it does not count.
        thresholds: keys, int32 or int64; of a leaf what is found there: a value's bits, or a row's number.
        if_true, if_false: int64, the next node; -1 of a leaf.
        roots: int64, a node for each tree.
    """

    features: NDArray[np.int64]
    thresholds: NDArray[Any]
    if_true: NDArray[np.int64]
    if_false: NDArray[np.int64]
    roots: NDArray[np.int64]


@dataclass(frozen=True)
class Tables:
    """What a kernel walks.

    Attributes:
        thresholds: int32 or int64 [records].
        features, offsets: int64 [records]; a leaf has the number of the key that is greater than all.
        roots: int32 [trees], the first record of each tree.
        depths: int32 [trees], steps that reach every leaf.
        steps: how many reach a leaf, on average over leaves.
    """

    thresholds: NDArray[Any]
    features: NDArray[np.int64]
    offsets: NDArray[np.int64]
    roots: NDArray[np.int32]
    depths: NDArray[np.int32]
    steps: float

    @property
    def uneven(self) -> bool:
        """Whether many leaves are reached long before the deepest one of their tree."""
        return self.steps < _EVEN * float(self.depths.mean())

    @property
    def narrow(self) -> bool:
        """Whether features and offsets fit 16 bits."""
        return max(int(self.features.max(initial=0)), int(self.offsets.max(initial=0))) < NARROW


def keys_of(values: NDArray[Any]) -> NDArray[Any]:
    """int32 of float32, int64 of float64, ordered as the numbers are: both zeros are 0, NaN the greatest."""
    import numpy as np

    wide = values.dtype == np.float64
    kind: Any = np.int64 if wide else np.int32
    raw = np.ascontiguousarray(values).view(kind)
    sign = raw >> (63 if wide else 31)
    magnitude = raw & np.iinfo(kind).max
    keys = (magnitude ^ sign) - sign
    return np.where(np.isnan(values), np.iinfo(kind).max, keys).astype(kind)


def intervals(mode: str, values: NDArray[Any]) -> tuple[list[int], list[bool]]:
    """Where the answer to a question changes: with the bounds [a, b] the answers are those of keys <= a, of
    other keys <= b, and of all others.

    Args:
        mode: the end of ONNX's name: LEQ, LT, GTE, GT, EQ, NEQ, or MEMBER.
        values: float32 or float64, one, or the members of the set.
    """
    import numpy as np

    keys = sorted({int(key) for key in keys_of(values[~np.isnan(values)])})
    if not keys:  # of NaN nothing is true, but that it differs
        return [], [mode == "NEQ"]
    key = keys[0]
    if mode in ("LEQ", "GT"):
        return [key], [mode == "LEQ", mode == "GT"]
    if mode in ("LT", "GTE"):
        return [key - 1], [mode == "LT", mode == "GTE"]
    inside = mode != "NEQ"
    bounds: list[int] = []
    answers = [not inside]
    for key in keys:
        if bounds and bounds[-1] == key - 1:  # the numbers are neighbours
            bounds[-1] = key
            continue
        bounds += [key - 1, key]
        answers += [inside, not inside]
    return bounds, answers


def tables_of(forest: Forest, sentinel: int) -> Tables:
    """The records of all trees, each tree's from its root on, by levels.

    Args:
        sentinel: number of the key that is greater than all thresholds.

    Raises:
        BadTreesError: a node leads back to itself, or is in two trees.
    """
    import numpy as np

    inner = forest.if_true >= 0
    level, tree = _levels(forest, inner)
    decisions = np.flatnonzero(inner & (level >= 0))
    decisions = decisions[np.lexsort((decisions, level[decisions], tree[decisions]))]
    for next_ in (forest.if_true, forest.if_false):
        children = next_[decisions]
        if (inner[children] & (tree[children] != tree[decisions])).any():
            raise BadTreesError("has a node that belongs to two trees")
    trees = len(forest.roots)
    counts = np.bincount(tree[decisions], minlength=trees)
    roots = np.concatenate([[0], np.cumsum(1 + 2 * counts)])
    first = np.concatenate([[0], np.cumsum(counts)])
    rank = np.arange(len(decisions)) - first[tree[decisions]]
    pairs = np.full(len(inner), -1, np.int64)
    pairs[decisions] = roots[tree[decisions]] + 1 + 2 * rank
    content = np.empty(int(roots[-1]), np.int64)
    content[roots[:-1]] = forest.roots
    content[pairs[decisions]] = forest.if_false[decisions]
    content[pairs[decisions] + 1] = forest.if_true[decisions]
    asks = inner[content]
    reached = np.flatnonzero(~inner & (level >= 0))
    depths = np.zeros(trees, np.int64)
    np.maximum.at(depths, tree[decisions], level[decisions] + 1)
    return Tables(
        forest.thresholds[content],
        np.where(asks, forest.features[content], sentinel),
        np.where(asks, pairs[content] - np.arange(len(content)), 0),
        roots[:-1].astype(np.int32),
        depths.astype(np.int32),
        float(level[reached].mean()),
    )


def _levels(forest: Forest, inner: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each node the length of the longest way to it, and its tree; -1 where none leads to it."""
    import numpy as np

    tree = np.full(len(inner), -1, np.int64)
    tree[forest.roots] = np.arange(len(forest.roots))
    frontier = forest.roots
    arrivals = np.zeros(len(inner), np.int64)
    while len(frontier):
        asking = frontier[inner[frontier]]
        children = np.concatenate([forest.if_true[asking], forest.if_false[asking]])
        np.add.at(arrivals, children, 1)
        new, place = np.unique(children, return_index=True)
        fresh = tree[new] < 0
        tree[new[fresh]] = np.concatenate([tree[asking], tree[asking]])[place[fresh]]
        frontier = new[fresh]
    level = np.full(len(inner), -1, np.int64)
    frontier = forest.roots[arrivals[forest.roots] == 0]
    done, depth = 0, 0
    while len(frontier):
        level[frontier] = depth
        done += len(frontier)
        asking = frontier[inner[frontier]]
        children = np.concatenate([forest.if_true[asking], forest.if_false[asking]])
        np.subtract.at(arrivals, children, 1)
        new = np.unique(children)
        frontier = new[arrivals[new] == 0]
        depth += 1
    if done < int((tree >= 0).sum()):
        raise BadTreesError("leads from a node back to itself")
    return level, tree


def search(bounds: Sequence[int], answers: Sequence[bool], ends: tuple[int, int], add: Any) -> int:
    """A balanced search among bounds as nodes; the number of its root.

    Args:
        ends: numbers of the nodes that stand for the answers False and True.
        add: writes a node of a bound and its two next ones (if key <= bound, if not); returns its number.
    """
    if not bounds:
        return ends[answers[0]]
    middle = (len(bounds) - 1) // 2
    low = search(bounds[:middle], answers[: middle + 1], ends, add)
    high = search(bounds[middle + 1 :], answers[middle + 1 :], ends, add)
    return int(add(bounds[middle], low, high))
