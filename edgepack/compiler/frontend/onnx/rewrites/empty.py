"""Tensors without elements: what is computed of them is known, whatever computes it.

A value of whose shape an extent is 0 becomes a constant, and what reads it does without: a concatenation
has a part less, a sum or a product over nothing is 0, a padded one is its padding. No kernel and no importer
behind this meets such an operand; what the standard defines no result for is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, Rewrite, attributes
from edgepack.compiler.frontend.onnx.support import REGION, RefusedNodesError, node_name

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["as_the_standard_says", "check_empty_operands", "settle_empty"]

#: Operators whose first operand says what there is to compute, or is passed on as it is.
_SERVED = {"Concat", "ConstantOfShape", "Identity", "If", "Loop", "Range", "Shape", "Size", REGION}

#: Operators that make nothing of something by sizes that are wrong, which their own checks say.
_OF_WINDOWS = {
    *(
        "AveragePool",
        "Col2Im",
        "Conv",
        "ConvInteger",
        "ConvTranspose",
        "DFT",
        "DeformConv",
        "LpPool",
        "MaxPool",
    ),
    *("MaxRoiPool", "MaxUnpool", "QLinearConv", "Resize", "RoiAlign", "STFT", "Upsample"),
}


def settle_empty(model: onnx.ModelProto) -> bool:
    """Replaces values without elements, and what is computed of these alone, in place; whether there was any.

    Args:
        model: without functions, its constants folded, input shapes static.
    """
    editor = Editor(model)
    changed = _constant_inputs(editor)
    if any(_concerns(editor, node) for node in model.graph.node):
        kinds = {("" if n.domain == "ai.onnx" else n.domain, n.op_type) for n in model.graph.node}
        editor.run(dict.fromkeys(kinds, _settled))
        changed = changed or editor.changed
    return changed


def as_the_standard_says(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model for ONNX Runtime, without nodes that it gets wrong where they read nothing; itself if it has
    none.

    It ends the process for a recurrent layer without steps or sequences, or has 0 for the states that it
    begins with; and it leaves out the factor of a Gemm's third operand.
    """
    import onnx

    if not any(node.op_type in _WRONG_IN_ONNXRUNTIME for node in model.graph.node):
        return model
    editor = Editor(model)
    wrong = [
        n for n in model.graph.node if n.op_type in _WRONG_IN_ONNXRUNTIME and editor.is_empty(n.input[0])
    ]
    if not wrong:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return Editor(copy).run({("", operator): _settled for operator in _WRONG_IN_ONNXRUNTIME})


def _concerns(editor: Editor, node: onnx.NodeProto) -> bool:
    """Whether a node may have to do with nothing."""
    old_slice = node.op_type == "Slice" and len(node.input) == 1
    return old_slice or node.op_type == "Compress" or any(map(editor.is_empty, (*node.input, *node.output)))


def check_empty_operands(model: onnx.ModelProto) -> None:
    """Raises RefusedNodesError for an operator that makes elements of an operand without any, in a way that
    the standard does not define, or that is unknown here.

    Args:
        model: after :func:`settle_empty`, and all other rewrites.
    """
    if not any(0 in tensor.dims for tensor in model.graph.initializer):
        return
    editor = Editor(model)
    for index, node in enumerate(model.graph.node):
        if node.op_type in _SERVED or not node.input:
            continue
        shapes = [editor.shape(name) for name in node.output if name]
        if not editor.is_empty(node.input[0]) or None in shapes or all(0 in (one or ()) for one in shapes):
            continue
        _refuse(editor, node, index)


def _refuse(editor: Editor, node: onnx.NodeProto, index: int) -> NoReturn:
    shape = " x ".join(map(str, editor.shape(node.input[0]) or ()))
    raise RefusedNodesError(
        f"The {node.op_type} node {node_name(node, index)} cannot be compiled: its operand is a tensor of "
        f"{shape}, which has no elements, and there is no result of that.",
        hint="Export the model with larger inputs, or without what leaves nothing before the node.",
        tensors=[name for name in node.output if name],
    )


def _constant_inputs(editor: Editor) -> bool:
    """Has nodes read constants in place of inputs without elements; whether there were any."""
    import numpy as np

    found: dict[str, str] = {}
    for value in editor.model.graph.input:
        if editor.is_empty(value.name) and editor.constant(value.name) is None:
            found[value.name] = ""
    changed = False
    for node in editor.model.graph.node if found else ():
        for place, name in enumerate(node.input):
            if name in found and node.op_type not in _SERVED - {"Concat", "Shape", "Size"}:
                found[name] = found[name] or editor.const(
                    np.zeros(editor.shape(name) or (), editor.dtype(name))
                )
                node.input[place] = found[name]
                changed = True
    return changed


def _settled(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """What any node becomes."""
    passed_on = node.op_type == "Identity" and editor.constant(node.input[0]) is not None
    if passed_on or node.op_type == REGION:
        return None
    outputs = [str(name) for name in node.output]
    if node.op_type in _OF_WINDOWS:
        operands = node.input[: 1 if node.op_type in ("Resize", "Upsample") else 2]
        if not any(editor.is_empty(name) for name in operands if name):
            return None
    if all(editor.is_empty(name) for name in outputs if name):
        return [_filled(editor, name, 0) if name else "" for name in outputs]
    rewrite = _OF_NOTHING.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    return rewrite(editor, node) if rewrite is not None else None


def _filled(editor: Editor, name: str, number: Any) -> str:
    """A constant of a value's shape and type, each element ``number``."""
    import numpy as np

    return editor.const(np.full(editor.shape(name) or (), number, editor.dtype(name)))


def _concat(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Concat of the parts that have elements."""
    kept = [str(name) for name in node.input if not editor.is_empty(name)]
    if len(kept) in (0, len(node.input)):
        return None
    axis = attributes(node).get("axis", 1)
    return [editor.op("Concat", *kept, axis=axis) if len(kept) > 1 else kept[0]]


def _compress(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Compress by a constant condition as a Gather of the places that it chooses."""
    import numpy as np

    data, condition = str(node.input[0]), editor.constant(node.input[1])
    if condition is None:
        return None
    axis = attributes(node).get("axis")
    if axis is None:
        data, axis = editor.reshape(data, [-1]) if not editor.is_empty(data) else data, 0
    places = np.flatnonzero(condition).astype(np.int64)
    if editor.is_empty(data) and not places.size:
        return None
    return [editor.op("Gather", data, editor.const(places), axis=axis)]


def _slice(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """A Slice of opset 9 that ends before it starts: its extent is inferred to be negative."""
    import numpy as np

    values, shape = attributes(node), editor.shape(node.input[0])
    if len(node.input) > 1 or shape is None or "starts" not in values or "ends" not in values:
        return None
    sizes = list(shape)
    axes = values.get("axes", range(len(values["starts"])))
    for axis, start, end in zip(axes, values["starts"], values["ends"], strict=True):
        sizes[axis] = len(range(shape[axis])[start:end])
    return [editor.const(np.zeros(sizes, editor.dtype(node.input[0])))] if 0 in sizes else None


def _positions(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """The places of what is not 0 where there is nothing."""
    import numpy as np

    shape = editor.shape(node.input[0])
    if shape is None or 0 not in shape:
        return None
    return [editor.const(np.zeros([len(shape), 0], np.int64))]


def _selection(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """NonMaxSuppression of no boxes, or for no classes."""
    import numpy as np

    if not any(editor.is_empty(name) for name in node.input[:2]):
        return None
    return [editor.const(np.zeros([0, 3], np.int64))]


def _refused(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Refuses what gives something of nothing that is not defined (a mean: ONNX Runtime says 0, NumPy NaN),
    or that nobody needs (a quantised convolution of no channels)."""
    if editor.is_empty(node.input[0]):
        _refuse(editor, node, 0)
    return None


def _reduction(number: Any) -> Rewrite:
    """A reduction whose result over nothing is ``number``, or the least or greatest of the type."""

    def rewrite(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
        import numpy as np

        result = str(node.output[0])
        if not editor.is_empty(node.input[0]) or editor.shape(result) is None:
            return None
        dtype = editor.dtype(result)
        value = _end(dtype, largest=number == "greatest") if isinstance(number, str) else number
        if dtype.kind in "iu" and value == -np.inf:
            _refuse(editor, node, 0)
        return [_filled(editor, result, value)]

    return rewrite


def _end(dtype: np.dtype[Any], *, largest: bool) -> Any:
    """The least or the greatest value of a type."""
    import numpy as np

    if dtype.kind == "b":
        return largest
    if dtype.kind in "iu":
        return np.iinfo(dtype).max if largest else np.iinfo(dtype).min
    return np.inf if largest else -np.inf


def _product(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """A product, or a convolution, over nothing is 0."""
    result = str(node.output[0])
    if not any(editor.is_empty(name) for name in node.input if name) or editor.shape(result) is None:
        return None
    return [_filled(editor, result, 0)]


def _convolution(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """A convolution of no channels, or of padding alone, is its bias."""
    zeros = _product(editor, node)
    if zeros is None or len(node.input) < 3 or not node.input[2]:
        return zeros
    rank = len(editor.shape(node.output[0]) or ())
    return [editor.op("Add", zeros[0], editor.reshape(node.input[2], [-1, *[1] * (rank - 2)]))]


def _gemm(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Gemm over nothing: beta times the third operand."""
    zeros, dtype = _product(editor, node), editor.dtype(node.input[0])
    if zeros is None or len(node.input) < 3 or not node.input[2]:
        return zeros
    beta = attributes(node).get("beta", 1.0)
    term = str(node.input[2])
    scaled = editor.op("Mul", term, editor.scalar(beta, dtype)) if beta != 1 else term
    return [editor.op("Add", zeros[0], scaled)]


def _pad(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Padding around nothing, of one value."""
    import numpy as np

    values, result = attributes(node), str(node.output[0])
    shape = editor.shape(result)
    if not editor.is_empty(node.input[0]) or shape is None or values.get("mode", "constant") != "constant":
        return None
    if len(node.input) < 3 or not node.input[2]:
        return [_filled(editor, result, values.get("value", 0))]
    number = editor.reshape(node.input[2], [1])
    return [editor.op("Expand", number, editor.const(np.asarray(shape, np.int64)))]


def _quantised_product(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """A quantised product over nothing is 0, which is its zero point."""
    import numpy as np

    shape = editor.shape(node.output[0])
    if not any(editor.is_empty(name) for name in (node.input[0], node.input[3])) or shape is None:
        return None
    zero = editor.reshape(node.input[7], [-1] if len(shape) == 1 else [-1, 1])
    return [editor.op("Expand", zero, editor.const(np.asarray(shape, np.int64)))]


def _resize(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Nothing in another size, of which inference says nothing, is nothing."""
    import numpy as np

    sizes = editor.constant(node.input[3]) if len(node.input) > 3 and node.input[3] else None
    if not editor.is_empty(node.input[0]) or sizes is None or sizes.all() or attributes(node).get("axes"):
        return None
    return [editor.const(np.zeros([int(n) for n in sizes], editor.dtype(node.input[0])))]


def _scatter(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """A scatter of no updates leaves the data as they are."""
    if not editor.is_empty(node.input[2]) or editor.is_empty(node.input[0]):
        return None
    return [str(node.input[0])]


def _recurrent(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """A recurrent layer of no steps: its states are those that it begins with."""
    if not editor.is_empty(node.input[0]):
        return None
    results = []
    for place, name in enumerate(node.output):
        start = str(node.input[4 + place]) if place and len(node.input) > 4 + place else ""
        if name and editor.shape(name) is None:
            return None
        results.append(start or (_filled(editor, str(name), 0) if name else ""))
    return results


#: Operators that ONNX Runtime gets wrong where they read nothing.
_WRONG_IN_ONNXRUNTIME = ("GRU", "Gemm", "LSTM", "RNN")

#: By operator, what a node becomes that has elements for a result.
_OF_NOTHING: dict[str, Rewrite] = {
    "Compress": _compress,
    "Concat": _concat,
    "Conv": _convolution,
    "ConvInteger": _product,
    "ConvTranspose": _convolution,
    "Einsum": _product,
    "GRU": _recurrent,
    "Gemm": _gemm,
    "LSTM": _recurrent,
    "MatMul": _product,
    "MatMulInteger": _product,
    "NonMaxSuppression": _selection,
    "NonZero": _positions,
    "Pad": _pad,
    "QLinearConv": _refused,
    "QLinearMatMul": _quantised_product,
    "RNN": _recurrent,
    "ReduceL1": _reduction(0),
    "ReduceL2": _reduction(0),
    "ReduceLogSum": _reduction(float("-inf")),
    "ReduceLogSumExp": _reduction(float("-inf")),
    "ReduceMax": _reduction("least"),
    "ReduceMean": _refused,
    "ReduceMin": _reduction("greatest"),
    "ReduceProd": _reduction(1),
    "ReduceSum": _reduction(0),
    "ReduceSumSquare": _reduction(0),
    "Resize": _resize,
    "Scatter": _scatter,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "Slice": _slice,
}
