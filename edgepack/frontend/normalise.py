"""Brings a bound model into the form that TVM's importer reads well: constants folded, standard operators
only.

ONNX Runtime's basic optimiser does most of it (offline, about 0.4 s): it folds constants, shape arithmetic
and batch normalisation, and removes what does nothing. What it leaves, ``rewrites`` decomposes.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.errors import ModelError
from edgepack.frontend import rewrites
from edgepack.frontend.half import float_types, restore_float16
from edgepack.frontend.support import check_known, has_function_body, is_importable

if TYPE_CHECKING:
    import onnx

__all__ = ["as_source", "infer_shapes", "normalise", "optimise"]

#: Optimisers of ONNX Runtime's basic level that hinder fusion here: MatMul and Add of rank 3 would become a
#: Gemm of rank 2 between two reshapes, which keep the epilogue (GELU, residual) apart from the product.
DISABLED = ("MatMulAddFusion",)

#: Elements of the largest constant whose value can decide a shape.
INFERENCE_LIMIT = 1024

#: Models above this size, in bytes, travel through files: protobuf messages end at 2 GiB.
SERIALISED_LIMIT = 1 << 30


def normalise(model: onnx.ModelProto) -> onnx.ModelProto:
    """An equivalent model for the importer; inputs and outputs keep their names, order and types.

    Args:
        model: all input shapes static (see :func:`edgepack.frontend.binding.bind`), weights loaded.

    Raises:
        ModelError: ONNX Runtime refuses the model.
    """
    model = _inline_functions(model)
    check_known(model, rewrites.REWRITES)
    _freeze_initializers(model)
    types = float_types(model)
    model = optimise(model)
    if any(node.op_type in ("Shape", "Constant") for node in model.graph.node):
        model = optimise(model)  # functions are inlined after constants are folded: fold theirs too
    restore_float16(model, types)
    return _with_shapes(rewrites.apply(model))


def optimise(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model after ONNX Runtime's basic optimiser: standard operators, constants folded."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")
    with tempfile.TemporaryDirectory(prefix="edgepack-") as folder, as_source(model) as source:
        optimised = Path(folder) / "optimised.onnx"
        options.optimized_model_filepath = str(optimised)
        if isinstance(source, str):
            key = "session.optimized_model_external_initializers_file_name"
            options.add_session_config_entry(key, "optimised.data")
        try:
            onnxruntime.InferenceSession(
                source, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(DISABLED)
            )
        except Exception as error:  # onnxruntime's errors share no base class of their own
            raise _refused(error) from error
        return onnx.load(str(optimised))


@contextlib.contextmanager
def as_source(model: onnx.ModelProto) -> Iterator[bytes | str]:
    """What to hand to onnxruntime.InferenceSession: bytes, or a file's path if they would be too many."""
    import onnx

    if model.ByteSize() <= SERIALISED_LIMIT:
        yield model.SerializeToString()
        return
    with tempfile.TemporaryDirectory(prefix="edgepack-") as folder:
        path = str(Path(folder) / "model.onnx")
        copy = onnx.ModelProto()
        copy.CopyFrom(model)  # onnx.save_model moves the weights out of the model that it is given
        onnx.save_model(copy, path, save_as_external_data=True, location="model.data")
        del copy
        yield path


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with the shapes and types of all intermediate values, as far as they can be inferred.

    In the copy large initializers are inputs: inference needs their shapes, and copying them takes seconds.
    """
    import onnx

    copy = onnx.ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import)
    copy.functions.extend(model.functions)
    graph = copy.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.value_info.extend(model.graph.value_info)
    graph.output.extend(model.graph.output)
    large = [tensor for tensor in model.graph.initializer if prod(tensor.dims) > INFERENCE_LIMIT]
    names = {tensor.name for tensor in large}
    graph.initializer.extend(t for t in model.graph.initializer if t.name not in names)
    graph.input.extend(value for value in model.graph.input if value.name not in names)
    for tensor in large:
        graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return onnx.shape_inference.infer_shapes(copy, data_prop=True)


def _with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, its values and outputs annotated, in place."""
    inferred = infer_shapes(model).graph
    del model.graph.value_info[:], model.graph.output[:]
    model.graph.value_info.extend(inferred.value_info)
    model.graph.output.extend(inferred.output)
    return model


def _inline_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Inlines the model's own functions, and standard operators that the importer lacks but ONNX defines."""
    from onnx import inliner

    if model.functions:
        model = inliner.inline_local_functions(model, convert_version=True)
    lacking = {(node.domain, node.op_type) for node in model.graph.node if not is_importable(node)}
    bodies = sorted(item for item in lacking if has_function_body(*item))
    if bodies:
        model = inliner.inline_selected_functions(model, bodies, inline_schema_functions=True)
    return model


def _freeze_initializers(model: onnx.ModelProto) -> None:
    """Makes initializers that are listed as inputs (all are, up to IR version 3) constants, in place."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)


def _refused(error: Exception) -> ModelError:
    text = str(error).split(" : ", 2)[-1].strip()
    return ModelError(
        "ONNX Runtime refuses the model.",
        hint="Check the model with onnx.checker.check_model and run it with onnxruntime.",
        detail=text,
    )
