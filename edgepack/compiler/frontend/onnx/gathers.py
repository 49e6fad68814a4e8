"""Our own conversion of gathers and scatters: positions go to the operator as the model has them.

TVM's importer counts negative ones from the end before the operator, of Gather and GatherElements with a
negative axis from another end. Here the operator does that, and brings them into range
(``compiler/graph/positions.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["CONVERTERS"]


def _gather(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """A table of 256 bytes that bytes look up in (``byte_tables.py``) is one of its own: positions are their
    bits, so that negative ones are counted from the end. A shape that is gathered from is left to TVM."""
    from tvm import relax

    from edgepack.compiler.graph.byte_tables import BYTES, look_up
    from edgepack.compiler.graph.rewrite import dtype_of, is_constant, numpy_of, op_name, shape_of

    del opset
    data, positions = inputs
    if not _are_tensors(inputs) or (is_constant(data) and is_constant(positions)):
        return None
    if is_constant(data) and shape_of(data) == (256,) and dtype_of(data) in BYTES:
        found = builder.lookup_binding(positions) if isinstance(positions, relax.Var) else positions
        if op_name(found) == "relax.astype" and dtype_of(found.args[0]) in BYTES:
            return look_up(numpy_of(data), found.args[0])
    axis = int(attributes.get("axis", 0)) % len(shape_of(data))
    return relax.op.take(data, positions, axis)


def _gather_elements(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    from tvm import relax

    from edgepack.compiler.graph.rewrite import shape_of

    del builder, opset
    data, positions = inputs
    axis = int(attributes.get("axis", 0)) % len(shape_of(data))
    return relax.op.gather_elements(data, positions, axis)


def _gather_nd(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    from tvm import relax

    del builder, opset
    return relax.op.gather_nd(*inputs, int(attributes.get("batch_dims", 0)))


def _scatter_elements(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    from tvm import relax

    from edgepack.compiler.graph.rewrite import shape_of

    del builder, opset
    axis = int(attributes.get("axis", 0)) % len(shape_of(inputs[0]))
    return relax.op.scatter_elements(*inputs, axis=axis, reduction=_reduction(attributes))


def _scatter_nd(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    from tvm import relax

    del builder, opset
    return relax.op.scatter_nd(*inputs, reduction=_reduction(attributes))


def _are_tensors(inputs: Sequence[Any]) -> bool:
    from tvm import relax

    return all(isinstance(value.ty, relax.TensorType) for value in inputs)


def _reduction(attributes: dict[str, Any]) -> str:
    """What an update does to the element at its place, as Relax calls it."""
    said = attributes.get("reduction", "none")
    said = said.decode() if isinstance(said, bytes) else str(said)
    return "update" if said == "none" else said


#: As those of ``converters.py``.
CONVERTERS: dict[str, Callable[..., Any]] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
