"""What each operator does to the padding of what it reads, or why it cannot read any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from edgepack.compiler.frontend.onnx.bounded_shapes.data_dependent import Entries
from edgepack.compiler.frontend.onnx.bounded_shapes.lengths import of_lengths, sizes_of
from edgepack.compiler.frontend.onnx.bounded_shapes.node import MixedError, PaddedNode
from edgepack.compiler.frontend.onnx.bounded_shapes.windows import (
    convolution,
    padding,
    transposed_convolution,
)

__all__ = ["apply_rule"]

#: Element by element, with broadcasting.
ELEMENTWISE = frozenset(
    (
        *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitCast", "BitShift"),
        *("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu", "Clip"),
        *("Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual"),
        *("HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual"),
        *("Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow"),
        *("Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus"),
        *("Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor"),
    )
)

#: What computes along the axis of this attribute, and of each the default.
ALONG_AXIS = {"ArgMax": 0, "ArgMin": 0, "Hardmax": -1, "LogSoftmax": -1, "LpNormalization": -1, "Softmax": -1}
ALONG_AXIS |= {"TopK": -1}

#: What computes along this axis and all behind it.
FROM_AXIS = {"LayerNormalization": -1, "RMSNormalization": -1}

#: What treats each sample of a batch alone: the first input's first axis.
BY_SAMPLE = frozenset(
    (
        *("AveragePool", "BatchNormalization", "DepthToSpace", "Flatten", "LRN"),
        *("GlobalAveragePool", "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "MaxPool"),
        *("Resize", "SpaceToDepth", "Upsample"),
    )
)

#: Elementwise, and 0 where it reads 0.
KEEPS_ZERO = frozenset(("Cast", "Identity"))


def apply_rule(n: PaddedNode) -> None:
    """Keeps a node that reads padded tensors, and notes which of its results are padded.

    Raises:
        MixedError: it mixes entries of which some are padding.
    """
    if n.node.domain == "edgepack":
        raise MixedError("how many entries it has would depend on padding")
    if n.node.domain not in ("", "ai.onnx"):
        raise MixedError("it is not known what it does with padding")
    if all(name not in n.graph.axes for name in n.node.input):
        of_lengths(n)
    elif n.op in ELEMENTWISE:
        elementwise(n)
    elif n.op in REDUCTIONS:
        reduce(n)
    elif n.op in RULES:
        RULES[n.op](n)
    else:
        raise MixedError("it mixes entries, of which some are padding, or it is not known that it does not")


def elementwise(n: PaddedNode) -> None:
    shape = n.shape(n.node.output[0])
    found = {}
    for number, name in enumerate(n.node.input):
        if name in n.graph.lengths:
            raise MixedError("it computes with the number of entries")
        if name in n.graph.axes:
            axis, entries = n.graph.axes[name]
            found[number] = (axis + len(shape) - len(n.shape(name)), entries)
    axis, entries = next(iter(found.values()))
    for number, name in enumerate(n.node.input):
        if not name:
            continue
        if number in found and found[number] != (axis, entries):
            raise MixedError("it joins entries of different tensors")
        own = n.shape(name)
        at = axis - (len(shape) - len(own))
        if number not in found and at >= 0 and own[at] != 1:
            raise MixedError(f"it joins entries with {name!r}, which has as many as are reserved")
    integers = n.graph.is_integer(n.node.output[0])
    if n.op in ("Div", "Mod") and integers and 1 in found:
        n.guard(1, 1)
    n.done(axis, entries, zero=n.op in KEEPS_ZERO and n.first_is_zero())


def axes_of(n: PaddedNode, default: Sequence[int] | None) -> list[int]:
    """Axes as an attribute or as the second input, counted from 0."""
    rank = len(n.shape(n.node.input[0]))
    axes = n.values.get("axes")
    if axes is None and len(n.node.input) > 1:
        given = n.constant(1)
        axes = None if given is None else given.reshape(-1).tolist()
    if axes is None:
        axes = range(rank) if default is None else default
    return [int(axis) % rank for axis in axes]


def reduce(n: PaddedNode) -> None:
    axis, entries = n.first
    axes = axes_of(n, () if n.values.get("noop_with_empty_axes") else None)
    if axis in axes:
        raise MixedError("it reduces the entries, of which some are padding, to one")
    kept = n.values.get("keepdims", 1)
    n.done(axis if kept else axis - sum(other < axis for other in axes), entries)


def along_axis(n: PaddedNode) -> None:
    axis, entries = n.first
    rank = len(n.shape(n.node.input[0]))
    old = n.op in ("Softmax", "LogSoftmax", "Hardmax") and n.graph.opset < 13
    along = n.values.get("axis", 1 if old else ALONG_AXIS[n.op]) % rank
    if along == axis or (old and along <= axis):
        raise MixedError("it compares or adds up the entries, of which some are padding")
    drops = n.op in ("ArgMax", "ArgMin") and not n.values.get("keepdims", 1)
    n.done(axis - (drops and along < axis), entries)


def from_axis(n: PaddedNode) -> None:
    axis, entries = n.first
    if n.values.get("axis", FROM_AXIS[n.op]) % len(n.shape(n.node.input[0])) <= axis:
        raise MixedError("it adds up the entries, of which some are padding")
    n.done(axis, entries)


def cumulative(n: PaddedNode) -> None:
    axis, entries = n.first
    along = int(n.constant(1).reshape(-1)[0]) % len(n.shape(n.node.input[0]))
    if along == axis and n.values.get("reverse", 0):
        raise MixedError("it adds up the entries from the last one on, which is padding")
    n.done(axis, entries)


def by_sample(n: PaddedNode) -> None:
    axis, entries = n.first
    if axis or (n.op == "Flatten" and n.values.get("axis", 1) != 1):
        raise MixedError("its windows or channels would be entries, of which some are padding")
    n.done(0, entries)


def transpose(n: PaddedNode) -> None:
    axis, entries = n.graph.axes[n.node.input[0]]
    rank = len(n.shape(n.node.input[0]))
    perm = list(n.values.get("perm", range(rank)[::-1]))
    n.done(perm.index(axis), entries, zero=n.first_is_zero())


def reshape(n: PaddedNode) -> None:
    moved(n, n.graph.axes.get(n.node.input[0]), n.first_is_zero())


def moved(n: PaddedNode, padded: tuple[int, Entries] | None, zero: bool) -> None:
    """Reshape, Squeeze, Unsqueeze: the dimension stays one of its own."""
    if padded is None:
        raise MixedError("the number of entries decides its shape")
    axis, entries = padded
    before, after = (n.shape(name) for name in (n.node.input[0], n.node.output[0]))
    places = [
        at
        for at, size in enumerate(after)
        if size == entries.most and prod(after[:at]) == prod(before[:axis])
    ]
    if not places:
        raise MixedError("the dimension of the entries would not be one of its own any more")
    n.done(places[-1] if entries.most > 1 else places[0], entries, zero=zero)


def gather(n: PaddedNode) -> None:
    data, indices = n.padded(0), n.padded(1)
    rank = len(n.shape(n.node.input[0]))
    along = n.values.get("axis", 0) % rank
    if data is not None and indices is not None:
        raise MixedError("it looks up entries by entries")
    if indices is not None:
        n.guard(1)
        n.done(along + indices[0], indices[1])
        return
    assert data is not None
    if data[0] == along:
        raise MixedError("it looks up one of the entries, which may be padding")
    more = len(n.shape(n.node.input[1])) - 1
    n.done(data[0] + (more if along < data[0] else 0), data[1], zero=n.first_is_zero())


def gather_nd(n: PaddedNode) -> None:
    n.only(1)
    axis, entries = n.graph.axes[n.node.input[1]]
    if axis == len(n.shape(n.node.input[1])) - 1 or n.values.get("batch_dims", 0):
        raise MixedError("the entries would be parts of a position")
    n.guard(1)
    n.done(axis, entries)


def gather_elements(n: PaddedNode) -> None:
    n.only(1)
    axis, entries = n.graph.axes[n.node.input[1]]
    if axis != n.values.get("axis", 0) % len(n.shape(n.node.input[1])):
        raise MixedError("it reads as many entries of another tensor as are reserved")
    n.guard(1)
    n.done(axis, entries)


def roi_align(n: PaddedNode) -> None:
    n.only(1, 2)
    boxes, images = n.padded(1), n.padded(2)
    if boxes is None or images is None or boxes != images:
        raise MixedError("its boxes and the images that they are of would be of different number")
    n.guard(2)
    n.done(0, boxes[1])


def concat(n: PaddedNode) -> None:
    rank = len(n.shape(n.node.input[0]))
    found = {n.padded(number) for number in range(len(n.node.input))}
    if len(found) != 1 or None in found:
        raise MixedError("it joins entries with what has as many as are reserved, or other entries")
    axis, entries = next(iter(found)) or (0, None)
    assert entries is not None
    if n.values["axis"] % rank == axis:
        raise MixedError("what it puts behind the entries would stand behind their padding")
    zero = all(name in n.graph.zero for name in n.node.input)
    n.done(axis, entries, zero=zero)


def split(n: PaddedNode) -> None:
    axis, entries = n.graph.axes[n.node.input[0]]
    if n.values.get("axis", 0) % len(n.shape(n.node.input[0])) == axis:
        raise MixedError("it splits the entries, of which some are padding")
    n.done(axis, entries, zero=n.first_is_zero())


def slice_(n: PaddedNode) -> None:
    axis, entries = n.first
    shape = n.shape(n.node.input[0])
    starts, ends, axes, steps = (
        None if value is None else value.reshape(-1).tolist()
        for value in (n.constant(number) for number in (1, 2, 3, 4))
    )
    if starts is None or ends is None:
        raise MixedError("its bounds are attributes: convert the model to opset 10 or later")
    axes = [a % len(shape) for a in (range(len(starts)) if axes is None else axes)]
    if axis in axes:
        at = axes.index(axis)
        step = 1 if steps is None else steps[at]
        if starts[at] != 0 or step != 1 or ends[at] < 0:
            raise MixedError("it counts the entries from the end, or leaves the first ones out")
        if ends[at] < entries.most:
            entries = n.graph.at_most(entries, int(ends[at]))
    n.done(axis, entries, zero=n.first_is_zero())


def expand(n: PaddedNode) -> None:
    shape = n.shape(n.node.output[0])
    padded = n.padded(0)
    if padded is None:
        of_lengths(n)
        return
    axis = padded[0] + len(shape) - len(n.shape(n.node.input[0]))
    n.done(axis, padded[1], zero=n.first_is_zero())


def tile(n: PaddedNode) -> None:
    axis, entries = n.first
    if int(n.constant(1)[axis]) != 1:
        raise MixedError("it repeats the entries behind their padding")
    n.done(axis, entries, zero=n.first_is_zero())


def one_hot(n: PaddedNode) -> None:
    axis, entries = n.first
    rank = len(n.shape(n.node.output[0]))
    new = n.values.get("axis", -1) % rank
    n.guard(0)
    n.done(axis + (new <= axis), entries)


def mat_mul(n: PaddedNode) -> None:
    left, right = n.padded(0), n.padded(1)
    ranks = [len(n.shape(name)) for name in n.node.input[:2]]
    rank = len(n.shape(n.node.output[0]))
    if left is not None and right is not None:
        raise MixedError("it multiplies entries with each other")
    (axis, entries), number = (left, 0) if left is not None else (right or (0, None), 1)
    assert entries is not None
    summed = ranks[0] - 1 if number == 0 else max(0, ranks[1] - 2)
    if axis == summed:
        raise MixedError("it adds up the entries, of which some are padding")
    batch = axis < ranks[number] - 2
    if batch and ranks[1 - number] > 2:
        raise MixedError("it multiplies each entry with a matrix of its own")
    if min(ranks) < 2:
        n.done(axis, entries)
        return
    n.done(axis + rank - ranks[number], entries)


def gemm(n: PaddedNode) -> None:
    axis, entries = n.first
    if axis != (1 if n.values.get("transA", 0) else 0):
        raise MixedError("it adds up the entries, of which some are padding")
    if len(n.node.input) > 2 and n.node.input[2]:
        own = n.shape(n.node.input[2])
        if len(own) == 2 and own[0] != 1:
            raise MixedError("it adds a matrix of as many rows as are reserved")
    n.done(0, entries)


REDUCTIONS = frozenset(
    f"Reduce{name}"
    for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
)

RULES: dict[str, Callable[[PaddedNode], None]] = {
    **dict.fromkeys(ALONG_AXIS, along_axis),
    **dict.fromkeys(FROM_AXIS, from_axis),
    **dict.fromkeys(BY_SAMPLE, by_sample),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), reshape),
    "Concat": concat,
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "CumSum": cumulative,
    "CumProd": cumulative,
    "Expand": expand,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Gemm": gemm,
    "MatMul": mat_mul,
    "OneHot": one_hot,
    "Pad": padding,
    "RoiAlign": roi_align,
    "Shape": sizes_of,
    "Slice": slice_,
    "Split": split,
    "Tile": tile,
    "Transpose": transpose,
}
