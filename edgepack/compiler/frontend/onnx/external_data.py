"""Weights beside a model's file, written and read tensor by tensor: no copy of all of them is made.

``onnx.save_model`` takes the weights out of the model that it is given, for which that would have to be
copied; and memory of a protocol buffer is given back only with all of the message.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["copy_fields", "read_tensor", "save_with_data"]

#: Bytes from which a tensor lies beside the model, and to a multiple of which it is aligned (a page: it can
#: be mapped).
_LEAST, _ALIGNMENT = 1024, 4096


def save_with_data(model: onnx.ModelProto, path: Path, data: str) -> None:
    """Writes the model to ``path`` and its large weights to the file ``data`` beside it; ``model`` stays as
    it is.

    Args:
        model: its weights are loaded.
        path: of the model's file.
        data: name of the file of weights.
    """
    import onnx

    graph = onnx.GraphProto()
    with (path.parent / data).open("wb") as file:
        for tensor in model.graph.initializer:
            content = tensor.raw_data  # a copy at each access
            if len(content) < _LEAST:
                graph.initializer.add().CopyFrom(tensor)
                continue
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            light = graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            light.data_location = onnx.TensorProto.EXTERNAL
            where = {"location": data, "offset": file.tell(), "length": file.write(content)}
            for key, value in where.items():
                light.external_data.add(key=key, value=str(value))
    copy_fields(model.graph, graph, "initializer")
    light_model = onnx.ModelProto(graph=graph)
    copy_fields(model, light_model, "graph")
    path.write_bytes(light_model.SerializeToString())


def read_tensor(tensor: onnx.TensorProto, folder: Path) -> NDArray[np.generic]:
    """A tensor's value, from its file in ``folder`` if it has one; ``tensor`` stays without it."""
    import onnx
    from onnx import numpy_helper

    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        own = onnx.TensorProto()
        own.CopyFrom(tensor)
        tensor = own
    array: NDArray[np.generic] = numpy_helper.to_array(tensor, str(folder))
    return array


def copy_fields(
    source: onnx.ModelProto | onnx.GraphProto, into: onnx.ModelProto | onnx.GraphProto, *but: str
) -> None:
    """Copies what is set in one message into another, but for the fields of these names."""
    for field, value in source.ListFields():
        if field.name in but:
            continue
        if hasattr(value, "extend"):  # protocol buffers' descriptors say it in another way in each version
            getattr(into, field.name).extend(value)
        elif hasattr(value, "CopyFrom"):
            getattr(into, field.name).CopyFrom(value)
        else:
            setattr(into, field.name, value)
