"""A graph in which results have a static maximum of entries, while its nodes are followed and rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.bounded_shapes.data_dependent import Entries
from edgepack.compiler.frontend.onnx.cut import static_shape
from edgepack.compiler.frontend.onnx.model_file import default_opset
from edgepack.compiler.frontend.onnx.shapes import infer_shapes

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["PaddedGraph"]


class PaddedGraph:
    """What is known of the values of a model whose nodes are entered in order.

    Args:
        model: constants folded; types and shapes of the results with a maximum are declared in it. It is
            changed by :meth:`write` only.

    Attributes:
        nodes: the model's, as they were.
        axes: padded tensors, along which axis they are, and by how much.
        lengths: tensors of sizes; for each element the entries whose number it is, or None.
        zero: padded tensors whose padding is known to be 0.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        from onnx import numpy_helper

        self.model = model
        self.opset = default_opset(model)
        self.nodes = list(model.graph.node)
        self.axes: dict[str, tuple[int, Entries]] = {}
        self.lengths: dict[str, tuple[Entries | None, ...]] = {}
        self.zero: set[str] = set()
        self._to_array = numpy_helper.to_array
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._values: dict[str, onnx.ValueInfoProto] = {}
        self._read_shapes(model)
        self._inferred = True
        self._written: list[onnx.NodeProto] = []
        self._masks: dict[tuple[str, int, int], str] = {}
        self._names = 0

    # Reading ------------------------------------------------------------------------------------------------

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The tensor's shape, with the maxima in it; None where it cannot be inferred."""
        if name in self._constants:
            return tuple(self._constants[name].dims)
        if static_shape(self._values.get(name)) is None and not self._inferred:
            self._infer_again()
        return static_shape(self._values.get(name))

    def shapes(self, names: Sequence[str]) -> list[tuple[int, ...]]:
        """The shapes of tensors, up to the first one that is not known; () for a tensor that is left out."""
        found: list[tuple[int, ...]] = []
        for name in names:
            shape = self.shape(name) if name else ()
            if shape is None:
                break
            found.append(shape)
        return found

    def constant(self, name: str) -> NDArray[Any] | None:
        """The value of an initializer; None for others."""
        tensor = self._constants.get(name)
        return None if tensor is None else self._to_array(tensor)

    def element(self, name: str) -> int:
        """ONNX's number of the tensor's element type."""
        if name in self._constants:
            return int(self._constants[name].data_type)
        return int(self._values[name].type.tensor_type.elem_type) if name in self._values else 0

    def is_integer(self, name: str) -> bool:
        """Whether the tensor's elements are whole numbers."""
        import onnx

        element = self.element(name)
        return bool(element) and onnx.helper.tensor_dtype_to_np_dtype(element).kind in "iu"

    def _read_shapes(self, model: onnx.ModelProto) -> None:
        graph = infer_shapes(model).graph
        self._values.update({v.name: v for v in (*graph.value_info, *graph.input, *graph.output)})

    def _infer_again(self) -> None:
        """Infers shapes from what has become constant."""
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        del model.graph.node[:]
        done = {name for node in self._written for name in node.output} | self._constants.keys()
        model.graph.node.extend(self._written)
        model.graph.node.extend(node for node in self.nodes if done.isdisjoint(node.output))
        self._read_shapes(model)
        self._inferred = True

    # Writing ------------------------------------------------------------------------------------------------

    def keep(self, node: onnx.NodeProto) -> None:
        """Writes a node."""
        self._written.append(node)

    def becomes_constant(self, node: onnx.NodeProto) -> bool:
        """Makes an initializer of the result of a node, if all that it reads is known."""
        import numpy as np
        from onnx import numpy_helper

        from edgepack.compiler.frontend.onnx.rewrites.editor import evaluated

        name = str(node.output[0])
        if node.op_type == "Shape":
            known = {node.input[0]: np.zeros(self.shape(node.input[0]) or (), np.bool_)}
        else:
            values = {read: self.constant(read) for read in node.input if read}
            known = {read: value for read, value in values.items() if value is not None}
            if len(known) < len(values):
                return False
        tensor = numpy_helper.from_array(evaluated(node, name, known, self.model.opset_import), name)
        self.model.graph.initializer.append(tensor)
        self._constants[name] = tensor
        self._inferred = False
        return True

    def replaced(self, name: str, value: int, result: str = "") -> str:
        """A padded tensor with a value in the place of its padding.

        Args:
            result: what it is called; by default something new.
        """
        import numpy as np
        import onnx

        axis, entries = self.axes[name]
        shape, element = self.shape(name), self.element(name)
        assert shape is not None
        fill = self._const(
            np.asarray(value, np.float32).astype(onnx.helper.tensor_dtype_to_np_dtype(element))
        )
        mask = self._mask(entries, axis, len(shape))
        return self._op("Where", mask, name, fill, result=result)

    def at_most(self, entries: Entries, most: int) -> Entries:
        """Which of the entries are among the first ``most``."""
        import numpy as np

        bound = self._const(np.asarray(most, np.int64))
        count = self._op("Where", self._op("Less", entries.count, bound), entries.count, bound)
        return Entries(min(most, entries.most), count, entries.name)

    def times(self, entries: Entries, factor: int) -> Entries:
        """``factor`` entries for each of them."""
        import numpy as np

        if factor == 1:
            return entries
        count = self._op("Mul", entries.count, self._const(np.asarray(factor, np.int64)))
        return Entries(factor * entries.most, count, entries.name)

    def finish(self) -> dict[str, str]:
        """Makes what was written the model's nodes, with 0 behind the entries of its outputs.

        Returns:
            for each padded output, the tensor with the number of its entries.
        """
        counts = {}
        for value in self.model.graph.output:
            name = value.name
            if name not in self.axes:
                continue
            axis, entries = self.axes[name]
            counts[name] = entries.count
            if name in self.zero:
                continue
            inner = self._fresh(name)
            for node in self._written:
                node.input[:] = [inner if read == name else read for read in node.input]
                node.output[:] = [inner if made == name else made for made in node.output]
            self._values[inner], self.axes[inner] = self._values[name], (axis, entries)
            self.replaced(inner, 0, result=name)
        del self.model.graph.node[:]
        self.model.graph.node.extend(self._written)
        return counts

    def publish(self, tensor: str, name: str) -> None:
        """Makes an output of a count."""
        import onnx

        if tensor != name:
            self.model.graph.node.append(onnx.helper.make_node("Identity", [tensor], [name], name=name))
        value = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [])
        self.model.graph.output.append(value)

    def _mask(self, entries: Entries, axis: int, rank: int) -> str:
        """Whether a place along the axis is an entry, of a shape that broadcasts to the tensor's."""
        import numpy as np

        key = (entries.count, axis - rank, entries.most)
        if key not in self._masks:
            places = np.arange(entries.most, dtype=np.int64).reshape([-1] + [1] * (rank - 1 - axis))
            self._masks[key] = self._op("Less", self._const(places), entries.count)
        return self._masks[key]

    def _const(self, array: NDArray[Any]) -> str:
        from onnx import numpy_helper

        name = self._fresh("constant")
        self.model.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def _op(self, op_type: str, *inputs: str, result: str = "") -> str:
        import onnx

        name = result or self._fresh(op_type)
        self._written.append(onnx.helper.make_node(op_type, list(inputs), [name], name=name))
        return name

    def _fresh(self, kind: str) -> str:
        self._names += 1
        return f"maximum/{kind}_{self._names}"
