"""Takes out of a program what only checks values at run time: a packed model computes its results, and raises
nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

__all__ = ["CHECKS", "drop_checks"]

#: Operators that raise where a value is not what it must be, and compute nothing.
CHECKS = frozenset({"aten._assert_tensor_metadata.default", "aten._assert_scalar.default"})


def drop_checks(program: ExportedProgram) -> None:
    """Leave out the checks of a program, and what was computed for them alone, in place.

    A check of a size that something else is computed with stays: PyTorch knows the size's bounds by it when
    it traces the program again.

    Args:
        program: nobody else's: its graph is changed.
    """
    graph = program.graph_module.graph
    backwards = list(reversed(graph.nodes))
    idle: set[torch.fx.Node] = set()
    for node in backwards:
        if str(node.target) in CHECKS or (
            _computes_only(node) and node.users and idle.issuperset(node.users)
        ):
            idle.add(node)
    for node in reversed(backwards):  # those that read a number which is not for checks alone
        if node in idle and not all(one in idle or _is_tensor(one) for one in node.all_input_nodes):
            idle.remove(node)
    for node in backwards:
        if node in idle and not node.users:
            graph.erase_node(node)
    program.graph_module.recompile()


def _computes_only(node: torch.fx.Node) -> bool:
    """Whether a node can be left out where nobody reads its result: it is called, and changes nothing."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and (schema is None or not schema.is_mutable)


def _is_tensor(node: torch.fx.Node) -> bool:
    import torch

    return isinstance(node.meta.get("val"), torch.Tensor)
