"""Refuses programs that were exported in training mode: a packed model neither learns nor draws numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgepack.errors import ModelError
from edgepack.programs.places import module_of

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

__all__ = ["refuse_training"]

#: Operators that update statistics or draw numbers where their argument of this name is true.
_TRAINING = {
    "batch_norm": "training",
    "_native_batch_norm_legit": "training",
    "_native_batch_norm_legit_functional": "training",
    "_batch_norm_with_update": "",
    "_batch_norm_with_update_functional": "",
    "native_dropout": "train",
    "dropout": "train",
    "feature_dropout": "train",
    "alpha_dropout": "train",
}


def refuse_training(functional: ExportedProgram, where: str) -> None:
    """Raise ModelError where an operator of a program updates statistics or draws numbers.

    A batch norm without running statistics updates none: in training mode it is that of an instance, which
    standardises weights too (Qiao et al., "Micro-Batch Training with Batch-Channel Normalization and Weight
    Standardization", 2019; BiT, NFNet).

    Args:
        functional: a decomposed program (``run_decompositions``).
        where: of the program, for messages.
    """
    for node in functional.graph.nodes:
        if node.op != "call_function":
            continue
        name = getattr(node.target, "_opname", "")
        if name not in _TRAINING or not _is_true(node, _TRAINING[name]) or _has_no_statistics(node):
            continue
        module = module_of(node)
        raise ModelError(
            f"{where} was exported in training mode: {name} at {module or node.name} updates statistics "
            "or draws random numbers.",
            hint="Call module.eval() before it is exported.",
        )


def _is_true(node: torch.fx.Node, argument: str) -> bool:
    return not argument or bool(_given(node, argument))


def _has_no_statistics(node: torch.fx.Node) -> bool:
    """Whether it is a batch norm that is given no running mean."""
    return "batch_norm" in node.target._opname and _given(node, "running_mean") is None


def _given(node: torch.fx.Node, argument: str) -> Any:
    """What an operator is given as an argument of this name; None where that is nothing."""
    if argument in node.kwargs:
        return node.kwargs[argument]
    names = [one.name for one in node.target._schema.arguments]
    at = names.index(argument) if argument in names else len(node.args)
    return node.args[at] if at < len(node.args) else None
