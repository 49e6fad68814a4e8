"""Our own conversion of operators that choose among elements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import Any

from edgepack.compiler.frontend.onnx.bounded_shapes.data_dependent import SELECTION
from edgepack.errors import ModelError

__all__ = ["CONVERTERS"]

#: Types that are compared as another one, which holds all of their values.
COMPARED_AS = {"float16": "float32", "bfloat16": "float32"}


def _selection(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """A node of :func:`edgepack.compiler.frontend.onnx.bounded_shapes.data_dependent.selection_node`."""
    from tvm import relax

    del opset
    text = attributes["selection"]
    said = json.loads(text.decode() if isinstance(text, bytes) else text)
    operands = dict(zip(said["operands"], (x for x in inputs if x is not None), strict=True))
    made = _CHOICES[said["operator"]](builder, said, operands)
    return relax.Tuple(made)


def _emit(
    builder: Any, said: dict[str, Any], operands: dict[str, Any], results: dict[str, tuple[Any, str]]
) -> list[Any]:
    from edgepack.compiler.graph.selection import Selection, emit_selection

    names = tuple(said["results"])
    form = Selection(said["operator"], tuple(operands), names, said["numbers"])
    return emit_selection(builder, form, list(operands.values()), [results[name] for name in names])


def _non_zero(builder: Any, said: dict[str, Any], operands: dict[str, Any]) -> list[Any]:
    from tvm import relax

    from edgepack.compiler.graph.rewrite import dtype_of, shape_of

    x = operands["x"]
    shape, dtype = shape_of(x), dtype_of(x)
    if dtype != "bool":
        x = builder.emit(relax.op.not_equal(x, relax.const(0, dtype)))
    if not shape:
        x = builder.emit(relax.op.reshape(x, (1,)))
    results = {"y": ((max(1, len(shape)), said["numbers"]["most"]), "int64"), "count": ((), "int64")}
    return _emit(builder, said, {"x": x}, results)


def _flat(builder: Any, said: dict[str, Any], x: Any) -> Any:
    """The tensor, as one of rank 1 where the node has no axis."""
    from tvm import relax

    from edgepack.compiler.graph.rewrite import shape_of

    shape = shape_of(x)
    return builder.emit(relax.op.reshape(x, (prod(shape),))) if said["numbers"]["flat"] else x


def _compress(builder: Any, said: dict[str, Any], operands: dict[str, Any]) -> list[Any]:
    from edgepack.compiler.graph.rewrite import dtype_of, shape_of

    x = _flat(builder, said, operands["input"])
    shape = list(shape_of(x))
    shape[said["numbers"]["axis"]] = said["numbers"]["most"]
    results = {"output": (tuple(shape), dtype_of(x)), "count": ((), "int64")}
    return _emit(builder, said, {"input": x, "condition": operands["condition"]}, results)


def _unique(builder: Any, said: dict[str, Any], operands: dict[str, Any]) -> list[Any]:
    from tvm import relax

    from edgepack.compiler.graph.rewrite import dtype_of, shape_of

    x = _flat(builder, said, operands["x"])
    dtype, axis, most = dtype_of(x), said["numbers"]["axis"], said["numbers"]["most"]
    wide = COMPARED_AS.get(dtype, dtype)
    if wide != dtype:
        x = builder.emit(relax.op.astype(x, wide))
    shape = list(shape_of(x))
    length, shape[axis] = shape[axis], most
    results: dict[str, tuple[Any, str]] = {
        "y": (tuple(shape), wide),
        "indices": ((most,), "int64"),
        "inverse_indices": ((length,), "int64"),
        "counts": ((most,), "int64"),
        "count": ((), "int64"),
    }
    found = _emit(builder, said, {"x": x}, results)
    if wide != dtype:
        found[0] = builder.emit(relax.op.astype(found[0], dtype))
    return found


def _suppression(builder: Any, said: dict[str, Any], operands: dict[str, Any]) -> list[Any]:
    from edgepack.compiler.graph.rewrite import shape_of

    boxes, scores = shape_of(operands["boxes"]), shape_of(operands["scores"])
    if len(scores) != 3 or boxes != (scores[0], scores[2], 4):
        raise ModelError(
            f"A NonMaxSuppression has boxes of {boxes} and scores of {scores}, which do not fit each other.",
            hint="Export the model again.",
        )
    most = said["numbers"]["most"]
    results = {"selected_indices": ((most, 3), "int64"), "count": ((), "int64")}
    return _emit(builder, said, operands, results)


_CHOICES = {
    "Compress": _compress,
    "NonMaxSuppression": _suppression,
    "NonZero": _non_zero,
    "Unique": _unique,
}


def _top_k(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """The k greatest, or least, along an axis. Sorted, also where the model does not ask for it."""
    from tvm import relax
    from tvm.ir import GenericConst

    from edgepack.compiler.graph.rewrite import dtype_of, shape_of

    del opset
    x, name = inputs[0], attributes["tvm_custom"]["name"] or "without name"
    if len(inputs) > 1 and not isinstance(inputs[1], GenericConst):
        raise ModelError(
            f"The TopK node {name} cannot be compiled: its k is known at run time only.",
            hint="Export the model with a constant k.",
        )
    count = int(inputs[1].value.numpy().reshape(-1)[0]) if len(inputs) > 1 else int(attributes["k"])
    shape, dtype = list(shape_of(x)), dtype_of(x)
    axis = int(attributes.get("axis", -1)) % len(shape)
    if not 0 <= count <= shape[axis]:
        raise ModelError(
            f"The TopK node {name} cannot be compiled: its k is {count}, along an axis of {shape[axis]}.",
            hint="Export the model with a k that is no larger than the axis.",
        )
    if not count:
        shape[axis] = 0
        return relax.Tuple([builder.emit(relax.op.zeros(shape, kind)) for kind in (dtype, "int64")])
    largest = bool(attributes.get("largest", 1))
    if count == 1 and dtype == "float32" and largest:  # what the rules for rows compute on vectors
        # NaN is the greatest for both; the least of others is no minimum, which is NaN where an element is
        found = (builder.emit(choose(x, axis, keepdims=True)) for choose in (relax.op.max, relax.op.argmax))
        return relax.Tuple(list(found))
    wide = COMPARED_AS.get(dtype, dtype)
    if wide != dtype:
        x = builder.emit(relax.op.astype(x, wide))
    shape[axis] = count
    said = {
        "operator": "TopK",
        "results": ["values", "indices"],
        "numbers": {"axis": axis, "largest": int(largest)},
    }
    results = {"values": (tuple(shape), wide), "indices": (tuple(shape), "int64")}
    values, indices = _emit(builder, said, {"x": x}, results)
    if wide != dtype:
        values = builder.emit(relax.op.astype(values, dtype))
    return relax.Tuple([values, indices])


#: As those of ``converters.py``.
CONVERTERS = {SELECTION: _selection, "TopK": _top_k}
