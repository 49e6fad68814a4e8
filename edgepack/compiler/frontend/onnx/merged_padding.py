"""Pad before a convolution or pooling as padding of that operator, which copies nothing.

ONNX Runtime has such an optimisation too, which is wrong for some poolings
(:data:`edgepack.compiler.frontend.onnx.onnxruntime_session.WRONG`): this is done instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["merge_padding"]

#: Operators whose results are never negative.
NEVER_NEGATIVE = {"Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Softplus", "Sqrt"}
#: Operators whose results are not negative where none of their inputs is.
KEEP_SIGN = {"Add", "AveragePool", "Concat", "GlobalAveragePool", "Identity", "Max", "MaxPool", "Mul", "Sum"}
#: How far back the sign of a value is looked for.
DEPTH = 4


@dataclass(frozen=True)
class _Padded:
    """What a Pad pads.

    Attributes:
        source: the value.
        begins, ends: elements before and after it, along each axis but the first two.
        value: of these.
    """

    source: str
    begins: list[int]
    ends: list[int]
    value: float


def merge_padding(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, changed in place: convolutions and poolings pad by themselves what a Pad pads for them,
    where the result is the same. Constants are folded."""
    if not any(node.op_type == "Pad" for node in model.graph.node):
        return model
    Editor(model).run({("", "AveragePool"): _average, ("", "Conv"): _conv, ("", "MaxPool"): _largest})
    read = {name for node in model.graph.node for name in node.input}
    read |= {output.name for output in model.graph.output}
    kept = [node for node in model.graph.node if node.op_type != "Pad" or node.output[0] in read]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def _conv(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    found = _padded(editor, node)
    return None if found is None or found.value else [_merged(editor, node, found)]


def _average(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Zeros that count, as padding that counts; the operator's own must count too, if there is any."""
    found, values = _padded(editor, node), attributes(node)
    if found is None or found.value or not _is_narrow(found, values) or values.get("ceil_mode", 0):
        return None
    if any(values.get("pads", ())) and not values.get("count_include_pad", 0):
        return None
    return [_merged(editor, node, found, count_include_pad=1)]


def _largest(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Padding of a MaxPool is less than any number: where a window reaches into the Pad's, the largest
    element is at least its value."""
    import numpy as np

    found, values = _padded(editor, node), attributes(node)
    if found is None or not _is_narrow(found, values) or values.get("ceil_mode", 0) or len(node.output) > 1:
        return None
    dtype, shape = editor.dtype(found.source), editor.shape(found.source)
    if shape is None:
        return None
    least = np.iinfo(dtype).min if dtype.kind in "iu" else np.finfo(dtype).min
    axes = [_windows(found, values, axis, size) for axis, size in enumerate(shape[2:])]
    everywhere = all(inside.all() for inside, _ in axes)
    if everywhere and (
        found.value <= least or (found.value <= 0 and _is_never_negative(editor, found.source))
    ):
        return [_merged(editor, node, found)]
    if dtype.kind != "f":
        return None
    border = []
    for axis, (_, outside) in enumerate(axes):
        line = np.where(outside, found.value, -np.inf).astype(dtype)
        border.append(editor.const(line.reshape([-1, *[1] * (len(axes) - 1 - axis)])))
    return [editor.op("Max", _merged(editor, node, found), *border)]


def _merged(editor: Editor, node: onnx.NodeProto, found: _Padded, **changed: Any) -> str:
    """The operator with padding of its own."""
    values = {**attributes(node), **changed}
    rank = len(found.begins)
    own = [int(n) for n in values.pop("pads", [0] * 2 * rank)]
    pads = [a + b for a, b in zip(own, (*found.begins, *found.ends), strict=True)]
    values.pop("auto_pad", None)
    return editor.op(node.op_type, found.source, *node.input[1:], **values, pads=pads)


def _padded(editor: Editor, node: onnx.NodeProto) -> _Padded | None:
    """What a Pad by constants pads for an operator, along its windows; None where there is no such Pad."""
    pad, shape = editor.producer(node.input[0]), editor.shape(node.input[0])
    if pad is None or pad.op_type != "Pad" or pad.domain not in {"", "ai.onnx"} or shape is None:
        return None
    if attributes(node).get("auto_pad", "NOTSET") not in {"NOTSET", "VALID"}:
        return None
    said = attributes(pad)
    widths, value, axes = said.get("pads"), said.get("value", 0.0), list(range(len(shape)))
    if len(pad.input) > 1:
        given = [_constant(editor, name) for name in (*pad.input[1:], "", "", "")[:3]]
        if any(one is None and name for one, name in zip(given, pad.input[1:], strict=False)):
            return None
        widths = None if given[0] is None else given[0].reshape(-1).tolist()
        value = 0.0 if given[1] is None else given[1].reshape(-1)[0]
        axes = axes if given[2] is None else [int(axis) % len(shape) for axis in given[2].reshape(-1)]
    if widths is None or said.get("mode", "constant") != "constant" or min(widths, default=0) < 0:
        return None
    begins, ends = [0] * len(shape), [0] * len(shape)
    for i, axis in enumerate(axes):
        begins[axis], ends[axis] = int(widths[i]), int(widths[len(axes) + i])
    if any((*begins[:2], *ends[:2])):
        return None
    return _Padded(pad.input[0], begins[2:], ends[2:], float(value))


def _constant(editor: Editor, name: str) -> NDArray[Any] | None:
    return editor.constant(name) if name else None


def _is_narrow(found: _Padded, values: dict[str, Any]) -> bool:
    """Whether all padding along each axis is less than the window, as a pooling's has to be."""
    rank = len(found.begins)
    own = values.get("pads", [0] * 2 * rank)
    pads = [a + b for a, b in zip(own, (*found.begins, *found.ends), strict=True)]
    return all(pad < size for pad, size in zip(pads, [*values["kernel_shape"]] * 2, strict=True))


def _windows(
    found: _Padded, values: dict[str, Any], axis: int, size: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Of each window along an axis of ``size`` elements: whether it has one of these, and whether it has one
    of the Pad's."""
    import numpy as np

    rank = len(found.begins)
    own = values.get("pads", [0] * 2 * rank)
    begin, end, taps = found.begins[axis], found.ends[axis], values["kernel_shape"][axis]
    stride = values.get("strides", [1] * rank)[axis]
    dilation = values.get("dilations", [1] * rank)[axis]
    whole = size + begin + end + own[axis] + own[rank + axis]
    count = (whole - ((taps - 1) * dilation + 1)) // stride + 1
    at = np.arange(count)[:, None] * stride + np.arange(taps) * dilation - own[axis] - begin
    inside = (at >= 0) & (at < size)
    outside = ~inside & (at >= -begin) & (at < size + end)
    return inside.any(axis=1), outside.any(axis=1)


def _is_never_negative(editor: Editor, name: str, depth: int = DEPTH) -> bool:
    """Whether no element of a value is less than zero."""
    node = editor.producer(name)
    if node is None:
        known = editor.constant(name)
        return known is not None and bool((known >= 0).all())
    if node.op_type in NEVER_NEGATIVE:
        return True
    if node.op_type == "Clip":
        least = attributes(node).get("min")
        if least is None and len(node.input) > 1:
            least = _constant(editor, node.input[1])
        return least is not None and bool(least >= 0)
    return (
        node.op_type in KEEP_SIGN
        and depth > 0
        and all(_is_never_negative(editor, one, depth - 1) for one in node.input)
    )
