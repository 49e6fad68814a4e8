"""Products of bytes by instructions that multiply matrices are exact: AMX's, or emulated behind SIGILL.

The kernels are those of bundles for a CPU with AMX. Where this one lacks what else it has (AVX-512), their
other instructions are replaced (:func:`.test_emulated_instructions.emulated`).
"""

from __future__ import annotations

import ctypes
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.backends.llvm import compile_assembly
from edgepack.compiler.kernels.cpu.conv.gemm_schedule import GemmSchedule
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.phase_lines import PhaseLines
from edgepack.compiler.kernels.cpu.conv.tile_cost import matrix_cycles, vector_cycles
from edgepack.compiler.kernels.cpu.conv.tile_gemm import ADVANTAGE, by_matrices
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import balanced_split
from edgepack.compiler.kernels.cpu.micro.dot4_bytes import Dot4Bytes
from edgepack.compiler.kernels.cpu.micro.matrix_tiles import MatrixTiles, TileRegisters, TileSums
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.kernels.registry import implement
from edgepack.compiler.planner.build import Built
from edgepack.config.device import load_device
from edgepack.config.host import TILES, probe
from edgepack.plan.types import Step
from tests.compiler.kernels.test_emulated_instructions import emulated
from tests.compiler.kernels.test_quantised import convolved
from tools import inner_loops
from workbench.compiled import groups_of, plan_of
from workbench.executor import Executor, Memory, address, host_target, memories
from workbench.models.builder import Graph
from workbench.tiles import Tiles, tiles

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="tiles are of x86-64, the emulator of Linux",
)

DEVICE = load_device("linux-x86_64-amx")
TARGET = DEVICE.cpu_target()
BYTES = ProductTypes("uint8", "int8", "int32", "uint8")
#: Matrices whatever the cost model says.
ASKED = GemmSchedule(matrix=True)
#: Zero point of convolutions' inputs.
ZERO = 201

#: Rows, elements of the reduction, columns: around the sides of a register (16), a tile (32) and a step (64).
PRODUCTS = {
    **{f"{rows} rows": (rows, 64, 40) for rows in (1, 2, 15, 16, 17, 31, 32, 33, 47, 64, 65)},
    **{f"{k} deep": (18, k, 33) for k in (4, 8, 60, 68, 124, 128, 132, 192, 1028)},
    **{f"{columns} columns": (35, 76, columns) for columns in (1, 3, 15, 16, 17, 31, 32, 48, 49, 64, 97)},
}
#: Input's shape, output channels, window, attributes, schedule.
CONVOLUTIONS: dict[str, tuple[tuple[int, ...], int, tuple[int, ...], dict[str, Any], GemmSchedule]] = {
    "window": ((1, 64, 9, 11), 40, (3, 3), {"pads": [1] * 4}, ASKED),
    "one pixel": ((1, 64, 1, 1), 17, (3, 3), {"pads": [1] * 4}, ASKED),
    "channels that leave a part of a step": ((1, 36, 7, 9), 33, (3, 3), {"pads": [1] * 4}, ASKED),
    "fewer channels than a step": ((1, 8, 12, 5), 16, (5, 2), {"pads": [2, 0, 2, 1]}, ASKED),
    "no padding": ((1, 64, 8, 9), 32, (3, 3), {}, ASKED),
    "by two": ((1, 64, 13, 10), 24, (3, 3), {"pads": [1] * 4, "strides": [2, 2]}, ASKED),
    "by two and three": ((2, 20, 11, 16), 18, (3, 4), {"pads": [0, 1, 2, 3], "strides": [2, 3]}, ASKED),
    "first layer": ((1, 3, 21, 19), 20, (7, 7), {"pads": [3] * 4, "strides": [2, 2]}, ASKED),
    "joined taps by three": ((2, 24, 8, 20), 33, (2, 5), {"pads": [0, 2, 1, 1], "strides": [1, 3]}, ASKED),
    "one tap by two": ((1, 64, 9, 14), 34, (1, 1), {"strides": [2, 2]}, ASKED),
    "images": ((3, 64, 6, 5), 48, (3, 3), {"pads": [1] * 4}, ASKED),
    "images by two": ((2, 16, 9, 9), 32, (3, 3), {"pads": [1] * 4, "strides": [2, 2]}, ASKED),
    "dilated": ((1, 64, 12, 9), 16, (3, 3), {"pads": [2, 3, 2, 3], "dilations": [2, 3]}, ASKED),
    "dilated by two": ((1, 12, 15, 14), 16, (3, 2), {"strides": [2, 2], "dilations": [2, 3]}, ASKED),
    "groups": ((1, 128, 6, 7), 96, (3, 3), {"pads": [1] * 4, "group": 2}, ASKED),
    "groups of a product": ((1, 136, 6, 7), 70, (1, 1), {"group": 2}, ASKED),
    "signal": ((2, 72, 30), 20, (5,), {"pads": [4, 1]}, ASKED),
    "slices": ((1, 80, 9, 11), 40, (3, 3), {"pads": [1] * 4}, replace(ASKED, k_blocks=3)),
    "slices of a product": ((1, 272, 7, 9), 40, (1, 1), {}, replace(ASKED, k_blocks=2)),
    "small tiles": ((1, 64, 7, 9), 40, (1, 1), {}, replace(ASKED, register_tile=(9, 16))),
    "all rows by some columns": (
        (1, 64, 12, 11),
        72,
        (3, 3),
        {"pads": [1] * 4},
        replace(ASKED, weight_stationary=True),
    ),
}


def _product(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    """Sums of products of bytes as they are, whose weights have both ends of their type."""
    g = Graph("product")
    weights = g.rng.choice(np.array([-128, 127, -1, 0, 77], np.int8), (depth, columns))
    zeros = g.const(np.uint8(0)), g.const(np.int8(0))
    g.output(
        g.op("MatMulInteger", g.input("x", (rows, depth), "uint8"), g.const(weights), *zeros, name="y"),
        "int32",
    )
    return g.model()


def _convolution(name: str) -> onnx.ModelProto:
    """Sums of a convolution, in whose padding lies a zero point that is no zero."""
    shape, out, window, attributes, _ = CONVOLUTIONS[name]
    return _sums(shape, (out, shape[1] // attributes.get("group", 1), *window), attributes)


def _sums(shape: tuple[int, ...], weights: tuple[int, ...], attributes: dict[str, Any]) -> onnx.ModelProto:
    """A convolution between quantised tensors whose scales are 1, and float32 numbers."""
    g = Graph("convolution")
    values = g.const(g.rng.choice(np.array([-128, 127, -3, 88], np.int8), weights))
    x, one = g.input("x", shape, "uint8"), g.const(np.float32(1))
    left = g.op("DequantizeLinear", x, one, g.const(np.uint8(ZERO)))
    right = g.op("DequantizeLinear", values, one, g.const(np.int8(0)))
    g.output(g.op("Conv", left, right, name="y", **attributes), "float32")
    return g.model()


def _defined(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """The sums; as float32, those of a convolution."""
    constants = [onnx.numpy_helper.to_array(tensor).astype(np.int64) for tensor in model.graph.initializer]
    weights, node = next(c for c in constants if c.ndim == x.ndim), model.graph.node[-1]
    if node.op_type == "MatMulInteger":
        return (x.astype(np.int64) @ weights).astype(np.int32)
    attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    return convolved(x.astype(np.int64) - ZERO, weights, attributes).astype(np.float32)


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    **{name: lambda sizes=sizes: _product(*sizes) for name, sizes in PRODUCTS.items()},  # type: ignore[misc]
    **{name: lambda name=name: _convolution(name) for name in CONVOLUTIONS},  # type: ignore[misc]
}


def _runs_here() -> bool:
    """Whether this CPU has all of the device's instructions but those of tiles."""
    return set(DEVICE.cpu_requires) - TILES <= probe().features


def _made(model: onnx.ModelProto, name: str, schedule: GemmSchedule) -> Built:
    """The plan for a CPU with AMX; with ordinary operations in place of what this one lacks."""
    made = plan_of(model, name, TARGET, given={"conv2d.igemm": schedule, "matmul.packed": schedule})
    if _runs_here():
        return made
    return replace(made, functions={symbol: emulated(f, set()) for symbol, f in made.functions.items()})


def _executor(built: dict[str, Built], folder: Path, *, optimised: bool) -> Executor:
    here = host_target()
    target = TARGET if _runs_here() else replace(here, features=(*here.features, "+amx-int8"))
    return Executor(built, folder, target, optimised=optimised)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiles]:
    with tiles(tmp_path_factory.mktemp("tiles")) as found:
        yield found


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Executor:
    built = {}
    for number, (name, make) in enumerate(MODELS.items()):
        schedule = CONVOLUTIONS[name][-1] if name in CONVOLUTIONS else ASKED
        built[name] = _made(make(), f"m{number}", schedule)
        chosen = [k.parameters.get("operands") for k in built[name].plan.kernels]
        assert "tiles of bytes" in chosen, f"{name}: {chosen}"
    return _executor(built, tmp_path_factory.mktemp("matrices"), optimised=False)


@pytest.mark.parametrize("name", MODELS)
def test_sums_are_exact(machine: Tiles, executor: Executor, name: str) -> None:
    """Inputs of all ones and at random from both ends; kernels leave tiles as they found them."""
    model, before = MODELS[name](), machine.executed
    (spec,) = executor.built[name].plan.inputs
    for x in (
        np.full(spec.shape, 255, np.uint8),
        np.random.default_rng(3).choice(np.uint8([0, 1, 128, 255]), spec.shape),
    ):
        np.testing.assert_array_equal(executor.run(name, [x])[0], _defined(model, x))
    assert machine.released
    assert before is None or machine.executed > before


def test_threads_have_tiles_of_their_own(machine: Tiles, tmp_path: Path) -> None:
    """Each does its tasks of the same steps at the same time, over and over; optimised as in bundles."""
    model, threads = _sums((1, 64, 20, 17), (96, 64, 3, 3), {"pads": [1] * 4}), 3
    executor = _executor({"threads": _made(model, "threads", ASKED)}, tmp_path, optimised=True)
    plan = executor.built["threads"].plan
    x = np.random.default_rng(5).integers(0, 256, (1, 64, 20, 17)).astype(np.uint8)
    of_run = memories(plan, executor.built["threads"].constants, [x], 0xFF)

    def work(step: Step, number: int) -> None:
        own = Memory(step.scratch_bytes, 0xFF)
        pointers = [
            ctypes.c_void_p(
                own.pointer(argument.offset) if argument.kind == "scratch" else address(argument, of_run, 0)
            )
            for argument in step.arguments
        ]
        for task in range(number, step.tasks, threads):
            assert getattr(executor.library, step.kernel)(*pointers, task, task + 1) == 0

    for step in plan.steps:
        assert isinstance(step, Step)
        running = [threading.Thread(target=work, args=(step, number)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    np.testing.assert_array_equal(executor.outputs("threads", of_run)[0], _defined(model, x))


def _two_layers() -> onnx.ModelProto:
    """A 3x3 convolution and a pointwise one, from bytes to bytes."""
    g = Graph("layers")

    def between(x: str, quantise: bool) -> str:
        steps = g.const(np.float32(0.02)), g.const(np.uint8(3))
        return g.op("QuantizeLinear" if quantise else "DequantizeLinear", x, *steps)

    x = between(g.input("x", (1, 256, 14, 14), "uint8"), quantise=False)
    for window, pads in ((3, [1] * 4), (1, [0] * 4)):
        weights = g.const(g.rng.integers(-127, 128, (256, 256, window, window)).astype(np.int8))
        w = g.op("DequantizeLinear", weights, g.const(np.float32(0.01)), g.const(np.int8(0)))
        x = between(between(g.op("Conv", x, w, pads=pads), quantise=True), quantise=False)
    g.output(between(x, quantise=True), "uint8")
    return g.model()


def test_inner_loops_stay_in_registers() -> None:
    """Each operand of a step is loaded once, for two products; neither that loop nor an epilogue's touches
    the stack."""
    syntax = replace(inner_loops.X86, fma=r"^tdpbusd", multiply=r"^vcvtps2dq")
    machine = inner_loops.Machine("AMX", TARGET, syntax)
    built = plan_of(_two_layers(), "loops", TARGET)
    text = compile_assembly(built.functions, TARGET)
    symbols = [k.symbol for k in built.plan.kernels if k.parameters.get("operands") == "tiles of bytes"]
    loops = [loop for symbol in symbols for loop in inner_loops.loops_of(text, symbol, machine)]
    products = [loop for loop in loops if loop.count(syntax.fma)]
    assert products
    for loop in products:
        assert loop.count(r"^tileloadd") == loop.count(syntax.fma) >= 4
    assert [loop for loop in loops if loop.count(syntax.multiply)]
    for loop in loops:
        assert loop.spills(syntax) == 0, "\n".join(loop.lines)


def test_what_a_later_layer_reads_is_fetched_while_tiles_are_multiplied() -> None:
    for group, constants in groups_of(_two_layers(), TARGET):
        made = implement(group, TARGET, constants, pytest.fail)
        if made.parameters.get("operands") != "tiles of bytes":
            continue
        assert made.with_prefetch is not None
        (*_, stage) = made.with_prefetch(1 << 16).stages
        assert "prefetch" in {operand.kind for operand in stage.operands}
        assert "prefetch" not in {operand.kind for operand in made.stages[-1].operands}
        text = compile_assembly({"k": stage.function.with_attr("global_symbol", "k")}, TARGET)
        assert "prefetcht" in text
        return
    pytest.fail("no layer is multiplied by tiles")


def _conv(pixels: int, depth: int, columns: int) -> Conv2d:
    return Conv2d.product(pixels, depth, columns, BYTES)


@pytest.mark.parametrize(
    ("sizes", "wins"),
    [
        ((3136, 64, 128), True),
        ((49, 1024, 1024), True),
        ((128, 768, 768), True),
        ((12544, 32, 64), False),  # where both were as fast in a network
        ((1, 1024, 1000), False),  # a tile of one row takes as long as one of 32
        ((3136, 64, 8), True),  # and one of few columns half as long as one of 32
        ((3136, 16, 8), False),  # which is no gain where there is little to multiply
    ],
)
def test_tiles_are_taken_where_they_are_faster(sizes: tuple[int, int, int], wins: bool) -> None:
    conv = _conv(*sizes)
    assert (ADVANTAGE * matrix_cycles(conv, None) < vector_cycles(conv)) == wins
    rows, depth, columns = sizes
    made = plan_of(_product(rows, depth, columns), "chosen", TARGET)
    operands = [k.parameters["operands"] for k in made.plan.kernels if k.rule == "matmul.packed"]
    assert operands == ["tiles of bytes" if wins else "quads of bytes"]


def test_tiles_are_taken_where_vectors_would_have_winograds_form() -> None:
    model, found = _sums((1, 64, 28, 28), (64, 64, 3, 3), {"pads": [1] * 4}), []
    for device in (DEVICE, load_device("linux-x86_64-vnni")):
        kernels = plan_of(model, "chosen", device.cpu_target()).plan.kernels
        found.append({k.rule for k in kernels if k.rule.startswith("conv2d")})
    assert found == [{"conv2d.igemm"}, {"conv2d.winograd4"}]


def test_a_cpu_without_tiles_has_none() -> None:
    for name in ("linux-x86_64-vnni", "linux-x86_64-v4", "raspberrypi5"):
        assert MatrixTiles.of(BYTES, load_device(name).cpu_target()) is None
    assert MatrixTiles.of(replace(BYTES, left="int8"), TARGET) is None
    # Vectors of 256 bits: an epilogue of tiles is written for 512.
    assert MatrixTiles.of(BYTES, replace(TARGET, vector_bits=256)) is None


def test_lines_have_what_taps_read() -> None:
    """Of phases only those that a tap reads, and each tap at its distance from the window's first."""
    step = (1, 1)
    conv = Conv2d(2, 9, 8, 4, 5, 4, 6, (3, 3), (2, 2), step, 1, 1, 1, 1, 1, BYTES)
    lines = PhaseLines(conv, apart=True)
    assert (lines.phases, lines.reach, lines.size) == ((2, 2), (1, 1), (6, 5))
    image = 2 * 6 * 5 * 4
    assert [lines.tap(0, j) for j in range(3)] == [0, image, 4]
    assert [lines.tap(i, 0) for i in range(3)] == [0, 2 * image, 5 * 4]
    one_tap = replace(lines, conv=replace(conv, kernel=step, pad_top=0, pad_left=0))
    assert (one_tap.phases, one_tap.size, one_tap.tap(0, 0)) == ((1, 1), (5, 4), 0)
    whole = replace(lines, apart=False)
    assert (whole.phases, whole.between, whole.size) == ((2, 1), 2, (6, 10))
    assert [whole.tap(0, j) for j in range(3)] == [0, 4, 8]
    for one in (lines, one_tap, whole, replace(whole, conv=replace(conv, batch=1))):
        # Also what is read for pixels behind the last line's end, of which nothing is stored.
        last = (one.walked.pixels - 1) * one.between * conv.in_channels
        furthest = max(one.tap(i, j) for i in range(one.conv.kernel[0]) for j in range(one.conv.kernel[1]))
        assert last + furthest + conv.in_channels <= one.elements


def test_registers_have_rows_of_their_tile_alone() -> None:
    """All of them, and nothing is read behind: of 17 rows the second register has the last 16."""
    for pixels in range(1, 200):
        heights = [rows for rows, _ in balanced_split(pixels, 32)]
        registers = TileRegisters(min(*heights, 16), 0)
        for rows in heights:
            begins = TileSums(Emitter(16, TARGET), None, registers, rows, 16).rows
            read = {begin + row for begin in begins for row in range(registers.rows)}
            assert read == set(range(rows))


def test_columns_have_phases_unless_taps_that_are_neighbours_fill_steps() -> None:
    sizes = (1, 9, 9, 64, 5, 5, 6, (3, 3), (2, 2), (1, 1), 1, 1, 1, 1, 1, BYTES)
    conv = Conv2d(*sizes)
    assert PhaseLines.of(conv, 64).apart
    assert not PhaseLines.of(replace(conv, in_channels=96), 64).apart
    assert PhaseLines.of(replace(conv, in_channels=96, dilation=(1, 2)), 64).apart
    assert PhaseLines.of(replace(conv, in_channels=96, kernel=(3, 1)), 64).apart
    assert not PhaseLines.of(replace(conv, in_channels=96, strides=(2, 1)), 64).apart


@pytest.mark.parametrize(
    ("size", "channels", "stride", "wins"),
    [
        pytest.param(32, (16, 16), 1, (True, True), id="half a tile of columns"),
        pytest.param(8, (32, 64), 2, (True, False), id="a small image that threads copy together"),
        pytest.param(16, (32, 64), 2, (True, True), id="a larger one"),
    ],
)
def test_copying_the_image_counts(
    size: int, channels: tuple[int, int], stride: int, wins: tuple[bool, bool]
) -> None:
    """With one thread, and with two, which meet behind the copy. ``size``: of the output's sides."""
    inputs, outputs = channels
    read = size * stride + 3 - stride
    sizes = (1, read, read, inputs, size, size, outputs)
    conv = Conv2d(*sizes, (3, 3), (stride, stride), (1, 1), 0, 0, 0, 0, 1, BYTES)
    found = []
    for threads in (1, 2):
        vectors = Dot4Bytes.of(BYTES, replace(TARGET, threads=threads))
        assert vectors is not None
        found.append(by_matrices(conv, vectors))
    assert tuple(found) == wins
