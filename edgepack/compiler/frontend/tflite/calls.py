"""Which subgraphs call which: all that are called are there, and none calls itself, also not by way of
others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.flatbuffer import DamagedError

if TYPE_CHECKING:
    from edgepack.compiler.frontend.tflite.model import Subgraph

__all__ = ["check_calls"]


def check_calls(subgraphs: Sequence[Subgraph]) -> None:
    """Look at the calls of all operators, those that edgepack does not compile too: LiteRT follows them.

    Raises:
        DamagedError: a subgraph is called that is not there, or that called this one.
    """
    called = []
    for graph in subgraphs:
        found = {index: one.kind for one in graph.operators for index in _called(one.options)}
        for index, kind in found.items():
            if not 0 <= index < len(subgraphs):
                raise DamagedError(f"{kind} calls a subgraph {index} that is not there")
        called.append(sorted(found))
    done: set[int] = set()
    for start in range(len(subgraphs)):
        path: list[tuple[int, int]] = [(start, 0)]  # a stack of its own: a chain may be as long as the file
        open_ones = {start}
        while path:
            index, at = path.pop()
            if index in done or at == len(called[index]):
                done.add(index)
                open_ones.discard(index)
                continue
            path.append((index, at + 1))
            inner = called[index][at]
            if inner in open_ones:
                raise DamagedError(f"its subgraph {inner} calls itself")
            if inner not in done:
                open_ones.add(inner)
                path.append((inner, 0))


def _called(options: Mapping[str, Any]) -> list[int]:
    """The subgraphs that an operator's options name; -1 is for none."""
    found = []
    for name, value in options.items():
        if name.endswith("SubgraphIndex") or name == "subgraph":
            found.append(int(value))
        elif name.endswith("SubgraphIndices") and value is not None:
            found += [int(index) for index in value]
    return [index for index in found if index != -1]
