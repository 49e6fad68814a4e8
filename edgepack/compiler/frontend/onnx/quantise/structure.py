"""Which nodes of a float model compute with integers once it is quantised, and which tensors stay float.

Products (convolutions, matrix products) do. What stands between two products does where all of it can: then
a value is an integer from one product to the next. What has a float neighbour (a norm, a softmax, GELU
written out) stays float, and so do results that only such nodes read: each rounding that nothing needs would
cost accuracy. For the same reason a product is rounded behind its bias and its activation, not before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = ["ARITHMETIC", "MOVES", "PRODUCTS", "Structure"]

PRODUCTS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}

#: Their result has the range of their first input, which passes through them; the quantiser takes Relu and
#: Clip into the range.
MOVES = {
    *("AveragePool", "Clip", "Flatten", "MaxPool", "Pad", "Relu", "Reshape", "Resize", "Slice", "Split"),
    *("Squeeze", "Transpose", "Unsqueeze"),
}

#: Quantised where they stand between two integers; each input and the result has a range of its own.
ARITHMETIC = {
    *("Add", "Concat", "Elu", "GlobalAveragePool", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "PRelu"),
    *("ReduceMean", "Sigmoid", "Sub", "Tanh"),
}


#: Activations that are computed before the product in front of them is rounded; Relu and Clip are MOVES.
_ACTIVATIONS = {"Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Sigmoid", "Tanh"}

#: ``x * gate(x)`` is an activation too, of these.
_GATES = {"HardSigmoid", "Sigmoid"}


@dataclass(frozen=True)
class Structure:
    """The graph of a float model, seen by the quantiser.

    Attributes:
        model: its nodes have names, its values types (``float_model.py``).
    """

    model: onnx.ModelProto

    def __post_init__(self) -> None:
        if not any(node.op_type in PRODUCTS for node in self.model.graph.node):
            raise ModelError(
                "There is nothing to quantise: the model has neither convolutions nor matrix products.",
                hint="Pack it as it is.",
            )

    @cached_property
    def floats(self) -> set[str]:
        """Names of float32 tensors that are inputs or computed."""
        import onnx

        graph = self.model.graph
        return {
            value.name
            for value in (*graph.input, *graph.value_info, *graph.output)
            if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        }

    @cached_property
    def constants(self) -> dict[str, onnx.TensorProto]:
        """Constants by name."""
        return {tensor.name: tensor for tensor in self.model.graph.initializer}

    @cached_property
    def biased(self) -> dict[str, onnx.NodeProto]:
        """By the name of a MatMul, the Add of a constant vector that is all that reads its result."""
        found = {}
        for node in self.model.graph.node:
            readers = self.readers[node.output[0]] if node.op_type == "MatMul" else []
            if len(readers) == 1 and readers[0].op_type == "Add" and node.output[0] not in self._ends:
                other = next((name for name in readers[0].input if name != node.output[0]), "")
                if other in self.constants and len(self.constants[other].dims) <= 1:
                    found[node.name] = readers[0]
        return found

    @cached_property
    def tails(self) -> dict[str, list[onnx.NodeProto]]:
        """By the name of a product, the nodes behind it that are computed before its result is rounded: its
        bias, its activation."""
        found = {}
        for node in self.model.graph.node:
            if node.op_type in PRODUCTS:
                added = self.biased.get(node.name)
                tail = [] if added is None else [added]
                tail += self._activation((tail or [node])[-1].output[0])
                found[node.name] = tail
        return found

    @cached_property
    def layers(self) -> list[onnx.NodeProto]:
        """What can compute with integers, in the graph's order: products and what stands between them."""
        behind = {node.name for tail in self.tails.values() for node in tail}
        nodes = [n for n in self.model.graph.node if self._is_float32(n) and n.name not in behind]
        products = {node.name for node in nodes if self._is_product(node)}
        between = [node for node in nodes if node.op_type in ARITHMETIC]
        while True:
            integer = {*products, *(node.name for node in between)}
            kept = [node for node in between if self._stands_between(node, integer)]
            if len(kept) == len(between):
                break
            between = kept
        return [node for node in nodes if node.name in integer]

    @cached_property
    def float_tensors(self) -> set[str]:
        """What is not rounded to integers though a quantised node computes it: what a product hands to its
        bias and its activation, that bias, and results that no quantised node reads."""
        integer = {node.name for node in self.layers}
        tensors = set()
        for node in self.layers:
            tensors |= {name for behind in self.tails.get(node.name, ()) for name in behind.input}
            result = self.result(node)
            if not any(reader.name in integer for reader in self._read_by(result)):
                tensors.add(result)
        return tensors

    def result(self, node: onnx.NodeProto) -> str:
        """The name of what a layer computes, with its bias and activation."""
        return str([node, *self.tails.get(node.name, ())][-1].output[0])

    def float_nodes(self, also: set[str]) -> list[str]:
        """Names of the nodes that the quantiser leaves as they are, those of the layers ``also`` among
        them."""
        integer = {node.name for node in self.layers} - also
        behind = {node.name for name, tail in self.tails.items() if name in integer for node in tail}
        return [
            node.name
            for node in self.model.graph.node
            if node.op_type not in MOVES and node.name not in integer | behind
        ]

    def _is_product(self, node: onnx.NodeProto) -> bool:
        """Whether a node multiplies by constants. Products of two activations stay float, of which attention
        is made: it is one kernel then, and faster than integers that are written and read between its
        steps."""
        return node.op_type in PRODUCTS and not self.constants.keys().isdisjoint(node.input[:2])

    @cached_property
    def readers(self) -> dict[str, list[onnx.NodeProto]]:
        """The nodes that read a tensor, by its name."""
        found: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in self.model.graph.node:
            for name in dict.fromkeys(node.input):
                found[name].append(node)
        return found

    @cached_property
    def _ends(self) -> set[str]:
        return {value.name for value in self.model.graph.output}

    @cached_property
    def _makers(self) -> dict[str, onnx.NodeProto]:
        return {name: node for node in self.model.graph.node for name in node.output}

    def _is_float32(self, node: onnx.NodeProto) -> bool:
        """Whether a node's inputs and results, but for shapes and the like, are float32."""
        import onnx

        first = node.input[0] if node.input else ""
        constant = self.constants.get(first)
        if constant is not None and constant.data_type != onnx.TensorProto.FLOAT:
            return False
        return (constant is not None or first in self.floats) and node.output[0] in self.floats

    def _stands_between(self, node: onnx.NodeProto, integer: set[str]) -> bool:
        """Whether all that a node reads comes from integers, and some of its readers want them."""
        for name in node.input:
            origin = self._origin(name) if name in self.floats else None
            if origin is not None and origin.name not in integer and origin.name not in self._last:
                return False
        return any(reader.name in integer for reader in self._read_by(node.output[0]))

    @cached_property
    def _last(self) -> set[str]:
        """Names of the nodes whose results are those of products."""
        return {tail[-1].name for tail in self.tails.values() if tail}

    def _activation(self, name: str) -> list[onnx.NodeProto]:
        """The nodes that are an activation of a value, if nothing else reads it."""
        readers = [] if name in self._ends else self.readers[name]
        operators = [node.op_type for node in readers]
        if len(readers) == 1 and operators[0] in _ACTIVATIONS:
            return list(readers)
        gate = next((node for node in readers if node.op_type in _GATES), None)
        product = next((node for node in readers if node.op_type == "Mul"), None)
        if gate is None or product is None or len(readers) != 2 or gate.output[0] in self._ends:
            return []
        gated = {name, gate.output[0]} == {*product.input} and len(self.readers[gate.output[0]]) == 1
        return [gate, product] if gated else []

    def _origin(self, name: str) -> onnx.NodeProto | None:
        """The node that computes a value, before it was moved; None for an input of the model."""
        node = self._makers.get(name)
        while node is not None and node.op_type in MOVES:
            node = self._makers.get(node.input[0])
        return node

    def _read_by(self, name: str) -> Iterator[onnx.NodeProto]:
        """What reads a value, also after it was moved."""
        for node in self.readers[name]:
            if node.op_type in MOVES:
                for moved in node.output:
                    yield from self._read_by(moved)
            else:
                yield node
