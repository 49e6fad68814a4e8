"""Imports an ONNX file as a Relax module with static shapes."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.binding import bind, input_dtype, model_inputs
from edgepack.compiler.frontend.converters import convert
from edgepack.compiler.frontend.model_file import default_opset, read_model
from edgepack.compiler.frontend.normalise import normalise
from edgepack.compiler.frontend.support import check_operators, node_name
from edgepack.errors import EdgepackError, ModelError
from edgepack.plan.types import TensorSpec

if TYPE_CHECKING:
    import onnx
    import tvm

__all__ = ["ImportedModel", "import_model", "load"]


@dataclass(frozen=True)
class ImportedModel:
    """A model as the graph room takes it.

    Attributes:
        module: one Relax function ``main``; its parameters are ``inputs`` in order, its result one tensor or
            a tuple of tensors, ``outputs`` in order. Weights are constants inside. Layout NCHW as in ONNX.
        inputs, outputs: names as in the file (not necessarily identifiers), static shapes.
        operators: how often each ONNX operator occurs, after normalisation.
    """

    module: tvm.IRModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    operators: dict[str, int]
    nodes: tuple[str, ...] = ()


def load(path: Path, *, shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]) -> ImportedModel:
    """Reads, checks, binds, normalises and imports the model in ``path``.

    Args:
        path: an ``.onnx`` file; external data lies beside it.
        shapes: whole shapes of inputs, by input name (``--shape``).
        dims: sizes of named dimensions (``--dim``).

    Raises:
        ModelError: the file cannot be read, or the model not be compiled.
        ConfigError: ``shapes`` or ``dims`` do not fit the model.
    """
    model = read_model(path)
    bind(model, shapes=shapes, dims=dims)
    return import_model(model)


def import_model(model: onnx.ModelProto) -> ImportedModel:
    """Imports a model whose inputs all have static shapes (see :func:`load`)."""
    if not model.graph.output:
        raise ModelError(
            "The model's graph has no outputs: there is nothing to compute.", hint="Export it again."
        )
    inputs = model_inputs(model)
    for value in model.graph.output:
        if value.type.WhichOneof("value") is not None:
            input_dtype(value)
    normal = normalise(model)
    check_operators(normal)
    _check_static(normal)
    module, nodes = _convert(normal)
    specs = tuple(
        TensorSpec(i.name, i.dtype, tuple(d for d in i.shape or () if isinstance(d, int))) for i in inputs
    )
    outputs = _output_specs(module, [value.name for value in normal.graph.output])
    operators = dict(sorted(Counter(n.op_type for n in normal.graph.node).items()))
    return ImportedModel(module, specs, outputs, operators, nodes)


def _check_static(model: onnx.ModelProto) -> None:
    """Refuses the first node that has an output whose shape cannot be known before run time."""
    values = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    for index, node in enumerate(model.graph.node):
        for name in node.output:
            tensor = values[name].type.tensor_type if name in values else None
            if tensor is None or not tensor.HasField("shape"):
                continue
            if any(dim.WhichOneof("value") != "dim_value" for dim in tensor.shape.dim):
                raise ModelError(
                    f"The shape of {name!r} depends on values that are known at run time only "
                    f"({node.op_type}, {node_name(node, index)}).",
                    hint="Export the model with static shapes, or make what decides the shape a constant.",
                )


def _convert(model: onnx.ModelProto) -> tuple[tvm.IRModule, tuple[str, ...]]:
    """The Relax module, and the names of the nodes that its variables ``n<index>_`` stand for."""
    from tvm import relax
    from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

    names: list[str] = []

    class Importer(ONNXGraphImporter):  # type: ignore[misc]
        """Remembers which node it is at, for the error message; asks our own converters first."""

        node = ""

        def _convert_operator(self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> Any:
            name = attrs["tvm_custom"]["name"]
            self.node = f"{op_name}, {name or 'a node without name'}"
            value = convert(self.bb, op_name, inputs, attrs, opset)
            if value is None:
                value = super()._convert_operator(op_name, inputs, attrs, opset)
            if isinstance(value, relax.Call | relax.Var) and name:
                value = self.bb.emit(value, name_hint=f"n{len(names)}_")
                names.append(name)
            return value

    importer = Importer({}, "float32")
    try:
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importer.from_onnx(model.graph, default_opset(model)), tuple(names)
    except EdgepackError:
        raise
    except Exception as error:  # the importer raises what its converters happen to raise
        raise ModelError(
            f"TVM cannot import a node of the model ({importer.node}).",
            hint="Replace the operator before export, or report the model.",
            detail=f"{type(error).__name__}: {str(error).strip()}",
        ) from error


def _output_specs(module: tvm.IRModule, names: Sequence[str]) -> tuple[TensorSpec, ...]:
    from tvm import relax

    result = module["main"].ret_ty
    types = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    specs = []
    for name, ty in zip(names, types, strict=True):
        if not isinstance(ty, relax.TensorType) or ty.shape is None:
            raise ModelError(f"Output {name!r} is not a tensor of known shape.")
        try:
            shape = tuple(int(size) for size in ty.shape.values)
        except (TypeError, AttributeError) as error:
            raise ModelError(
                f"The shape of output {name!r} is only known at run time ({ty.shape})."
            ) from error
        specs.append(TensorSpec(name, str(ty.dtype), shape))
    return tuple(specs)
