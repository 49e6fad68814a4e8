"""Computes float16 and bfloat16 models in float32: inputs and outputs alone keep their types.

Few CPUs have arithmetic in either; on others each operand of each operator would be converted. So all values
between inputs and outputs are float32, and results are at least as precise as the model's. What the model
rounds before it has computed anything, by a Cast of an input, is still rounded: such a value is exact, and a
comparison may depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.shapes import all_nodes, inner_graphs

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["compute_in_float32", "has_float16"]

#: Attributes whose integer is an element type.
TYPE_ATTRIBUTES = {"to", "dtype", "output_dtype", "output_datatype", "stash_type", "softmax_precision"}

#: Operators that only move elements: what they make of exact values is exact.
EXACT = {
    *("Cast", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape"),
    *("Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where"),
}

#: Ends the name of the float32 value that stands for one that is float16.
WIDE = "/float32"


def compute_in_float32(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with float32 for every float16 and bfloat16 value, but for inputs and outputs of the graph,
    which are cast; the same object if it has none.

    Args:
        model: without functions of its own; weights loaded. Not changed.
    """
    import onnx

    if not has_float16(model.graph):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _Widening(copy.graph).run()
    return copy


def _float16_types() -> tuple[int, int]:
    import onnx

    return onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16


def has_float16(graph: onnx.GraphProto) -> bool:
    """Whether an input, an initializer or a node's attribute names one of the types; else no value has it."""
    half = _float16_types()
    if any(value.type.tensor_type.elem_type in half for value in graph.input):
        return True
    if any(tensor.data_type in half for tensor in _tensors(graph)):
        return True
    return any(
        (attribute.name in TYPE_ATTRIBUTES and attribute.i in half) or attribute.t.data_type in half
        for node in graph.node
        for attribute in node.attribute
    ) or any(has_float16(inner) for node in graph.node for inner in inner_graphs(node))


def _tensors(graph: onnx.GraphProto) -> Iterable[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values


class _Widening:
    """Rewrites the outermost graph of a model.

    Attributes:
        nodes: written so far.
        renamed: names under which values are read that have two forms.
        taken: names that the graph has.
        exact: values that are known before anything was rounded: inputs, and what only moves their elements.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.nodes: list[onnx.NodeProto] = []
        self.renamed: dict[str, str] = {}
        constants = {tensor.name for tensor in _tensors(graph)}
        self.exact = constants | {value.name for value in graph.input}
        self.taken = {name for node in all_nodes(graph) for name in (*node.input, *node.output, node.name)}

    def run(self) -> None:
        import onnx

        half = _float16_types()
        produced = {name for node in self.graph.node for name in node.output}
        kept = {value.name for value in self.graph.output} - produced
        narrow = [v for v in self.graph.output if v.type.tensor_type.elem_type in half and v.name in produced]
        for value in self.graph.input:
            if value.type.tensor_type.elem_type in half:
                wide = self.renamed[value.name] = self._fresh(value.name + WIDE)
                self._cast(value.name, wide, onnx.TensorProto.FLOAT)
                self.exact.add(wide)
        self._widen_constants(kept)
        for value in narrow:
            self.renamed[value.name] = self._fresh(value.name + WIDE)
        for node in self.graph.node:
            self._widen_node(node)
        for value in narrow:
            self._cast(self.renamed[value.name], value.name, value.type.tensor_type.elem_type)
        del self.graph.node[:], self.graph.value_info[:]
        self.graph.node.extend(self.nodes)

    def _fresh(self, name: str) -> str:
        """The name, or one like it that the model does not have."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _cast(self, source: str, result: str, to: int) -> None:
        import onnx

        name = self._fresh(f"{source}/cast")
        self.nodes.append(onnx.helper.make_node("Cast", [source], [result], name=name, to=to))

    def _widen_constants(self, kept: set[str]) -> None:
        """Makes constants float32; those that are outputs themselves stay beside their wide form."""
        half = _float16_types()
        for tensor in list(self.graph.initializer):
            if tensor.data_type not in half:
                continue
            if tensor.name in kept:
                copy = self.graph.initializer.add()
                copy.CopyFrom(tensor)
                copy.name = self.renamed[tensor.name] = self._fresh(tensor.name + WIDE)
                self.exact.add(copy.name)
                _widen(copy)
            else:
                _widen(tensor)
        for sparse in self.graph.sparse_initializer:
            if sparse.values.data_type in half:
                _widen(sparse.values)

    def _widen_node(self, node: onnx.NodeProto) -> None:
        """Appends the node in float32; a Cast that rounds what is exact still rounds."""
        import onnx

        exact = bool(node.input) and all(name in self.exact for name in node.input if name)
        rounds = next((a.i for a in node.attribute if a.name == "to"), 0) if node.op_type == "Cast" else 0
        _widen_inside(node, self.renamed)
        self.nodes.append(node)
        if exact and rounds in _float16_types():
            result, narrow = node.output[0], self._fresh(f"{node.output[0]}/rounded")
            node.output[0] = narrow
            for attribute in node.attribute:
                attribute.i = rounds if attribute.name == "to" else attribute.i
            self._cast(narrow, result, onnx.TensorProto.FLOAT)
            self.exact.add(result)
        elif exact and node.op_type in EXACT:
            self.exact.update(node.output)


def _widen_inside(node: onnx.NodeProto, renamed: dict[str, str]) -> None:
    """The node's names, types and the graphs inside of it, in place."""
    import onnx

    half = _float16_types()
    for names in (node.input, node.output):
        for index, name in enumerate(names):
            names[index] = renamed.get(name, name)
    for attribute in node.attribute:
        if attribute.name in TYPE_ATTRIBUTES and attribute.i in half:
            attribute.i = onnx.TensorProto.FLOAT
        if attribute.t.data_type in half:
            _widen(attribute.t)
        if attribute.HasField("tp"):
            _widen_type(attribute.tp)
    for inner in inner_graphs(node):
        for value in (*inner.input, *inner.output, *inner.value_info):
            _widen_type(value.type)
        for tensor in _tensors(inner):
            if tensor.data_type in half:
                _widen(tensor)
        for output in inner.output:
            output.name = renamed.get(output.name, output.name)
        for other in inner.node:
            _widen_inside(other, renamed)


def _widen_type(kind: onnx.TypeProto) -> None:
    """The type with float32 for float16, of a tensor, a list of tensors or an optional value, in place."""
    import onnx

    which = kind.WhichOneof("value")
    if which in ("sequence_type", "optional_type"):
        _widen_type(getattr(kind, which).elem_type)
    elif which == "tensor_type" and kind.tensor_type.elem_type in _float16_types():
        kind.tensor_type.elem_type = onnx.TensorProto.FLOAT


def _widen(tensor: onnx.TensorProto) -> None:
    """The same numbers as float32, in place."""
    import numpy as np
    from onnx import numpy_helper

    array: NDArray[Any] = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))
