"""Ifs whose branches give lists or optional values: they give the tensors that these consist of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.sequences.context import UnknownListError
from edgepack.compiler.frontend.onnx.sequences.scope import Scope
from edgepack.compiler.frontend.onnx.sequences.values import Optional, Tensors, Value, same_form

if TYPE_CHECKING:
    import onnx

__all__ = ["give_tensors"]


def give_tensors(scope: Scope, node: onnx.NodeProto, branches: Sequence[Scope]) -> list[tuple[str, Value]]:
    """Gives an If the tensors of its lists as results, in place; its lists by name.

    Args:
        scope: of the graph that the node is in.
        branches: followed, not finished.

    Raises:
        UnknownListError: the branches differ in what they give; nothing is changed.
    """
    found: dict[int, tuple[Value, Value]] = {}
    for place, name in enumerate(node.output):
        one, other = (own.value(own.graph.output[place].name) for own in branches)
        if one is None or other is None:
            continue
        if not same_form(one, other):
            raise UnknownListError(f"its branches give {name!r} as {_text(one)} and as {_text(other)}")
        found[place] = one, other
    results = []
    for place in sorted(found, reverse=True):
        name = str(node.output[place])
        result, names = scope.like(found[place][0], name or f"{node.name}/unread")
        results.append((name, result))
        node.output[:] = [*node.output[:place], *names, *node.output[place + 1 :]]
        for own, value in zip(branches, found[place], strict=True):
            own.give(place, value)
        scope.context.changed = True
    return results


def _text(value: Value) -> str:
    if isinstance(value, Tensors):
        count = len(value.elements)
        return (
            "a list of unknown length" if value.is_open else f"a list of {count} tensor{'s' * (count != 1)}"
        )
    assert isinstance(value, Optional)
    return "nothing" if value.content is None else "a value that is there"
