"""What lies in the caller's memory is aligned to an element: no kernel reads several of its elements as one
aligned word, as it does in the arena."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import tvm_ffi
from tvm.ir import Call, TensorLoad
from tvm.tirx import Buffer, DeclBuffer, PrimFunc
from tvm.tirx.stmt import Bind

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.config.device import load_device
from edgepack.plan.types import Step
from workbench.compiled import plan_of
from workbench.models.builder import Graph

#: And the type of bytes that they multiply as they are.
DEVICES = {
    "raspberrypi2": "int8",
    "raspberrypi5": "int8",
    "cortex-m4": "int8",
    "esp32-c3": "int8",
    "cortex-m55": "int8",
    "linux-riscv64-v": "int8",
    "linux-x86_64-avxvnni": "uint8",
}


def loaded(function: PrimFunc, parameter: int) -> set[str]:
    """Element types of what a kernel loads by a pointer, or by one that it makes of it."""
    declared: list[DeclBuffer] = []
    made: list[Bind] = []
    loads: list[TensorLoad] = []
    calls: list[Call] = []
    kinds = (
        (DeclBuffer, declared.append),
        (Bind, made.append),
        (TensorLoad, loads.append),
        (Call, calls.append),
    )
    tvm_ffi.structural_walk(function.body, [*kinds])
    addresses = {bind.var: _addresses(bind.value) for bind in made}
    pointers, buffers = {function.params[parameter]}, set[Buffer]()
    known = 0
    while known < len(pointers):
        known = len(pointers)
        buffers |= {declaration.buffer for declaration in declared if declaration.data in pointers}
        pointers |= {v for v, of in addresses.items() if any(load.source in buffers for load in of)}
    taken = {load for call in calls for load in _addresses(call)}
    return {str(load.source.dtype) for load in loads if load.source in buffers and load not in taken}


def _addresses(value: object) -> list[TensorLoad]:
    """The elements whose addresses a value is one of."""
    if not isinstance(value, Call):
        return []
    if getattr(value.op, "name", "") == "tirx.address_of":
        return [value.args[0]]
    return [load for argument in value.args for load in _addresses(argument)]


def from_callers(model: onnx.ModelProto, device: str) -> dict[str, set[str]]:
    """By kernel, the element types that are loaded from inputs of the model."""
    built = plan_of(model, target=load_device(device).cpu_target())
    found: dict[str, set[str]] = {}
    for step in built.plan.steps:
        assert isinstance(step, Step)
        for i, argument in enumerate(step.arguments):
            if argument.kind == "input":
                found.setdefault(step.kernel, set()).update(loaded(built.functions[step.kernel], i))
    return found


def products(dtype: str, count: int = 1) -> onnx.ModelProto:
    """3 rows by constant weights, and so on."""

    def layers(g: Graph, x: str) -> str:
        for _ in range(count):
            x = g.op("QLinearMatMul", *_operands(g, dtype, x, (32, 32)))
        return x

    return network(dtype, (3, 32), layers)


def two_inputs() -> onnx.ModelProto:
    """Two matrices that are both inputs."""
    g = Graph("product")
    a, b = g.input("x", (2, 16, 32), "int8"), g.input("y", (2, 32, 24), "int8")
    scale, zero = g.const(np.float32(0.01)), g.const(np.int8(0))
    y = g.op("QLinearMatMul", a, scale, zero, b, scale, zero, g.const(np.float32(1)), zero, name="z")
    g.output(y, "int8")
    return g.model()


def convolution(dtype: str, channels: tuple[int, int], kernel: int, groups: int = 1) -> onnx.ModelProto:
    """Of an image whose channels are innermost, as those of TFLite are."""
    cin, cout = channels

    def layers(g: Graph, x: str) -> str:
        x = g.op("Transpose", x, perm=[0, 3, 1, 2])
        weights = (cout, cin // groups, kernel, kernel)
        window = {"pads": [kernel // 2] * 4, "group": groups}
        y = g.op("QLinearConv", *_operands(g, dtype, x, weights), name="y", **window)
        return g.op("Transpose", y, perm=[0, 2, 3, 1])

    return network(dtype, (1, 9, 9, cin), layers)


def _operands(g: Graph, dtype: str, x: str, weights: tuple[int, ...]) -> list[str]:
    scale, zero, own = g.const(np.float32(0.01)), g.const(np.int8(0)), g.const(np.zeros((), dtype))
    w = g.const(g.rng.integers(-63, 64, weights).astype(np.int8))
    return [x, scale, own, w, scale, zero, g.const(np.float32(1)), own]


def network(dtype: str, shape: tuple[int, ...], layers: Callable[[Graph, str], str]) -> onnx.ModelProto:
    g = Graph("net")
    g.output(layers(g, g.input("x", shape, dtype)), dtype)
    return g.model()


MODELS = {
    "product": products,
    "pointwise": lambda dtype: convolution(dtype, (16, 24), 1),
    "window": lambda dtype: convolution(dtype, (16, 24), 3),
    "one channel": lambda dtype: convolution(dtype, (16, 1), 1),
    "grouped": lambda dtype: convolution(dtype, (32, 32), 3, 4),
    "many channels": lambda dtype: convolution(dtype, (64, 64), 3),
    "two inputs": lambda dtype: two_inputs(),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*MODELS])
def test_bytes_of_the_caller_are_loaded_as_bytes(device: str, name: str) -> None:
    kernels = from_callers(MODELS[name](DEVICES[device]), device)
    assert kernels
    for kernel, dtypes in kernels.items():
        assert dtypes <= {"int8", "uint8"}, kernel


def test_bytes_of_the_arena_are_loaded_as_words() -> None:
    """What is not the caller's is aligned, and loaded so."""
    built = plan_of(products("int8", 2), target=load_device("raspberrypi2").cpu_target())
    found = {
        dtype
        for step in built.plan.steps
        for i, argument in enumerate(step.arguments)
        if argument.kind == "arena"
        for dtype in loaded(built.functions[step.kernel], i)
    }
    assert "int32" in found


def test_a_view_of_narrow_elements_is_one_too() -> None:
    e = Emitter(4, dtype="int32")
    x, other, y = e.param(0, 64, stored="int8"), e.temp(0, 64), e.output(0, 64)

    def task(i: Any) -> None:
        rows = e.rebased(x, i * 4, 8), e.either(i < index(3), (x, i), (other, 0), 8)
        e.vstore(y, i * 8, e.vload(rows[0], 4) + e.vload(rows[1], 0))
        e.vstore(y, i * 8 + 4, e.load(rows[1], 3), 1)

    e.tasks(task)
    stage = e.stage(8)
    assert [loaded(stage.function, i) for i in range(3)] == [{"int8"}, {"int8"}, set()]
