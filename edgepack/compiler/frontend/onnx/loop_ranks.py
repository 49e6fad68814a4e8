"""Numbers that a loop carries as ``[]`` before a trip and as ``[1]`` behind it, or the other way.

The standard lets a value change its rank from trip to trip, and exporters write conditions and counters so.
What a loop carries has one place here, of one shape: that which the first trip gives it.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites.editor import attributes
from edgepack.compiler.frontend.onnx.shapes import infer_shapes, static_shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx

__all__ = ["keep_ranks"]


def keep_ranks(model: onnx.ModelProto) -> bool:
    """Has each Loop begin with numbers of the rank that its trips give them, in place; whether any had not.

    A number whose rank changes with every trip is left to whoever refuses it.

    Args:
        model: without functions, its constants folded, input shapes static.
    """
    loops = [n for n in model.graph.node if n.op_type == "Loop" and n.domain in ("", "ai.onnx")]
    if not loops:
        return False
    graph = infer_shapes(model).graph
    known = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    known |= {tensor.name: _of(tensor) for tensor in model.graph.initializer}
    changed = False
    for loop in loops:
        starts = [known.get(name) for name in loop.input[2:]]
        before = [static_shape(value) for value in starts]
        behind = _behind(model, loop, before, known)
        wanted = [b if _is_other_number(a, b) else a for a, b in zip(before, behind, strict=True)]
        if wanted == before or _behind(model, loop, wanted, known) != behind:
            continue
        for place, shape in enumerate(wanted):
            if shape is not None and shape != before[place]:
                _begin_with(model, loop, place, shape)
                changed = True
    return changed


def _is_other_number(one: Sequence[int] | None, other: Sequence[int] | None) -> bool:
    """Whether two shapes are those of a single element, and differ."""
    return one is not None and other is not None and one != other and prod(one) == prod(other) == 1


def _of(tensor: onnx.TensorProto) -> onnx.ValueInfoProto:
    import onnx

    return onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)


def _behind(
    model: onnx.ModelProto,
    loop: onnx.NodeProto,
    before: Sequence[Sequence[int] | None],
    known: Mapping[str, onnx.ValueInfoProto],
) -> list[tuple[int, ...] | None]:
    """The shapes behind a trip of what has some before it, as far as they can be inferred."""
    import onnx

    body = onnx.GraphProto()
    body.CopyFrom(attributes(loop)["body"])
    for value, name, shape in zip(body.input[2:], loop.input[2:], before, strict=True):
        element = known[name].type.tensor_type.elem_type if name in known else 0
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, element, shape))
    for value in body.output:
        value.type.tensor_type.ClearField("shape")
    del body.value_info[:]
    own = {value.name for value in (*body.input, *body.initializer)}
    own |= {name for node in body.node for name in node.output}
    body.initializer.extend(t for t in model.graph.initializer if t.name not in own)
    own |= {tensor.name for tensor in model.graph.initializer}
    body.input.extend(value for name, value in known.items() if name not in own)
    whole = onnx.helper.make_model(
        body, opset_imports=list(model.opset_import), ir_version=max(8, model.ir_version)
    )
    outputs = infer_shapes(whole).graph.output
    return [static_shape(value) for value in outputs[1 : 1 + len(before)]]


def _begin_with(model: onnx.ModelProto, loop: onnx.NodeProto, place: int, shape: Sequence[int]) -> None:
    """Reshapes what a loop begins with, in place."""
    import onnx

    name = f"{loop.name or loop.output[0]}/start{place}"
    sizes = onnx.helper.make_tensor(f"{name}/shape", onnx.TensorProto.INT64, [len(shape)], list(shape))
    model.graph.initializer.append(sizes)
    reshape = onnx.helper.make_node("Reshape", [loop.input[2 + place], sizes.name], [name], name=name)
    loop.input[2 + place] = name
    body = next(a.g for a in loop.attribute if a.name == "body")
    body.input[2 + place].type.tensor_type.ClearField("shape")
    body.output[1 + place].type.tensor_type.ClearField("shape")
    index = next(i for i, node in enumerate(model.graph.node) if node.output[:] == loop.output[:])
    model.graph.node.insert(index, reshape)
