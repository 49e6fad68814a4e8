"""SequenceMap: its graph for each tensor of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites.editor import rename_values
from edgepack.compiler.frontend.onnx.sequences.context import AGAIN, UnknownListError
from edgepack.compiler.frontend.onnx.sequences.scope import Scope
from edgepack.compiler.frontend.onnx.sequences.values import Tensors

if TYPE_CHECKING:
    import onnx

__all__ = ["write_out_map"]


def write_out_map(scope: Scope, node: onnx.NodeProto, body: onnx.GraphProto) -> None:
    """Writes the graph of a SequenceMap once for each tensor; the scope learns what the results are.

    Raises:
        UnknownListError: which tensors a list has is not known.
    """
    count = len(scope.tensors(node.input[0]).elements)
    given = [_operand(scope, str(name), count) for name in node.input]
    if count * max(1, len(body.node)) > scope.context.most:
        why = f"it would become {count * len(body.node)} nodes; {scope.context.most} are allowed"
        raise UnknownListError(why, "If that is meant, give --max-nodes.")
    constants = {tensor.name: _copied(scope, tensor) for tensor in body.initializer}
    results: list[list[str]] = [[] for _ in body.output]
    for index in range(count):
        operands = {
            value.name: one if isinstance(one, str) else scope.tensor(one.elements[index])
            for value, one in zip(body.input, given, strict=True)
        }
        names = _inlined(scope, node, body, {**constants, **operands})
        for own, name in zip(results, names, strict=True):
            own.append(name)
    for name, own, value in zip(node.output, results, body.output, strict=False):
        scope.define(str(name), Tensors(tuple(own), value.type.tensor_type.elem_type))
    scope.context.changed = True


def _operand(scope: Scope, name: str, count: int) -> Tensors | str:
    """A list, or a tensor that is the same each time."""
    declared = scope.declared(name)
    is_tensor = declared is not None and declared.type.WhichOneof("value") == "tensor_type"
    if scope.value(name) is None and (is_tensor or scope.constant(name) is not None):
        return name
    found = scope.tensors(name)
    if len(found.elements) != count:
        raise UnknownListError(f"its lists have {count} and {len(found.elements)} tensors", AGAIN)
    return found


def _copied(scope: Scope, tensor: onnx.TensorProto) -> str:
    from onnx import numpy_helper

    return scope.const(numpy_helper.to_array(tensor))


def _inlined(scope: Scope, node: onnx.NodeProto, body: onnx.GraphProto, names: dict[str, str]) -> list[str]:
    """Adds a copy of a graph's nodes; the names of its results.

    Args:
        names: what its inputs and constants are here.
    """
    import onnx

    names = dict(names)
    prefix = node.name or node.output[0]
    for one in body.node:
        names |= {name: scope.context.fresh(f"{prefix}/{name}") for name in one.output if name}
    for one in body.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(one)
        rename_values(copy, names)
        copy.name = scope.context.fresh(f"{prefix}/{one.name or one.op_type}")
        scope.keep(copy)
    return [names.get(value.name, value.name) for value in body.output]
