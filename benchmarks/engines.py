"""Inference engines behind one interface, each in a process of its own:
``python benchmarks/engines.py ENGINE MODEL INPUTS.npz OUTPUTS.npz THREADS CPUS``.

The process runs on the given CPUs only. It writes the outputs of one run to OUTPUTS.npz and prints a line of
JSON, its version and the time of a run. Then for each line "WARMUP RUNS" on stdin it makes the runs and
prints the times of those after the warm-up in milliseconds as a JSON list. All engines compute in float32:
where an engine would use a shorter type on its own, that is switched off.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

Inputs = dict[str, np.ndarray]
Run = Callable[[], Sequence[np.ndarray]]


def onnxruntime_engine(model: Path, inputs: Inputs, threads: int) -> Run:
    """ONNX Runtime's CPU provider with all its optimisations, inputs and outputs bound once."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    bound = session.io_binding()
    for name, array in inputs.items():
        bound.bind_cpu_input(name, array)
    for output in session.get_outputs():
        bound.bind_output(output.name, "cpu")

    def run() -> Sequence[np.ndarray]:
        session.run_with_iobinding(bound)
        return bound.get_outputs()

    return lambda: [value.numpy() for value in run()]


def openvino_engine(model: Path, inputs: Inputs, threads: int) -> Run:
    """OpenVINO's CPU plugin, one stream, hints for latency; bfloat16 (AMX) is off."""
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(str(model)),
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(threads),
            "INFERENCE_PRECISION_HINT": "f32",
        },
    )
    request = compiled.create_infer_request()
    for port in compiled.inputs:
        (name,) = port.get_names() & set(inputs)
        request.set_tensor(port, openvino.Tensor(inputs[name]))
    outputs = [request.get_tensor(port).data for port in compiled.outputs]

    def run() -> Sequence[np.ndarray]:
        request.infer()
        return outputs

    return run


def ncnn_engine(model: Path, inputs: Inputs, threads: int) -> Run:
    """ncnn; pnnx converts the model. float16, bfloat16 and int8 are off, in the file and at run time."""
    import ncnn

    param, weights = _pnnx(model)
    net = ncnn.Net()
    for name in dir(net.opt):
        if name.startswith(("use_fp16", "use_bf16", "use_int8")):
            setattr(net.opt, name, False)
    net.opt.use_vulkan_compute = False
    net.opt.num_threads = threads
    if net.load_param(str(param)) or net.load_model(str(weights)) or not net.input_names():
        raise RuntimeError("ncnn has no layer for one of the operators")
    # pnnx takes the batch away; ids are 32 bit; a mask is a float, see _pnnx.
    arrays = []
    for name, array in inputs.items():
        kind = np.int32 if array.dtype == np.int64 and "mask" not in name else np.float32
        arrays.append(np.ascontiguousarray(array[0].astype(kind)))
    mats = [ncnn.Mat(array) for array in arrays]  # which only borrow

    def run() -> Sequence[np.ndarray]:
        with net.create_extractor() as extractor:
            for name, mat, _ in zip(net.input_names(), mats, arrays, strict=True):
                extractor.input(name, mat)
            return [np.array(extractor.extract(name)[1]) for name in net.output_names()]

    return run


def _pnnx(model: Path) -> tuple[Path, Path]:
    """ncnn's two files, made once, from the model with what pnnx's ONNX import stumbles over rewritten."""
    import onnx
    from onnx import TensorProto, shape_inference, version_converter

    folder = model.with_suffix(".ncnn")
    files = folder / "m.ncnn.param", folder / "m.ncnn.bin"
    if all(file.is_file() for file in files):
        return files
    folder.mkdir(exist_ok=True)
    proto = onnx.load(str(model))
    constants = {tensor.name for tensor in proto.graph.initializer}
    kept = [value for value in proto.graph.input if value.name not in constants]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    proto.ir_version = 8
    if proto.opset_import[0].version < 13:
        proto = version_converter.convert_version(proto, 17)
    for value in proto.graph.input:
        if "mask" in value.name:  # ncnn has no cast: the mask comes as a float
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in shape_inference.infer_shapes(proto).graph.value_info
    }
    for node in proto.graph.node:  # a window over the whole image, which may stick out at its end
        if node.op_type == "AveragePool" and shapes.get(node.output[0], [])[2:] == [1, 1]:
            kernel = next(a.ints for a in node.attribute if a.name == "kernel_shape")
            if all(k >= size for k, size in zip(kernel, shapes[node.input[0]][2:], strict=True)):
                node.op_type = "GlobalAveragePool"
                del node.attribute[:]
    onnx.save(proto, str(folder / "m.onnx"))
    program = Path(sys.executable).with_name("pnnx")
    done = subprocess.run(
        [str(program), "m.onnx", "fp16=0"], cwd=folder, check=False, capture_output=True, text=True
    )
    if done.returncode != 0 or not all(file.is_file() for file in files):
        raise RuntimeError(f"pnnx cannot convert it: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
    return files


def torch_engine(model: Path, inputs: Inputs, threads: int) -> Run:
    """PyTorch, eager: each node is a call of ``torch`` or ``torch.nn.functional``, under inference_mode."""
    import torch
    from onnx_torch import Interpreter

    torch.set_num_threads(threads)
    interpreter = Interpreter(model)
    arguments = {name: torch.from_numpy(array) for name, array in inputs.items()}

    def run() -> Sequence[np.ndarray]:
        with torch.inference_mode():
            return [tensor.numpy() for tensor in interpreter(arguments)]

    return run


def tvm_engine(model: Path, inputs: Inputs, threads: int) -> Run:
    """TVM's default CPU pipeline: what ``tvm.compile`` makes of the imported model for this CPU."""
    os.environ["TVM_NUM_THREADS"] = str(threads)
    import tvm
    from tvm import relax

    from edgepack.compiler.frontend.onnx import import_file
    from edgepack.compiler.tvm_target import llvm_target
    from edgepack.config.device import load_device

    shapes = {name: array.shape for name, array in inputs.items()}
    imported = import_file(model, shapes=shapes, dims={})
    library = model.with_suffix(".tvm.so")
    if not library.is_file():  # the same for any number of threads
        target = llvm_target(load_device("host").cpu_target())
        tvm.compile(imported.module, target=target).export_library(str(library))
    executable = tvm.runtime.load_module(str(library))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    arguments = [tvm.runtime.tensor(inputs[spec.name]) for spec in imported.signature.inputs]
    main = machine["main"]

    def run() -> Sequence[np.ndarray]:
        result = main(*arguments)
        tensors = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        return [tensor.numpy() for tensor in tensors]

    return run


#: Name to (what makes it ready, the package that holds it).
ENGINES: dict[str, tuple[Callable[[Path, Inputs, int], Run], str]] = {
    "onnxruntime": (onnxruntime_engine, "onnxruntime"),
    "openvino": (openvino_engine, "openvino"),
    "ncnn": (ncnn_engine, "ncnn"),
    "torch": (torch_engine, "torch"),
    "tvm": (tvm_engine, "apache-tvm"),
}

#: Those that compute a quantised ONNX model with integers.
QUANTISED_ENGINES = ("onnxruntime", "openvino")


def _timed(run: Run) -> float:
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1e3


def main(engine: str, model: str, inputs: str, outputs: str, threads: str, cpus: str) -> None:
    os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(",")])
    os.environ["OMP_NUM_THREADS"] = threads
    printed = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # engines print too
    make, package = ENGINES[engine]
    with np.load(inputs) as arrays:
        values = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run = make(Path(model), values, int(threads))
        begin = time.perf_counter()
        first = run()
        run_ms = (time.perf_counter() - begin) * 1e3
        np.savez(outputs, *[np.asarray(array) for array in first])
        if run_ms < 2000:  # the first run is not typical; a slow engine's is typical enough
            run_ms = _timed(run)
        ready = {"version": importlib.metadata.version(package), "run_ms": run_ms}
        print(json.dumps(ready), file=printed, flush=True)
        for line in sys.stdin:
            warmup, runs = (int(word) for word in line.split())
            for _ in range(warmup):
                run()
            print(json.dumps([_timed(run) for _ in range(runs)]), file=printed, flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main(*sys.argv[1:])
