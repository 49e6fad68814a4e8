"""A Range whose end the data decide: numbers with a maximum, as of ``--max``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.bounded_shapes.data_dependent import COUNT, Entries
from edgepack.errors import ConfigError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["counted_ranges"]


def counted_ranges(model: onnx.ModelProto, maxima: Mapping[str, int]) -> dict[str, tuple[int, Entries]]:
    """Makes the Ranges that have a maximum constants of which the first ones count, in place: those behind
    are 0. How many count is computed as ONNX defines it.

    Args:
        model: constants folded.
        maxima: by name of a result, the numbers that it has room for.

    Returns:
        The results with a maximum, the axis along which they are padded, and by how much.

    Raises:
        ConfigError: the data decide where such a Range begins, or by which steps it goes.
    """
    from onnx import numpy_helper

    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    found: dict[str, tuple[int, Entries]] = {}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type != "Range" or node.domain not in ("", "ai.onnx") or node.output[0] not in maxima:
            nodes.append(node)
            continue
        name = str(node.output[0])
        start, delta = (constants.get(node.input[i]) for i in (0, 2))
        if start is None or delta is None or not numpy_helper.to_array(delta).any():
            raise ConfigError(
                f"--max: the data decide where the Range {name!r} begins or by which steps it goes.",
                hint="Only its end may depend on the data: cut the model before it with --outputs.",
            )
        counted = _Counted(model, node, numpy_helper.to_array(start), numpy_helper.to_array(delta))
        nodes += counted.written(maxima[name])
        found[name] = (0, Entries(maxima[name], f"{name}{COUNT}", name))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return found


class _Counted:
    """One Range, as nodes that count."""

    def __init__(
        self, model: onnx.ModelProto, node: onnx.NodeProto, start: NDArray[Any], delta: NDArray[Any]
    ) -> None:
        self.model, self.node = model, node
        self.name = str(node.output[0])
        self.start, self.delta = start.reshape(()), delta.reshape(())

    def written(self, most: int) -> Iterator[onnx.NodeProto]:
        """The nodes that stand in the place of the Range."""
        import numpy as np
        from onnx import TensorProto, helper

        dtype = self.delta.dtype
        values = np.add.accumulate(np.asarray([self.start, *[self.delta] * (most - 1)], dtype), dtype=dtype)
        count, places = f"{self.name}{COUNT}", self._const("places", np.arange(most, dtype=np.int64))
        yield from self._counting(count)
        yield self._op("Less", places, count, result=self._inner("counts"))
        zero = self._const("zero", np.zeros((), dtype))
        yield self._op("Where", self._inner("counts"), self._const("values", values), zero, result=self.name)
        make, element = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype(dtype)
        self._declare(make(self.name, element, [most]), make(count, TensorProto.INT64, []))

    def _counting(self, count: str) -> Iterator[onnx.NodeProto]:
        """How many numbers there are: max(ceil((limit - start) / delta), 0), in a type with room for them."""
        import numpy as np
        from onnx import TensorProto

        floats = self.delta.dtype.kind == "f"
        wide, size = (np.float64, abs(float(self.delta))) if floats else (np.int64, abs(int(self.delta)))
        element = TensorProto.DOUBLE if floats else TensorProto.INT64
        limit, way, steps = (self._inner(part) for part in ("limit", "way", "steps"))
        yield self._op("Cast", str(self.node.input[1]), result=limit, to=element)
        ends = [limit, self._const("start", self.start.astype(wide))]
        yield self._op("Sub", *(ends if self.delta > 0 else reversed(ends)), result=way)
        by = self._const("step", np.asarray(size, wide))
        if floats:
            yield self._op("Div", way, by, result=self._inner("quotient"))
            yield self._op("Ceil", self._inner("quotient"), result=self._inner("ceil"))
            yield self._op("Cast", self._inner("ceil"), result=steps, to=TensorProto.INT64)
        else:  # of less than nothing the quotient, without its fraction, is 0 or less
            more = self._const("rest", np.asarray(size - 1, wide))
            yield self._op("Add", way, more, result=self._inner("further"))
            yield self._op("Div", self._inner("further"), by, result=steps)
        yield self._op("Max", steps, self._const("none", np.asarray(0, np.int64)), result=count)

    def _inner(self, part: str) -> str:
        return f"{self.name}/{part}"

    def _const(self, part: str, array: NDArray[Any]) -> str:
        from onnx import numpy_helper

        self.model.graph.initializer.append(numpy_helper.from_array(array, self._inner(part)))
        return self._inner(part)

    def _op(self, operator: str, *inputs: str, result: str, **values: Any) -> onnx.NodeProto:
        from onnx import helper

        return helper.make_node(operator, list(inputs), [result], name=result, **values)

    def _declare(self, *values: onnx.ValueInfoProto) -> None:
        names = {value.name: value for value in values}
        kept = [value for value in self.model.graph.value_info if value.name not in names]
        del self.model.graph.value_info[:]
        self.model.graph.value_info.extend([*kept, *values])
        for output in self.model.graph.output:
            output.CopyFrom(names.get(output.name, output))
