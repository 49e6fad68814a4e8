"""Random numbers with a seed are constants: the same in every run, as ONNX's own evaluator draws them.

That is NumPy's ``RandomState`` (the Mersenne Twister MT19937) of the node's seed. ONNX Runtime has other
generators, which go on from run to run, so the reference is run with these numbers too. Without a seed the
numbers are to differ in each run, and there is nothing to compare with: such nodes are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import attributes, evaluated
from edgepack.compiler.frontend.onnx.shapes import infer_shapes, static_shape

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["draw"]

#: What draws numbers that do not depend on its input but for the shape.
DRAWN = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


def draw(model: onnx.ModelProto) -> None:
    """Makes constants of the random numbers that nodes with a seed draw, in place.

    A Bernoulli with a seed compares its input with such numbers, between 0 and 1.

    Args:
        model: all input shapes static.
    """
    if any(_is_drawn(node) for node in model.graph.node):
        _Drawing(model).run()


def _is_drawn(node: onnx.NodeProto) -> bool:
    known = node.domain in ("", "ai.onnx") and node.op_type in (*DRAWN, "Bernoulli")
    return known and "seed" in attributes(node)


class _Drawing:
    """Draws for the nodes of one model whose shapes are known."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        graph = infer_shapes(model).graph
        values = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
        self.shapes = {name: static_shape(value) for name, value in values.items()}
        self.elements = {name: value.type.tensor_type.elem_type for name, value in values.items()}
        for tensor in model.graph.initializer:
            self.shapes[tensor.name], self.elements[tensor.name] = tuple(tensor.dims), tensor.data_type

    def run(self) -> None:
        nodes: list[onnx.NodeProto] = []
        for node in self.model.graph.node:
            nodes += self._replaced(node) if _is_drawn(node) else [node]
        del self.model.graph.node[:]
        self.model.graph.node.extend(nodes)

    def _replaced(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """What stands in the place of the node, beside an initializer; itself if its shape is not known."""
        import numpy as np
        from onnx import helper

        known = {}
        if node.input:
            shape, element = self.shapes.get(node.input[0]), self.elements.get(node.input[0], 0)
            if shape is None or not element:
                return [node]
            known = {node.input[0]: np.zeros(shape, helper.tensor_dtype_to_np_dtype(element))}
        result = str(node.output[0])
        if node.op_type != "Bernoulli":
            self._keep(evaluated(node, result, known, self.model.opset_import), result)
            return []
        values, probability = attributes(node), str(node.input[0])
        element = self.elements[probability]
        like = helper.make_node("RandomUniformLike", [probability], [result], seed=values["seed"])
        self._keep(evaluated(like, result, known, self.model.opset_import), f"{result}/drawn")
        below, kind = f"{result}/below", values.get("dtype", element)
        return [
            helper.make_node("Less", [f"{result}/drawn", probability], [below], name=below),
            helper.make_node("Cast", [below], [result], name=node.name or result, to=kind),
        ]

    def _keep(self, array: NDArray[Any], name: str) -> None:
        from onnx import numpy_helper

        self.model.graph.initializer.append(numpy_helper.from_array(array, name))
