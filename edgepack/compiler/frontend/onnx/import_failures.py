"""Which nodes of a model TVM cannot import: all of them at once, not the first one alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.binding import input_dtype
from edgepack.compiler.frontend.onnx.cut import static_shape
from edgepack.compiler.frontend.onnx.structure import check_shape
from edgepack.compiler.frontend.onnx.support import RefusedNodesError
from edgepack.errors import EdgepackError, ModelError

if TYPE_CHECKING:
    import onnx
    from tvm import relax

__all__ = ["ImportFailures", "checked_result"]


@dataclass(frozen=True)
class _Failed:
    """A node, and why it cannot be imported."""

    operator: str
    node: str
    tensors: tuple[str, ...]
    why: str = ""


class ImportFailures:
    """Follows the importer through the nodes of a model, and past those that fail.

    A node behind one that failed reads a stand-in, so that its own failure says nothing: it is not counted.

    Args:
        model: annotated with shapes; its nodes are entered in order.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._values = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
        self._rest = iter(model.graph.node)
        self._behind: set[str] = set()
        self._found: list[_Failed] = []
        self._at = _Failed("", "", ())
        self._follows = False

    def enter(self, operator: str, name: str) -> None:
        """The importer is at the next node of this operator and name."""
        node = next((node for node in self._rest if (node.op_type, node.name) == (operator, name)), None)
        tensors = tuple(node.output) if node is not None else ()
        self._at = _Failed(operator, name or "a node without name", tensors)
        self._follows = node is not None and not self._behind.isdisjoint(node.input)
        if self._follows:
            self._behind.update(tensors)

    def note(self, error: Exception) -> None:
        """The node failed."""
        if not self._follows:
            why = f"{type(error).__name__}: {str(error).strip()}"
            self._found.append(replace(self._at, why=why))
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
        lines = [f"{at}: {one.why}" for one, at in zip(found, which, strict=True)]
        return RefusedNodesError(
            f"TVM cannot import {nodes}.",
            hint="Replace the operator before export, or report the model.",
            detail="\n".join(lines) if len(found) > 1 else found[0].why,
            refused=[{"operator": one.operator, "nodes": [one.node], "reason": one.why} for one in found],
            tensors=[name for one in found for name in one.tensors if name],
        )

    def __bool__(self) -> bool:
        return bool(self._found)


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
