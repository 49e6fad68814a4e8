"""Which layers stay float so that the outputs are near enough to the float model's.

Each layer is quantised alone: what that costs the outputs says how much its return to float buys. The layers
return in that order, and how many must is found by halving, so that ``n`` layers take about ``n + log2 n``
quantised models, of which the first ``n`` run on a few samples only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.quantise.comparison import compared_outputs, least
from edgepack.compiler.frontend.onnx.quantise.structure import PRODUCTS, Structure
from edgepack.errors import CheckFailedError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["Choice"]

#: Samples on which each layer is tried alone.
TRIED = 4


@dataclass(frozen=True)
class Choice:
    """Of layers that stay float.

    Attributes:
        structure: of the float model.
        quantise: makes the quantised model in which the layers of some names are float.
        samples: what both are run on.
        note: is told what is tried.
    """

    structure: Structure
    quantise: Callable[[set[str]], onnx.ModelProto]
    samples: Iterable[Mapping[str, NDArray[Any]]]
    note: Callable[[str], None]

    def kept_float(self, bar: float, excluded: set[str]) -> tuple[str, ...]:
        """Names of the layers that return to float, those first that it helps most; none where nothing must.

        Args:
            bar: the signal-to-noise ratio, in dB, that each output has at least.
            excluded: names of layers that are float anyway.

        Raises:
            CheckFailedError: the bar is not reached while any product is quantised.
        """
        if (best := self._ratio(set(), self.samples)) >= bar:
            return ()
        names = [node.name for node in self.structure.layers if node.name not in excluded]
        order = self._ordered(names)
        missed, reached = 0, len(order)  # numbers of float layers; that with all of them nothing is rounded
        while reached - missed > 1:
            middle = (missed + reached) // 2
            self.note(f"{middle} of {len(order)} layers float")
            found = self._ratio({*order[:middle]}, self.samples)
            if found >= bar:
                reached = middle
            else:
                missed, best = middle, max(best, found)
        products = {node.name for node in self.structure.layers if node.op_type in PRODUCTS} - excluded
        if products <= {*order[:reached]}:
            raise CheckFailedError(
                f"--min-sqnr {bar:g}: outputs come no nearer than {best:.1f} dB with any of it rounded.",
                hint="Ask for less, calibrate with more samples or another --method, or pack the float one.",
            )
        return tuple(order[:reached])

    def _ordered(self, names: list[str]) -> list[str]:
        """The layers, that first which alone costs most; without those that alone cost nothing."""
        few = list(islice(self.samples, TRIED))
        alone = {}
        for name in names:
            self.note(name)
            alone[name] = self._ratio({*names} - {name}, few)
        return sorted((name for name in names if alone[name] < inf), key=lambda name: alone[name])

    def _ratio(self, float_layers: set[str], samples: Iterable[Mapping[str, NDArray[Any]]]) -> float:
        """Of the output that is worst off."""
        return least(compared_outputs(self.structure.model, self.quantise(float_layers), samples))
