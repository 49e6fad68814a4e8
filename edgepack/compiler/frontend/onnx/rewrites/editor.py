"""What the rewrites are written with: reads constants and shapes of a graph, writes nodes into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.shapes import all_nodes, inner_graphs
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, node_name
from edgepack.errors import EdgepackError

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["Editor", "Rewrite", "attributes", "evaluated", "known_form", "rename_values"]

#: Most elements of a constant that :meth:`Editor.known` follows: of conditions, sizes and their like.
_SMALL = 64

#: Writes the replacement of a node and returns the names of its outputs; None leaves the node as it is.
Rewrite = Callable[["Editor", "onnx.NodeProto"], Sequence[str] | None]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes of the node by name; strings as ``str``."""
    import onnx

    values = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


@contextmanager
def known_form(node: onnx.NodeProto, index: int) -> Iterator[None]:
    """Refuses a node of whose attributes or inputs something inside cannot be read."""
    try:
        yield
    except (EdgepackError, MemoryError):
        raise
    except Exception as error:  # who reads attributes and constants expects what the standard says
        raise RefusedNodesError(
            f"The {node.op_type} node {node_name(node, index)} has a form that edgepack does not know.",
            hint="Export it in the form that the standard describes, or report the model.",
            detail=f"{type(error).__name__}: {error}",
            tensors=[name for name in node.output if name],
        ) from error


class Editor:
    """Runs rewrites over a model whose constants are folded.

    Attributes:
        changed: whether the last run replaced a node.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        from edgepack.compiler.frontend.onnx.model_file import default_opset
        from edgepack.compiler.frontend.onnx.shapes import infer_shapes

        self.model = model
        self.opset = default_opset(model)
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        graph = infer_shapes(model).graph
        self._types = {
            value.name: value.type.tensor_type for value in (*graph.value_info, *graph.input, *graph.output)
        }
        self._producers = {name: node for node in model.graph.node for name in node.output}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in dict.fromkeys(node.input):
                self._readers.setdefault(name, []).append(node)
        self._taken = {name for node in all_nodes(model.graph) for name in (*node.input, *node.output)}
        self._taken.update(value.name for value in (*model.graph.input, *model.graph.initializer))
        self._written: list[onnx.NodeProto] = []
        self._values: dict[str, NDArray[Any] | None] = {}
        self._prefix = ""
        self._count = 0
        self.changed = False

    def run(self, rewrites: Mapping[tuple[str, str], Rewrite]) -> onnx.ModelProto:
        """Replaces every node that a rewrite applies to. The model is changed in place, and returned."""
        nodes: list[onnx.NodeProto] = []
        self.changed = False
        for index, node in enumerate(self.model.graph.node):
            domain = "" if node.domain == "ai.onnx" else node.domain
            rewrite = rewrites.get((domain, node.op_type))
            self._written, self._prefix = [], node.name or f"{node.op_type}_{index}"
            results = self._replaced(rewrite, node, index) if rewrite else None
            if results is None:
                nodes.append(node)
                continue
            self.changed = True
            for old, new in zip(node.output, results, strict=False):
                if old:
                    self._rename(new, old)
            nodes += self._written
        if self.changed:
            del self.model.graph.node[:]
            self.model.graph.node.extend(nodes)
            self._drop_unused_constants()
        return self.model

    def _replaced(self, rewrite: Rewrite, node: onnx.NodeProto, index: int) -> Sequence[str] | None:
        with known_form(node, index):
            return rewrite(self, node)
        return None

    # reading ------------------------------------------------------------------------------------------

    def constant(self, name: str) -> NDArray[Any] | None:
        """Value of an initializer; None for any other value, and for an input left out."""
        from onnx import numpy_helper

        tensor = self._constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    @property
    def constants(self) -> Mapping[str, onnx.TensorProto]:
        """The initializers, by name."""
        return self._constants

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Static shape of a value, or None."""
        if name in self._constants:
            return tuple(self._constants[name].dims)
        tensor = self._types.get(name)
        if tensor is None or not tensor.HasField("shape"):
            return None
        dims = tensor.shape.dim
        return (
            None
            if any(d.WhichOneof("value") != "dim_value" for d in dims)
            else tuple(d.dim_value for d in dims)
        )

    def is_empty(self, name: str) -> bool:
        """Whether a value is known to have no elements."""
        shape = self.shape(name)
        return shape is not None and 0 in shape

    def dtype(self, name: str) -> np.dtype[Any]:
        """Element type of a value."""
        import onnx

        tensor = self._constants.get(name)
        element = tensor.data_type if tensor is not None else self._types[name].elem_type
        return onnx.helper.tensor_dtype_to_np_dtype(element)  # type: ignore[no-any-return]

    def element(self, name: str) -> int:
        """ONNX's number of a value's element type; 0 if it is not known."""
        tensor = self._constants.get(name)
        if tensor is not None:
            return int(tensor.data_type)
        return int(self._types[name].elem_type) if name in self._types else 0

    def producer(self, name: str) -> onnx.NodeProto | None:
        """The node of the model, as it was before the rewrites, that computes a value; None of any other."""
        return self._producers.get(name)

    def readers(self, name: str) -> list[onnx.NodeProto]:
        """Nodes of the model, as it was before the rewrites, that read a value, each once."""
        return self._readers.get(name, [])

    # writing ------------------------------------------------------------------------------------------

    def const(self, array: NDArray[Any]) -> str:
        """Adds an initializer; its name."""
        from onnx import numpy_helper

        name = self._fresh("constant")
        tensor = numpy_helper.from_array(array, name)
        self.model.graph.initializer.append(tensor)
        self._constants[name] = tensor
        return name

    def scalar(self, value: float, dtype: np.dtype[Any]) -> str:
        """Adds an initializer of rank 0."""
        import numpy as np

        return self.const(np.asarray(value, dtype))

    def op(self, op_type: str, *inputs: str, **attribute_values: Any) -> str:
        """Adds a node of the standard domain with one output; its name."""
        return self.ops(op_type, *inputs, outputs=1, **attribute_values)[0]

    def ops(self, op_type: str, *inputs: str, outputs: int, **attribute_values: Any) -> list[str]:
        """Adds a node of the standard domain; the names of its outputs."""
        import onnx

        names = [self._fresh(op_type) for _ in range(outputs)]
        self._written.append(onnx.helper.make_node(op_type, inputs, names, name=names[0], **attribute_values))
        return names

    def again(self, node: onnx.NodeProto, inputs: Sequence[str], **changed: Any) -> list[str]:
        """Adds a node like another one of the standard domain, of its name; the names of its outputs.

        Args:
            inputs: its own; those at the end that are "" are left out.
            changed: attributes that are others; None for one that is left out.
        """
        values = {key: value for key, value in {**attributes(node), **changed}.items() if value is not None}
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        names = self.ops(node.op_type, *given, outputs=len(node.output), **values)
        self._written[-1].name = node.name
        return names

    def own(
        self, op_type: str, *inputs: str, result: tuple[np.dtype[Any], Sequence[int]], **said: Any
    ) -> str:
        """Adds a node of edgepack's own domain, which nothing infers types of; its name.

        Args:
            result: dtype and shape of its output.
        """
        import onnx

        from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN

        if DOMAIN not in {opset.domain for opset in self.model.opset_import}:
            self.model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
        made = self.op(op_type, *inputs, domain=DOMAIN, **said)
        self.declare(made, *result)
        return made

    def declare(self, name: str, dtype: np.dtype[Any], shape: Sequence[int]) -> None:
        """Says what a value is that was written by a node of another domain."""
        import onnx

        element = onnx.helper.np_dtype_to_tensor_dtype(dtype)
        value = onnx.helper.make_tensor_value_info(name, element, shape)
        self.model.graph.value_info.append(value)
        self._types[name] = value.type.tensor_type

    def cast(self, x: str, dtype: np.dtype[Any]) -> str:
        """Adds a Cast."""
        import onnx

        return self.op("Cast", x, to=onnx.helper.np_dtype_to_tensor_dtype(dtype))

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """Adds a Reshape."""
        import numpy as np

        return self.op("Reshape", x, self.const(np.asarray(shape, np.int64)))

    def reduce(self, op_type: str, x: str, axis: int) -> str:
        """Adds a reduction over one axis, kept with size 1. Axes are an input since opset 18 (sums: 13)."""
        import numpy as np

        since = 13 if op_type == "ReduceSum" else 18
        if self.opset >= since:
            return self.op(op_type, x, self.const(np.asarray([axis], np.int64)), keepdims=1)
        return self.op(op_type, x, axes=[axis], keepdims=1)

    def inline(self, graph: onnx.GraphProto, inputs: Sequence[str], constants: dict[str, str]) -> list[str]:
        """Adds a copy of a graph's nodes; the names of its outputs.

        Args:
            graph: a branch or a body; what it reads of the graph around it keeps its name.
            inputs: what its inputs are here.
            constants: what its initializers are here, shared by all copies; the first one fills it.
        """
        import onnx
        from onnx import numpy_helper

        if not constants:
            constants.update({t.name: self.const(numpy_helper.to_array(t)) for t in graph.initializer})
        names = {**constants, **{value.name: name for value, name in zip(graph.input, inputs, strict=True)}}
        for node in graph.node:
            names.update({name: self._fresh(node.op_type) for name in node.output if name})
        for node in graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            rename_values(copy, names)
            copy.name = self._fresh(node.name or node.op_type)
            self._written.append(copy)
        return [names.get(value.name, value.name) for value in graph.output]

    def value(self, name: str) -> NDArray[Any] | None:
        """Value of what depends on constants alone, also by nodes that were just written; None of others."""
        if name not in self._values:
            found = self.constant(name)
            node = next((n for n in reversed(self._written) if name in n.output), None)
            if found is None and node is not None and not any(a.HasField("g") for a in node.attribute):
                operands = {n: self.value(n) for n in node.input if n}
                known = {n: v for n, v in operands.items() if v is not None}
                if len(known) == len(operands):
                    found = evaluated(node, name, known, self.model.opset_import)
            self._values[name] = found
        return self._values[name]

    def known(self, name: str) -> NDArray[Any] | None:
        """Value of what depends on small constants alone, through nodes of the model; None of others."""
        if name in self._values:
            return self._values[name]
        self._values[name] = None  # also of a circle
        found = self.constant(name)
        node = self._producers.get(name)
        if found is None and node is not None and not any(a.HasField("g") for a in node.attribute):
            operands = {n: self.known(n) for n in node.input if n}
            known = {n: v for n, v in operands.items() if v is not None}
            if len(known) == len(operands):
                found = evaluated(node, name, known, self.model.opset_import)
        self._values[name] = found if found is None or found.size <= _SMALL else None
        return self._values[name]

    def _fresh(self, kind: str) -> str:
        """A name that neither the model nor another run of an editor has given."""
        while True:
            self._count += 1
            name = f"{self._prefix}/{kind}_{self._count}"
            if name not in self._taken:
                return name

    def _rename(self, new: str, old: str) -> None:
        """Makes the written value ``new`` carry the name ``old``."""
        import onnx

        produced = any(new in node.output for node in self._written)
        reused = any(new in node.input for node in self._written)
        if not produced or reused:
            self._written.append(
                onnx.helper.make_node("Identity", [new], [old], name=f"{self._prefix}/{old}")
            )
            return
        for node in self._written:
            for index, name in enumerate(node.output):
                if name == new:
                    node.output[index] = old

    def _drop_unused_constants(self) -> None:
        graph = self.model.graph
        nodes = list(all_nodes(graph))
        graphs = [graph, *(inner for node in nodes for inner in inner_graphs(node))]
        used = {name for node in nodes for name in node.input}
        used |= {value.name for one in graphs for value in one.output}
        kept = [tensor for tensor in graph.initializer if tensor.name in used]
        del graph.initializer[:]
        graph.initializer.extend(kept)


def rename_values(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Renames what a node reads and writes, also in the graphs inside it, in place."""
    for values in (node.input, node.output):
        values[:] = [names.get(name, name) for name in values]
    for inner in inner_graphs(node):
        own = {value.name for value in (*inner.input, *inner.initializer)}
        own |= {name for other in inner.node for name in other.output}
        outer = {old: new for old, new in names.items() if old not in own}
        for other in inner.node:
            rename_values(other, outer)
        for output in inner.output:
            output.name = outer.get(output.name, output.name)


def evaluated(
    node: onnx.NodeProto,
    output: str,
    inputs: Mapping[str, NDArray[Any]],
    opsets: Sequence[onnx.OperatorSetIdProto],
) -> NDArray[Any]:
    """An output of one node whose inputs are known."""
    from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate

    return evaluate(_model_of(node, output, inputs, opsets), inputs)[0]


def _model_of(
    node: onnx.NodeProto,
    output: str,
    inputs: Mapping[str, NDArray[Any]],
    opsets: Sequence[onnx.OperatorSetIdProto],
) -> onnx.ModelProto:
    """A model of one node."""
    import onnx
    from onnx import helper

    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
    ]
    result = onnx.ValueInfoProto(name=output)
    return helper.make_model(helper.make_graph([node], "node", given, [result]), opset_imports=list(opsets))
