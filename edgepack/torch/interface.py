"""How a subgraph's arguments become a library's inputs, and its results are made of the library's outputs.

Results of PyTorch's may be views of each other, have strides of their own, or be no tensors; a compiled
model gives contiguous tensors that share no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Interface", "Result"]

#: Makes a result of the library's outputs and the subgraph's arguments.
Maker = Callable[[Sequence[torch.Tensor], Sequence[Any]], Any]


@dataclass(frozen=True)
class Result:
    """One result of a subgraph: made of an output of the library, an argument, or constant.

    Attributes:
        output: number of the library's output that it is made of.
        argument: number of the subgraph's argument that it is, or is a view of.
        value: the constant: None, a bool, int or float.
        order: the axes of the output in the order of the result's; None for that of the output.
        view: size, strides and offset, in elements, of a view of the output or argument; None for all of it.
    """

    output: int | None = None
    argument: int | None = None
    value: Any = None
    order: tuple[int, ...] | None = None
    view: tuple[tuple[int, ...], tuple[int, ...], int] | None = None

    def maker(self) -> Maker:
        """What makes it."""
        number, argument, value, order, view = self.output, self.argument, self.value, self.order, self.view
        if argument is not None and view is None:
            return lambda _outputs, args: args[argument]
        if argument is not None and view is not None:
            size, stride, offset = view
            return lambda _outputs, args: args[argument].as_strided(
                size, stride, offset + args[argument].storage_offset()
            )
        if number is None:
            return lambda _outputs, _args: value
        if view is not None:
            size, stride, offset = view
            return lambda outputs, _args: outputs[number].as_strided(size, stride, offset)
        if order is not None:
            return lambda outputs, _args: outputs[number].permute(order)
        return lambda outputs, _args: outputs[number]

    def to_json(self) -> list[Any]:
        """Plain data; a float as text, as JSON has no infinity."""
        value = ["float", repr(self.value)] if isinstance(self.value, float) else ["", self.value]
        return [self.output, self.argument, value, self.order, self.view]

    @staticmethod
    def from_json(data: Any) -> Result:
        """What :meth:`to_json` gave. Raises ValueError, TypeError for something else."""
        output, argument, (kind, value), order, view = data
        return Result(
            output,
            argument,
            float(value) if kind else value,
            None if order is None else tuple(order),
            None if view is None else (tuple(view[0]), tuple(view[1]), int(view[2])),
        )


@dataclass(frozen=True)
class Interface:
    """What a library of a subgraph takes and gives.

    Attributes:
        taken: which of the subgraph's arguments the library's inputs ``x<number>`` are.
        given: shape and dtype of each output, ``y0``, ``y1``, ...
        results: of the subgraph.
    """

    taken: tuple[int, ...]
    given: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    results: tuple[Result, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        given = [[shape, str(dtype).removeprefix("torch.")] for shape, dtype in self.given]
        return {
            "taken": self.taken,
            "given": given,
            "results": [one.to_json() for one in self.results],
        }

    @staticmethod
    def from_json(data: Any) -> Interface:
        """What :meth:`to_json` gave. Raises ValueError, TypeError, LookupError, AttributeError for something
        else."""
        return Interface(
            tuple(int(one) for one in data["taken"]),
            tuple((tuple(shape), getattr(torch, dtype)) for shape, dtype in data["given"]),
            tuple(Result.from_json(one) for one in data["results"]),
        )
