"""Takes out of a program what only checks values at run time: a packed model computes its results, and raises
nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

__all__ = ["CHECKS", "drop_checks"]

#: Operators that raise where a value is not what it must be, and compute nothing.
CHECKS = frozenset(
    {
        "aten._assert_tensor_metadata.default",
        "aten._assert_scalar.default",
        "aten._assert_async.default",
        "aten._assert_async.msg",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
    }
)


def drop_checks(program: ExportedProgram) -> None:
    """Leave out the checks of a program, and what was computed for them alone, in place.

    Args:
        program: nobody else's: its graph is changed.
    """
    graph = program.graph_module.graph
    todo = [node for node in graph.nodes if str(node.target) in CHECKS]
    if not todo:
        return
    while todo:
        node = todo.pop()
        if node.users or not _computes_only(node):
            continue
        todo += node.all_input_nodes
        graph.erase_node(node)
    program.graph_module.recompile()


def _computes_only(node: torch.fx.Node) -> bool:
    """Whether a node can be left out where nobody reads its result: it is called, and changes nothing."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and (schema is None or not schema.is_mutable)
