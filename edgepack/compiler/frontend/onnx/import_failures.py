"""Which nodes of a model the importer, TVM's, cannot read: all of them at once, not the first one alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.binding import input_dtype
from edgepack.compiler.frontend.onnx.cut import static_shape
from edgepack.compiler.frontend.onnx.structure import check_shape
from edgepack.compiler.frontend.onnx.support import RefusedNodesError
from edgepack.errors import EdgepackError, ModelError
from edgepack.plan.types import TensorSpec

if TYPE_CHECKING:
    import onnx
    import tvm
    from tvm import relax

__all__ = ["ImportFailures", "checked_result", "output_specs"]

_STATIC = "Export the model with static shapes, or make what decides the shape a constant."

#: Numbers of the longest attribute that is shown.
_FEW = 16


@dataclass(frozen=True)
class _Failed:
    """A node that cannot be imported, and what its operands and attributes are."""

    operator: str
    node: str
    tensors: tuple[str, ...]
    form: str = ""


class ImportFailures:
    """Follows the importer through the nodes of a model, and past those that fail.

    A node behind one that failed reads a stand-in, so that its own failure says nothing: it is not counted.

    Args:
        model: annotated with shapes; its nodes are entered in order.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._values = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._rest = iter(model.graph.node)
        self._behind: set[str] = set()
        self._found: list[_Failed] = []
        self._at = _Failed("", "", ())
        self._follows = False

    def enter(self, operator: str, name: str) -> None:
        """The importer is at the next node of this operator and name."""
        node = next((node for node in self._rest if (node.op_type, node.name) == (operator, name)), None)
        tensors = tuple(node.output) if node is not None else ()
        first = next((tensor for tensor in tensors if tensor), "")
        self._at = _Failed(operator, name or f"the node of {first}", tensors, self._form(node))
        self._follows = node is not None and not self._behind.isdisjoint(node.input)
        if self._follows:
            self._behind.update(tensors)

    def _form(self, node: onnx.NodeProto | None) -> str:
        """Types and shapes of a node's operands, and its attributes."""
        if node is None:
            return ""
        said = [_attribute(a) for a in node.attribute]
        return ", ".join([*(self._type(name) for name in node.input if name), *filter(None, said)])

    def _type(self, name: str) -> str:
        if name in self._constants:
            tensor = self._constants[name]
            return f"{_element(tensor.data_type)}[{','.join(map(str, tensor.dims))}] (constant)"
        value = self._values.get(name)
        if value is None:
            return "?"
        shape = static_shape(value)
        inside = "?" if shape is None else ",".join(map(str, shape))
        return f"{_element(value.type.tensor_type.elem_type)}[{inside}]"

    def note(self, error: Exception) -> None:
        """The node failed. What the importer says of it is for the log: it is in words of its insides."""
        if not self._follows:
            print(f"{self._at.operator}, {self._at.node}: {type(error).__name__}: {error}", file=sys.stderr)
            self._found.append(self._at)
        self._behind.update(name for name in self._at.tensors if name)

    def stand_in(self, builder: relax.BlockBuilder) -> Any:
        """Something of the types of the node's outputs; None where these are not known."""
        from tvm import relax

        parts = []
        for name in self._at.tensors:
            shape = static_shape(self._values.get(name))
            if shape is None:
                return None
            parts.append(builder.emit(relax.op.zeros(shape, input_dtype(self._values[name]))))
        return parts[0] if len(parts) == 1 else relax.Tuple(parts) if parts else None

    def of_node(self, error: EdgepackError) -> EdgepackError:
        """What a converter of ours says of the node, as its refusal; what failed before it counts more."""
        if self._found:
            return self.refusal(error)
        if isinstance(error, RefusedNodesError) or not isinstance(error, ModelError):
            return error
        return RefusedNodesError(
            error.message, hint=error.hint, detail=error.detail, tensors=[n for n in self._at.tensors if n]
        )

    def refusal(self, error: Exception | None) -> RefusedNodesError:
        """Names all nodes that failed; the one that the importer is at, if it ended with ``error``."""
        if error is not None and not self._found:
            self._follows = False
            self.note(error)
        found = self._found
        which = [f"{one.operator}, {one.node}" for one in found]
        nodes = f"a node of the model ({which[0]})" if len(found) == 1 else f"{len(found)} nodes of the model"
        lines = [f"{at} of {one.form}" if one.form else at for one, at in zip(found, which, strict=True)]
        reason = "not with such operands and attributes"
        return RefusedNodesError(
            f"edgepack cannot compile {nodes}: not with such operands and attributes.",
            hint="Replace the operator before export, or report the model.",
            detail="\n".join(lines),
            refused=[
                {"operator": one.operator, "nodes": [one.node], "reason": f"{reason}: {one.form}"}
                for one in found
            ],
            tensors=[name for one in found for name in one.tensors if name],
        )

    def __bool__(self) -> bool:
        return bool(self._found)


def _element(number: int) -> str:
    """Name of an element type, by ONNX's number of it."""
    import onnx

    known = onnx.TensorProto.DataType.values()
    name = onnx.TensorProto.DataType.Name(number).lower() if number in known else "?"
    return {"float": "float32", "double": "float64", "undefined": "?"}.get(name, name)


def _attribute(attribute: onnx.AttributeProto) -> str:
    """``axis=1``; nothing of tensors and graphs, which are long."""
    import onnx

    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    plain = isinstance(value, int | float | str) or (
        isinstance(value, list) and len(value) <= _FEW and all(isinstance(one, int | float) for one in value)
    )
    return f"{attribute.name}={value}" if plain else ""


def checked_result(operator: str, name: str, value: Any) -> Any:
    """The value, unless it can be no tensor: TVM infers negative extents, and sizes overflow.

    Args:
        value: the Relax expression of a node's outputs, normalised.

    Raises:
        ModelError: it has such a shape.
    """
    from tvm import relax, tirx

    types = [getattr(value, "ty", None)]
    types = list(types[0].fields) if isinstance(types[0], relax.TupleType) else types
    for one in types:
        shape = getattr(one, "shape", None) if isinstance(one, relax.TensorType) else None
        if isinstance(shape, relax.ShapeExpr) and all(isinstance(n, tirx.IntImm) for n in shape.values):
            what = f"A result of the {operator} node {name or 'without name'}"
            check_shape(what, [int(n) for n in shape.values])
    return value


def output_specs(module: tvm.IRModule, names: Sequence[str]) -> tuple[TensorSpec, ...]:
    """The results of an imported model, by their names; RefusedNodesError where one's shape is not static."""
    from tvm import relax

    result = module["main"].ret_ty
    types = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    specs = []
    for name, ty in zip(names, types, strict=True):
        if not isinstance(ty, relax.TensorType) or ty.shape is None:
            raise RefusedNodesError(
                f"Output {name!r} is not a tensor of known shape.", hint=_STATIC, tensors=[name]
            )
        try:
            shape = tuple(int(size) for size in ty.shape.values)
        except (TypeError, AttributeError) as error:
            raise RefusedNodesError(
                f"The shape of output {name!r} is only known at run time.", hint=_STATIC, tensors=[name]
            ) from error
        specs.append(TensorSpec(name, str(ty.dtype), shape))
    return tuple(specs)
