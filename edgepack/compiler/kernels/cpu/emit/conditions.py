"""Conditions on positions: decided here, or by a branch or a cut outside of the vectors that are emitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgepack.compiler.kernels.cpu.emit.affine import INT32, Affine, IndexVariables
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.values import Values
from edgepack.compiler.kernels.expressions.operations import Operation

__all__ = ["Conditions", "NeedsBranch", "NeedsSplit", "VariesAcrossLanes"]

#: Cuts of a row at which a quotient changes.
MOST_CUTS = 8


class NeedsBranch(Exception):  # noqa: N818 - a request, not a failure
    """A branch on ``position <= 0`` that the generator cannot decide; the same in all lanes."""

    def __init__(self, position: Affine) -> None:
        super().__init__(position)
        self.position = position


class NeedsSplit(Exception):  # noqa: N818
    """A branch that changes along the lanes: where the lane axis' variable reaches ``at``."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class VariesAcrossLanes(Exception):  # noqa: N818
    """A branch on several axes at once that changes along the lanes: both sides are evaluated."""


class Conditions(Values):
    """Decides conditions on positions.

    Args:
        e: where to emit.
        lanes: elements of a vector.
        variables: the variables of positions.
        conditions: for positions, whether they are <= 0 here.
        lane_variable: the number of the vector in its loop; conditions on it can be cut.
        origin: where along the lanes' axis the first vector begins.
    """

    def __init__(
        self,
        e: Emitter,
        lanes: int,
        variables: IndexVariables,
        conditions: Mapping[Affine, bool] | None = None,
        lane_variable: str = "",
        origin: int = 0,
    ) -> None:
        super().__init__(e, lanes, variables)
        self.conditions, self.lane_variable = dict(conditions or {}), lane_variable
        self.origin = origin

    def bounds_here(self, x: Affine) -> tuple[int, int]:
        """Least and largest value of a position over all lanes, where the conditions that are known here
        hold: those on one variable each, and on no lane."""
        variables = self.variables.child()
        for position, at_most in self.conditions.items():
            if position.uniform and len(position.terms) == 1:
                ((name, step),) = position.terms
                least, largest = variables.ranges.get(name, INT32)
                # step * n + constant is at most 0, or at least 1.
                end = -position.constant if at_most else 1 - position.constant
                if at_most == (step > 0):
                    largest = min(largest, end // step)
                else:
                    least = max(least, -(-end // step))
                variables.ranges[name] = least, largest
        return variables.bounds(x, self.lanes)

    def _at_most(self, d: Affine) -> bool:
        """Whether d <= 0, by bounds or by what is known here; raises NeedsBranch or NeedsSplit."""
        low, high = self.variables.bounds(d, self.lanes)
        if high <= 0:
            return True
        if low > 0:
            return False
        if d in self.conditions:
            return self.conditions[d]
        if d.uniform and not d.coefficient(self.lane_variable):
            raise NeedsBranch(d)
        if not self._cuttable(d):
            raise VariesAcrossLanes
        raise NeedsSplit(self._cut(d))

    def _cuttable(self, d: Affine) -> bool:
        """Whether only the position along the lanes' axis decides about d <= 0."""
        step = d.coefficient(self.lane_variable)
        known = d.terms in {(), ((self.lane_variable, step),)} and bool(step or d.lane_step)
        return known and (not step or d.lane_step in {0, step // self.lanes})

    def _cut(self, d: Affine) -> int:
        """Where along the lanes' axis d <= 0 changes its truth."""
        step = d.lane_step or d.coefficient(self.lane_variable)
        offset = d.constant - step * self.origin if d.lane_step else d.constant
        # step * x + offset <= 0 changes its truth between x = at - 1 and x = at.
        at = -offset // step + 1 if step > 0 else -(offset // step)
        return at if d.lane_step else self.origin + at * self.lanes

    def _positions(self, operation: Operation, a: Affine, b: Affine) -> Any:
        found = super()._positions(operation, a, b)
        name = operation.name
        if found is None and name in {"max", "min"} and self.lane_variable and self._cuttable(a - b):
            return a if self._at_most(b - a) == (name == "max") else b
        return found

    def _quotient(self, x: Affine, divisor: int) -> tuple[Any, Any]:
        """Cuts the row where the quotient changes, if that leaves whole vectors."""
        whole, rest = self.variables.divide(x, divisor)
        low, high = (n // divisor for n in self.variables.bounds(rest, self.lanes))
        long = self.lane_variable and rest.terms and divisor >= self.lanes * abs(rest.lane_step)
        if rest.uniform or not long or high - low > MOST_CUTS or not self._cuttable(rest):
            return super()._quotient(x, divisor)
        q = low
        while q < high and not self._at_most(rest.plus(1 - (q + 1) * divisor)):
            q += 1
        return whole.plus(q), rest.plus(-q * divisor)
