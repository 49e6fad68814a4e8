"""What a call from Python costs over the native one: ``python benchmarks/python_calls.py``.

Tiny models, built here, whose kernels take less than a call of them: the bundle's own program (``edgepack
bench``), ``Session.run``, ``Session.run_into`` into arrays that are there, and ONNX Runtime's ``run`` and
``run_with_iobinding``, one thread each, with the same inputs, in turns of short batches in one process.
Printed are the median and the least batch, in microseconds a call: on a machine that does other work too, the
least is nearer to what a call takes.
"""

from __future__ import annotations

import argparse
import ctypes
import operator
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import table

import edgepack
from edgepack.abi.structs import ConstBuffer

Call = Callable[[], object]


def models() -> dict[str, onnx.ModelProto]:
    """By what they are."""
    random = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    relu = _model([helper.make_node("Relu", ["x"], ["y"])], {"x": [4]}, {"y": [4]}, {})
    layers = {"a": weights(32, 64), "b": weights(64), "c": weights(64, 10), "d": weights(10)}
    nodes = [
        helper.make_node("Gemm", ["x", "a", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["g"]),
        helper.make_node("Gemm", ["g", "c", "d"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"]),
    ]
    perceptron = _model(nodes, {"x": [1, 32]}, {"y": [1, 10]}, layers)
    nodes = [
        helper.make_node("Add", ["x", "y"], ["s"]),
        helper.make_node("Mul", ["s", "z"], ["p"]),
        helper.make_node("Sub", ["x", "z"], ["q"]),
    ]
    many = _model(nodes, {key: [8, 8] for key in "xyz"}, {key: [8, 8] for key in "pq"}, {})
    return {
        "one Relu of 4 numbers": relu,
        "32-64-10 perceptron": perceptron,
        "3 inputs, 2 outputs of 64 numbers": many,
    }


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, list[int]],
    outputs: dict[str, list[int]],
    constants: dict[str, np.ndarray],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _onnxruntime(path: Path, inputs: dict[str, np.ndarray]) -> tuple[Call, Call]:
    """Its run, and one with inputs and outputs that are bound once."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for spec, array in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        binding.bind_ortvalue_output(spec.name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    return lambda: session.run(None, inputs), lambda: session.run_with_iobinding(binding)


def _in_turns(calls: dict[str, Call], rounds: int, batch: int) -> dict[str, list[float]]:
    """Microseconds a call, of each batch."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(batch):
                call()
            if turn:  # the first one warms up
                times[name].append((time.perf_counter() - begin) / batch * 1e6)
    return times


def measure(model: onnx.ModelProto, rounds: int, batch: int, folder: Path) -> dict[str, list[float]]:
    """Microseconds a call: way, then batches."""
    path = folder / "tiny.onnx"
    onnx.save(model, path)
    bundle = edgepack.pack(path, "host", folder / "tiny", force=True)
    with bundle.load(threads=1) as session:
        random = np.random.default_rng(1)
        inputs = {one.name: random.standard_normal(one.shape, np.float32) for one in session.inputs}
        outputs = {one.name: np.empty(one.shape, np.float32) for one in session.outputs}
        plain, bound = _onnxruntime(path, inputs)
        calls: dict[str, Call] = {
            "run": lambda: session.run(inputs),
            "run_into": lambda: session.run_into(inputs, outputs),
            "ONNX Runtime, run": plain,
            "ONNX Runtime, IOBinding": bound,
        }
        times = _in_turns(calls, rounds, batch)
    native = bundle.bench(runs=rounds * batch, warmup=100, threads=1)
    return {"native": [one * 1e3 for one in native.runs_ms], **times}


def parts() -> dict[str, Call]:
    """Ways to do what a call is made of; a function of C that returns at once stands for the run."""
    array = np.ones((4, 8), np.float32)
    function = ctypes.CDLL(None).memcmp
    place = ctypes.cast(function, ctypes.c_void_p).value
    types = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    releasing, holding = ctypes.CFUNCTYPE(*types)(place), ctypes.PYFUNCTYPE(*types)(place)
    pointer = ctypes.POINTER(ConstBuffer)
    typed = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, ctypes.c_size_t)(place)
    buffers = (ConstBuffer * 1)()
    words = (ctypes.c_size_t * 2)()
    kept = (ctypes.c_void_p(place), ctypes.c_void_p(place), ctypes.c_size_t(0))
    changed, users, key = threading.Condition(), {}, object()

    def condition() -> None:
        with changed:
            pass
        with changed:
            changed.notify_all()

    def claim() -> None:
        user = [0]
        if users.setdefault(key, user) is user:
            del users[key]

    return {
        "call, pointers to structs": lambda: typed(buffers, buffers, 0),
        "call, integers": lambda: releasing(place, place, 0),
        "call, kept objects of ctypes": lambda: releasing(*kept),
        "the same, Python's lock kept": lambda: holding(*kept),
        "address, array.ctypes.data": lambda: array.ctypes.data,
        "address, __array_interface__": lambda: array.__array_interface__["data"][0],
        "address, c_char.from_buffer": lambda: ctypes.addressof(ctypes.c_char.from_buffer(array)),
        "address, the array's object read at its offset": lambda: (
            ctypes.c_void_p.from_address(id(array) + object.__basicsize__).value
        ),
        "struct made for a call": lambda: (ConstBuffer * 1)(ConstBuffer(place, 4)),
        "field of a struct set": lambda: setattr(buffers[0], "data", 4),
        "element of an array set": lambda: operator.setitem(words, 0, 4),
        "a session claimed under a lock": condition,
        "a session claimed in a dict": claim,
        "an empty call of Python": lambda: None,
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--batch", type=int, default=100, help="calls that are timed at once")
    parser.add_argument("--parts", action="store_true", help="what a call is made of, instead")
    arguments = parser.parse_args()
    if arguments.parts:
        timed = _in_turns(parts(), arguments.rounds, arguments.batch)
        rows = [[name, f"{min(one):.2f}"] for name, one in timed.items()]
        print(table(["us, least", ""], rows))
        return
    rows, header = [], [""]
    for name, model in models().items():
        with tempfile.TemporaryDirectory() as folder:
            times = measure(model, arguments.rounds, arguments.batch, Path(folder))
        header = ["us a call, median (least)", *times]
        rows.append([name, *(f"{statistics.median(one):.2f} ({min(one):.2f})" for one in times.values())])
    print(table(header, rows))


if __name__ == "__main__":
    main()
