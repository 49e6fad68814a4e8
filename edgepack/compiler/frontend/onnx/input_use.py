"""What an input of a model is, by the operators that read it: where its name and shape do not say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from edgepack.compiler.frontend.onnx.shapes import all_nodes

if TYPE_CHECKING:
    import onnx

__all__ = ["InputUse", "input_uses"]

#: Numbers of words or characters; samples of sound; anything else.
InputUse = Literal["tokens", "sound", ""]

#: Operators that leave an input what it is: their first input and result.
_SAME = {
    *("Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose", "Slice", "Pad", "Split"),
    *("Concat", "Clip", "Max", "Min", "Add", "Sub", "Mul", "Div", "Expand", "Where", "Dropout"),
}
#: Which inputs of an operator are numbers of something.
_TOKENS = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND"), (1,)),
    **{"OneHot": (0,), "Equal": (0, 1), "EmbedLayerNormalization": (0, 1)},
}
_SOUND = {"STFT", "DFT"}
#: Readers that are looked at.
_MOST = 400


def input_uses(model: onnx.ModelProto, names: Sequence[str]) -> dict[str, InputUse]:
    """What the inputs of these names are, by name."""
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in all_nodes(model.graph):
        for index, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, index))
    weights = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    return {name: _use(name, readers, weights) for name in names}


def _use(
    name: str, readers: dict[str, list[tuple[onnx.NodeProto, int]]], weights: dict[str, tuple[int, ...]]
) -> InputUse:
    seen, todo, looked = {name}, [name], 0
    while todo and looked < _MOST:
        for node, index in readers.get(todo.pop(0), []):
            looked += 1
            if index in _TOKENS.get(node.op_type, ()):
                return "tokens"
            if node.op_type in _SOUND or _of_one_channel(node, index, weights):
                return "sound"
            if node.op_type in _SAME:
                new = [result for result in node.output if result not in seen]
                seen.update(new)
                todo += new
    return ""


def _of_one_channel(node: onnx.NodeProto, index: int, weights: dict[str, tuple[int, ...]]) -> bool:
    """Whether it is a convolution along one axis of one channel, as of samples."""
    if node.op_type != "Conv" or index != 0 or len(node.input) < 2:
        return False
    shape = weights.get(node.input[1], ())
    return len(shape) == 3 and shape[1] == 1
