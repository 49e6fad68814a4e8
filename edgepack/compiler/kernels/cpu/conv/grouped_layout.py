"""How groups of channels lie in vectors: what each lane of a product of several groups multiplies and sums.

A *block* is some groups whose output channels together fill whole vectors. A step of the reduction multiplies
one unit of each group's input by a unit of the weights of each of its output channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import lcm
from typing import Any

import numpy as np

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.register_transpose import shuffle

__all__ = ["GroupLayout", "layouts"]

#: Units of a window that a load repeats in all lanes: 128 bits, inside of which x86 shuffles fastest.
WINDOW = 4

#: Vectors of sums of a pixel, at most.
MOST_VECTORS = 4


@dataclass(frozen=True)
class GroupLayout:
    """Groups in vectors, in one of two forms.

    *Repeated*: the units of all groups of a block are a window of at most four, which a load repeats in all
    lanes. A lane belongs to the group whose unit lies in it, so the window is the first step's operand, and
    one shuffle inside of windows makes that of each other step. Sums are brought into order when they are
    stored. *Blended*: a unit of a group is repeated in all lanes, and a vector that holds channels of several
    groups is blended of theirs.

    Attributes:
        lanes: sums in a vector.
        units: of the input of a group, and ``outputs`` its output channels.
        groups: of a block, and ``vectors`` those of its sums.
        repeated: which form.
    """

    lanes: int
    units: int
    outputs: int
    groups: int
    vectors: int
    repeated: bool

    @property
    def window(self) -> int:
        """Units of the input of a block."""
        return self.groups * self.units

    def channels(self) -> Array:
        """The output channel of the block that each lane of each vector sums."""
        at = np.arange(self.vectors * self.lanes)
        if self.repeated:
            windows, inside = at // self.window, at % self.window
            at = inside // self.units * self.outputs + windows * self.units + inside % self.units
        return at.reshape(self.vectors, self.lanes)

    def unit(self, step: int) -> Array:
        """Which unit of its group's input each lane of each vector multiplies in a step."""
        order = np.full(self.vectors * self.lanes, step)
        if self.repeated:
            order = np.arange(order.size) % self.units ^ step
        return order.reshape(self.vectors, self.lanes)

    def first_group(self, block: Any, groups: int, least: Callable[[Any, Any], Any]) -> Any:
        """The first group of a block. The last block ends with the last group, and may overlap the one
        before."""
        first = block * self.groups
        return least(first, groups - self.groups) if groups % self.groups else first

    def pack(self, units: Array, groups: int) -> Array:
        """Units (rows, taps, units of a group, output channels) as [block][row][step][tap][vector][lane]."""
        blocks = []
        for block in range(-(-groups // self.groups)):
            at = self.channels() + self.first_group(block, groups, min) * self.outputs
            steps = [units[:, :, self.unit(step), at] for step in range(self.units)]
            blocks.append(np.stack(steps, axis=1).reshape(-1))
        return np.concatenate(blocks)

    def pack_sums(self, sums: Array, groups: int) -> Array:
        """A number of each row and output channel as [block][row][vector][lane]."""
        blocks = range(-(-groups // self.groups))
        first = [self.first_group(block, groups, min) * self.outputs for block in blocks]
        return np.concatenate([sums[:, self.channels() + at].reshape(-1) for at in first])

    # Operands and sums in registers -----------------------------------------------------------------------

    def operands(self, e: Emitter, x: Any, at: Any) -> Callable[[Any], list[Any]]:
        """The input of a block's groups at one pixel, whose units begin at ``at``: given a step, the operand
        of each vector."""
        lanes, width = self.lanes, self.window
        if self.repeated:
            window = [e.let(e.vload(x, at, width))] * (lanes // width)
            wide = window[0] if width == lanes else e.let(shuffle(window, range(lanes)))
            if width == 1:
                wide = e.let(e.splat(window[0], lanes))

            def rotated(step: int) -> list[Any]:
                order = [lane ^ step for lane in range(lanes)]
                return [e.let(shuffle([wide], order)) if step else wide] * self.vectors

            return rotated

        def blended(step: Any) -> list[Any]:
            repeated = [
                e.let(e.splat(e.load(x, at + g * self.units + step), lanes)) for g in range(self.groups)
            ]
            return [self._blended(e, repeated, vector) for vector in self.channels() // self.outputs]

        return blended

    def _blended(self, e: Emitter, repeated: list[Any], groups: Array) -> Any:
        """One vector of those of the groups that its lanes belong to, in order."""
        made, lanes = repeated[groups[0]], self.lanes
        for group in range(groups[0] + 1, groups[-1] + 1):
            order = [lane if groups[lane] < group else lanes + lane for lane in range(lanes)]
            made = e.let(shuffle([made, repeated[group]], order))
        return made

    def in_order(self, e: Emitter, sums: list[Any]) -> list[Any]:
        """The sums of a pixel as vectors of neighbouring output channels."""
        if not self.repeated or self.window == 1:
            return sums
        lane = np.argsort(self.channels().reshape(-1)).reshape(self.vectors, self.lanes)
        return [e.let(shuffle(sums, [int(i) for i in order])) for order in lane]


def layouts(conv: Conv2d, lanes: int) -> list[GroupLayout]:
    """Those that there are for the groups of a convolution of units, by vectors of so many lanes."""
    units, outputs = conv.group_in, conv.group_out
    found = []
    if not units:  # a depthwise convolution has no unit of several channels
        return []
    for groups in (n for n in (1, 2, 4) if n <= conv.groups and WINDOW % (n * units) == 0):
        fills = lanes % (groups * units) == 0 and groups * outputs % lanes == 0
        if fills and outputs % units == 0 and lanes // groups <= outputs:
            found.append(GroupLayout(lanes, units, outputs, groups, groups * outputs // lanes, True))
    groups = lcm(outputs, lanes) // outputs
    if groups <= conv.groups:
        found.append(GroupLayout(lanes, units, outputs, groups, groups * outputs // lanes, False))
    return [one for one in found if one.vectors <= MOST_VECTORS]
