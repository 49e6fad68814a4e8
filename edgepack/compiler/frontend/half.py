"""Makes float16 models float16 again after ONNX Runtime's optimiser.

Its CPU provider has few float16 kernels. For the others it casts to float32 and back, in the model that it
saves too, and merges these casts with the model's own. The original model says what type each value had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["float_types", "restore_float16"]

#: Prefix of the names of the casts that ONNX Runtime inserts, and of their results.
INSERTED = "InsertedPrecisionFreeCast_"


def float_types(model: onnx.ModelProto) -> dict[str, int]:
    """ONNX element type of every value of ``model`` whose type is known, by name."""
    from edgepack.compiler.frontend.shapes import infer_shapes

    graph = infer_shapes(model).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        types[value.name] = value.type.tensor_type.elem_type
    return types


def restore_float16(model: onnx.ModelProto, original: dict[str, int]) -> None:
    """Removes the inserted casts of the optimised ``model``, in place; adds the model's own where they were
    merged.

    Args:
        model: what ONNX Runtime saved.
        original: types of the values before (see :func:`float_types`); optimised values keep their names.
    """
    if not any(node.name.startswith(INSERTED) for node in model.graph.node):
        return
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    types.update({value.name: value.type.tensor_type.elem_type for value in model.graph.input})
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.name.startswith(INSERTED):
            continue
        for index, name in enumerate(node.input):
            node.input[index] = _plain(name)
        for index, name in enumerate(node.output):
            node.output[index] = _plain(name)
        nodes += _with_casts(node, types, original)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    del model.graph.value_info[:]


def _plain(name: str) -> str:
    while name.startswith(INSERTED):
        name = name[len(INSERTED) :]
    return name


def _with_casts(
    node: onnx.NodeProto, types: dict[str, int], original: dict[str, int]
) -> list[onnx.NodeProto]:
    """The node behind the casts that its inputs need; notes the types of its outputs."""
    import onnx

    if not onnx.defs.has(node.op_type, node.domain):
        types.update({name: original[name] for name in node.output if name in original})
        return [node]
    schema = onnx.defs.get_schema(node.op_type, node.domain)
    floats = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16}
    tied = schema.outputs[0].type_str
    inputs = [i for i in range(len(node.input)) if _formal(schema.inputs, i) == tied and node.input[i]]
    wanted = original.get(node.output[0])
    if wanted is None and inputs:
        wanted = types.get(node.input[inputs[0]])
    written = []
    for index in inputs:
        name = node.input[index]
        if wanted is not None and {wanted, types.get(name)} == floats:
            cast = f"{name}/cast_{len(types)}"
            written.append(onnx.helper.make_node("Cast", [name], [cast], name=cast, to=wanted))
            types[cast] = wanted
            node.input[index] = cast
    if node.op_type == "Cast":
        wanted = next(item.i for item in node.attribute if item.name == "to")
    for index, name in enumerate(node.output):
        if name in original:
            types[name] = original[name]
        elif wanted is not None and _formal(schema.outputs, index) == tied:
            types[name] = wanted
    return [*written, node]


def _formal(parameters: list[onnx.defs.OpSchema.FormalParameter], index: int) -> str:
    """Type variable of the parameter with this index; the last one may be variadic."""
    return str(parameters[min(index, len(parameters) - 1)].type_str) if parameters else ""
