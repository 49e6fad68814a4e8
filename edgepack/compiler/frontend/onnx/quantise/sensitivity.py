"""Which layers stay float so that a quantised model is as good as is asked for.

Each layer is quantised alone: what that costs the outputs says how much its return to float buys. The layers
return in that order, and how many must is found by halving, so that ``n`` layers take about ``n + log2 n``
quantised models, of which the first ``n`` run on a few samples only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.quantise.comparison import compared_outputs, least
from edgepack.compiler.frontend.onnx.quantise.structure import PRODUCTS, Structure
from edgepack.errors import CheckFailedError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["Choice", "Goal"]

#: Samples on which each layer is tried alone.
TRIED = 4


@dataclass(frozen=True)
class Goal:
    """How good a quantised model has to be.

    Attributes:
        bar: what its measure is to be at least.
        measure: of a model, the larger the better.
        asked: the option that says so, with its value.
        missed: what is said of the best measure where none reaches the bar.
    """

    bar: float
    measure: Callable[[onnx.ModelProto], float]
    asked: str
    missed: Callable[[float], str]

    def refusal(self, best: float) -> CheckFailedError:
        """That the bar is not reached."""
        return CheckFailedError(
            f"{self.asked}: {self.missed(best)} with any of it rounded.",
            hint="Ask for less, calibrate with more samples or another --method, or pack the float one.",
        )


@dataclass
class Choice:
    """Of layers that stay float.

    Attributes:
        structure: of the float model.
        quantise: makes the quantised model in which the layers of some names are float.
        samples: what both are run on.
        note: is told what is tried.
        excluded: names of layers that are float anyway.
    """

    structure: Structure
    quantise: Callable[[set[str]], onnx.ModelProto]
    samples: Iterable[Mapping[str, NDArray[Any]]]
    note: Callable[[str], None]
    excluded: set[str]

    def kept_float(self, goal: Goal, kept: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Names of the layers that return to float, those first that it helps most; none where nothing must.

        Args:
            goal: what is to be reached.
            kept: layers that have returned already; they are not named again.

        Raises:
            CheckFailedError: it is not reached while any product is quantised.
        """
        if (best := goal.measure(self.quantise({*kept}))) >= goal.bar:
            return ()
        order = [name for name in self._order if name not in kept]
        missed, reached = 0, len(order)  # numbers of float layers; that with all of them nothing is rounded
        while reached - missed > 1:
            middle = (missed + reached) // 2
            self.note(f"{middle} of {len(order)} layers float")
            found = goal.measure(self.quantise({*kept, *order[:middle]}))
            if found >= goal.bar:
                reached = middle
            else:
                missed, best = middle, max(best, found)
        products = {node.name for node in self.structure.layers if node.op_type in PRODUCTS} - self.excluded
        if products <= {*kept, *order[:reached]}:
            raise goal.refusal(best)
        return tuple(order[:reached])

    @cached_property
    def _order(self) -> list[str]:
        """The layers, that first which alone costs most; last those that cost nothing on a few samples."""
        names = [node.name for node in self.structure.layers if node.name not in self.excluded]
        few = list(islice(self.samples, TRIED))
        alone = {}
        for name in names:
            self.note(name)
            rounded = self.quantise({*names} - {name})
            alone[name] = least(compared_outputs(self.structure.model, rounded, few))
        return sorted(names, key=lambda name: alone[name])
