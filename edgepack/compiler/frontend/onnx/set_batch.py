"""Gives a model that was exported with a batch of 1 another batch: ``--set-batch N``.

The inputs' first dimensions become N, and node by node follows what that does: of each tensor it is known
which axis grew. Where a node has the old extent written in it (the shape of a Reshape), the new one is
written; what does not depend on an input is repeated where it meets a batch. A node that cannot take it is
refused by name. That the samples do not mix is seen by the reference: ``reference.py`` runs the model as it
was, sample by sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.binding import EXPORT_DYNAMIC, model_inputs
from edgepack.compiler.frontend.onnx.shapes import INFERENCE_LIMIT
from edgepack.compiler.frontend.onnx.support import node_name
from edgepack.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["set_batch"]

#: Operators whose inputs 5 and 6 are initial states: (directions, batch, hidden).
_RECURRENT = {"LSTM", "GRU", "RNN"}


def set_batch(model: onnx.ModelProto, batch: int) -> None:
    """Writes the batch into a model whose inputs are all static, in place.

    Inputs whose first dimension is not that of the first input are left alone.

    Raises:
        ConfigError: the model has no batch of 1 to be changed.
        ModelError: a node cannot have another batch.
    """
    inputs = model_inputs(model)
    first = next((item.shape[0] for item in inputs if item.shape), 0)
    if first == batch:
        return
    if first != 1:
        raise ConfigError(
            f"--set-batch {batch}: the model's batch is {first}; only one of 1 can be changed.",
            hint=f"{EXPORT_DYNAMIC}, or with a batch of 1.",
        )
    names = {item.name for item in inputs if item.shape and item.shape[0] == 1}
    _Rebatch(model, names, batch).run()


class _Rebatch:
    """One walk over the graph; knows each tensor's type and small value before and after."""

    def __init__(self, model: onnx.ModelProto, names: set[str], batch: int) -> None:
        import onnx

        self.model, self.batch = model, batch
        self.opsets = {opset.domain: int(opset.version) for opset in model.opset_import}
        self.old: dict[str, onnx.TypeProto] = {}
        self.new: dict[str, onnx.TypeProto] = {}
        self.old_values: dict[str, NDArray[Any]] = {}
        self.new_values: dict[str, NDArray[Any]] = {}
        self.nodes: list[onnx.NodeProto] = []
        for value in model.graph.input:
            self.old[value.name] = onnx.TypeProto.FromString(value.type.SerializeToString())
            if value.name in names:
                value.type.tensor_type.shape.dim[0].dim_value = batch
            self.new[value.name] = value.type
        for tensor in model.graph.initializer:
            kind = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            self.old[tensor.name] = self.new[tensor.name] = kind
            if prod(tensor.dims) <= INFERENCE_LIMIT:
                value = onnx.numpy_helper.to_array(tensor)
                self.old_values[tensor.name] = self.new_values[tensor.name] = value

    def run(self) -> None:
        graph = self.model.graph
        for index, node in enumerate(graph.node):
            self._node(node, node_name(node, index))
        del graph.node[:]
        graph.node.extend(self.nodes)
        for value in graph.output:
            if self._axis(value.name) is None and not self._same(value.name):
                raise ModelError(
                    f"--set-batch {self.batch}: the output {value.name!r} does not grow with the batch.",
                    hint=f"{EXPORT_DYNAMIC}.",
                )
            value.type.CopyFrom(self.new[value.name])
        del graph.value_info[:]

    def _node(self, node: onnx.NodeProto, name: str) -> None:
        self.old |= self._inferred(node, self.old, self.old_values, name)
        grown = self._grown(node)
        if grown and node.op_type in {"Shape", "Size"}:
            self._size(node)
            return
        if grown:
            self._rewrite(node, name)
        self.new |= self._inferred(node, self.new, self.new_values, name)
        self.nodes.append(node)
        if not grown:
            self._evaluate(node)
            return
        for output in filter(None, node.output):
            if self._axis(output) is None:
                raise self._refused(node, name, "its result does not grow with the batch")

    def _size(self, node: onnx.NodeProto) -> None:
        """The size of a tensor that grew is a constant now, and so is what is computed from it."""
        import numpy as np
        import onnx

        bounds = {attribute.name: attribute.i for attribute in node.attribute}
        name, found = node.output[0], []
        for types in (self.old, self.new):
            shape = _shape_of(types[node.input[0]]) or ()
            part: Any = shape[slice(bounds.get("start"), bounds.get("end"))]
            found.append(np.asarray(part if node.op_type == "Shape" else prod(shape), np.int64))
        self.old_values[name], self.new_values[name] = found
        tensor = onnx.numpy_helper.from_array(found[1])
        self.nodes.append(onnx.helper.make_node("Constant", [], [name], value=tensor))
        self.new[name] = self.old[name]

    def _rewrite(self, node: onnx.NodeProto, name: str) -> None:
        """Writes the new extent where a node has the old one in it."""
        if node.op_type in {"Reshape", "Expand"} and self._grown(node) == [0]:
            self._new_shape(node, name)
        elif node.op_type == "Resize" and len(node.input) > 3 and node.input[3] in self.old_values:
            axis, sizes = self._axis(node.input[0]), self.old_values[node.input[3]].copy()
            if axis is not None and len(sizes) == len(_shape_of(self.old[node.input[0]]) or ()):
                sizes[axis] *= self.batch
                self._replace(node, 3, sizes)
        elif node.op_type == "Concat":
            for index, item in enumerate(node.input):
                self._repeat_beside(node, index, item)
        elif node.op_type in _RECURRENT:
            for index in (5, 6):
                if index < len(node.input) and node.input[index] and self._axis(node.input[index]) is None:
                    shape = list(_shape_of(self.old[node.input[index]]) or ())
                    if len(shape) == 3 and shape[1] == 1:
                        shape[1] = self.batch
                        self._expand(node, index, shape)

    def _new_shape(self, node: onnx.NodeProto, name: str) -> None:
        """A literal shape: the axis in front of which as many elements stand as before the grown axis."""
        import numpy as np

        axis = self._axis(node.input[0])
        data, result = _shape_of(self.old[node.input[0]]), _shape_of(self.old[node.output[0]])
        if axis is None or data is None or result is None:
            raise self._refused(node, name, "its shape is not known")
        if node.op_type == "Expand":
            place = len(result) - len(data) + axis
        else:
            before = prod(data[:axis])
            places = [i for i in range(len(result)) if prod(result[:i]) == before]
            if not places:
                raise self._refused(node, name, "it puts parts of several samples together")
            place = places[0]
        shape = np.asarray(result, np.int64)
        shape[place] *= self.batch
        self._replace(node, 1, shape)

    def _repeat_beside(self, node: onnx.NodeProto, index: int, item: str) -> None:
        """A constant beside tensors that grew (the class token of a transformer) is repeated."""
        axes = {self._axis(other) for other in node.input} - {None}
        shape = list(_shape_of(self.new[item]) or ())
        if self._axis(item) is not None or len(axes) != 1:
            return
        (axis,) = axes
        if axis is not None and axis < len(shape) and shape[axis] == 1:
            shape[axis] = self.batch
            self._expand(node, index, shape)

    def _expand(self, node: onnx.NodeProto, index: int, shape: Sequence[int]) -> None:
        import numpy as np
        import onnx

        source, name = node.input[index], f"{node.output[0]}/batch_{index}"
        inner = onnx.helper.make_node("Expand", [source, ""], [name])
        self._replace(inner, 1, np.asarray(shape, np.int64))
        self.nodes.append(inner)
        self.old[name] = self.old[source]
        kind = self.new[source].tensor_type.elem_type
        self.new[name] = onnx.helper.make_tensor_type_proto(kind, list(shape))
        node.input[index] = name

    def _replace(self, node: onnx.NodeProto, index: int, value: NDArray[Any]) -> None:
        """Gives a node a constant as an input."""
        import onnx

        name = f"{node.output[0]}/batch_shape"
        self.model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
        self.old[name] = self.new[name] = onnx.helper.make_tensor_type_proto(
            onnx.TensorProto.INT64, value.shape
        )
        self.new_values[name] = value
        node.input[index] = name

    def _evaluate(self, node: onnx.NodeProto) -> None:
        """The values of a node whose inputs are all known and small."""
        from onnx.reference import ReferenceEvaluator

        shapes = [_shape_of(self.new.get(name)) for name in node.output if name]
        if any(shape is None or prod(shape) > INFERENCE_LIMIT for shape in shapes):
            return
        if any(name not in self.new_values for name in node.input if name):
            return
        for values in (self.old_values, self.new_values):
            feeds = {name: values[name] for name in node.input if name in values}
            try:
                results = ReferenceEvaluator(node).run(None, feeds)
            except Exception:  # whatever it does not know stays unknown
                return
            values.update(zip(node.output, results, strict=False))

    def _inferred(
        self,
        node: onnx.NodeProto,
        types: dict[str, onnx.TypeProto],
        values: dict[str, NDArray[Any]],
        name: str,
    ) -> dict[str, onnx.TypeProto]:
        import onnx

        given = {item: types[item] for item in node.input if item and item in types}
        data = {item: onnx.numpy_helper.from_array(values[item]) for item in given if item in values}
        domain = "" if node.domain == "ai.onnx" else node.domain
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opsets.get(domain, 1), domain)
            found: dict[str, onnx.TypeProto] = onnx.shape_inference.infer_node_outputs(
                schema, node, given, data, opset_imports=list(self.model.opset_import)
            )
        except Exception as error:  # onnx has no base class for them
            reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
            raise self._refused(node, name, f"its shape cannot be inferred ({reason})") from error
        return found

    def _grown(self, node: onnx.NodeProto) -> list[int]:
        """Indices of the inputs that grew."""
        return [i for i, item in enumerate(node.input) if item and self._axis(item) is not None]

    def _same(self, name: str) -> bool:
        return _shape_of(self.old.get(name)) == _shape_of(self.new.get(name))

    def _axis(self, name: str) -> int | None:
        """The axis of a tensor that grew by the batch; None if it did not."""
        old, new = _shape_of(self.old.get(name)), _shape_of(self.new.get(name))
        if old is None or new is None or len(old) != len(new):
            return None
        axes = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        return axes[0] if len(axes) == 1 and new[axes[0]] == old[axes[0]] * self.batch else None

    def _refused(self, node: onnx.NodeProto, name: str, why: str) -> ModelError:
        return ModelError(
            f"--set-batch {self.batch}: {node.op_type}, {name}, cannot have another batch: {why}.",
            hint=f"{EXPORT_DYNAMIC}.",
        )


def _shape_of(kind: onnx.TypeProto | None) -> tuple[int, ...] | None:
    """A tensor's shape of which all extents are known, or None."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    known = all(dim.WhichOneof("value") == "dim_value" for dim in dims)
    return tuple(int(dim.dim_value) for dim in dims) if known else None
