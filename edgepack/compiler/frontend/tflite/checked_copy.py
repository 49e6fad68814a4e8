"""The file that LiteRT is given: written of what was read and checked, and never the user's own.

No two offsets of it are the same, and nothing is in it that nobody looked at. Left out is what a run does not
need: metadata, signatures, options of custom operators, numbers of types that edgepack does not read, what is
said of the range of floats.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.model import LEFT_OUT, Quantisation
from edgepack.compiler.frontend.tflite.schema import schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgepack.compiler.frontend.tflite.model import Model, Subgraph

__all__ = ["checked_copy"]

#: What the numbers of a constant begin at a multiple of, in bytes.
_ALIGNED = 64

#: Places of the data, the weights and the bias of layers.
_BIASED = {
    "CONV_2D": (0, 1, 2),
    "DEPTHWISE_CONV_2D": (0, 1, 2),
    "FULLY_CONNECTED": (0, 1, 2),
    "TRANSPOSE_CONV": (2, 1, 3),
}

#: An offset behind all tables, as long in the file as any other.
_LATER = 1 << 40


def checked_copy(model: Model) -> bytes:
    """A TFLite file of a model that was read of one. Numbers lie behind its tables, which stay small so.

    Args:
        model: as :func:`~edgepack.compiler.frontend.tflite.model_file.read_model` returned it.
    """
    made, numbers = copy(model.tables), list[Any]()
    places: dict[int, int] = {}
    made.metadata = made.metadataBuffer = made.signatureDefs = None
    made.subgraphs = []
    for own, given in zip(model.subgraphs, model.tables.subgraphs, strict=True):
        graph = copy(given)
        graph.operators = [_without_unread_options(one) for one in given.operators or []]
        graph.tensors = [copy(tensor) for tensor in given.tensors or []]
        for tensor, read in zip(graph.tensors, own.tensors, strict=True):
            buffer, tensor.externalBuffer = tensor.buffer, 0
            if not read.in_blocks:
                tensor.quantization = _quantisation(read.quantisation)
            if read.data is None or not read.data.size:
                tensor.buffer = 0
                continue
            if buffer not in places:
                places[buffer] = len(numbers) + 1
                numbers.append(model.tables.buffers[buffer].data)
            tensor.buffer = places[buffer]
        _say_what_biases_mean(graph.tensors, own)
        made.subgraphs.append(graph)
    made.buffers = [schema().BufferT(), *(_buffer(_LATER, one.size) for one in numbers)]
    end, starts = len(_packed(made)), []
    for one in numbers:
        starts.append(-(-end // _ALIGNED) * _ALIGNED)
        end = starts[-1] + one.size
    made.buffers[1:] = [_buffer(start, one.size) for start, one in zip(starts, numbers, strict=True)]
    return _joined(_packed(made), starts, numbers)


def _say_what_biases_mean(tensors: list[Any], read: Subgraph) -> None:
    """The scale of biases of which the file says none, which is that of the products that they are added to:
    without it the interpreter refuses some layers, though it uses it for nothing else."""
    import numpy as np

    for operator in read.operators:
        places = [
            operator.inputs[place] for place in _BIASED.get(operator.kind, ()) if place < len(operator.inputs)
        ]
        if len(places) < 3 or LEFT_OUT in places:
            continue
        data, weights, bias = (read.tensors[index] for index in places)
        x, w = data.quantisation, weights.quantisation
        if bias.quantisation or bias.dtype != "int32" or x is None or w is None or not w.single:
            continue
        scale = np.asarray(x.scale[:1] * w.scale, np.float32)
        tensors[bias.index].quantization = _quantisation(Quantisation(scale, np.zeros(1, np.int64)))


def _quantisation(read: Quantisation | None) -> Any:
    """As it was read: the interpreter refuses axes that a tensor does not have, and missing zero points."""
    if read is None:
        return None
    made = schema().QuantizationParametersT()
    made.scale, made.zeroPoint, made.quantizedDimension = read.scale, read.zero, read.axis
    return made


def _without_unread_options(operator: Any) -> Any:
    """Without the options of custom operators, and with none of a composite, whose parts alone are run."""
    made = copy(operator)
    made.customOptions = None
    made.largeCustomOptionsOffset = made.largeCustomOptionsSize = 0
    if getattr(made.builtinOptions2, "compositeAttributes", None) is not None:
        import numpy as np
        from flatbuffers import flexbuffers

        made.builtinOptions2 = copy(made.builtinOptions2)
        made.builtinOptions2.compositeAttributes = np.frombuffer(flexbuffers.Dumps({}), np.uint8)
    return made


def _buffer(offset: int, size: int) -> Any:
    made = schema().BufferT()
    made.offset, made.size = offset, size
    return made


def _packed(model: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _joined(tables: bytes, starts: Sequence[int], numbers: Sequence[Any]) -> bytes:
    made, length = [tables], len(tables)
    for start, one in zip(starts, numbers, strict=True):
        made += [bytes(start - length), one.tobytes()]
        length = start + one.size
    return b"".join(made)
