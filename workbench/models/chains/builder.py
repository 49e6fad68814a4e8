"""A chain of operators under construction, and by what it may go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from workbench.models.builder import Graph

__all__ = ["ChainBuilder", "Links"]

#: Steps of quantisations to 8 bits, of which a chain has each once: means of multiples of one are not in
#: the middle between two steps of another, where the last bit would decide.
STEPS = (0.0541, 0.1009, 0.0199, 0.0773, 0.0311, 0.0677, 0.0467, 0.0887)

_T = TypeVar("_T")

Link = Callable[["ChainBuilder"], bool]


class Links(dict[str, Link]):
    """By name what appends an operator, or two; false where it does not fit the tensor."""

    def link(self, function: Link) -> Link:
        self[function.__name__] = function
        return function


class ChainBuilder:
    """A model of opset 18 with one input ``x``, float32[1,C,H,W], whose last tensor has four axes too.

    Attributes:
        input_shape: of ``x``.
        shape: of the last tensor, ``value``.
        steps: of quantisations, that were not used yet.
    """

    def __init__(self, seed: int) -> None:
        self.graph = Graph(f"chain{seed}", seed=seed, opset=18)
        self.rng = self.graph.rng
        self.shape = [1, self.draw(3, 4), self.draw(7, 8), self.draw(7, 8)]
        self.input_shape = tuple(self.shape)
        self.value = self.graph.input("x", self.shape)
        self.steps = [float(step) for step in self.rng.permutation(STEPS)]

    def draw(self, *choices: _T) -> _T:
        return choices[int(self.rng.integers(len(choices)))]

    def floats(self, value: object) -> str:
        return self.graph.const(np.asarray(value, np.float32))

    def integers(self, *values: int) -> str:
        return self.graph.const(np.asarray(values, np.int64))

    def op(self, operator: str, *others: str, **attributes: Any) -> str:
        """An operator of the last value and others, whose result is not the last value yet."""
        return self.graph.op(operator, self.value, *others, **attributes)

    def add(self, operator: str, *others: str, shape: Sequence[int] | None = None, **attributes: Any) -> bool:
        """Appends an operator of the last value and others; its result has ``shape``, or the same."""
        return self.become(self.op(operator, *others, **attributes), shape)

    def become(self, value: str, shape: Sequence[int] | None = None) -> bool:
        self.value, self.shape = value, list(self.shape if shape is None else shape)
        return True

    def windows(self, size: int, stride: int, pad: int) -> list[int] | None:
        """Height and width of what a window reads; None where it is larger than the image."""
        found = [(extent + 2 * pad - size) // stride + 1 for extent in self.shape[2:]]
        return found if min(found) > 0 else None

    def operand(self, low: float, high: float) -> str:
        """A constant of some of the axes."""
        _, channels, height, width = self.shape
        shapes = [
            (),
            (channels, 1, 1),
            (1, channels, 1, 1),
            (width,),
            (1, 1, height, width),
            tuple(self.shape[1:]),
        ]
        return self.graph.uniform(*self.draw(*shapes), low=low, high=high)
