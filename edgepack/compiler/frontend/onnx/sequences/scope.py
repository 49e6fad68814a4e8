"""A graph while its lists are taken out: what is known of its values, and the nodes that are written."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.regions import names_read
from edgepack.compiler.frontend.onnx.rewrites.editor import rename_values
from edgepack.compiler.frontend.onnx.sequences.context import Context, UnknownListError, constants_of
from edgepack.compiler.frontend.onnx.sequences.values import (
    MAKERS,
    Element,
    Optional,
    Part,
    Partition,
    Tensors,
    Value,
    run_of,
)
from edgepack.compiler.frontend.onnx.support import is_of_lists

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["Scope"]

#: Elements of inputs that are worth to be given as constants.
_FEW = 16


class Scope:
    """One graph of a model.

    Args:
        graph: changed by :meth:`finish`.
        inferred: the same, with the types of its values.
        parent: of the graph around it.

    Attributes:
        values: what lists and optional values are, by name.
        nodes: written so far.
    """

    def __init__(
        self, graph: onnx.GraphProto, inferred: onnx.GraphProto, context: Context, parent: Scope | None = None
    ) -> None:
        self.graph, self.inferred, self.context, self.parent = graph, inferred, context, parent
        self.values: dict[str, Value] = {}
        self.nodes: list[onnx.NodeProto] = []
        self._makers: set[int] = set()
        self._written: set[int] = set()
        self._parts: dict[Partition, dict[int, str]] = {}
        self._constants = constants_of(graph)
        self._types = {v.name: v for v in (*inferred.value_info, *inferred.input, *inferred.output)}
        makers = (node for node in graph.node if node.op_type in MAKERS and is_of_lists(node))
        self._lists = {name for node in makers for name in node.output}
        self._own = {value.name for value in graph.input} | self._constants.keys()
        self._own |= {name for node in graph.node for name in node.output}

    # reading -------------------------------------------------------------------------------------------

    def value(self, name: str) -> Value | None:
        """The list or the optional value of a name; None where it is neither, or not known."""
        if name in self.values:
            return self.values[name]
        return None if self.parent is None or name in self._own else self.parent.value(name)

    def is_list(self, name: str) -> bool:
        """Whether a name is known to be a list, whether or not it is known which tensors it has."""
        if isinstance(self.value(name), Tensors) or name in self._lists:
            return True
        return self.parent is not None and name not in self._own and self.parent.is_list(name)

    def tensors(self, name: str) -> Tensors:
        """The list of a name, whose length is known."""
        found = self.value(name)
        if not isinstance(found, Tensors) or found.is_open:
            raise UnknownListError(f"which tensors the list {name!r} has is not known")
        return found

    def constant(self, name: str) -> NDArray[Any] | None:
        """A constant, or None."""
        from onnx import numpy_helper

        tensor = self._tensor(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def _tensor(self, name: str) -> onnx.TensorProto | None:
        if name in self._constants:
            return self._constants[name]
        return None if self.parent is None or name in self._own else self.parent._tensor(name)

    def declared(self, name: str) -> onnx.ValueInfoProto | None:
        """What is known of the type of a value that the graph had before."""
        if name in self._types:
            return self._types[name]
        return None if self.parent is None else self.parent.declared(name)

    def shape(self, element: Element) -> tuple[int | None, ...] | None:
        """Extents of a tensor, None for those that are not known; None where its rank is not known."""
        if isinstance(element, Part):
            of = element.of
            whole = self.shape(of.source)
            size = [of.sizes[element.index]] if of.keep else []
            return None if whole is None else (*whole[: of.axis], *size, *whole[of.axis + 1 :])
        assert isinstance(element, str)
        if (tensor := self._tensor(element)) is not None:
            return tuple(tensor.dims)
        value = self.declared(element)
        if value is None or not value.type.tensor_type.HasField("shape"):
            return None
        dims = value.type.tensor_type.shape.dim
        return tuple(d.dim_value if d.WhichOneof("value") == "dim_value" else None for d in dims)

    def static(self, element: Element) -> tuple[int, ...] | None:
        """The shape of a tensor, if all of it is known."""
        shape = self.shape(element)
        known = tuple(extent for extent in shape or () if extent is not None)
        return known if shape is not None and len(known) == len(shape) else None

    def dtype(self, element: Element) -> int:
        """ONNX's number of a tensor's element type; 0 where it is not known."""
        name = element.of.source if isinstance(element, Part) else element
        if not isinstance(name, str):
            return 0
        if (tensor := self._tensor(name)) is not None:
            return int(tensor.data_type)
        value = self.declared(name)
        return value.type.tensor_type.elem_type if value is not None else 0

    def pinned(self, name: str, number: int = 0) -> str:
        """What a user may do so that a value is known: pin the inputs that it is computed from, to a number
        that may do; "" where it depends on more than a few numbers."""
        inputs = self._origins(name)
        if inputs is None or not inputs:
            return ""
        options = " ".join(f"--const {shlex.quote(f'{one}={number}')}" for one in inputs)
        return f"Make it known when the model is packed: {options}."

    def _origins(self, name: str) -> list[str] | None:
        """The model's inputs that a value is computed from; None where these are more than a few numbers."""
        makers = {out: node for node in self.graph.node for out in node.output}
        found, seen, waiting = dict[str, None](), set[str](), [name]
        while waiting:
            one = waiting.pop()
            if one in seen or not one or one in self._constants:
                continue
            seen.add(one)
            if one in makers and not any(a.HasField("g") for a in makers[one].attribute):
                waiting += makers[one].input
            elif one in self._own:
                shape = self.static(one)
                if self.parent is not None or one in makers or shape is None or prod(shape) > _FEW:
                    return None
                found[one] = None
            else:
                outer = None if self.parent is None else self.parent._origins(one)
                if outer is None:
                    return None
                found |= dict.fromkeys(outer)
        return list(found)

    # writing -------------------------------------------------------------------------------------------

    def keep(self, node: onnx.NodeProto) -> None:
        """Leaves a node as it is."""
        self.nodes.append(node)

    def keep_where_read(self, node: onnx.NodeProto) -> None:
        """Leaves a node whose lists are known; it goes where nobody reads them."""
        self._makers.add(len(self.nodes))
        self.nodes.append(node)

    def define(self, name: str, value: Value) -> None:
        """Says that a name is a list or an optional value, also to nodes that go on reading the name."""
        if not name:
            return
        self.values[name] = value
        for node in self.makers(name, value, self):
            self.keep_where_read(node)

    def makers(self, name: str, value: Value, place: Scope) -> Iterator[onnx.NodeProto]:
        """Nodes that make a list, or an optional value, of its tensors.

        Args:
            place: where the nodes will be, in this graph or inside it.
        """
        from onnx import helper

        if isinstance(value, Optional):
            content, attributes = value.content, {}
            if isinstance(content, Tensors):
                inner = self.context.fresh(f"{name}/content")
                yield from self.makers(inner, content, place)
                content = inner
            if content is None and (declared := self.declared(name)) is not None:
                attributes["type"] = declared.type.optional_type.elem_type
            yield helper.make_node("Optional", [content] if content else [], [name], **attributes)
        elif not value.elements:
            yield helper.make_node("SequenceEmpty", [], [name], dtype=value.dtype or 1)
        elif (run := run_of(value.elements)) is not None and run.is_all and not run.of.keep:
            yield helper.make_node("SplitToSequence", [run.of.source], [name], axis=run.of.axis, keepdims=0)
        elif run is not None and run.is_all:
            sizes = place.numbers(*run.of.sizes)
            yield helper.make_node("SplitToSequence", [run.of.source, sizes], [name], axis=run.of.axis)
        else:
            yield helper.make_node("SequenceConstruct", self.leaves(value), [name])

    def declare(self, name: str, dtype: int, shape: Sequence[int]) -> None:
        """Says what a tensor is that was written."""
        import onnx

        self._types[name] = onnx.helper.make_tensor_value_info(name, dtype, shape)

    def const(self, array: NDArray[Any]) -> str:
        """Adds a constant; its name."""
        from onnx import numpy_helper

        name = self.context.fresh("edgepack/list/constant")
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        self._constants[name] = self.graph.initializer[-1]
        return name

    def numbers(self, *values: int) -> str:
        """Adds an int64 constant of rank 1; its name."""
        import numpy as np

        return self.const(np.asarray(values, np.int64))

    def op(self, op_type: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """Adds a node of one result; its name.

        Args:
            result: the name, if it is to be a certain one.
        """
        return self.ops(op_type, inputs, [result or self.fresh_like(inputs, op_type)], **attributes)[0]

    def ops(
        self, op_type: str, inputs: Sequence[str], results: Sequence[str], **attributes: Any
    ) -> list[str]:
        """Adds a node; the names of its results."""
        import onnx

        node = onnx.helper.make_node(op_type, inputs, results, self.context.fresh(results[0]), **attributes)
        self._written.add(len(self.nodes))
        self.nodes.append(node)
        self.context.changed = True
        return list(results)

    def fresh_like(self, inputs: Sequence[str], kind: str) -> str:
        """A name for what is made of some values."""
        return self.context.fresh(f"{inputs[0] if inputs else 'edgepack/list'}/{kind.lower()}")

    def with_axes(self, op_type: str, name: str, axes: Sequence[int], result: str = "") -> str:
        """Adds a Squeeze or an Unsqueeze, whose axes are an input since opset 13; its result."""
        if self.context.opset >= 13:
            return self.op(op_type, name, self.numbers(*axes), result=result)
        return self.op(op_type, name, axes=list(axes), result=result)

    def tensor(self, element: Element) -> str:
        """The name of a tensor of a list, which is computed where it is a part of another."""
        import numpy as np

        if isinstance(element, str):
            return element
        assert isinstance(element, Part), "what a loop carries has no name"
        names = self._parts.setdefault(element.of, {})
        if element.index not in names:
            of = element.of
            start, end = of.starts[element.index : element.index + 2]
            if of.keep:
                bounds = (self.numbers(start), self.numbers(end), self.numbers(of.axis))
                names[element.index] = self.op("Slice", of.source, *bounds)
            else:
                place = self.const(np.asarray(start, np.int64))
                names[element.index] = self.op("Gather", of.source, place, axis=of.axis)
        return names[element.index]

    def leaves(self, value: Value) -> list[str]:
        """The names of all tensors of a value."""
        if isinstance(value, Tensors):
            return [self.tensor(one) for one in value.elements]
        content = value.content
        if isinstance(content, Tensors):
            return self.leaves(content)
        return [] if content is None else [content]

    def like(self, value: Value, prefix: str) -> tuple[Value, list[str]]:
        """A value of the same form of new tensors, and their names."""
        if isinstance(value, Tensors):
            names = [self.context.fresh(f"{prefix}/{index}") for index in range(len(value.elements))]
            dtype = value.dtype or next(filter(None, map(self.dtype, value.elements)), 0)
            return Tensors(tuple(names), dtype), names
        if isinstance(value.content, Tensors):
            inside, names = self.like(value.content, prefix)
            assert isinstance(inside, Tensors)
            return replace(value, content=inside), names
        if value.content is None:
            return value, []
        name = self.context.fresh(f"{prefix}/value")
        return Optional(name), [name]

    def give(self, place: int, value: Value) -> None:
        """Makes the tensors of a value outputs of the graph, in the place of one output."""
        import onnx

        leaves = self.leaves(value)
        names = [self.context.fresh(f"{name}/result") for name in leaves]
        for name, result in zip(leaves, names, strict=True):
            self.op("Identity", name, result=result)
        outputs = [onnx.ValueInfoProto.FromString(one.SerializeToString()) for one in self.graph.output]
        outputs[place : place + 1] = [onnx.ValueInfoProto(name=name) for name in names]
        del self.graph.output[:]
        self.graph.output.extend(outputs)

    # the end -------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Writes the nodes into the graph, but for those that make lists which nobody reads, and those that
        were written for such."""
        import onnx

        read = {value.name for value in self.graph.output}
        kept: list[onnx.NodeProto] = []
        droppable = self._makers | self._written
        for index in reversed(range(len(self.nodes))):
            node = self.nodes[index]
            if index in droppable and read.isdisjoint(node.output):
                self.context.changed |= index in self._makers
                continue
            read.update(names_read(node))
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            kept.append(copy)
        nodes = [*self._given(kept), *self._with_splits(reversed(kept))]
        del self.graph.node[:]
        self.graph.node.extend(nodes)

    def _given(self, nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
        """Nodes that make the lists of graphs around that some nodes read: each graph has its own, so that
        those outside can go."""
        if self.parent is None:
            return
        own: dict[str, str] = {}
        for name in dict.fromkeys(name for node in nodes for name in names_read(node)):
            value = None if name in self._own else self.parent.value(name)
            if not isinstance(value, Tensors) or value.is_open:
                continue
            own[name] = self.context.fresh(f"{name}/inside")
            yield from self.parent.makers(own[name], value, self)
            self.context.changed = True
        for node in nodes if own else ():
            rename_values(node, own)

    def _with_splits(self, nodes: Iterator[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
        """The nodes, with a Split in the place of slices that are all parts of a tensor."""
        whole = {
            of: [names[index] for index in range(len(of.sizes))]
            for of, names in self._parts.items()
            if of.keep and len(names) == len(of.sizes) > 1
        }
        split = {name: of for of, names in whole.items() for name in names}
        for node in nodes:
            of = split.get(node.output[0]) if node.output else None
            if of is None:
                yield node
            elif of in whole:
                yield self._split(of, whole.pop(of))

    def _split(self, of: Partition, names: Sequence[str]) -> onnx.NodeProto:
        import onnx

        make = onnx.helper.make_node
        if self.context.opset >= 13:
            return make("Split", [of.source, self.numbers(*of.sizes)], names, names[0], axis=of.axis)
        return make("Split", [of.source], names, names[0], axis=of.axis, split=list(of.sizes))
