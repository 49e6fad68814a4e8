"""What the graphs of a model share while its lists are taken out, and why one may not be known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import onnx

__all__ = ["AGAIN", "Choice", "Context", "Refusal", "UnknownListError", "constants_of"]


class UnknownListError(Exception):
    """It is not known, or not yet, what a node makes of lists.

    Args:
        why: a clause that follows "cannot be compiled: ".
        hint: what to try; "" for what helps everywhere.
    """

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.why, self.hint = why, hint


#: Of which lists a run may choose a tensor: of none, of those that are parts of a tensor, of all.
Choice: TypeAlias = Literal["nothing", "parts", "all"]

#: What to try with a model whose lists no run could have.
AGAIN = "Export the model again: no run of this one would succeed."


@dataclass(frozen=True)
class Refusal:
    """A node whose lists are not known, and why."""

    node: onnx.NodeProto
    why: str
    hint: str


@dataclass
class Context:
    """What all graphs of a model share.

    Attributes:
        opset: of its standard operators.
        opsets: of all its operators.
        most: tensors that a list may have, and nodes that may be written for one node.
        choose: of which lists a run may choose a tensor.
        taken: names that are in use.
        changed: whether something was written.
        refusals: by a name that the node gives.
    """

    opset: int
    opsets: Sequence[onnx.OperatorSetIdProto]
    most: int
    choose: Choice
    taken: set[str]
    changed: bool = False
    refusals: dict[str, Refusal] = field(default_factory=dict)

    def refuse(self, node: onnx.NodeProto, why: str, hint: str) -> None:
        """Notes that it is not known what a node makes of lists."""
        self.refusals[next(name for name in node.output if name)] = Refusal(node, why, hint)

    def fresh(self, wanted: str) -> str:
        """A name that nobody has, which begins as wanted."""
        name, count = wanted, 0
        while name in self.taken:
            count += 1
            name = f"{wanted}_{count}"
        self.taken.add(name)
        return name


def constants_of(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """The constants of a graph by name, those of Constant nodes as far as they may be positions or sizes."""
    import onnx

    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type != "Constant" or not node.attribute:
            continue
        value = onnx.helper.get_attribute_value(node.attribute[0])
        name = node.attribute[0].name
        if name == "value":
            found[node.output[0]] = value
        elif name in ("value_int", "value_ints"):
            dims = [] if name == "value_int" else [len(value)]
            numbers = [value] if name == "value_int" else value
            kind = onnx.TensorProto.INT64
            found[node.output[0]] = onnx.helper.make_tensor(node.output[0], kind, dims, numbers)
    return found
