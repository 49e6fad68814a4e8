"""The Ifs and loops of a normalised model (``regions.py``), for the importer: an operator each, and a module
for each graph inside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.shapes import all_nodes
from edgepack.compiler.frontend.onnx.support import REGION
from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = ["CONVERTERS", "with_names"]


def with_names(model: onnx.ModelProto) -> dict[str, onnx.GraphProto]:
    """Names the graphs inside a normalised model's Ifs and loops, in place, also those inside these.

    Returns:
        The graphs by name.
    """
    import onnx

    found: dict[str, onnx.GraphProto] = {}
    for node in all_nodes(model.graph):
        if node.op_type != REGION:
            continue
        graphs = next(a.graphs for a in node.attribute if a.name == "inside")
        names = [f"g{len(found) + number}" for number in range(len(graphs))]
        found.update(zip(names, graphs, strict=True))
        kept = [a for a in node.attribute if a.name != "names"]
        if len(kept) == len(node.attribute):
            node.attribute.append(onnx.helper.make_attribute("names", " ".join(names)))
    return found


def _convert(builder: Any, inputs: Sequence[Any], values: dict[str, Any], opset: int) -> Any:
    """The operator, for the importer."""
    from tvm import relax

    from edgepack.compiler.graph.opaque import REGION as KIND
    from edgepack.compiler.graph.opaque import emit_opaque

    del opset
    about = {
        key: v.decode() if isinstance(v, bytes) else v
        for key, v in values.items()
        if key not in {"tvm_custom", "inside", "names", "results"}
    }
    names = values["names"].decode() if isinstance(values["names"], bytes) else values["names"]
    results = [(tuple(shape), dtype) for shape, dtype in json.loads(values["results"])]
    if any(0 in shape for shape, _ in results):
        raise ModelError("A loop of no trips has results without elements.")
    anchor = {"kind": KIND, **about, "graphs": names}
    made = emit_opaque(builder, names.replace(" ", "_"), anchor, inputs, results)
    return made[0] if len(made) == 1 else relax.Tuple(made)


#: As those of ``converters.py``.
CONVERTERS = {REGION: _convert}
