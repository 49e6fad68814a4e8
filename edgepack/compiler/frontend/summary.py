"""What is in an ONNX file, for ``edgepack inspect MODEL``. Reads the file only: no TVM, no ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.binding import dimension, input_dtype, model_inputs, unbound_dims
from edgepack.compiler.frontend.model_file import default_opset, external_files, read_model
from edgepack.compiler.frontend.rewrites import REWRITES
from edgepack.compiler.frontend.support import unsupported_nodes
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
    graph = model.graph
    return ModelSummary(
        name=graph.name,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        ir_version=model.ir_version,
        opset=default_opset(model),
        opsets={opset.domain: opset.version for opset in model.opset_import},
        inputs=tuple(TensorSummary(i.name, i.dtype, i.shape) for i in model_inputs(model)),
        outputs=tuple(_output(value) for value in graph.output),
        nodes=len(graph.node),
        operators=dict(Counter(node.op_type for node in graph.node).most_common()),
        params=sum(prod(tensor.dims) for tensor in graph.initializer if tensor.dims),
        params_bytes=sum(_nbytes(tensor) for tensor in graph.initializer),
        unbound={name: _open_dims(shape) for name, shape in unbound_dims(model).items()},
        unsupported=unsupported_nodes(model, REWRITES),
        external=tuple(file.name for file in external_files(path)),
    )


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
