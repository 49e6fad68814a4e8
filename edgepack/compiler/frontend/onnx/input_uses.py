"""What the integers of a model's inputs are used for, which says what they may be: indices, masks, numbers
that are compared with others, lengths, divisors."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.function_bodies import inlined
from edgepack.compiler.frontend.onnx.index_operands import MASKS, index_bound, may_be_negative
from edgepack.compiler.frontend.onnx.shapes import all_nodes, infer_shapes, inner_graphs
from edgepack.compiler.frontend.onnx.small_constants import SmallConstants

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["InputUses", "IntegerRange", "IntegerUse"]

#: Operators through which a value reaches another place unchanged, from the inputs with these indices; None
#: for all of them.
MOVES = {
    **dict.fromkeys(("Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "Transpose"), (0,)),
    **dict.fromkeys(("Slice", "Expand", "Tile", "Split", "CastLike", "Gather", "Dropout", "Pad"), (0,)),
    **dict.fromkeys(("GatherElements", "GatherND", "ReduceMax", "ReduceMin", "DepthToSpace"), (0,)),
    "Concat": None,
    "Where": (1, 2),
}

#: Comparisons with order, beside Equal.
_ORDERED = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")

#: How far around a number that an integer is compared with it is drawn.
AROUND = 8

#: Different numbers from which on a constant counts as all of what an integer can be: a one-hot's columns.
_SEVERAL = 3

#: Least and greatest number; infinities where nothing is known.
IntegerRange = tuple[float, float]

_ANYTHING = (-math.inf, math.inf)

#: Most ways by which a value is reached.
_PATHS = 4


@dataclass(frozen=True)
class IntegerUse:
    """What the integers of an input are used for.

    Attributes:
        bound: what they must lie in, for they index or count something; None for nothing.
        ends: of indices, the outermost ones, also from the end where these count from there.
        usual: what they lie in where both sides of all comparisons are met; None if there are none.
        special: numbers at which something changes: those that they are compared with, bounds of a Clip.
        mask: whether they become conditions, or factors of 0 and 1.
        divisor: whether something is divided by them.
        chosen: of an input of one number, what it is compared with, which chooses one of the model's ways.
    """

    bound: IntegerRange | None = None
    ends: IntegerRange | None = None
    usual: IntegerRange | None = None
    special: tuple[int, ...] = ()
    mask: bool = False
    divisor: bool = False
    chosen: int | None = None


@dataclass(frozen=True)
class _Read:
    """A node that reads a value that is made of an input.

    Attributes:
        index: as which of its inputs.
        path: what was done to the input before, first to last: an operation and the least and greatest number
            that it was done with.
    """

    node: onnx.NodeProto
    index: int
    path: tuple[tuple[str, float, float], ...]

    def back(self, low: float, high: float) -> IntegerRange:
        """What the input lies in where the value that is read lies between two numbers."""
        for operation, least, most in reversed(self.path):
            if operation == "add":
                low, high = low - least, high - most
            elif operation == "from":
                low, high = most - high, least - low
            elif operation == "times":
                low, high = math.ceil(low / most), math.floor(high / most)
            elif operation == "divided":
                low, high = low * most, high * most + most - 1
            else:  # bounded
                low = -math.inf if least >= low else low
                high = math.inf if most <= high else high
        return low, high


class InputUses:
    """Where the values of a model's inputs go.

    Args:
        model: all input shapes static.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        inferred = infer_shapes(inlined(model))
        self._reads: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
        for node in all_nodes(inferred.graph):
            for index, name in enumerate(node.input):
                if name:
                    self._reads[name].append((node, index))
        graph = inferred.graph
        self.shapes = {
            value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for value in (*graph.input, *graph.value_info, *graph.output)
        }
        self.shapes.update({tensor.name: list(tensor.dims) for tensor in graph.initializer})
        self._constants = SmallConstants(graph, self.shapes)

    def use(self, name: str) -> IntegerUse:
        """What the integers of an input are used for."""
        bounds: list[IntegerRange] = []
        usual: list[IntegerRange] = []
        special: set[float] = set()
        mask, divisor, from_the_end, chosen = "mask" in name.lower(), False, True, None
        for read in self._reached(name):
            if (found := self._bound(read)) is not None:
                bounds.append(found)
                from_the_end &= may_be_negative(read.node) and not read.path
            ranges, numbers = self._compared(read)
            usual += ranges
            special.update(numbers)
            divisor |= read.node.op_type in ("Div", "Mod") and read.index == 1
            mask |= self._is_mask(read)
            if read.node.op_type == "Equal" and len(numbers) == 1 and prod(self.shapes.get(name, [0])) == 1:
                chosen = int(min(numbers)) if chosen is None else chosen
        return IntegerUse(
            _both(bounds),
            _ends(bounds, from_the_end),
            (min(low for low, _ in usual), max(high for _, high in usual)) if usual else None,
            tuple(sorted(int(number) for number in special)),
            mask and (not usual or "mask" in name.lower()),
            divisor,
            chosen,
        )

    def _reached(self, name: str) -> Iterator[_Read]:
        """All that reads the value, also after it was moved, or computed with constants."""
        todo: list[tuple[str, tuple[tuple[str, float, float], ...]]] = [(name, ())]
        seen: dict[str, list[tuple[tuple[str, float, float], ...]]] = defaultdict(list)
        while todo:
            value, path = todo.pop()
            if path in seen[value] or len(seen[value]) == _PATHS:
                continue
            seen[value].append(path)
            for node, index in self._reads[value]:
                read = _Read(node, index, path)
                yield read
                if (step := self._step(read)) is not None:
                    todo += [(output, (*path, *step)) for output in node.output if output]
                todo += [(inner, path) for inner in _inside(node, index)]

    def _step(self, read: _Read) -> tuple[tuple[str, float, float], ...] | None:
        """What a node does to a value: nothing, an operation with constants, or what cannot be followed."""
        op, index = read.node.op_type, read.index
        if op in MOVES:
            moved = MOVES[op]
            return () if moved is None or index in moved else None
        if op == "Neg":
            return (("from", 0, 0),)
        if op in ("Clip", "Min", "Max"):
            return None if (limits := self._limits(read)) is None else (("bounded", *limits),)
        numbers = self._constants.numbers(read.node.input[1 - index]) if op in _ARITHMETIC else None
        if numbers is None or not numbers.size:
            return None
        least, most = float(numbers.min()), float(numbers.max())
        if op == "Add":
            return (("add", least, most),)
        if op == "Sub":
            return (("from", least, most),) if index == 1 else (("add", -most, -least),)
        if least != most or most < 1 or (op == "Div" and index == 1):
            return None
        return (("times" if op == "Mul" else "divided", most, most),)

    def _limits(self, read: _Read) -> IntegerRange | None:
        """Between which numbers a Clip, or a Min or Max with a constant, leaves a value."""
        node = read.node
        if node.op_type == "Clip":
            given = {item.name: item.f for item in node.attribute}
            names = [*node.input[1:], "", ""][:2] if read.index == 0 else []
            ends = [given.get("min", -math.inf), given.get("max", math.inf)]
            for place, name in enumerate(names):
                numbers = self._constants.numbers(name) if name else None
                if name and (numbers is None or not numbers.size):
                    return None
                ends[place] = float(numbers.flat[0]) if numbers is not None and numbers.size else ends[place]
            return (ends[0], ends[1]) if names else None
        if len(node.input) != 2:
            return None
        numbers = self._constants.numbers(node.input[1 - read.index])
        if numbers is None or not numbers.size:
            return None
        if node.op_type == "Min":
            return -math.inf, float(numbers.max())
        return float(numbers.min()), math.inf

    def _bound(self, read: _Read) -> IntegerRange | None:
        found = index_bound(read.node, read.index, self.shapes, self._constants)
        if found is None:
            return None
        low, high = read.back(*found)
        # An offset is seldom there for numbers below 0.
        return (0 if math.isfinite(low) and low < 0 <= high else low), high

    def _compared(self, read: _Read) -> tuple[list[IntegerRange], list[float]]:
        """What an input is drawn from for the sake of a comparison, a Clip, or a remainder; and numbers at
        which that changes."""
        op = read.node.op_type
        if op in ("Clip", "Min", "Max"):
            ends = [end for end in self._limits(read) or () if math.isfinite(end)]
            return _around(read, min(ends), max(ends), ordered=True) if ends else ([], [])
        if op not in ("Equal", "Mod", *_ORDERED) or (op == "Mod" and read.index == 1):
            return [], []
        numbers = self._constants.numbers(read.node.input[1 - read.index])
        if numbers is None or not numbers.size:
            return [], []
        least, most = float(numbers.min()), float(numbers.max())
        if op == "Equal" and _is_truth(numbers):
            return [], _around(read, least, most, ordered=False)[1]
        if op == "Mod":
            return _finite([read.back(-2 * most, 2 * most)]), []
        if numbers.size >= _SEVERAL:
            return _finite([read.back(math.floor(least), math.ceil(most) + (op != "Equal"))]), []
        return _around(read, least, most, ordered=op != "Equal")

    def _is_mask(self, read: _Read) -> bool:
        """Whether a value becomes a condition, or is 1 or 0 of something."""
        import onnx

        op, index = read.node.op_type, read.index
        if op == "Cast":
            return any(item.name == "to" and item.i == onnx.TensorProto.BOOL for item in read.node.attribute)
        if op == "Equal":
            numbers = self._constants.numbers(read.node.input[1 - index])
            return numbers is None or _is_truth(numbers)
        if op == "Sub":
            return index == 1 and self.shapes.get(read.node.input[0]) in ([], [1])
        return op in ("And", "Not") or (op, index) in (("Where", 0), *MASKS)


_ARITHMETIC = ("Add", "Sub", "Mul", "Div")


def _inside(node: onnx.NodeProto, index: int) -> Iterator[str]:
    """What an input of a loop is called inside."""
    if node.op_type in ("Loop", "Scan") and (node.op_type == "Scan" or index >= 2):
        for graph in inner_graphs(node):
            if index < len(graph.input):
                yield graph.input[index].name


def _both(bounds: list[IntegerRange]) -> IntegerRange | None:
    """What lies in all bounds; where nothing does, as with indices from both ends, in one or the other."""
    if not bounds:
        return None
    low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
    if low > high:
        joined = sorted(bounds)
        low, high = joined[-1]
        if len(joined) == 2 and joined[0][1] + 1 == low:
            low = joined[0][0]
    return None if (low, high) == _ANYTHING else (low, max(low, high))


def _ends(bounds: list[IntegerRange], from_the_end: bool) -> IntegerRange | None:
    """The outermost numbers of all bounds."""
    if not bounds or (found := _both(bounds)) is None or not all(math.isfinite(end) for end in found):
        return None
    low, high = found
    return (-high - 1, high) if from_the_end and low == 0 else found


def _is_truth(numbers: NDArray[Any]) -> bool:
    """Whether numbers are 0 and 1 alone."""
    return bool(((numbers == 0) | (numbers == 1)).all())


def _finite(ranges: list[IntegerRange]) -> list[IntegerRange]:
    return [(low, high) for low, high in ranges if math.isfinite(low) and math.isfinite(high) and low <= high]


def _around(
    read: _Read, least: float, most: float, *, ordered: bool
) -> tuple[list[IntegerRange], list[float]]:
    """Numbers of an input around those that become ``least`` or ``most``, and those at which it changes
    whether they do; ``ordered``, where it matters on which side they are."""
    low, high = sorted(read.back(least, most))
    if not (math.isfinite(low) and math.isfinite(high)):
        return [], []
    low, high = math.floor(low), math.ceil(high)
    numbers = [low - 1, low, high, high + 1] if ordered else [low, high]
    return [(low - AROUND, high + AROUND)], [float(number) for number in numbers]
