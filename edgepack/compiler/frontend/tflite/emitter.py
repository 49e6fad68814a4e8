"""Writes the ONNX graph that a subgraph becomes; shapes and types are known as nodes are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN
from edgepack.compiler.frontend.onnx.regions import names_read
from edgepack.compiler.frontend.tflite.model import LEFT_OUT, Operator, Subgraph, Tensor
from edgepack.plan.types import TensorSpec

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["OPSET", "Emitter"]

#: Of the standard's operators that are written.
OPSET = 18


class Emitter:
    """The graph of one subgraph.

    Args:
        subgraph: whose tensors are meant by their indices.

    Attributes:
        tensors: of the subgraph, with the shapes that their values have, whatever the file says of those
            that are computed.
        hybrid: layers of floats whose weights are integers (dynamic-range quantisation).
        foreign: kinds of operators in forms that LiteRT has no kernel for (TensorFlow Lite Micro has some),
            and must not be given: it refuses them, or reads what is not there. Graphs inside share it.
        assumed: what operands that are computed, or given, were taken to be, by the indices of their tensors:
            sizes of a result, which the file says too.
    """

    def __init__(self, subgraph: Subgraph) -> None:
        self.tensors, self.hybrid, self.foreign = list(subgraph.tensors), 0, set[str]()
        self.assumed: dict[int, tuple[int, ...]] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._types: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        self._names: dict[int, str] = {}
        self._known: dict[str, NDArray[Any]] = {}
        self._bound: set[str] = set()
        self._computed: set[str] = set()
        self._outputs: set[str] = set()
        self._count, self._prefix, self._first = 0, "", 0

    # Reading -------------------------------------------------------------------------------------------

    def tensor(self, operator: Operator, place: int) -> Tensor | None:
        """The tensor at a place of the operator's inputs; None if it is left out."""
        if place >= len(operator.inputs) or operator.inputs[place] == LEFT_OUT:
            return None
        return self.tensors[operator.inputs[place]]

    def value(self, index: int) -> str:
        """The name of a tensor's value: of a constant, of an input, or of what was computed.

        Raises:
            KeyError: nothing computed it.
        """
        if index == LEFT_OUT:
            raise KeyError("an operand is read that is left out")
        if index not in self._names:
            data = self.tensors[index].data
            if data is None:
                raise KeyError(f"tensor {self.tensors[index].name!r} is read before anything computes it")
            self._names[index] = self.const(data)
        return self._names[index]

    def known(self, name: str) -> NDArray[Any] | None:
        """The numbers of a constant; None of any other value."""
        return self._known.get(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """A value's shape."""
        return self._types[name][0]

    def dtype(self, name: str) -> np.dtype[Any]:
        """A value's element type."""
        return self._types[name][1]

    # Writing -------------------------------------------------------------------------------------------

    def begin(self, operator: Operator) -> None:
        """What is written from now on belongs to an operator."""
        self._prefix = self.tensors[operator.outputs[0]].name if operator.outputs else operator.kind
        self._first = len(self._nodes)

    def given(self, index: int) -> None:
        """A tensor becomes an input of the graph."""
        import numpy as np

        tensor = self.tensors[index]
        self._names[index] = tensor.name
        self._types[tensor.name] = tensor.shape, np.dtype(tensor.dtype)
        self._bound.add(tensor.name)

    def const(self, array: NDArray[Any]) -> str:
        """Adds a constant; its name."""
        import numpy as np
        from onnx import numpy_helper

        name = self.fresh("constant")
        dense = np.ascontiguousarray(array).reshape(array.shape)
        self._constants.append(numpy_helper.from_array(dense, name))
        self._types[name], self._known[name] = (array.shape, array.dtype), array
        return name

    def op(
        self,
        kind: str,
        *inputs: str,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        domain: str = "",
        **attributes: Any,
    ) -> str:
        """Adds a node of one output; its name.

        Args:
            shape, dtype: of the output; by default those of the inputs, broadcast, and of the first one.
        """
        return self.ops(kind, inputs, [(shape, dtype)], domain, **attributes)[0]

    def ops(
        self, kind: str, inputs: Sequence[str], results: Sequence[Any], domain: str = "", **attributes: Any
    ) -> list[str]:
        """Adds a node; the names of its outputs, whose shapes and types are given as for :meth:`op`."""
        import numpy as np
        import onnx

        names = []
        for given, dtype in results:
            shape = given
            if given is None:
                shape = np.broadcast_shapes(*(self._types[name][0] for name in inputs if name))
            name = self.fresh(kind)
            known = self._types[inputs[0]][1] if dtype is None else np.dtype(dtype)
            self._types[name] = tuple(int(n) for n in shape), known
            names.append(name)
        called = self._prefix if len(self._nodes) == self._first else names[0]
        node = onnx.helper.make_node(kind, list(inputs), names, name=called, domain=domain)
        node.attribute.extend(onnx.helper.make_attribute(key, value) for key, value in attributes.items())
        self._nodes.append(node)
        return names

    def cast(self, x: str, dtype: Any) -> str:
        """The same numbers as another type."""
        import numpy as np
        import onnx

        kind = np.dtype(dtype)
        if self.dtype(x) == kind:
            return x
        known = self.known(x)
        if known is not None:
            return self.const(known.astype(kind))
        return self.op("Cast", x, dtype=kind, to=onnx.helper.np_dtype_to_tensor_dtype(kind))

    def scalar(self, value: float, like: str) -> str:
        """A constant of rank 0 of another value's type."""
        import numpy as np

        return self.const(np.asarray(value, self.dtype(like)))

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """The same elements in another shape."""
        import numpy as np

        if tuple(shape) == self.shape(x):
            return x
        known = self.known(x)
        if known is not None:
            return self.const(known.reshape(tuple(shape)))
        return self.op("Reshape", x, self.const(np.asarray(shape, np.int64)), shape=shape)

    def transpose(self, x: str, axes: Sequence[int]) -> str:
        """The dimensions in another order."""
        known = self.known(x)
        if known is not None:
            return self.const(known.transpose(axes))
        return self.op("Transpose", x, shape=[self.shape(x)[a] for a in axes], perm=list(axes))

    def channels_first(self, x: str) -> str:
        """(N, ..., C) as (N, C, ...)."""
        rank = len(self.shape(x))
        return self.transpose(x, [0, rank - 1, *range(1, rank - 1)])

    def channels_last(self, x: str) -> str:
        """(N, C, ...) as (N, ..., C)."""
        rank = len(self.shape(x))
        return self.transpose(x, [0, *range(2, rank), 1])

    def result(self, index: int, name: str) -> None:
        """A value is that of a tensor, under the tensor's name; a constant stays one."""
        import numpy as np

        tensor = self.tensors[index]
        if self.dtype(name) != np.dtype(tensor.dtype):
            name = self.cast(name, tensor.dtype)
        self._settle(index, self.shape(name))
        if name in self._known:
            self._names[index] = name
            return
        made = self._nodes[-1].output if self._nodes else []
        if name in self._bound or name not in made:
            name = self.op("Identity", name)
            made = self._nodes[-1].output
        self._types[tensor.name] = self._types.pop(name)
        made[list(made).index(name)] = tensor.name
        self._names[index] = tensor.name
        self._bound.add(tensor.name)
        self._computed.add(tensor.name)

    def fold(self, operator: Operator) -> None:
        """Results of an operator whose operands are all constants become constants too, where they are small:
        shapes, and positions, are computed in the file."""
        from edgepack.compiler.frontend.onnx.standard_evaluator import FOLDED_LIMIT, evaluate

        given = [self._names.get(index, "") for index in operator.inputs if index != LEFT_OUT]
        computed = [index for index in operator.outputs if self._names.get(index) in self._computed]
        sizes = (math.prod(self.shape(self._names[index])) for index in computed)
        if not given or not computed or any(name not in self._known for name in given):
            return
        if sum(sizes) > FOLDED_LIMIT:
            return
        names = [self._names[index] for index in computed]
        made = self._model(self._nodes[self._first :], [], names)
        del self._nodes[self._first :]
        for index, name, array in zip(computed, names, evaluate(made, {}), strict=True):
            self._bound.discard(name)
            self._computed.discard(name)
            self._names[index] = self.const(array)

    def _settle(self, index: int, shape: Sequence[int]) -> None:
        if self.tensors[index].shape != tuple(shape):
            self.tensors[index] = replace(self.tensors[index], shape=tuple(shape))

    def output(self, index: int, name: str) -> str:
        """A tensor's value is an output of the graph, if it can under this name; its name.

        Raises:
            KeyError: nothing computes it.
        """
        value = self.value(index)
        if value == name and name in self._computed and name not in self._outputs:
            self._outputs.add(name)
            return name
        made = self.op("Identity", value)
        while name in self._types or name in self._outputs:
            name += "_"
        self._nodes[-1].output[0] = name
        self._types[name] = self._types.pop(made)
        self._outputs.add(name)
        return name

    # Graphs inside -------------------------------------------------------------------------------------

    def inner(self, graph: Subgraph, called: str) -> Emitter:
        """Writes a graph that the operator calls.

        Args:
            called: what the graph is to the operator; its tensors' names begin with the operator's and this.
        """
        tensors = (replace(one, name=f"{self._prefix}/{called}/{one.name}") for one in graph.tensors)
        inner = Emitter(replace(graph, tensors=tuple(tensors)))
        inner._prefix, inner.foreign = f"{self._prefix}/{called}", self.foreign
        return inner

    def reads(self, index: int, outer: Emitter, name: str) -> None:
        """A tensor is a value of the graph around this one."""
        import numpy as np

        known = outer.known(name)
        self._settle(index, outer.shape(name))
        if known is not None:
            self._names[index] = self.const(np.asarray(known))
            return
        self._names[index], self._types[name] = name, outer._types[name]
        self._bound.add(name)

    def takes(self, index: int, shape: Sequence[int], dtype: Any) -> onnx.ValueInfoProto:
        """A tensor is an input of this graph, of a shape and type of its caller; its declaration."""
        name = self.tensors[index].name
        self._names[index] = name
        self._settle(index, shape)
        return self.declared(name, shape, dtype)

    def declared(self, name: str, shape: Sequence[int], dtype: Any) -> onnx.ValueInfoProto:
        """A name becomes an input of this graph; its declaration."""
        import numpy as np

        self._types[name] = tuple(shape), np.dtype(dtype)
        self._bound.add(name)
        return _value_info(name, *self._types[name])

    def graph(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[str]) -> onnx.GraphProto:
        """All that was written, as a graph inside another one's node."""
        graph = self._model(self._nodes, [], outputs).graph
        graph.input.extend(inputs)
        return graph

    def model(self, inputs: Sequence[int], outputs: Sequence[str]) -> onnx.ModelProto:
        """All that was written, as a model of these tensors and :meth:`outputs <output>`."""
        return self._model(self._nodes, [self._names[index] for index in inputs], outputs)

    def _model(
        self, nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str]
    ) -> onnx.ModelProto:
        import onnx

        def declared(name: str) -> onnx.ValueInfoProto:
            return _value_info(name, *self._types[name])

        read = {name for node in nodes for name in names_read(node)}
        graph = onnx.helper.make_graph(
            nodes,
            "tflite",
            [declared(name) for name in inputs],
            [declared(name) for name in outputs],
            [one for one in self._constants if one.name in read],
        )
        made = [name for node in nodes for name in node.output if name not in outputs]
        graph.value_info.extend(declared(name) for name in made)
        opsets = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid(DOMAIN, 1)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def specs(self, names: Sequence[str]) -> tuple[TensorSpec, ...]:
        """Names, types and shapes of values."""
        return tuple(TensorSpec(name, str(self._types[name][1]), self._types[name][0]) for name in names)

    def fresh(self, base: str) -> str:
        """A name that no other value has."""
        self._count += 1
        return f"{self._prefix}:{base}{self._count}"


def _value_info(name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> onnx.ValueInfoProto:
    import onnx

    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(dtype), list(shape))
