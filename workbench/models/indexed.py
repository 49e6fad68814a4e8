"""Operators that read or write where their operands say, each with indices that a test may choose.

``INDEXED[name]`` has the operator; its model reads the indices as the input ``ids``, or has them as a
constant, in the graph itself, in a branch of an If that ``taken`` decides on, or in a loop of ``trips``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["INDEXED", "Indexed", "Where"]

Array = np.ndarray[Any, Any]

#: The graph that a node is in.
Where = Literal["graph", "branch", "loop"]

#: Makes constants of what is drawn once.
_rng = np.random.default_rng(0)


def _drawn(*shape: int) -> Array:
    return _rng.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Indexed:
    """An operator.

    Attributes:
        operator: its name.
        operands: in order; None stands for the indices.
        indices: right ones.
        extents: of what they are positions along: one, or one for each element of their last dimension.
        negative: what a negative one means: "end" counts from the end, "first" is the first element, as what
            is out of range is.
        lengths: whether they are numbers of elements, of which all is one.
        weights: numbers of operands that are constants.
        attributes, domain, opset, results: of the node.
    """

    operator: str
    operands: Sequence[Array | None]
    indices: Array
    extents: Sequence[int]
    negative: Literal["end", "first"] = "end"
    lengths: bool = False
    weights: Sequence[int] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    opset: int = 18
    results: int = 1

    @property
    def ends(self) -> Array:
        """The extents, as they are compared with the indices."""
        return np.asarray(self.extents if len(self.extents) > 1 else self.extents[0], np.int64)

    def inputs(self, ids: Array) -> dict[str, Array]:
        """Of the model with these indices."""
        names = {f"x{n}": x for n, x in enumerate(self.operands) if x is not None and n not in self.weights}
        return {**names, "ids": np.asarray(ids, self.indices.dtype)}

    def nearest(self, ids: Array) -> Array:
        """The indices that stand for any ones."""
        if self.lengths:
            return np.asarray(np.clip(ids, 0, self.ends), self.indices.dtype)
        wide = ids if ids.dtype.kind == "f" else ids.astype(np.int64)
        counted = np.where(wide < 0, wide + self.ends, wide) if self.negative == "end" else wide
        return np.asarray(np.clip(counted, 0, self.ends - 1), self.indices.dtype)

    def model(self, constant: Array | None = None, where: Where = "graph") -> onnx.ModelProto:
        """A model whose result ``y`` is the node's first one, or behind control flow its sum.

        Args:
            constant: the indices, where they are no input.
        """
        names, inputs, constants = [], [], []
        for number, operand in enumerate(self.operands):
            name = "ids" if operand is None else f"x{number}"
            value = self.indices if operand is None else operand
            names.append(name)
            if (operand is None and constant is not None) or number in self.weights:
                constants.append(numpy_helper.from_array(value if operand is not None else constant, name))
            else:
                inputs.append(_declared(name, value))
        results = ["y", *(f"more{n}" for n in range(1, self.results))]
        node = helper.make_node(self.operator, names, results, "node", domain=self.domain, **self.attributes)
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(self.domain, 1)] if self.domain else []
        graph = _INSIDE[where](node, inputs, constants)
        version = 8 if self.opset < 20 else 10
        return helper.make_model(graph, opset_imports=opsets, ir_version=version)


def _declared(name: str, value: Array) -> onnx.ValueInfoProto:
    element = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, element, value.shape)


def _scalar(name: str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [])


def _plain(node: onnx.NodeProto, inputs: Any, constants: Any) -> onnx.GraphProto:
    return helper.make_graph([node], "plain", inputs, [onnx.ValueInfoProto(name="y")], constants)


def _summed(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    cast = helper.make_node("Cast", ["y"], ["float"], to=TensorProto.FLOAT)
    return [node, cast, helper.make_node("ReduceSum", ["float"], ["sum"], keepdims=0)]


def _branch(node: onnx.NodeProto, inputs: Any, constants: Any) -> onnx.GraphProto:
    one = helper.make_node("Constant", [], ["one"], value=numpy_helper.from_array(np.float32(1)))
    graphs = {
        "then_branch": helper.make_graph(_summed(node), "then", [], [_scalar("sum")], constants),
        "else_branch": helper.make_graph([one], "else", [], [_scalar("one")]),
    }
    chosen = helper.make_node("If", ["taken"], ["y_"], **graphs)
    taken = _scalar("taken", TensorProto.BOOL)
    return helper.make_graph([chosen], "branch", [taken, *inputs], [_scalar("y_")])


def _loop(node: onnx.NodeProto, inputs: Any, constants: Any) -> onnx.GraphProto:
    carried = [_scalar("i", TensorProto.INT64), _scalar("go", TensorProto.BOOL), _scalar("a")]
    nodes = [*_summed(node), helper.make_node("Identity", ["go"], ["on"])]
    nodes.append(helper.make_node("Add", ["a", "sum"], ["b"]))
    results = [_scalar("on", TensorProto.BOOL), _scalar("b")]
    body = helper.make_graph(nodes, "body", carried, results, constants)
    zero = numpy_helper.from_array(np.float32(0), "zero")
    loop = helper.make_node("Loop", ["trips", "", "zero"], ["y_"], body=body)
    trips = _scalar("trips", TensorProto.INT64)
    return helper.make_graph([loop], "loop", [trips, *inputs], [_scalar("y_")], [zero])


_INSIDE = {"graph": _plain, "branch": _branch, "loop": _loop}

_X = _drawn(6, 9, 4)
_UPDATES = _drawn(6, 1, 3)
_PAIRS = {"kernel_shape": [2, 2], "strides": [2, 2]}
_IDS = np.zeros((6, 2, 4), np.int64)
_LINES = {"axis": 1}
_IMAGES = [_drawn(3, 4, 8, 8), np.asarray([[1, 1, 5, 6], [0, 2, 7, 7]], np.float32), None]
_BINS = {"output_height": 2, "output_width": 2}
_LARGEST = {**_BINS, "sampling_ratio": 1, "mode": "max"}
_TWO = np.zeros(2, np.int64)
_POOLED = np.asarray([[[[0, 3], [8, 15]]]])
_WORDS = [None, np.zeros((1, 2), np.int32), _drawn(7, 4), _drawn(5, 4), _drawn(2, 4), _drawn(4), _drawn(4)]


def _recurrent(operator: str, gates: int) -> Indexed:
    operands = [_drawn(5, 2, 3), _drawn(1, gates * 4, 3), _drawn(1, gates * 4, 4), _drawn(1, gates * 8), None]
    lengths = np.asarray([5, 2], np.int32)
    return Indexed(
        operator,
        operands,
        lengths,
        [5],
        lengths=True,
        weights=(1, 2, 3),
        attributes={"hidden_size": 4},
    )


INDEXED: dict[str, Indexed] = {
    "gather": Indexed("Gather", [_X, None], np.zeros(7, np.int64), [9], attributes=_LINES),
    "gather_one": Indexed("Gather", [_X, None], np.asarray(0), [9], attributes={"axis": -2}),
    "gather_int32": Indexed("Gather", [_X, None], np.zeros((2, 2), np.int32), [4], attributes={"axis": -1}),
    "gather_elements": Indexed("GatherElements", [_X, None], _IDS, [9], attributes={"axis": -2}),
    "gather_points": Indexed("GatherND", [_X, None], np.zeros((3, 2), np.int64), [6, 9]),
    "gather_points_of_batches": Indexed(
        "GatherND", [_X, None], np.zeros((6, 2, 1), np.int64), [9], attributes={"batch_dims": 1}
    ),
    "scatter": Indexed("Scatter", [_X, None, _UPDATES], _IDS[:, :1, :3], [9], attributes=_LINES, opset=10),
    **{
        f"scatter_elements_{reduction}": Indexed(
            "ScatterElements",
            [_X, None, _drawn(6, 1, 4)],
            _IDS[:, :1],
            [9],
            attributes={"axis": 1, "reduction": reduction},
        )
        for reduction in ("none", "add", "mul", "min", "max")
    },
    **{
        f"scatter_points_{reduction}": Indexed(
            "ScatterND", [_X, None, _drawn(1, 4)], _TWO[None], [6, 9], attributes={"reduction": reduction}
        )
        for reduction in ("none", "add", "mul", "min", "max")
    },
    "max_unpool": Indexed(
        "MaxUnpool",
        [_drawn(1, 1, 2, 2), None],
        _POOLED,
        [16],
        attributes=_PAIRS,
    ),
    "likelihood": Indexed("NegativeLogLikelihoodLoss", [_drawn(3, 5), None], np.zeros(3, np.int64), [5]),
    "cross_entropy": Indexed("SoftmaxCrossEntropyLoss", [_drawn(3, 5), None], np.zeros(3, np.int64), [5]),
    "reversed": Indexed("ReverseSequence", [_drawn(4, 3, 2), None], np.ones(3, np.int64), [4], lengths=True),
    "lstm": _recurrent("LSTM", 4),
    "gru": _recurrent("GRU", 3),
    "rnn": _recurrent("RNN", 1),
    "regions": Indexed(
        "RoiAlign", _IMAGES, _TWO, [3], "first", attributes={**_BINS, "sampling_ratio": 2}, opset=16
    ),
    "regions_adaptive": Indexed("RoiAlign", _IMAGES, _TWO, [3], "first", attributes=_BINS, opset=16),
    "regions_maxima": Indexed(
        "RoiAlign",
        _IMAGES,
        _TWO,
        [3],
        "first",
        attributes=_LARGEST,
        opset=16,
    ),
    "elements_of_rows": Indexed(
        "ArrayFeatureExtractor", [_drawn(3, 5), None], np.zeros(2, np.int64), [5], domain="ai.onnx.ml"
    ),
    "words": Indexed(
        "EmbedLayerNormalization",
        _WORDS,
        np.zeros((1, 2), np.int32),
        [7],
        weights=(2, 3, 4, 5, 6),
        domain="com.microsoft",
        results=2,
    ),
    "turned": Indexed(
        "RotaryEmbedding",
        [_drawn(1, 2, 3, 4), None, _drawn(6, 2), _drawn(6, 2)],
        np.zeros((1, 3), np.int64),
        [6],
        weights=(2, 3),
        domain="com.microsoft",
    ),
}
