"""Says of a node that cannot be compiled when it is an operand's fault: an axis, a size, a number of which a
run decides, where a kernel needs it when the model is packed.

Such an operand is an input of the model more often than not, which ``--const`` makes a constant.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.shapes import all_nodes, static_shape
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, node_name

if TYPE_CHECKING:
    import onnx

__all__ = ["OPERANDS", "explained_operands"]

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

#: By operator, the operands that must be constants, by number: what each one is, in words.
OPERANDS: Mapping[str, Mapping[int, str]] = {
    "AffineGrid": {1: "size"},
    "BlackmanWindow": {0: "size"},
    "CenterCropPad": {1: "shape"},
    "Col2Im": {1: "image shape", 2: "block shape"},
    "ConstantOfShape": {0: "shape"},
    "CumProd": {1: "axis"},
    "CumSum": {1: "axis"},
    "DFT": {1: "length", 2: "axis"},
    "Dropout": {2: "training mode", 1: "ratio"},
    "Expand": {1: "shape"},
    "HammingWindow": {0: "size"},
    "HannWindow": {0: "size"},
    "MaxUnpool": {2: "output shape"},
    "MelWeightMatrix": {
        **{0: "number of bands", 1: "length", 2: "sample rate", 3: "lower edge", 4: "upper edge"}
    },
    "OneHot": {1: "depth"},
    "Pad": {1: "padding", 3: "axes"},
    "Range": {0: "start", 1: "limit", 2: "step"},
    **{f"Reduce{name}": {1: "axes"} for name in _REDUCTIONS},
    "Reshape": {1: "shape"},
    "Resize": {1: "region", 2: "scales", 3: "sizes"},
    "STFT": {1: "frame step", 3: "frame length"},
    "SequenceAt": {1: "position"},
    "SequenceErase": {1: "position"},
    "SequenceInsert": {2: "position"},
    "Slice": {1: "starts", 2: "ends", 3: "axes", 4: "steps"},
    "Split": {1: "sizes"},
    "SplitToSequence": {1: "sizes"},
    "Squeeze": {1: "axes"},
    "Tile": {1: "repeats"},
    "TopK": {1: "k"},
    "Trilu": {1: "diagonal"},
    "Unsqueeze": {1: "axes"},
    "Upsample": {1: "scales"},
}

#: What stands in a ``--const`` to copy; 1 for the others.
_NUMBERS = {
    "padding": 0,
    "starts": 0,
    "start": 0,
    "training mode": 0,
    "ratio": 0,
    "diagonal": 0,
    "lower edge": 0,
}

#: Operators whose result does not depend on the values of their operand.
_SHAPES = ("Shape", "Size")

#: Elements of the largest input that is taken for an axis, sizes or the like.
_FEW = 16


#: Of these words, those that are many.
_PLURAL = {"axes", "ends", "repeats", "scales", "sizes", "starts", "steps"}


@dataclass(frozen=True)
class _Operand:
    """An operand that a run decides.

    Attributes:
        name: of the value.
        what: it is, in words.
        inputs: of the model, that it is computed from.
    """

    name: str
    what: str
    inputs: tuple[onnx.ValueInfoProto, ...]


@contextmanager
def explained_operands(model: onnx.ModelProto) -> Iterator[None]:
    """Has a refusal of nodes inside name the operand that is at fault, where one is.

    Args:
        model: what is compiled inside, input shapes static.
    """
    try:
        yield
    except RefusedNodesError as error:
        found = _explained(model, error)
        if found is None:
            raise
        raise found from error


def _explained(model: onnx.ModelProto, error: RefusedNodesError) -> RefusedNodesError | None:
    if "--max" in error.hint or "--const" in error.hint:  # it knows what to do
        return None
    graph, others, first = _Graph(model), 0, None
    for node in graph.refused(error):
        operands = graph.run_time_operands(node)
        if not operands:
            others += 1
        elif first is None:
            first = node, operands
    if first is None:
        return None
    message, options, whats = _sentence(*first)
    hint = (
        f"Pack it with the value of your runs, for example: {options}"
        if options
        else f"Export it with a constant there ({whats}), or cut it before the node (--outputs)."
    )
    if error.refused and others:  # it names nodes with other faults too
        detail = "\n".join([error.detail, f"{message} {hint}"]).strip()
        return RefusedNodesError(
            error.message, hint=error.hint, detail=detail, refused=error.refused, tensors=error.tensors
        )
    return RefusedNodesError(message, hint=hint, refused=error.refused, tensors=error.tensors)


def _sentence(node: onnx.NodeProto, operands: Sequence[_Operand]) -> tuple[str, str, str]:
    """What is wrong with a node, the options that mend it ("" where no number would), and what these operands
    are called."""
    whats = list(dict.fromkeys(one.what for one in operands))
    inputs = {value.name: (value, one.what) for one in operands for value in one.inputs}
    names = _listed([repr(name) for name in list(inputs)[:4]])
    plural = len(whats) > 1 or whats[0] in _PLURAL
    given = all(one.name == one.inputs[0].name for one in operands)
    source = (
        f"the model's input{'s' if len(inputs) > 1 else ''} {names}" if given else f"computed from {names}"
    )
    options = ""
    if all(_is_small(value) for value, _ in inputs.values()):
        pairs = (f"{name}={_numbers(value, _NUMBERS.get(what, 1))}" for name, (value, what) in inputs.items())
        options = " ".join(f"--const {shlex.quote(pair)}" for pair in pairs)
    return (
        f"The {node.op_type} node {node_name(node, 0)} cannot be compiled: its {_listed(whats)} "
        f"{'are' if plural else 'is'} {source}, and must be known when the model is packed.",
        options,
        _listed(whats),
    )


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(texts[:-1]) + f" and {texts[-1]}" if len(texts) > 1 else texts[0]


def _is_small(value: onnx.ValueInfoProto) -> bool:
    """Whether an input may be an axis, sizes or their like."""
    shape = static_shape(value)
    return shape is not None and len(shape) < 2 and max(shape, default=1) <= _FEW


def _numbers(value: onnx.ValueInfoProto, number: int) -> str:
    return ",".join([str(number)] * max(static_shape(value) or (1,)))


class _Graph:
    """The nodes of a model, those of inner graphs among them."""

    def __init__(self, model: onnx.ModelProto) -> None:
        constants = {tensor.name for tensor in model.graph.initializer}
        self._inputs = {v.name: v for v in model.graph.input if v.name not in constants}
        self._nodes = list(all_nodes(model.graph))
        self._producers = {name: node for node in self._nodes for name in node.output if name}

    def refused(self, error: RefusedNodesError) -> list[onnx.NodeProto]:
        """The nodes that an error names; those before them too, where a shape is unknown."""
        found = [self._producers[name] for name in error.tensors if name in self._producers]
        if not found:  # of a function that was written out
            return self._nodes
        if error.refused:
            return found
        return [node for node in self._nodes if set(node.output) & self._behind(found)]

    def run_time_operands(self, node: onnx.NodeProto) -> list[_Operand]:
        """The node's operands that must be constants, and are computed from inputs of the model."""
        found = []
        for number, what in sorted(OPERANDS.get(node.op_type, {}).items()):
            name = str(node.input[number]) if number < len(node.input) else ""
            inputs = self._sources(name) if name else []
            if inputs:
                found.append(_Operand(name, what, tuple(inputs)))
        return found

    def _sources(self, name: str) -> list[onnx.ValueInfoProto]:
        """The model's inputs whose values decide on a value, in the model's order."""
        found = self._read([name])
        return [value for own, value in self._inputs.items() if own in found]

    def _behind(self, nodes: Sequence[onnx.NodeProto]) -> set[str]:
        return self._read([name for node in nodes for name in (*node.output, *node.input)])

    def _read(self, names: Sequence[str]) -> set[str]:
        """Values, and all that these are computed from."""
        wanted, seen = list(names), set[str]()
        while wanted:
            name = wanted.pop()
            if name in seen:
                continue
            seen.add(name)
            node = self._producers.get(name)
            if node is not None and node.op_type not in _SHAPES:
                wanted += node.input
        return seen
