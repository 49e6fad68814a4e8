"""Which operators can be compiled, and why the others cannot. Knows names only: no TVM is needed to ask."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN, of_fixed_point
from edgepack.compiler.frontend.onnx.function_bodies import has_function_body
from edgepack.compiler.frontend.onnx.shapes import infer_shapes, static_shape
from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = [
    "BRANCHES",
    "FAILS",
    "IMPORTABLE",
    "REFUSED",
    "REGION",
    "SEQUENCES",
    "RefusedNodesError",
    "check_known",
    "check_operators",
    "is_importable",
    "is_impossible",
    "is_of_lists",
    "is_refused",
    "unsupported_nodes",
]

#: Operators of edgepack's domain (``classical/operator.py``): what walks decision trees, and what makes
#: probabilities of classes of those of pairs of classes.
TREE_WALK, COUPLING = "TreeWalk", "PairwiseCoupling"

#: Standard operators that TVM's importer converts and that can be planned statically.
# fmt: off
IMPORTABLE = frozenset(
    (
        "Abs", "Acos", "Acosh", "Add", "AffineGrid", "And", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan",
        "Atanh", "AveragePool", "BatchNormalization", "BitCast", "BitShift", "BitwiseAnd", "BitwiseNot",
        "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Concat", "Constant",
        "ConstantOfShape", "Conv", "ConvTranspose", "Cos", "Cosh", "CumProd", "CumSum", "DepthToSpace",
        "DequantizeLinear", "Div", "Dropout", "DynamicQuantizeLinear", "Einsum", "Elu", "Equal", "Erf",
        "Exp", "Expand", "EyeLike", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Gelu",
        "Gemm", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "Greater", "GreaterOrEqual",
        "GRU", "GridSample", "GroupNormalization", "HardSigmoid", "HardSwish", "Hardmax", "Identity",
        "InstanceNormalization", "IsInf", "IsNaN", "LRN", "LSTM", "LayerNormalization", "LeakyRelu", "Less",
        "LessOrEqual", "Log", "LogSoftmax", "LpPool", "MatMul", "MatMulInteger", "Max", "MaxPool",
        "MaxRoiPool", "MaxUnpool", "Mean", "MeanVarianceNormalization", "Min", "Mish", "Mod", "Mul",
        "Neg", "Not", "OneHot", "Or", "PRelu", "Pad", "Pow", "QuantizeLinear", "RMSNormalization", "RNN",
        "Range", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
        "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape",
        "Resize", "RoiAlign", "Round", "Scatter", "ScatterElements", "ScatterND", "Selu", "Shape",
        "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Slice", "Softmax", "Softplus", "Softsign",
        "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tan", "Tanh", "ThresholdedRelu",
        "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor",
    )
)

#: Operators of lists of tensors and of optional values, which are taken out of a model where it is known
#: which tensors these are (``sequences``).
SEQUENCES = frozenset(
    (
        "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
        "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
        "SequenceMap", "SplitToSequence",
    )
)
# fmt: on

#: What an If or a loop that stays is called in a normalised model (``regions.py``), in the domain
#: ``edgepack``.
REGION = "EdgepackRegion"

#: The attributes of an If, in the order in which such a node has its graphs.
BRANCHES = ("then_branch", "else_branch")

#: Name of the node of a branch that no run can take (``impossible_branches.py``).
FAILS = "edgepack/impossible"

#: Operators that draw numbers: constants with a seed, if their size is known (``random_numbers.py``).
RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli")

#: Operators that the importer may know but that cannot be compiled to a static plan, with the reason.
REFUSED = {
    **dict.fromkeys(
        ("NonZero", "NonMaxSuppression", "Unique", "Compress"), "the shape of its output depends on values"
    ),
    **dict.fromkeys(RANDOM, "random numbers without a seed"),
    "Multinomial": "random numbers",
}

#: The same of ONNX Runtime's own operators.
REFUSED_CONTRIBUTED = {
    **dict.fromkeys(
        (
            *("com.microsoft.QOrderedAttention", "com.microsoft.QOrderedGelu"),
            *("com.microsoft.QOrderedLayerNormalization", "com.microsoft.QOrderedLongformerAttention"),
            *("com.microsoft.QOrderedMatMul", "com.microsoft.QuantizeWithOrder"),
            "com.microsoft.DequantizeWithOrder",
        ),
        "its layout is that of NVIDIA's cuBLASLt, and ONNX Runtime runs it with CUDA only",
    ),
    "com.microsoft.QMoE": "which experts compute is known at run time only",
}

#: Why one that draws is refused, with a seed or without.
_OF_DATA = "random numbers, and the data decide how many"

_REASONS = {**REFUSED, **REFUSED_CONTRIBUTED}

_WHAT_TO_TRY = {
    **dict.fromkeys(
        RANDOM,
        "Give the node a seed, for the same numbers in every run, or make its result an input (--inputs).",
    ),
    "Multinomial": "Cut the model before it (--outputs) and draw on the host.",
    **dict.fromkeys(
        [operator for operator in REFUSED_CONTRIBUTED if "Order" in operator],
        "Quantise the float model for CPUs (onnxruntime.quantization, QuantFormat.QDQ).",
    ),
    "NonZero": "Cut the model before it (--outputs) and compute the rest on the host.",
    "NonMaxSuppression": "Export the model without its post-processing, and do that on the host.",
}


class RefusedNodesError(ModelError):
    """Nodes of the model cannot be compiled.

    Args:
        tensors: names of outputs of these nodes, of each at least one.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        detail: str = "",
        refused: Sequence[Mapping[str, Any]] = (),
        tensors: Sequence[str] = (),
    ) -> None:
        super().__init__(message, hint=hint, detail=detail, refused=refused)
        self.tensors = tuple(tensors)


def is_importable(node: onnx.NodeProto) -> bool:
    """Whether the importer converts this node."""
    standard = node.domain in ("", "ai.onnx") and node.op_type in IMPORTABLE
    own = node.domain == DOMAIN and node.op_type in (REGION, TREE_WALK, COUPLING)
    return standard or own or of_fixed_point(node)


def is_impossible(graph: onnx.GraphProto) -> bool:
    """Whether a graph is what has replaced a branch that no run can take."""
    return any(node.name == FAILS for node in graph.node)


def is_refused(node: onnx.NodeProto) -> bool:
    """Whether a static plan cannot hold the node, whatever the standard says of it."""
    return node.domain in ("", "ai.onnx") and node.op_type in REFUSED


def is_of_lists(node: onnx.NodeProto) -> bool:
    """Whether an operator makes or reads lists of tensors or optional values."""
    return node.domain in ("", "ai.onnx") and node.op_type in SEQUENCES


def unsupported_nodes(
    model: onnx.ModelProto, rewritten: Container[tuple[str, str]] = ()
) -> dict[str, list[str]]:
    """Names of the nodes that cannot be compiled, by operator (``domain.Operator`` for a custom one).

    Those in ``rewritten`` (domain and operator), the model's own functions, operators that ONNX defines by
    simpler ones, and those of lists count as supported, if ``rewritten`` is given at all.
    """
    found: dict[str, list[str]] = {}
    for index, node in _unsupported(model, rewritten):
        found.setdefault(_qualified(node), []).append(node_name(node, index))
    return found


def _unsupported(
    model: onnx.ModelProto, rewritten: Container[tuple[str, str]]
) -> Iterator[tuple[int, onnx.NodeProto]]:
    own = {(function.domain, function.name) for function in model.functions}
    for index, node in enumerate(model.graph.node):
        key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
        bodies = bool(rewritten) and not is_refused(node)
        if is_importable(node) or key in rewritten or (bodies and (key in own or has_function_body(*key))):
            continue
        if rewritten and is_of_lists(node):
            continue
        yield index, node


def node_name(node: onnx.NodeProto, index: int) -> str:
    """The node's name, or what identifies one without: its first output, or its index."""
    return str(node.name) or next((f"the node of {name}" for name in node.output if name), f"node {index}")


def check_known(model: onnx.ModelProto, rewritten: Container[tuple[str, str]]) -> None:
    """Refuses models with operators that ONNX does not know, which ONNX Runtime would refuse less clearly.

    Args:
        model: as read, the model's own functions inlined.
        rewritten: (domain, operator) of those that a rewrite will replace.

    Raises:
        RefusedNodesError: names these operators, and all others that cannot be compiled.
    """
    import onnx

    found = unsupported_nodes(model, rewritten)
    known = {op for op in found if "." not in op and onnx.defs.has(op, "")}
    if found.keys() - known:
        _refuse(model, rewritten)


def check_operators(model: onnx.ModelProto) -> None:
    """Raises RefusedNodesError that names *all* operators that cannot be compiled, with their nodes."""
    if unsupported_nodes(model):
        _refuse(model, ())


def _refuse(model: onnx.ModelProto, rewritten: Container[tuple[str, str]]) -> NoReturn:
    found = unsupported_nodes(model, rewritten)
    sized = _random_of_unknown_size(model)
    reasons = {op: _reason(op) for op in found} | dict.fromkeys(sized.values(), _OF_DATA)
    lines = list(_report(found, reasons))
    names = ", ".join(found)
    hint = next((_WHAT_TO_TRY[op] for op in found if op in _WHAT_TO_TRY), "")
    if sized:
        hint = (
            "Numbers are drawn when the model is packed, a fixed number of them, so a seed is of no use: "
            f"export the model without them, or end it before them: --outputs {next(iter(sized))}."
        )
    if not hint and any("." in op for op in found):
        hint = (
            "Operators of other domains are unknown here: export the model with standard operators (ai.onnx)."
        )
    raise RefusedNodesError(
        f"The model has {'an operator' if len(found) == 1 else f'{len(found)} operators'} "
        f"that edgepack cannot compile: {names}.",
        hint=hint or "Replace them before export, or cut the model with --inputs and --outputs.",
        detail="\n".join(lines),
        refused=[{"operator": op, "nodes": nodes, "reason": reasons[op]} for op, nodes in found.items()],
        tensors=[name for _, node in _unsupported(model, rewritten) for name in node.output if name],
    )


def _random_of_unknown_size(model: onnx.ModelProto) -> dict[str, str]:
    """The operators that draw as many numbers as the data say, which no seed helps, by what decides how many:
    one with a seed would be a constant otherwise."""
    values = None
    found: dict[str, str] = {}
    for node in model.graph.node:
        if node.op_type not in RANDOM or node.domain not in ("", "ai.onnx") or not node.input:
            continue
        if values is None:
            graph = infer_shapes(model).graph
            values = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
        if static_shape(values.get(node.input[0])) is None:
            found[str(node.input[0])] = node.op_type
    return found


def _report(found: dict[str, list[str]], reasons: Mapping[str, str]) -> Iterator[str]:
    for op, nodes in found.items():
        more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
        reason = f" ({reasons[op]})" if op in _REASONS else ""
        yield f"{op}{reason}: {', '.join(nodes[:5])}{more}"


def _reason(op: str) -> str:
    if op in _REASONS:
        return _REASONS[op]
    if op.startswith("com.microsoft."):
        return "unknown here, or not in this form, which ONNX Runtime's CPU kernels may lack too"
    return "an operator of another domain, unknown here" if "." in op else "no converter for it"


def _qualified(node: onnx.NodeProto) -> str:
    return str(node.op_type) if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
