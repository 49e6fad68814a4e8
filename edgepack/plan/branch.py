"""Where a run goes on: what a step decides that is a branch. Plain data.

A plan's steps run in their order, but for branches: an If is a branch over the steps of one of its graphs, a
loop one that goes back. What they read lies in memory; the functions that decide are those of
``templates/runtime/branch/branch.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Branch", "BranchKind"]

#: "unless": taken if the condition is false. "always". "begin": sets a loop's counter to 0, and is taken if
#: there is no first trip. "again": counts a trip, and is taken if there is another one. "require" and
#: "forbid": never taken; the run fails unless the condition is true, or is false.
BranchKind = Literal["unless", "always", "begin", "again", "require", "forbid"]


@dataclass(frozen=True)
class Branch:
    """The function of a branch. Its pointers, as far as it has them, are a loop's counter (int64, written),
    the number of trips (int64) and the condition (bool).

    Attributes:
        trips: whether it reads a number of trips.
        condition: whether it reads a condition.
        most: trips that there can be; where the loop would go on nevertheless, the run fails if ``bounded``.
        bounded: ``most`` is not what the model says, but what there is room or time for.
    """

    kind: BranchKind
    trips: bool = False
    condition: bool = False
    most: int = 0
    bounded: bool = False

    @property
    def is_known(self) -> bool:
        """Whether a loop makes ``most`` trips, whatever the data are."""
        return not (self.trips or self.condition or self.bounded)

    @property
    def pointers(self) -> int:
        """How many it takes."""
        return (self.kind in {"begin", "again"}) + self.trips + self.condition
