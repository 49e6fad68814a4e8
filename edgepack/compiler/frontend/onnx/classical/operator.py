"""Operators of edgepack's domain that are imported as one function each: trees, and the probabilities of a
support vector machine. ``rewrites/classical_operators.py`` writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from edgepack.compiler.frontend.onnx.support import COUPLING, TREE_WALK

__all__ = ["CONVERTERS"]


def _walked(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    from edgepack.compiler.graph.trees import TreeWalk, emit_trees

    del opset
    text = attributes["walk"]
    said = json.loads(text.decode() if isinstance(text, bytes) else text)
    return emit_trees(builder, TreeWalk.of(said), inputs)


def _coupled(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    from edgepack.compiler.graph.coupling import emit_coupling

    del opset
    return emit_coupling(builder, inputs[0], int(attributes["classes"]))


#: As those of ``converters.py``.
CONVERTERS = {TREE_WALK: _walked, COUPLING: _coupled}
