"""Elementwise operators between two quantised tensors, as a table of what becomes of each byte.

Of a tensor of bytes with one scale and zero point, what elementwise operators and another QuantizeLinear make
of an element (SiLU, hard-swish, GELU, a sigmoid, a scale that is changed) is one of 256 values. ONNX Runtime
computes these once, here, so they are its own to the last bit; a model then has a Gather from a constant,
which kernels do by instructions that permute bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.known_versions import for_onnxruntime
from edgepack.compiler.frontend.onnx.onnxruntime_session import create_session
from edgepack.compiler.memory import ran_out

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

__all__ = ["Chains", "evaluated", "needed", "with_byte_tables"]

#: Operators of float tensors whose element depends on the elements at its place, beside constants.
ELEMENTWISE_NAMES = """
    Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Celu Clip Cos Cosh Div Elu Erf Exp Floor Gelu HardSigmoid
    HardSwish Identity LeakyRelu Log Max Min Mish Mul Neg PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign
    Sin Sinh Softplus Softsign Sqrt Sub Swish Tan Tanh ThresholdedRelu
"""
ELEMENTWISE = frozenset(ELEMENTWISE_NAMES.split())

#: Those that bound an element, which quantised kernels do in integers.
BOUNDS = frozenset({"Clip", "Identity", "Max", "Min", "Relu"})

_QUANTISERS = ("QuantizeLinear", "DequantizeLinear")


class Chains:
    """Which tensors depend on one quantised tensor elementwise.

    Args:
        others: names of float tensors that stand for quantised ones.

    Attributes:
        roots: by tensor, the quantised tensor that its elements are functions of.
        computed: tensors of :attr:`roots` behind an operator that is more than a bound.
        found: QuantizeLinear nodes behind such operators.
        types: by root, ONNX's number of its element type.
    """

    def __init__(self, model: onnx.ModelProto, others: Iterable[str] = ()) -> None:
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        #: Tensors of rank 0, which a constant of rank 1 makes one of rank 1.
        self.scalars = {
            value.name
            for value in (*model.graph.input, *model.graph.value_info, *model.graph.output)
            if value.type.tensor_type.HasField("shape") and not value.type.tensor_type.shape.dim
        }
        self.roots: dict[str, str] = {name: name for name in others}
        self.computed: set[str] = set()
        self.found: list[onnx.NodeProto] = []
        self.types: dict[str, int] = {}
        for node in model.graph.node:
            self._visit(node)

    def _visit(self, node: onnx.NodeProto) -> None:
        if node.domain not in ("", "ai.onnx") or len(node.output) != 1:
            return
        if node.op_type in _QUANTISERS:
            root = self._quantiser(node)
        else:
            root = self._operator(node) if node.op_type in ELEMENTWISE else None
        if root is None:
            return
        self.roots[node.output[0]] = root
        if node.op_type not in BOUNDS | {*_QUANTISERS} or any(name in self.computed for name in node.input):
            self.computed.add(node.output[0])
        if node.op_type == "QuantizeLinear" and node.output[0] in self.computed:
            self.found.append(node)

    def _quantiser(self, node: onnx.NodeProto) -> str | None:
        """The root of a quantiser by one scale and one zero point; of bytes that have none, they."""
        x, *numbers = map(str, node.input)
        known = [self.constants.get(name) for name in numbers]
        if len(known) != 2 or any(t is None or _elements(t) != 1 for t in known):
            return None
        zero = known[1]
        assert zero is not None
        if zero.data_type not in _bytes() or any(a.name == "block_size" and a.i for a in node.attribute):
            return None
        if node.op_type == "QuantizeLinear":
            return self.roots.get(x)
        if x in self.constants:
            return None
        root = self.roots.get(x, x)
        if root in self.scalars:
            return None
        self.types.setdefault(root, zero.data_type)
        return root

    def _operator(self, node: onnx.NodeProto) -> str | None:
        """The root of an operator's operands that are no constants of one element, if it is one."""
        roots = set()
        for name in filter(None, node.input):
            constant = self.constants.get(name)
            if constant is None:
                roots.add(self.roots.get(name, ""))
            elif _elements(constant) != 1 or len(constant.dims) > 1:
                return None
        return roots.pop() if len(roots) == 1 and "" not in roots else None


def with_byte_tables(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a Gather in place of each such chain of operators, in place.

    Args:
        model: its constants are folded; nodes are in order.
    """
    import onnx
    from onnx import numpy_helper

    chains = Chains(model)
    if not chains.found:
        return model
    try:
        tables = _tables(model, chains)
    except Exception as error:  # of ONNX Runtime, for an operator that it lacks: the chain is computed
        if ran_out(error):
            raise
        return model
    replaced: dict[str, list[onnx.NodeProto]] = {}
    positions: dict[str, str] = {}
    taken = {name for node in model.graph.node for name in (*node.input, *node.output, *_captured(node))}
    taken |= chains.constants.keys() | {value.name for value in model.graph.input}
    for node in chains.found:
        (name,), root = node.output, chains.roots[node.output[0]]
        table, at = _free(f"{name}/table", taken), positions.get(root)
        cast = at is None
        if at is None:
            at = positions[root] = _free(f"{root}/positions", taken)
        model.graph.initializer.append(numpy_helper.from_array(tables[name], table))
        made = [onnx.helper.make_node("Gather", [table, at], [name], name=node.name, axis=0)]
        if cast:
            made.insert(0, onnx.helper.make_node("Cast", [root], [at], to=onnx.TensorProto.INT32))
        replaced[name] = made
    nodes = [made for node in model.graph.node for made in replaced.get(node.output[0], [node])]
    kept = needed(nodes, [value.name for value in model.graph.output])
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def _free(name: str, taken: set[str]) -> str:
    """A name like this one that no tensor has, which is taken then."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _tables(model: onnx.ModelProto, chains: Chains) -> Mapping[str, Array]:
    """By the output of each chain, what becomes of each byte, in the order of their bits."""
    import numpy as np
    import onnx

    wanted = [node.output[0] for node in chains.found]
    inside = [node for node in model.graph.node if node.output and node.output[0] in chains.roots]
    values = np.arange(256, dtype=np.uint8)
    given = {
        root: values.view(onnx.helper.tensor_dtype_to_np_dtype(chains.types[root]))
        for root in {chains.roots[name] for name in wanted}
    }
    return evaluated(model, needed(inside, wanted), given, wanted)


def evaluated(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], given: Mapping[str, Array], wanted: Sequence[str]
) -> dict[str, Array]:
    """What elementwise nodes of a model compute of vectors.

    Args:
        nodes: in order; constants that they read are the model's.
        given: the values of the tensors that they start from.
        wanted: names of results.

    Raises:
        Exception: of ONNX Runtime, which has no base class of its own, for an operator that it lacks.
    """
    import numpy as np
    import onnx
    from onnx import numpy_helper

    used = {name for node in nodes for name in node.input} - given.keys()
    constants = [numpy_helper.from_array(values, name) for name, values in given.items()]
    constants += [tensor for tensor in model.graph.initializer if tensor.name in used]
    outputs = [onnx.ValueInfoProto(name=name) for name in wanted]
    graph = onnx.helper.make_graph(nodes, "chains", [], outputs, constants)
    whole = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    found = create_session(for_onnxruntime(whole)).run(list(wanted), {})
    return {name: np.asarray(values).reshape(-1) for name, values in zip(wanted, found, strict=True)}


def needed(nodes: Iterable[onnx.NodeProto], wanted: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes that the wanted tensors depend on, in order."""
    names, kept = set(wanted), []
    for node in reversed(list(nodes)):
        if names.intersection(node.output):
            kept.append(node)
            names.update(node.input)
            names.update(_captured(node))
    return kept[::-1]


def _captured(node: onnx.NodeProto) -> Iterable[str]:
    """Names that the graphs inside a node use."""
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from inner.input
                yield from _captured(inner)


def _bytes() -> frozenset[int]:
    import onnx

    return frozenset({onnx.TensorProto.UINT8, onnx.TensorProto.INT8})


def _elements(tensor: Any) -> int:
    count = 1
    for size in tensor.dims:
        count *= int(size)
    return count
