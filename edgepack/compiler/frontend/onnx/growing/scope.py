"""A graph whose tensors have sizes that are known at run time only, while it is followed node by node and
written anew with room for the most that each can have.

A tensor of such a size has its elements in front, and padding behind them, along each of its axes. What lies
in the padding is anything, unless it is known to be 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.growing.extents import Dim, Extent, most
from edgepack.compiler.frontend.onnx.growing.values import UnknownError, Value, unknown
from edgepack.compiler.frontend.onnx.regions import names_read
from edgepack.compiler.frontend.onnx.rewrites.editor import rename_values

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["Control", "Scope", "Shared"]


#: Writes an If or a Loop anew; its results. The number is that of the node.
Control = Callable[["Scope", "onnx.NodeProto", int], list[Value]]


@dataclass
class Shared:
    """What the scopes of one model share.

    Attributes:
        opsets: of the model.
        ir_version: of the model.
        trips: that a loop may make.
        rooms: by name of a result of a loop, the size that the user gave it.
        control: by operator, what follows nodes with graphs inside.
        sizes: the room of each size that is known at run time only.
        bounds: by name of a result of a loop that was written anew, the trips for which it has room.
        totals: the trips for which there is room in all loops that one became, by name of its results.
        changed: whether a loop was written anew.
        used: names in ``rooms`` that were read.
        rewritten: nodes that were written anew, in all scopes.
        work: multiply-adds of products and layers that were followed, and whether they read padding.
    """

    opsets: Sequence[onnx.OperatorSetIdProto]
    ir_version: int
    trips: int
    rooms: Mapping[str, int]
    control: Mapping[str, Control]
    sizes: dict[Extent, int] = field(default_factory=dict)
    bounds: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    changed: bool = False
    used: set[str] = field(default_factory=set)
    names: int = 0
    rewritten: int = 0
    work: list[tuple[bool, int]] = field(default_factory=list)

    @property
    def opset(self) -> int:
        """Of the standard domain."""
        return next((int(one.version) for one in self.opsets if one.domain in ("", "ai.onnx")), 1)


class Scope:
    """A graph that is followed.

    Args:
        parent: the one around it.
        constants: its initializers.
        declared: what else is known of values of static sizes.

    Attributes:
        nodes: what was written.
        prefix: of what the results of nodes of the model are called.
        initializers: constants that were written, beside the graph's own.
    """

    def __init__(
        self,
        shared: Shared,
        parent: Scope | None,
        constants: Sequence[onnx.TensorProto],
        declared: Mapping[str, Value] = MappingProxyType({}),
    ) -> None:
        self.shared, self.parent, self.declared = shared, parent, declared
        self.nodes: list[onnx.NodeProto] = []
        self.prefix = ""
        self.initializers: list[onnx.TensorProto] = []
        self._constants = {tensor.name: tensor for tensor in constants}
        self._values: dict[str, Value] = {}
        self._amounts: dict[tuple[object, ...], str] = {}

    # Reading -----------------------------------------------------------------------------------------------

    def value(self, name: str) -> Value:
        """What is known of a tensor by the name that the model has for it."""
        if name in self._values:
            return self._values[name]
        if name in self._constants:
            found = self._of_constant(self._constants[name])
            self._values[name] = found
            return found
        return Value(name) if self.parent is None else self.parent.value(name)

    def array(self, name: str) -> NDArray[Any] | None:
        """The value of a constant by its name in the graph that is written; None of others."""
        from onnx import numpy_helper

        if name in self._constants:
            return numpy_helper.to_array(self._constants[name])  # type: ignore[no-any-return]
        return None if self.parent is None else self.parent.array(name)

    def know(self, name: str, value: Value) -> None:
        """Says what a tensor of the model is."""
        if name:
            self._values[name] = value

    def size(self, dim: Dim) -> int:
        """The room that there is for a size."""
        if isinstance(dim, int):
            return dim
        return self.shared.sizes.setdefault(dim, max(1, most(dim)))

    def shape(self, value: Value) -> list[int]:
        """The shape of a tensor in the graph that is written."""
        if value.dims is None:
            raise UnknownError(unknown(value.name, value))
        return [self.size(dim) for dim in value.dims]

    @staticmethod
    def _of_constant(tensor: onnx.TensorProto) -> Value:
        from onnx import numpy_helper

        dims, numbers = tuple(int(size) for size in tensor.dims), None
        if len(dims) <= 1 and (not dims or dims[0] <= 64):
            array = numpy_helper.to_array(tensor)
            if array.dtype.kind in "iub":
                numbers = tuple(int(number) for number in array.reshape(-1))
        return Value(tensor.name, int(tensor.data_type), dims, numbers)

    # Writing -----------------------------------------------------------------------------------------------

    def fresh(self, kind: str) -> str:
        """A name that no other tensor has."""
        self.shared.names += 1
        return f"growing/{kind}_{self.shared.names}"

    def const(self, array: NDArray[Any]) -> Value:
        """Writes a constant."""
        from onnx import numpy_helper

        tensor = numpy_helper.from_array(array, self.fresh("constant"))
        self.initializers.append(tensor)
        self._constants[tensor.name] = tensor
        return self._of_constant(tensor)

    def numbers(self, *numbers: int) -> Value:
        """Writes a constant of rank 1, int64."""
        import numpy as np

        return self.const(np.asarray(numbers, np.int64))

    def adopted(self, tensor: onnx.TensorProto) -> Value:
        """Makes a constant of a graph inside one of the outermost graph, where each of several graphs reads
        it, and no inference of shapes copies it."""
        if self.parent is not None:
            return self.parent.adopted(tensor)
        copy = type(tensor)()
        copy.CopyFrom(tensor)
        copy.name = self.fresh("constant")
        self.initializers.append(copy)
        self._constants[copy.name] = copy
        return self._of_constant(copy)

    def scalar(self, number: float, element: int) -> Value:
        """Writes a constant of rank 0; infinities are the extreme numbers of integer types."""
        import numpy as np
        import onnx

        dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
        if dtype.kind in "iu" and abs(number) == float("inf"):
            info = np.iinfo(dtype)
            return self.const(np.asarray(info.max if number > 0 else info.min, dtype))
        return self.const(np.asarray(number).astype(dtype))

    def op(self, operator: str, *given: Value | None, **attributes: Any) -> Value:
        """Writes a node of one result, whose size is static."""
        return self.ops(operator, 1, *given, **attributes)[0]

    def ops(self, operator: str, results: int, *given: Value | None, **attributes: Any) -> list[Value]:
        """Writes a node of several results, whose sizes are static."""
        import onnx

        names = [self.fresh(operator) for _ in range(results)]
        read = ["" if value is None else value.name for value in given]
        node = onnx.helper.make_node(operator, read, names, name=names[0], **attributes)
        return self.write(node, [value for value in given if value is not None])

    def write(self, node: onnx.NodeProto, given: Sequence[Value]) -> list[Value]:
        """Writes a node whose tensors have their names in the graph that is written.

        Args:
            given: what it reads, with or without padding.

        Returns:
            Its results, of static sizes, as far as these can be inferred.
        """
        if self.prefix and not all(name.startswith("growing/") for name in node.output if name):
            node.output[:] = [name and self.prefix + name for name in node.output]
        self.nodes.append(node)
        types = self._inferred(node, given)
        found = []
        for name in node.output:
            tensor = types[name].tensor_type if name in types else None
            dims: tuple[Dim, ...] | None = None
            if tensor is not None and tensor.HasField("shape"):
                known = [d.dim_value for d in tensor.shape.dim if d.WhichOneof("value") == "dim_value"]
                dims = tuple(known) if len(known) == len(tensor.shape.dim) else None
            found.append(Value(name, 0 if tensor is None else int(tensor.elem_type), dims))
        return found

    def described(self, name: str, value: Value) -> onnx.ValueInfoProto:
        """An input or output of this name, of a graph that is written."""
        import onnx

        return onnx.helper.make_tensor_value_info(name, value.element, self.shape(value))

    def _inferred(self, node: onnx.NodeProto, given: Sequence[Value]) -> dict[str, onnx.TypeProto]:
        import onnx

        domain = "" if node.domain == "ai.onnx" else node.domain
        version = next((int(o.version) for o in self.shared.opsets if (o.domain or "") == domain), 1)
        if not onnx.defs.has(node.op_type, max_inclusive_version=version, domain=domain):
            return {}
        if any(attribute.HasField("g") for attribute in node.attribute):
            return {}
        types = {}
        for value in given:
            if value.dims is not None and value.element:
                made = onnx.helper.make_tensor_type_proto(value.element, self.shape(value))
                types[value.name] = made
        if any(name and name not in types for name in node.input):
            return {}
        data = {name: self._tensor(name) for name in node.input}
        schema = onnx.defs.get_schema(node.op_type, version, domain)
        try:
            return dict(
                onnx.shape_inference.infer_node_outputs(
                    schema,
                    node,
                    types,
                    {name: tensor for name, tensor in data.items() if tensor is not None},
                    opset_imports=list(self.shared.opsets),
                    ir_version=self.shared.ir_version,
                )
            )
        except Exception:  # of inference, whose errors share no base class: whoever needs the shape says so
            return {}

    def _tensor(self, name: str) -> onnx.TensorProto | None:
        """A small constant."""
        if name in self._constants:
            tensor = self._constants[name]
            return tensor if len(tensor.dims) <= 1 and max(tensor.dims, default=1) <= 1024 else None
        return None if self.parent is None else self.parent._tensor(name)

    def kept(self, node: onnx.NodeProto) -> list[Value]:
        """Writes a node of the model as it is."""
        copy = type(node)()
        copy.CopyFrom(node)
        renamed = {name: self.value(name).name for name in dict.fromkeys(names_read(node)) if name}
        outputs = list(copy.output)
        rename_values(copy, {old: new for old, new in renamed.items() if old != new})
        copy.output[:] = outputs
        given = [self.value(name) for name in node.input if name]
        made = self.write(copy, given)
        why = next((value.why for value in given if value.dims is None and value.why), "")
        known = (self.declared.get(one.name, one) if one.dims is None else one for one in made)
        return [replace(one, why=why) if one.dims is None else one for one in known]

    # Numbers of elements -----------------------------------------------------------------------------------

    def amount(self, dims: Sequence[Dim | None], element: int, shape: Sequence[int]) -> Value:
        """Writes numbers that are known at run time only, as a tensor of an integer type."""
        import numpy as np
        import onnx

        key = ("amount", tuple(dims), element, tuple(shape))
        if key in self._amounts:
            return replace(self.value(self._amounts[key]), numbers=tuple(dims))
        constants = [dim if isinstance(dim, int) else dim.const if dim is not None else 0 for dim in dims]
        found = self.const(np.asarray(constants, np.int64).reshape(shape))
        symbols = {s: 0 for dim in dims if isinstance(dim, Extent) for s, _ in dim.terms}
        for symbol in symbols:
            own = [dict(dim.terms).get(symbol, 0) if isinstance(dim, Extent) else 0 for dim in dims]
            factor = self.const(np.asarray(own, np.int64).reshape(shape))
            part = self.op("Mul", factor, Value(symbol.name, onnx.TensorProto.INT64, ()))
            found = self.op("Add", found, part)
        if element != onnx.TensorProto.INT64:
            found = self.op("Cast", found, to=element)
        self.know(found.name, found)
        self._amounts[key] = found.name
        return replace(found, numbers=tuple(dims))

    def places(self, dim: Dim, behind: int) -> Value:
        """Writes 0, 1, .. of the room of a size, with so many axes of 1 behind."""
        import numpy as np

        key = ("places", self.size(dim), behind)
        if key not in self._amounts:
            numbers = np.arange(self.size(dim), dtype=np.int64).reshape([-1] + [1] * behind)
            found = self.const(numbers)
            self.know(found.name, found)
            self._amounts[key] = found.name
        return self.value(self._amounts[key])

    def mask(self, dim: Extent, behind: int) -> Value:
        """Writes whether a place is one of an element, with so many axes of 1 behind."""
        import onnx

        key = ("mask", dim, behind)
        if key not in self._amounts:
            number = self.amount([dim], onnx.TensorProto.INT64, [])
            found = self.op("Less", self.places(dim, behind), number)
            self.know(found.name, found)
            self._amounts[key] = found.name
        return self.value(self._amounts[key])

    # Padding -----------------------------------------------------------------------------------------------

    def guarded(self, value: Value, axis: int, fill: float = 0) -> Value:
        """Writes a tensor with a number in the place of its padding along an axis."""
        assert value.dims is not None
        dim = value.dims[axis]
        if isinstance(dim, int) or (fill == 0 and axis in value.zero):
            return value
        mask = self.mask(dim, len(value.dims) - 1 - axis)
        made = self.op("Where", mask, value, self.scalar(fill, value.element))
        zero = value.zero | {axis} if fill == 0 else value.zero - {axis}
        return replace(value, name=made.name, zero=frozenset(zero), numbers=None)

    def zeroed(self, value: Value) -> Value:
        """Writes a tensor whose padding is 0."""
        for axis in value.padded:
            value = self.guarded(value, axis)
        return value

    def fitted(self, value: Value, axis: int, now: int, dim: Dim) -> Value:
        """Writes a tensor that has room for ``now`` along an axis with the room of a size there; what becomes
        of its padding is 0."""
        import numpy as np
        import onnx

        assert value.dims is not None
        room = self.size(dim)
        shape = [self.size(one) for one in value.dims]
        dims = tuple(dim if i == axis else one for i, one in enumerate(value.dims))
        name = value.name
        if room > now:
            shape[axis] = room - now
            dtype = onnx.helper.tensor_dtype_to_np_dtype(value.element)
            rest = self.const(np.zeros(shape, dtype))
            name = self.op("Concat", value, rest, axis=axis).name if now else rest.name
        elif room < now:
            bounds = [self.numbers(number) for number in (0, room, axis)]
            name = self.op("Slice", value, *bounds).name
        zero = value.zero | {axis} if isinstance(value.dims[axis], int) else value.zero
        return replace(value, name=name, dims=dims, numbers=None, zero=zero)
