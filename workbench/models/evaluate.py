"""Runs models two ways on the same inputs: ONNX Runtime, and the imported module by TVM's own pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

__all__ = ["random_inputs", "run_in_float64", "run_onnxruntime", "run_relax"]


def random_inputs(
    model: onnx.ModelProto, seed: int = 0, dims: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Seeded inputs as :func:`edgepack.compiler.frontend.onnx.sampling.random_inputs` draws them."""
    from edgepack.compiler.frontend.onnx.binding import bind
    from edgepack.compiler.frontend.onnx.sampling import random_inputs as draw

    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    bind(bound, shapes={}, dims=dict(dims or {}))
    return draw(bound, seed)


def run_onnxruntime(model: onnx.ModelProto | Path, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Outputs in the order of the graph, without graph optimisations."""
    from edgepack.compiler.frontend.onnx.onnxruntime_session import create_session

    session = create_session(onnx.load(model) if isinstance(model, Path) else model)
    return [np.asarray(array) for array in session.run(None, dict(inputs))]


def run_in_float64(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Outputs of a model of float32 with all weights, inputs and sums in float64; in float32 where ONNX
    Runtime has no float64 kernel for an operator."""
    doubled = onnx.ModelProto()
    doubled.CopyFrom(model)
    for tensor in doubled.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(onnx.numpy_helper.from_array(array.astype(np.float64), tensor.name))
    for value in (*doubled.graph.input, *doubled.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    try:
        return run_onnxruntime(doubled, {k: v.astype(np.float64) for k, v in inputs.items()})
    except Exception:
        return run_onnxruntime(model, inputs)


def run_relax(module: object, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Outputs of ``main`` compiled for this CPU with TVM's default pipeline, run by its virtual machine."""
    import tvm
    from tvm import relax

    executable = tvm.compile(module, target=tvm.target.Target("llvm"))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(np.array(array, order="C")) for array in inputs))
    tensors = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [tensor.numpy() for tensor in tensors]
