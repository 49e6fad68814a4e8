"""What is in an ONNX file, for ``edgepack inspect MODEL``. Reads the file only: no TVM, no ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.binding import dimension, input_dtype, model_inputs, unbound_dims
from edgepack.compiler.frontend.onnx.classical.texts import REPLACED
from edgepack.compiler.frontend.onnx.model_file import default_opset, external_files, read_model
from edgepack.compiler.frontend.onnx.rewrites import REWRITES
from edgepack.compiler.frontend.onnx.shapes import all_nodes, inner_graphs
from edgepack.compiler.frontend.onnx.signature_quantisation import signature_quantisation
from edgepack.compiler.frontend.onnx.support import unsupported_nodes
from edgepack.errors import ModelError
from edgepack.plan.model_summary import Dim, ModelSummary, TensorSummary

if TYPE_CHECKING:
    import onnx

__all__ = ["summarise"]


def summarise(path: Path) -> ModelSummary:
    """Summary of the model in ``path``.

    Raises:
        ModelError: the file is no ONNX model, or its external data is missing.
    """
    model = read_model(path, weights=False)
    graph, meanings = model.graph, signature_quantisation(model)
    operators = Counter(node.op_type for node in all_nodes(graph))
    return ModelSummary(
        name=graph.name,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        ir_version=model.ir_version,
        opset=default_opset(model),
        opsets={opset.domain: opset.version for opset in model.opset_import},
        inputs=tuple(
            TensorSummary(i.name, i.dtype, i.shape, meanings.get(i.name)) for i in model_inputs(model)
        ),
        outputs=tuple(replace(_output(one), quantisation=meanings.get(one.name)) for one in graph.output),
        nodes=sum(operators.values()),
        operators=dict(operators.most_common()),
        params=sum(prod(tensor.dims) for tensor in initializers(graph) if tensor.dims),
        params_bytes=sum(_nbytes(tensor) for tensor in initializers(graph)),
        denormals=sum(_denormals(tensor, path.parent) for tensor in initializers(graph)),
        unbound={name: _open_dims(shape) for name, shape in unbound_dims(model).items()},
        unsupported=unsupported_nodes(model, {*REWRITES, *REPLACED}),
        external=tuple(file.name for file in external_files(path)),
    )


def initializers(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The tensors of a graph and of the graphs in it (branches and bodies), Constant nodes' too."""
    yield from graph.initializer
    for node in graph.node:
        if node.op_type == "Constant":
            yield from (attribute.t for attribute in node.attribute if attribute.name == "value")
        for inner in inner_graphs(node):
            yield from initializers(inner)


def _denormals(tensor: onnx.TensorProto, folder: Path) -> int:
    """How many of a tensor's numbers are denormal, wherever its data lie."""
    import numpy as np
    import onnx

    from edgepack.compiler.denormals import denormals

    kinds: dict[int, np.dtype[Any]] = {
        onnx.TensorProto.FLOAT: np.dtype("<f4"),
        onnx.TensorProto.DOUBLE: np.dtype("<f8"),
    }
    kind = kinds.get(tensor.data_type)
    if kind is None or not all(tensor.dims):
        return 0
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return denormals(onnx.numpy_helper.to_array(tensor))
    place = {entry.key: entry.value for entry in tensor.external_data}
    file, offset = folder / place["location"], int(place.get("offset", 0))
    data = np.fromfile(file, kind, count=int(prod(tensor.dims)), offset=offset)
    return denormals(data)


def _output(value: onnx.ValueInfoProto) -> TensorSummary:
    tensor = value.type.tensor_type
    try:
        dtype = input_dtype(value)
    except ModelError:
        dtype = "unknown"
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(dimension(dim) for dim in tensor.shape.dim)
    return TensorSummary(value.name, dtype, shape)


def _open_dims(shape: tuple[Dim, ...] | None) -> list[str]:
    if shape is None:
        return ["rank"]
    return [dim or f"dimension {i}" for i, dim in enumerate(shape) if not isinstance(dim, int)]


def _nbytes(tensor: onnx.TensorProto) -> int:
    import onnx

    try:
        itemsize = int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except (KeyError, TypeError):
        return 0
    return itemsize * int(prod(tensor.dims))
