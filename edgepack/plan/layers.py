"""Tensors between the kernels of a bundle, which are looked at one by one."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["InnerTensor", "chosen_tensors"]


@dataclass(frozen=True)
class InnerTensor:
    """What a node of a model computes.

    Attributes:
        node: its name.
        operator: as the model has it.
        tensor: its name.
        reads: names of the tensors that the node reads.
    """

    node: str
    operator: str
    tensor: str
    reads: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> InnerTensor:
        """What :meth:`to_json` wrote."""
        return cls(data["node"], data["operator"], data["tensor"], tuple(data["reads"]))


def chosen_tensors(
    steps: Iterable[Sequence[str]], tensors: Iterable[InnerTensor]
) -> dict[str, tuple[InnerTensor, int]]:
    """By name, the tensors at the ends of steps, where a kernel writes its result anyway, and the step's
    index.

    Args:
        steps: the names of the nodes that each computes; of a node that several compute, the last one has its
            result.
        tensors: in the order of the model.
    """
    listed = list(tensors)
    places = {one.node: place for place, one in enumerate(listed)}
    every = [list(nodes) for nodes in steps]
    last = {node: index for index, nodes in enumerate(every) for node in nodes}
    found = {}
    for index, nodes in enumerate(every):
        ends = [places[node] for node in nodes if node in places and last[node] == index]
        if ends:
            one = _behind_unnamed(listed[max(ends)], listed, last)
            found[one.tensor] = (one, index)
    return found


def _behind_unnamed(one: InnerTensor, listed: Sequence[InnerTensor], named: Container[str]) -> InnerTensor:
    """What a kernel makes of a tensor by nodes that no step names: a Relu that is a part of a product."""
    while True:
        readers = [other for other in listed if one.tensor in other.reads]
        if len(readers) != 1 or readers[0].node in named:
            return one
        one = readers[0]
