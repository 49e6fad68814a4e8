"""Rewrites a model so that ONNX Runtime computes the same bits on every x86-64 CPU with AVX2 or more.

Session options alone do not do that (``onnxruntime_session.py`` has those that help): ONNX Runtime
picks kernels by what the CPU has. Their results differ in two places, which were found by running
many operators and shapes with AVX-512 and VNNI, and on an emulated Haswell (``pytest -m slow
tests/test_other_cpu.py`` does that).

Products of 8-bit integers: without VNNI, unsigned times signed goes through ``vpmaddubsw``, which saturates
the sum of two products at 16 bits; results are then off by up to half. Products of two unsigned operands use
``vpmaddwd``, which is exact everywhere.

Softmax: the sum of exponentials is added up in as many parts as a vector has elements, 8 or 16.

Besides, MatMulNBits may round activations to 8 bits if its attribute allows it, as fast kernels of some CPUs
do: it must not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.function_bodies import inlined
from edgepack.compiler.frontend.onnx.model_file import default_opset
from edgepack.compiler.frontend.onnx.shapes import all_nodes, infer_shapes, inner_graphs

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["CONTRIBUTED_PRODUCTS", "INTEGER_PRODUCTS", "machine_independent"]

#: Operators that multiply 8-bit integers: pairs of the indices of an operand and of its zero point.
INTEGER_PRODUCTS = {
    "ConvInteger": ((0, 2), (1, 3)),
    "MatMulInteger": ((0, 2), (1, 3)),
    "QLinearConv": ((0, 2), (3, 5)),
    "QLinearMatMul": ((0, 2), (3, 5)),
}

#: And those of ONNX Runtime's own domain (com.microsoft).
CONTRIBUTED_PRODUCTS = {
    "DynamicQuantizeLSTM": ((1, 9), (2, 11)),
    "DynamicQuantizeMatMul": ((1, 3),),
    "MatMulIntegerToFloat": ((0, 4), (1, 5)),
    "QAttention": ((0, 6), (1, 7)),
    "QGemm": ((0, 2), (3, 5)),
}

_PRODUCTS = {**INTEGER_PRODUCTS, **CONTRIBUTED_PRODUCTS}

#: The index of the zero point of those results that are integers of 8 bits, which have kernels for results of
#: their operands' type only.
RESULTS = {"QGemm": 8, "QLinearConv": 7, "QLinearMatMul": 7}

#: Operators whose kernels take a softmax, and that the standard defines by others: written out first.
_WITH_SOFTMAX = ("Attention",)

_REWRITTEN = {*_PRODUCTS, "Softmax", "LogSoftmax", "MatMulNBits"}


def machine_independent(model: onnx.ModelProto, *, constants_only: bool = False) -> onnx.ModelProto:
    """The model with exact integer products and with every Softmax and LogSoftmax written out.

    Signed 8-bit operands ``x`` with zero point ``z`` become ``x + 128`` with ``z + 128``, unsigned: the same
    products; signed results are shifted back. With ``d = x - max(x)``, Softmax becomes
    ``exp(d) / sum(exp(d))`` and LogSoftmax ``d - log(sum(exp(d)))``, as ONNX defines them; in float32 where
    ``x`` is float16 or bfloat16, as ONNX Runtime computes it.

    Args:
        model: is not changed. Types of values are inferred; one that cannot be is left alone.
        constants_only: rewrite only what depends on constants alone, and so would be folded into one.

    Returns:
        ``model`` itself if there is nothing to rewrite, otherwise a copy.
    """
    from onnx import inliner

    if any(node.op_type in {*_REWRITTEN, *_WITH_SOFTMAX} for f in model.functions for node in f.node):
        model = inlined(model)
    nodes = list(all_nodes(model.graph))
    functions = [("", op) for op in _WITH_SOFTMAX if any(node.op_type == op for node in nodes)]
    if functions and not constants_only:
        model = inliner.inline_selected_functions(model, functions, inline_schema_functions=True)
        nodes = list(all_nodes(model.graph))
    if not any(_is_rewritten(node) for node in nodes):
        return model
    return _Rewriter(model, constants_only=constants_only).run()


def _is_rewritten(node: onnx.NodeProto) -> bool:
    return node.domain in ("", "ai.onnx", "com.microsoft") and node.op_type in _REWRITTEN


class _Rewriter:
    """Rewrites a copy of one model, graph by graph, in the order of the nodes."""

    def __init__(self, model: onnx.ModelProto, *, constants_only: bool) -> None:
        import onnx

        self.types: dict[str, int] = {}
        self._read_types(infer_shapes(model).graph)
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.opset = default_opset(model)
        self.constants_only = constants_only
        #: Values that depend on constants alone.
        self.constant: set[str] = set()
        self._count = 0

    def run(self) -> onnx.ModelProto:
        self._graph(self.model.graph)
        return self.model

    def _read_types(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self.types[tensor.name] = tensor.data_type
        for value in (*graph.input, *graph.value_info, *graph.output):
            self.types[value.name] = value.type.tensor_type.elem_type
        for node in graph.node:
            for inner in inner_graphs(node):
                self._read_types(inner)

    def _graph(self, graph: onnx.GraphProto) -> None:
        initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.constant |= {"", *initializers}
        scope = _Scope(self, graph, initializers)
        for node in list(graph.node):
            for inner in inner_graphs(node):
                self._graph(inner)
            folded = all(name in self.constant for name in node.input)
            if folded:
                self.constant |= set(node.output)
            if not _is_rewritten(node) or (self.constants_only and not folded):
                scope.nodes.append(node)
            elif node.op_type in _PRODUCTS:
                scope.make_unsigned(node)
            elif node.op_type == "MatMulNBits":
                scope.keep_floats(node)
            else:
                scope.write_softmax(node)
        del graph.node[:]
        graph.node.extend(scope.nodes)

    def fresh(self, name: str) -> str:
        """A name that no value has."""
        self._count += 1
        return f"{name}/edgepack_{self._count}"


class _Scope:
    """Writes the nodes of one graph."""

    def __init__(
        self, rewriter: _Rewriter, graph: onnx.GraphProto, initializers: dict[str, onnx.TensorProto]
    ) -> None:
        self.rewriter = rewriter
        self.graph = graph
        self.initializers = initializers
        self.nodes: list[onnx.NodeProto] = []
        #: Values that were made unsigned, by the signed one's name.
        self.unsigned: dict[str, str] = {}

    # integer products ---------------------------------------------------------------------------------

    def make_unsigned(self, node: onnx.NodeProto) -> None:
        """Appends the product with unsigned operands."""
        import numpy as np
        import onnx

        inputs = list(node.input)
        for operand, zero in _PRODUCTS[node.op_type]:
            if self.rewriter.types.get(inputs[operand]) != onnx.TensorProto.INT8:
                continue
            inputs += [""] * (zero + 1 - len(inputs))
            inputs[operand] = self._plus_128(inputs[operand])
            inputs[zero] = (
                self._plus_128(inputs[zero])
                if inputs[zero]
                else self._const(np.asarray(128, np.uint8), node.op_type)
            )
        place = RESULTS.get(node.op_type, len(inputs))
        of_result = str(inputs[place]) if place < len(inputs) else ""
        result = ""
        if self.rewriter.types.get(of_result) == onnx.TensorProto.INT8:
            inputs[place] = self._plus_128(of_result)
            result, node.output[0] = node.output[0], self.rewriter.fresh(node.output[0])
        del node.input[:]
        node.input.extend(inputs)
        self.nodes.append(node)
        if result:
            wide = self._op("Cast", node.output[0], to=onnx.TensorProto.INT32)
            shifted = self._op("Sub", wide, self._const(np.asarray(128, np.int32), wide))
            self._op("Cast", shifted, to=onnx.TensorProto.INT8, output=result)

    def keep_floats(self, node: onnx.NodeProto) -> None:
        """Appends the MatMulNBits, made to compute in the type of its activations."""
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 0
        self.nodes.append(node)

    def _plus_128(self, name: str) -> str:
        """The name of a signed 8-bit value plus 128, as an unsigned one."""
        import numpy as np
        import onnx
        from onnx import numpy_helper

        if name not in self.unsigned:
            if name in self.initializers:
                array = numpy_helper.to_array(self.initializers[name]).astype(np.int16) + 128
                self.unsigned[name] = self._const(array.astype(np.uint8), name)
            else:
                wide = self._op("Cast", name, to=onnx.TensorProto.INT32)
                shifted = self._op("Add", wide, self._const(np.asarray(128, np.int32), name))
                self.unsigned[name] = self._op("Cast", shifted, to=onnx.TensorProto.UINT8)
        return self.unsigned[name]

    # softmax ------------------------------------------------------------------------------------------

    def write_softmax(self, node: onnx.NodeProto) -> None:
        """Appends the nodes that define Softmax or LogSoftmax; the node itself if its type is another."""
        import onnx

        x, kind = node.input[0], self.rewriter.types.get(node.input[0])
        half = kind in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
        if not half and kind != onnx.TensorProto.FLOAT:
            self.nodes.append(node)
            return
        axis = next((a.i for a in node.attribute if a.name == "axis"), -1 if self.rewriter.opset >= 13 else 1)
        value = self._op("Cast", x, to=onnx.TensorProto.FLOAT) if half else x
        if self.rewriter.opset < 13:  # all axes from this one on count as one
            value, axis = self._op("Flatten", value, axis=axis), 1
        shifted = self._op("Sub", value, self._reduce("ReduceMax", value, axis))
        exponential = self._op("Exp", shifted)
        total = self._reduce("ReduceSum", exponential, axis)
        if node.op_type == "Softmax":
            result = self._op("Div", exponential, total)
        else:
            result = self._op("Sub", shifted, self._op("Log", total))
        if self.rewriter.opset < 13:
            result = self._op("Reshape", result, self._op("Shape", x))
        if half:
            self._op("Cast", result, to=kind, output=node.output[0])
        else:
            self._op("Identity", result, output=node.output[0])

    def _reduce(self, op_type: str, x: str, axis: int) -> str:
        """A reduction over one axis, kept with size 1. Axes are an input since opset 18 (sums: 13)."""
        import numpy as np

        if self.rewriter.opset >= (13 if op_type == "ReduceSum" else 18):
            return self._op(op_type, x, self._const(np.asarray([axis], np.int64), x), keepdims=1)
        return self._op(op_type, x, axes=[axis], keepdims=1)

    # writing ------------------------------------------------------------------------------------------

    def _op(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        import onnx

        name = output or self.rewriter.fresh(inputs[0])
        self.nodes.append(onnx.helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def _const(self, array: NDArray[np.generic], near: str) -> str:
        from onnx import numpy_helper

        name = self.rewriter.fresh(near)
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        return name
