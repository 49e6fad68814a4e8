"""Draws chains."""

from __future__ import annotations

import math

import onnx

from workbench.models.chains.builder import ChainBuilder
from workbench.models.chains.elements import ELEMENTS
from workbench.models.chains.tensors import TENSORS

__all__ = ["INPUTS", "Chain"]

#: Ranges of inputs that a chain is to be run with: around zero, of negative numbers alone, and large ones.
INPUTS = {"around zero": (-2.0, 2.0), "negative": (-1.5, -0.5), "large": (-30.0, 30.0)}

#: Names of links that are drawn four times as often, because patterns of optimisers have them.
OFTEN = ("conv", "depthwise", "max_pool", "average_pool", "pad", "quantised", "batch_norm", "by_constant")

#: Elements of a tensor, of which no chain goes on.
LARGEST = 4096

LINKS = {**ELEMENTS, **TENSORS}


class Chain(ChainBuilder):
    """A chain with one output ``y``.

    Attributes:
        links: the names of what was drawn.
    """

    def __init__(self, seed: int, longest: int = 4) -> None:
        super().__init__(seed)
        self.links: list[str] = []
        count = int(self.rng.integers(2, longest + 1))
        while len(self.links) < count and math.prod(self.shape) < LARGEST:
            name = self.draw(*LINKS, *OFTEN * 3)
            if LINKS[name](self):
                self.links.append(name)
        self.graph.op("Identity", self.value, name="y")
        self.graph.output("y")

    @property
    def model(self) -> onnx.ModelProto:
        return self.graph.model()
