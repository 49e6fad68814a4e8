"""What the rewrites are written with: reads constants and shapes of a graph, writes nodes into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["Editor", "Rewrite", "attributes"]

#: Writes the replacement of a node and returns the names of its outputs; None leaves the node as it is.
Rewrite = Callable[["Editor", "onnx.NodeProto"], Sequence[str] | None]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes of the node by name; strings as ``str``."""
    import onnx

    values = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


class Editor:
    """Runs rewrites over a model whose constants are folded."""

    def __init__(self, model: onnx.ModelProto) -> None:
        from edgepack.compiler.frontend.model_file import default_opset
        from edgepack.compiler.frontend.shapes import infer_shapes

        self.model = model
        self.opset = default_opset(model)
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        graph = infer_shapes(model).graph
        self._types = {
            value.name: value.type.tensor_type for value in (*graph.value_info, *graph.input, *graph.output)
        }
        self._written: list[onnx.NodeProto] = []
        self._prefix = ""
        self._count = 0

    def run(self, rewrites: Mapping[tuple[str, str], Rewrite]) -> onnx.ModelProto:
        """Replaces every node that a rewrite applies to. The model is changed in place, and returned."""
        nodes: list[onnx.NodeProto] = []
        changed = False
        for index, node in enumerate(self.model.graph.node):
            domain = "" if node.domain == "ai.onnx" else node.domain
            rewrite = rewrites.get((domain, node.op_type))
            self._written, self._prefix = [], node.name or f"{node.op_type}_{index}"
            results = rewrite(self, node) if rewrite else None
            if results is None:
                nodes.append(node)
                continue
            changed = True
            for old, new in zip(node.output, results, strict=False):
                if old:
                    self._rename(new, old)
            nodes += self._written
        if changed:
            del self.model.graph.node[:]
            self.model.graph.node.extend(nodes)
            self._drop_unused_constants()
        return self.model

    # reading ------------------------------------------------------------------------------------------

    def constant(self, name: str) -> NDArray[Any] | None:
        """Value of an initializer; None for any other value, and for an input left out."""
        from onnx import numpy_helper

        tensor = self._constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

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

    def dtype(self, name: str) -> np.dtype[Any]:
        """Element type of a value."""
        import onnx

        tensor = self._constants.get(name)
        element = tensor.data_type if tensor is not None else self._types[name].elem_type
        return onnx.helper.tensor_dtype_to_np_dtype(element)  # type: ignore[no-any-return]

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

    def op(self, op_type: str, *inputs: str, outputs: int = 1, **attribute_values: Any) -> str:
        """Adds a node of the standard domain; the name of its first output."""
        import onnx

        names = [self._fresh(op_type) for _ in range(outputs)]
        self._written.append(onnx.helper.make_node(op_type, inputs, names, name=names[0], **attribute_values))
        return names[0]

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

    def _fresh(self, kind: str) -> str:
        self._count += 1
        return f"{self._prefix}/{kind}_{self._count}"

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
        used = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
        kept = [tensor for tensor in graph.initializer if tensor.name in used]
        del graph.initializer[:]
        graph.initializer.extend(kept)
