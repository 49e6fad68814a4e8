"""Inference engines behind one interface, each in a process of its own: ``python benchmarks/engines.py
ENGINE ...``.

The process prints "ready", then for each line "N" on stdin makes two runs that do not count and N timed
ones, and prints their times in milliseconds as a JSON list.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

Inputs = dict[str, np.ndarray]
Run = Callable[[], object]


def onnxruntime_engine(model: Path, inputs: Inputs, threads: int) -> Run:
    """ONNX Runtime's CPU provider with all its optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def tvm_engine(model: Path, inputs: Inputs, threads: int) -> Run:
    """TVM's default CPU pipeline: what ``tvm.compile`` makes of the imported model for this CPU."""
    os.environ["TVM_NUM_THREADS"] = str(threads)
    import tvm
    from tvm import relax

    from edgepack.codegen.cpu import llvm_target
    from edgepack.config.device import load_device
    from edgepack.frontend.onnx import load

    shapes = {name: array.shape for name, array in inputs.items()}
    imported = load(model, shapes=shapes, dims={})
    executable = tvm.compile(imported.module, target=llvm_target(load_device("host").cpu_target()))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    arguments = [tvm.runtime.tensor(np.ascontiguousarray(inputs[spec.name])) for spec in imported.inputs]
    main = machine["main"]
    return lambda: main(*arguments)


ENGINES = {"onnxruntime": onnxruntime_engine, "tvm": tvm_engine}


def main(engine: str, model: str, inputs: str, threads: str) -> None:
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with np.load(inputs) as arrays:
        run = ENGINES[engine](Path(model), dict(arrays), int(threads))
    run()
    print("ready", file=output, flush=True)
    for line in sys.stdin:
        for _ in range(2):
            run()
        times = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            run()
            times.append((time.perf_counter() - begin) * 1e3)
        print(json.dumps(times), file=output, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
