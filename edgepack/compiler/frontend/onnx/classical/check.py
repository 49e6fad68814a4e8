"""Refuses decision trees that are none before anything else reads them, which might not end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.classical.texts import DOMAIN

if TYPE_CHECKING:
    import onnx

__all__ = ["check_ensembles"]


def check_ensembles(model: onnx.ModelProto) -> None:
    """Reads the trees of a model.

    Raises:
        RefusedNodesError: attributes of a node do not fit each other, or a node leads back to itself.
    """
    import numpy as np

    from edgepack.compiler.frontend.onnx.classical.ensemble import read_ensemble, read_old_ensemble
    from edgepack.compiler.frontend.onnx.classical.forest import check_trees
    from edgepack.compiler.frontend.onnx.rewrites.editor import attributes

    for node in model.graph.node:
        if node.domain == DOMAIN and node.op_type.startswith("TreeEnsemble"):
            read = read_ensemble if node.op_type == "TreeEnsemble" else read_old_ensemble
            check_trees(node, read(node, attributes(node), np.dtype(np.float64)))
