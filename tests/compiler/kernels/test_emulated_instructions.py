"""Kernels for CPUs that this machine need not be; their instructions are replaced by what these do."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm_ffi
from onnx import TensorProto, helper
from tvm import tirx
from tvm.ir import Call
from tvm.target.codegen import llvm_lookup_intrinsic_id
from tvm.tirx import IntImm

from edgepack.compiler.backends.llvm import compile_object
from edgepack.compiler.kernels.cpu.emit import vector_look_up
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.vector_saturation import saturated
from edgepack.config.device import load_device
from edgepack.toolchains import resolve
from tests.compiler.kernels.test_quantised import MODELS, defined
from workbench.compiled import plan_of
from workbench.executor import Executor, host_target
from workbench.models.evaluate import run_onnxruntime

Expr = Any

#: By device: bits of its vectors of bytes, and what its kernels compute.
DEVICES = {
    "linux-x86_64-vnni": ("512", ("window, u8s8", "product, u8s8", "depthwise, u8s8")),
    "linux-x86_64-avxvnni": ("256", ("first layer, u8s8", "groups, u8s8")),
}


def _splat(number: int, lanes: int) -> Expr:
    return tirx.Broadcast(IntImm("int32", number), lanes)


def _part(x: Expr, place: int, bits: int, lanes: int, *, signed: bool) -> Expr:
    """A field of each int32, as int32."""
    lifted = tirx.shift_left(x, _splat(32 - bits - place * bits, lanes))
    field = tirx.shift_right(lifted, _splat(32 - bits, lanes))
    return field if signed else tirx.bitwise_and(field, _splat((1 << bits) - 1, lanes))


def _dot(lanes: int, bits: int, *, signed: bool, adds: bool) -> Callable[..., Expr]:
    """Products of neighbours of ``bits``, added to each other and to sums where the instruction does that."""

    def made(*operands: Expr) -> Expr:
        a, b = (tirx.reinterpret(f"int32x{lanes}", x) for x in operands[-2:])
        total = operands[0] if adds else _splat(0, lanes)
        for place in range(32 // bits):
            left = _part(a, place, bits, lanes, signed=signed)
            total = total + left * _part(b, place, bits, lanes, signed=True)
        return total

    return made


def _nearest(lanes: int) -> Callable[..., Expr]:
    def made(x: Expr, *mode: Expr) -> Expr:
        return tirx.Cast(f"int32x{lanes}", tirx.call_llvm_pure_intrin(f"float32x{lanes}", "llvm.rint", x))

    return made


def _chosen(parts: Sequence[Expr], positions: Expr, otherwise: Expr, *, within: int = 0) -> Expr:
    """The elements of vectors laid end to end that positions choose.

    Args:
        positions: those that are none leave ``otherwise``.
        within: elements of the parts of a vector that each look up in themselves; 0 for all.
    """
    dtype, lanes = str(positions.ty.dtype).partition("x")[::2]
    count = int(lanes)
    for number in range(within or count * len(parts)):
        part, at = divmod(number, count)
        places = [i - i % within + number for i in range(count)] if within else [at] * count
        here = tirx.EQ(positions, tirx.Broadcast(IntImm(dtype, number), count))
        otherwise = tirx.Select(here, tirx.Shuffle([parts[part]], places), otherwise)
    return otherwise


def _permuted(bits: int, lanes: int) -> Callable[..., Expr]:
    """Elements of two vectors; the upper bits of positions count nothing."""

    def made(a: Expr, positions: Expr, b: Expr) -> Expr:
        mask = tirx.Broadcast(IntImm(f"int{bits}", 2 * lanes - 1), lanes)
        return _chosen([a, b], tirx.bitwise_and(positions, mask), a)

    return made


def _shuffled(x: Expr, positions: Expr) -> Expr:
    """Bytes of each 16; those of negative positions are 0."""
    lanes = int(str(x.ty.dtype).partition("x")[2])
    return _chosen([x], positions, tirx.Broadcast(IntImm("int8", 0), lanes), within=16)


def _looked_up(*operands: Expr) -> Expr:
    """Bytes of four vectors; where positions are beyond them, those of a fifth one or 0."""
    *otherwise, a, b, c, d, positions = operands
    return _chosen([a, b, c, d], positions, *otherwise or [tirx.Broadcast(IntImm("int8", 0), 16)])


def _narrowed(bits: int, low: int, high: int) -> Callable[..., Expr]:
    """Two vectors of elements of ``bits``, bounded, as half as wide ones, side by side in each 128 bits."""

    def made(a: Expr, b: Expr) -> Expr:
        dtype, lanes = str(a.ty.dtype).partition("x")[::2]
        count, each = int(lanes), 128 // bits
        least, most = (tirx.Broadcast(IntImm(dtype, n), count) for n in (low, high))
        narrow = f"int{bits // 2}x{count}"
        parts = [tirx.Cast(narrow, tirx.Max(tirx.Min(x, most), least)) for x in (a, b)]
        places = [
            part * count + at + i for at in range(0, count, each) for part in (0, 1) for i in range(each)
        ]
        return tirx.Shuffle(parts, places)

    return made


INSTRUCTIONS = {
    **{
        f"llvm.x86.{before}{name}{behind}": _narrowed(bits, low, high)
        for before, behind in (("avx512.", ".512"), ("avx2.", ""), ("sse2.", ".128"))
        for name, bits, low, high in (
            ("packssdw", 32, -(2**15), 2**15 - 1),
            ("packuswb", 16, 0, 255),
            ("packsswb", 16, -128, 127),
        )
    },
    "llvm.x86.avx512.vpermi2var.qi.512": _permuted(8, 64),
    "llvm.x86.avx512.vpermi2var.hi.512": _permuted(16, 32),
    "llvm.x86.ssse3.pshuf.b.128": _shuffled,
    "llvm.x86.avx2.pshuf.b": _shuffled,
    "llvm.aarch64.neon.sdot.v4i32.v16i8": _dot(4, 8, signed=True, adds=True),
    "llvm.aarch64.neon.tbl4.v16i8": _looked_up,
    "llvm.aarch64.neon.tbx4.v16i8": _looked_up,
    "llvm.aarch64.neon.fcvtns.v4i32.v4f32": _nearest(4),
    **{
        f"llvm.x86.avx512.vpdpbusd.{32 * lanes}": _dot(lanes, 8, signed=False, adds=True)
        for lanes in (4, 8, 16)
    },
    "llvm.x86.avx512.pmaddw.d.512": _dot(16, 16, signed=True, adds=False),
    "llvm.x86.avx2.pmadd.wd": _dot(8, 16, signed=True, adds=False),
    "llvm.x86.sse2.pmadd.wd": _dot(4, 16, signed=True, adds=False),
    "llvm.x86.avx512.mask.cvtps2dq.512": _nearest(16),
    "llvm.x86.avx.cvt.ps2dq.256": _nearest(8),
    "llvm.x86.sse2.cvtps2dq": _nearest(4),
}


def emulated(function: tirx.PrimFunc, seen: set[str]) -> tirx.PrimFunc:
    """The function with ordinary operations in place of instructions, whose names are added to ``seen``."""
    names = {llvm_lookup_intrinsic_id(name): name for name in INSTRUCTIONS}

    def instead(call: Call) -> Expr:
        if getattr(call.op, "name", "") != "tirx.call_llvm_pure_intrin":
            return call
        name = names.get(int(call.args[0]))
        if name is None:
            return call
        seen.add(name)
        return INSTRUCTIONS[name](*call.args[1:])

    made: tirx.PrimFunc = tvm_ffi.structural_map(function, (Call, instead))
    return made


def looking_up(table: np.ndarray, x: np.ndarray) -> onnx.ModelProto:
    """A model that looks its input, bytes, up in a table."""
    values = {"x": x.dtype, "y": table.dtype}
    x, y = (
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), x.shape)
        for name, dtype in values.items()
    )
    nodes = [
        helper.make_node("Cast", ["x"], ["at"], to=TensorProto.INT32),
        helper.make_node("Gather", ["table", "at"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "table", [x], [y], [onnx.numpy_helper.from_array(table, "table")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def activated() -> onnx.ModelProto:
    """Two convolutions of integers, one depthwise, with SiLU between quantisers behind each."""
    rng, node = np.random.default_rng(8), helper.make_node
    numbers: dict[str, np.ndarray] = {
        "w1": rng.integers(-127, 128, (24, 12, 1, 1)).astype(np.int8),
        "w2": rng.integers(-127, 128, (24, 1, 3, 3)).astype(np.int8),
        "w_scale": np.float32(0.01),
        "w_zero": np.int8(0),
    }
    for name, scale, zero in (("x", 0.05, 117), ("a", 0.1, 100), ("s", 1 / 255, 0), ("b", 0.06, 7)):
        numbers |= {f"{name}_scale": np.float32(scale), f"{name}_zero": np.uint8(zero)}
    steps = {name: [f"{name}_scale", f"{name}_zero"] for name in "xasbw"}
    nodes = []
    for i, (x, before, groups) in enumerate((("x", "x", 1), ("m0", "b", 24))):
        operands = [x, *steps[before], f"w{i + 1}", *steps["w"], *steps["a"]]
        nodes += [
            node("QLinearConv", operands, [f"c{i}"], group=groups, pads=[groups // 24] * 4),
            node("DequantizeLinear", [f"c{i}", *steps["a"]], [f"f{i}"]),
            node("Sigmoid", [f"f{i}"], [f"s{i}"]),
            node("QuantizeLinear", [f"s{i}", *steps["s"]], [f"t{i}"]),
            node("DequantizeLinear", [f"t{i}", *steps["s"]], [f"u{i}"]),
            node("Mul", [f"f{i}", f"u{i}"], [f"v{i}"]),
            node("QuantizeLinear", [f"v{i}", *steps["b"]], [f"m{i}"]),
        ]
    graph = helper.make_graph(
        nodes,
        "activated",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 12, 9, 11])],
        [helper.make_tensor_value_info("m1", TensorProto.UINT8, [1, 24, 9, 11])],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("device", ["linux-x86_64-vnni", "raspberrypi5", "linux-x86_64"])
def test_tables_stand_between_tensors_as_a_device_keeps_them(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of either sign, or int16. Elements are looked up one by one: LLVM is slow with the others."""
    monkeypatch.setattr(vector_look_up, "_form", lambda target, lanes: None)
    model, seen = activated(), set[str]()
    made = plan_of(model, "net", load_device(device).cpu_target())
    functions = {symbol: emulated(f, seen) for symbol, f in made.functions.items()}
    executor = Executor({"net": replace(made, functions=functions)}, tmp_path)
    x = np.random.default_rng(4).integers(0, 256, (1, 12, 9, 11)).astype(np.uint8)
    expected = run_onnxruntime(model, {"x": x})
    np.testing.assert_array_equal(executor.run("net", [x])[0], expected[0])
    assert not [
        k.rule for k in made.plan.kernels if k.rule not in {"conv2d.igemm", "conv2d.depthwise", "elementwise"}
    ]


@pytest.mark.parametrize("device", DEVICES)
def test_sums_of_bytes_are_exact(device: str, tmp_path: Path) -> None:
    width, names = DEVICES[device]
    target, seen = load_device(device).cpu_target(), set[str]()
    built = {}
    for number, name in enumerate(names):
        made = plan_of(MODELS[name], f"m{number}", target)
        functions = {symbol: emulated(f, seen) for symbol, f in made.functions.items()}
        built[name] = replace(made, functions=functions)
    assert f"llvm.x86.avx512.vpdpbusd.{width}" in seen
    executor, rng = Executor(built, tmp_path), np.random.default_rng(3)
    for name in names:
        (spec,) = built[name].plan.inputs
        info = np.iinfo(spec.dtype)
        for values in ([info.min, info.max], range(info.min, info.max + 1)):
            x = rng.choice(np.array(values, spec.dtype), spec.shape)
            np.testing.assert_array_equal(executor.run(name, [x])[0], defined(MODELS[name], x))


#: By an instruction that looks bytes up: the CPU that has it.
LOOK_UPS = {
    "llvm.x86.avx512.vpermi2var.qi.512": replace(
        load_device("linux-x86_64-vnni").cpu_target(),
        features=("-prefer-256-bit", "+avx512vnni", "+avx512vbmi"),
    ),
    "llvm.x86.avx512.vpermi2var.hi.512": load_device("linux-x86_64-v4").cpu_target(),
    "llvm.x86.avx2.pshuf.b": load_device("linux-x86_64-v3").cpu_target(),
    "llvm.x86.ssse3.pshuf.b.128": replace(load_device("linux-x86_64-v3").cpu_target(), cpu="x86-64-v2"),
    "llvm.aarch64.neon.tbx4.v16i8": load_device("raspberrypi4").cpu_target(),
    "": load_device("linux-riscv64-v").cpu_target(),
}


@pytest.mark.parametrize("instruction", LOOK_UPS)
def test_a_table_is_looked_up_in_at_all_bytes(instruction: str, tmp_path: Path) -> None:
    rng, seen = np.random.default_rng(5), set[str]()
    table = rng.integers(0, 256, 256).astype(np.uint8)
    bytes_ = rng.permutation(np.arange(7 * 77, dtype=np.int32).astype(np.uint8)).reshape(7, 77)
    built = {}
    for x, of in ((bytes_, table), (bytes_.view(np.int8), table.view(np.int8))):
        made = plan_of(looking_up(of, x), f"table_{x.dtype}", LOOK_UPS[instruction])
        functions = {symbol: emulated(f, seen) for symbol, f in made.functions.items()}
        built[str(x.dtype)] = replace(made, functions=functions)
    assert not instruction or instruction in seen
    executor = Executor(built, tmp_path)
    np.testing.assert_array_equal(executor.run("uint8", [bytes_])[0], table[bytes_])
    found = executor.run("int8", [bytes_.view(np.int8)])[0]
    np.testing.assert_array_equal(found.view(np.uint8), table[bytes_])


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 0), ("uint8", 255), ("int8", -128), ("int8", 127)])
@pytest.mark.parametrize("device", ["linux-x86_64-vnni", "raspberrypi5"])
def test_a_zero_point_of_run_time_is_subtracted_behind_the_sums(
    device: str, dtype: str, zero: int, tmp_path: Path
) -> None:
    rng, limits = np.random.default_rng(6), np.iinfo(dtype)
    weights = rng.choice(np.uint8([0, 1, 128, 255]), (50, 21))
    constants = [
        onnx.numpy_helper.from_array(weights, "w"),
        onnx.numpy_helper.from_array(np.uint8(128), "w_zero"),
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w", "zero", "w_zero"], ["y"])],
        "product",
        [
            helper.make_tensor_value_info(name, kind, shape)
            for name, shape in (("x", [3, 13, 50]), ("zero", []))
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [3, 13, 21])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made, seen = plan_of(model, "product", load_device(device).cpu_target()), set[str]()
    functions = {symbol: emulated(f, seen) for symbol, f in made.functions.items()}
    assert [name for name in seen if "vpdpbusd.512" in name or "sdot" in name]
    x = rng.choice(np.array([limits.min, -zero % 3, limits.max], dtype), (3, 13, 50))
    executor = Executor({"product": replace(made, functions=functions)}, tmp_path)
    expected = (x.astype(np.int64) - zero) @ (weights.astype(np.int64) - 128)
    np.testing.assert_array_equal(executor.run("product", [x, np.array(zero, dtype)])[0], expected)


@pytest.mark.parametrize("device", ["linux-x86_64-v4", "linux-x86_64-v3", "linux-x86_64"])
def test_integers_are_narrowed_with_saturation(device: str, tmp_path: Path) -> None:
    target, rng = load_device(device).cpu_target(), np.random.default_rng(7)
    limits = [
        -(2**31),
        2**31 - 1,
        -(2**15) - 1,
        -(2**15),
        2**15 - 1,
        2**15,
        2**16,
        -129,
        -128,
        -1,
        0,
        127,
        128,
        255,
        256,
    ]
    functions, seen = {}, set[str]()
    sizes = {f"{dtype}_{n}": (dtype, n * target.word_lanes) for dtype in ("uint8", "int8") for n in (2, 4)}
    for name, (dtype, lanes) in sizes.items():
        e = Emitter(target.word_lanes, target)
        x, y = e.param(0, lanes), e.output(0, lanes, dtype)
        narrow = saturated(e, e.vload(x, 0, lanes), lanes, dtype)
        assert narrow is not None
        e.vstore(y, 0, narrow, lanes)
        e.tasks(lambda _: None)
        functions[name] = emulated(e.stage(1).function, seen)
    assert len(seen) == 3
    compile_object(functions, host_target(), tmp_path / "k.o")
    toolchain = resolve(load_device("host"))
    toolchain.link_shared([tmp_path / "k.o"], tmp_path / "k.so", exported=sorted(functions), soname="k.so")
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    for name, (dtype, lanes) in sizes.items():
        values = rng.choice(np.array(limits, np.int32), (200, lanes))
        for numbers in values:
            found = np.zeros(lanes, dtype)
            pointers = [ctypes.c_void_p(array.ctypes.data) for array in (numbers, found)]
            assert getattr(library, name)(*pointers, 0, 0) == 0
            info = np.iinfo(dtype)
            np.testing.assert_array_equal(found, np.clip(numbers, info.min, info.max))


def test_other_numbers_are_narrowed_by_llvm() -> None:
    for device, lanes, dtype in (
        ("linux-x86_64-v4", 16, "uint8"),
        ("linux-x86_64-v4", 32, "int16"),
        ("raspberrypi4", 8, "uint8"),
    ):
        e = Emitter(4, load_device(device).cpu_target())
        assert saturated(e, e.splat(IntImm("int32", 1), lanes), lanes, dtype) is None
