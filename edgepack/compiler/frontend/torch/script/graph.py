"""What PyTorch's compiler made of a TorchScript archive's code, looked at once more: a second lock.

The first is :mod:`.source`, which knows names and forms; here are the compiler's own nodes, with the
operators and types that it found. Nothing of it has run but what ``__setstate__`` may call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgepack.compiler.frontend.torch.script.operators import is_allowed
from edgepack.compiler.frontend.torch.script.types import Refused

__all__ = ["check_graphs"]

#: Nodes that are no operators: control flow, and what makes and takes apart lists, tuples and objects.
_STRUCTURE = {
    f"prim::{name}"
    for name in (
        *(
            "Constant",
            "If",
            "Loop",
            "Uninitialized",
            "unchecked_cast",
            "isinstance",
            "tolist",
            "CreateObject",
        ),
        *("ListConstruct", "ListUnpack", "TupleConstruct", "TupleIndex", "TupleSlice", "TupleUnpack"),
        *("DictConstruct", "GetAttr", "SetAttr", "CallFunction", "CallMethod", "Enter", "Exit"),
        *("EnumName", "EnumValue"),
    )
}
#: Nodes with all calls written out, as the interpreter does.
_MOST_NODES = 500_000


def check_graphs(functions: Sequence[Any]) -> None:
    """Looks through the graphs of functions and methods (of ``torch._C.CompilationUnit.get_functions``).

    Raises:
        Refused: a node that is on no list, a type that is taken for granted, or too many nodes.
    """
    graphs = {str(one.qualified_name): _nodes(one.graph) for one in functions}
    calls: dict[str, list[str]] = {}
    for name, nodes in graphs.items():
        for node in nodes:
            _check(node)
        calls[name] = [called for node in nodes if (called := _called(node)) in graphs]
    sizes: dict[str, int] = {}
    for name in graphs:
        if _written_out(name, graphs, calls, sizes) > _MOST_NODES:
            raise Refused(f"its code has more than {_MOST_NODES} nodes with its functions written out")


def _nodes(block: Any) -> list[Any]:
    """Those of a graph, and of all blocks in it."""
    found = []
    for node in block.nodes():
        found.append(node)
        for inner in node.blocks():
            found += _nodes(inner)
    return found


def _check(node: Any) -> None:
    kind = str(node.kind())
    if kind not in _STRUCTURE and not is_allowed(kind):
        raise Refused(
            f"its code computes {kind!r:.80}, which is no arithmetic on tensors that edgepack knows"
        )
    for name in node.attributeNames():
        if str(node.kindOf(name)) in {"g", "gs"}:
            raise Refused(f"its code has a program within {kind!r:.80}")
    if kind == "prim::unchecked_cast":
        _check_cast(next(node.inputs()).type(), node.output().type())


def _check_cast(given: Any, taken: Any) -> None:
    """What is taken apart by position has to be of its type, or None: the interpreter does not ask."""
    if not ("__torch__" in taken.annotation_str or "Tuple" in taken.annotation_str):
        return
    inner = given.getElementType() if given.kind() == "OptionalType" else given
    if inner.annotation_str != taken.annotation_str:
        raise Refused(f"its code takes a {given.annotation_str:.80} for a {taken.annotation_str:.80}")


def _called(node: Any) -> str:
    """The whole name of the function or method that a node calls; "" for another node."""
    if node.kind() == "prim::CallMethod":
        return f"{next(node.inputs()).type().annotation_str}.{node.s('name')}"
    if node.kind() == "prim::CallFunction":
        return str(next(node.inputs()).type().annotation_str)
    return ""


def _written_out(
    name: str, graphs: dict[str, list[Any]], calls: dict[str, list[str]], sizes: dict[str, int]
) -> int:
    """Nodes of a function with its calls written out; a number beyond the limit for one that calls itself."""
    if name not in sizes:
        sizes[name] = _MOST_NODES + 1
        inner = sum(_written_out(one, graphs, calls, sizes) for one in calls[name])
        sizes[name] = len(graphs[name]) + inner
    return sizes[name]
