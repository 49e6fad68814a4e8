"""Integer operators as dequantise, compute, quantise (QDQ): the one form that later stages look for.

Here are convolutions, and what all integer operators are written with. Sums of MatMulInteger and ConvInteger
stay integers, which float32 would round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import onnx

__all__ = [
    "Quantised",
    "channels_first",
    "channels_last",
    "conv_integer",
    "one_number",
    "product_scale",
    "qlinear_conv",
]


@dataclass(frozen=True)
class Quantised:
    """A tensor of integers and what they mean: (x - zero point) * scale.

    Attributes:
        x: name of the integers; "" where they are still to be computed.
        scale: name of the scale: of one element, of one for each place of an axis, or of a shape that
            broadcasts to x.
        zero: name of the zero point, of the scale's shape or one number; "" for 0.
    """

    x: str
    scale: str
    zero: str

    @classmethod
    def of(cls, node: onnx.NodeProto, *places: int) -> Quantised:
        """By the places of integers, scale and zero point among the node's inputs."""
        found = [str(node.input[i]) if i < len(node.input) else "" for i in places]
        return cls(*found)

    @classmethod
    def result(cls, node: onnx.NodeProto, scale: int, zero: int) -> Quantised:
        """What the node's output is quantised by: the places of scale and zero point among its inputs."""
        names = [str(node.input[i]) if i < len(node.input) else "" for i in (scale, zero)]
        return cls("", *names)

    def dequantised(self, editor: Editor, *, axis: int = 0, x: str = "") -> str:
        """The floats.

        Args:
            axis: along which a scale of rank 1 lies, if it has more than one element.
            x: integers that were made of ``self.x`` by moving elements, in its place.
        """
        import numpy as np

        shape = editor.shape(self.scale)
        source = x or self.x
        if shape is not None and prod(shape) == 1:
            zero = [one_number(editor, self.zero)] if self.zero else []
            return editor.op("DequantizeLinear", source, one_number(editor, self.scale), *zero)
        if shape is None or len(shape) == 1:
            zero = [self._zero_of_each(editor)] if self.zero else []
            return editor.op("DequantizeLinear", source, self.scale, *zero, axis=axis)
        whole = editor.cast(source, np.dtype(np.int32))
        if self.zero:
            whole = editor.op("Sub", whole, editor.cast(self.zero, np.dtype(np.int32)))
        return editor.op("Mul", editor.cast(whole, editor.dtype(self.scale)), self.scale)

    def _zero_of_each(self, editor: Editor) -> str:
        """The zero point in the scale's shape, which DequantizeLinear wants."""
        import numpy as np

        shapes = editor.shape(self.zero), editor.shape(self.scale)
        if shapes[0] is None or shapes[1] is None or prod(shapes[0]) != 1 or prod(shapes[1]) == 1:
            return self.zero
        value = editor.constant(self.zero)
        if value is not None:
            return editor.const(np.full(shapes[1], value.reshape(())))
        return editor.op("Expand", self.zero, editor.const(np.asarray(shapes[1], np.int64)))

    def quantised(self, editor: Editor, y: str, like: str, *, axis: int = 0) -> str:
        """The integers of the floats ``y``.

        Args:
            like: a value of the type that they have where there is no zero point.
            axis: as above.
        """
        import numpy as np

        zero = self.zero or editor.const(np.zeros(editor.shape(self.scale) or (), editor.dtype(like)))
        if prod(editor.shape(self.scale) or ()) == 1:
            return editor.op("QuantizeLinear", y, one_number(editor, self.scale), one_number(editor, zero))
        return editor.op("QuantizeLinear", y, self.scale, zero, axis=axis)


def one_number(editor: Editor, name: str) -> str:
    """A tensor of one element as one of rank 0."""
    if not editor.shape(name):
        return name
    value = editor.constant(name)
    return editor.reshape(name, []) if value is None else editor.const(value.reshape(()))


def product_scale(editor: Editor, a: str, b: str, factor: float = 1.0) -> str:
    """The scale of a product's sums: that of one element times that of the other operand, in float32."""
    import numpy as np

    first, second = editor.constant(a), editor.constant(b)
    if first is not None and second is not None:
        scale = np.float32(factor) * first.reshape(()) * second
        return editor.const(scale.reshape(()) if scale.size == 1 else scale.reshape(-1))
    scale = editor.op("Mul", one_number(editor, a), b)
    return editor.op("Mul", scale, editor.scalar(factor, editor.dtype(a))) if factor != 1 else scale


def channels_first(editor: Editor, x: str, rank: int) -> str:
    """[batch, ..., channels] as [batch, channels, ...]."""
    return editor.op("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])


def channels_last(editor: Editor, x: str, rank: int) -> str:
    """[batch, channels, ...] as [batch, ..., channels]."""
    return editor.op("Transpose", x, perm=[0, *range(2, rank), 1])


def qlinear_conv(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """QLinearConv(x, w, b) = Quantize(Conv(Dequantize(x), Dequantize(w), Dequantize(b))); the scale of the
    bias is x_scale * w_scale. ONNX Runtime's own has an image with channels last too."""
    values = attributes(node)
    last = bool(values.pop("channels_last", 0))
    x, w, y = Quantised.of(node, 0, 1, 2), Quantised.of(node, 3, 4, 5), Quantised.result(node, 6, 7)
    rank = len(editor.shape(w.x) or editor.shape(x.x) or ())
    image = x.dequantised(editor, x=channels_first(editor, x.x, rank)) if last else x.dequantised(editor)
    inputs = [image, w.dequantised(editor, axis=0)]
    if len(node.input) > 8 and node.input[8]:
        inputs.append(
            Quantised(str(node.input[8]), product_scale(editor, x.scale, w.scale), "").dequantised(editor)
        )
    result = y.quantised(editor, editor.op("Conv", *inputs, **values), x.x)
    return [channels_last(editor, result, rank) if last else result]


def conv_integer(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """ConvInteger(x, w) = int32 Conv of x - x_zero_point and w - w_zero_point, then padded with 0."""
    import numpy as np

    int32 = np.dtype(np.int32)
    zeros = [*node.input[2:], "", ""][:2]
    terms = []
    for index, (name, zero) in enumerate(zip(node.input[:2], zeros, strict=True)):
        value = editor.constant(name)
        zero_value = editor.constant(zero)
        if zero and zero_value is None:
            wide = editor.cast(zero, int32)
            if index == 1 and (editor.shape(zero) or (1,))[0] > 1:
                wide = editor.reshape(wide, [-1, *[1] * (len(editor.shape(name) or ()) - 1)])
            terms.append(editor.op("Sub", editor.cast(name, int32), wide))
            continue
        shift = np.zeros((), np.int32) if zero_value is None else zero_value.astype(np.int32)
        if index == 1 and shift.ndim == 1 and shift.size > 1:
            shift = shift.reshape(-1, *[1] * (len(editor.shape(name) or ()) - 1))
        if value is not None:
            terms.append(editor.const(value.astype(np.int32) - shift))
        else:
            terms.append(editor.op("Sub", editor.cast(name, int32), editor.const(shift)))
    return [editor.op("Conv", *terms, **attributes(node))]
