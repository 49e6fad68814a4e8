"""Elementwise groups, copies, transposes and index maps of odd shapes, for every shape of register file."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tvm.ir import TensorLoad
from tvm.tirx import Ramp
from tvm_ffi import structural_walk

from workbench.compiled import SWEPT, Library, on_register_files, plan_of, target_with
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs
from workbench.models.single import gelu, pool, single


def unary(kind: str, shape: tuple[int, ...] = (3, 41)) -> onnx.ModelProto:
    return single(shape, lambda g, x: g.op(kind, x))


def transpose(shape: tuple[int, ...], perm: list[int]) -> onnx.ModelProto:
    return single(shape, lambda g, x: g.op("Transpose", x, perm=perm))


def pad(shape: tuple[int, ...], pads: list[int], mode: str = "constant") -> onnx.ModelProto:
    return single(shape, lambda g, x: g.op("Pad", x, g.const(np.array(pads)), g.const(1.5), mode=mode))


def resize(shape: tuple[int, ...], sizes: list[int], mode: str, coordinates: str) -> onnx.ModelProto:
    def body(g: Graph, x: str) -> str:
        return g.op(
            "Resize",
            x,
            "",
            "",
            g.const(np.array(sizes)),
            mode=mode,
            coordinate_transformation_mode=coordinates,
        )

    return single(shape, body)


def _softplus_of_power(g: Graph, x: str) -> str:
    return g.op("Softplus", g.op("Pow", g.op("Abs", x), g.const(1.7)))


def _broadcasts(g: Graph, x: str) -> str:
    """Operands that lack leading axes, that are 1 in the middle, and that are 1 at the end."""
    y = g.op("Add", x, g.weight(11, std=1.0))
    y = g.op("Mul", y, g.weight(3, 1, 11, std=1.0))
    return g.op("Sub", y, g.weight(2, 1, 5, 1, std=1.0))


def _concat_last(g: Graph, x: str) -> str:
    return g.op("Concat", x, g.op("Relu", x), g.op("Slice", x, *_bounds(g, [1], [6], [1], [-1])), axis=-1)


def _joined_rows(g: Graph, x: str) -> str:
    """Of pixels, beside each other, of which those of the second part depend on the row too."""
    y = g.op("Pad", g.op("Relu", x), g.const(np.array([1, 1, 0, 0, 0, 0])), g.const(2.5))
    return g.op("Concat", x, g.op("Slice", y, *_bounds(g, [1, 0], [4, 4], [1, 1], [0, 1])), axis=1)


def _bounds(g: Graph, *values: list[int]) -> list[str]:
    starts, ends, steps, axes = values
    return [g.const(np.array(v)) for v in (starts, ends, axes, steps)]


def _logic(g: Graph, x: str) -> str:
    some = g.const(np.arange(41) % 3 == 0)
    return g.op("Xor", g.op("Or", x, some), g.op("And", g.op("Not", x), g.const(np.arange(7)[:, None] > 2)))


def _where(g: Graph, x: str) -> str:
    return g.op("Where", g.op("Greater", x, g.const(0.0)), x, g.op("Mul", x, g.const(0.1)))


def _depth_to_space(g: Graph, x: str) -> str:
    return g.op("DepthToSpace", x, blocksize=2)


def _upsampled(g: Graph, x: str) -> str:
    """What is repeated is computed by the same kernel, and so is what reads it."""
    sizes = g.const(np.array([1, 3, 10, 46]))
    form = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return g.op("Mul", g.op("Resize", g.op("Relu", x), "", "", sizes, **form), g.weight(3, 1, 46))


def _triangle(g: Graph, x: str) -> str:
    return g.op("Trilu", x, upper=0)


def _gather_rows(g: Graph, x: str) -> str:
    return g.op("Gather", g.weight(50, 21, std=1.0), g.op("Cast", g.op("Abs", x), to=7), axis=0)


def _permuted(width: int) -> onnx.ModelProto:
    """Elements of a row in another order, some of them twice, others not at all."""
    order = np.random.default_rng(3).integers(0, width, width)
    return single((3, width), lambda g, x: g.op("Gather", g.op("Relu", x), g.const(order), axis=1))


def _every_other(g: Graph, x: str) -> str:
    return g.op("Slice", x, *_bounds(g, [1, 3], [9, 39], [2, 3], [0, 1]))


def _bytes(g: Graph, x: str) -> str:
    return g.op("QuantizeLinear", x, g.const(np.float32(0.02)), g.const(np.uint8(120)))


def _padded_pixels(g: Graph, x: str) -> str:
    pads = g.const(np.array([0, 0, 1, 2, 0, 0, 3, 18]))
    return g.op("Transpose", g.op("Mul", g.op("Pad", x, pads), g.weight(4, 1, 1)), perm=[0, 2, 3, 1])


def _transposed_sum(g: Graph, x: str) -> str:
    return g.op("Add", g.op("Transpose", x, perm=[1, 0]), g.weight(34, 19))


MODELS: dict[str, onnx.ModelProto] = {
    "one element": unary("Sigmoid", (1,)),
    "three elements": unary("Exp", (3,)),
    "a long row": unary("Tanh", (1, 70001)),
    "many short rows": single((3000, 7), lambda g, x: g.op("Mul", g.op("Tanh", x), g.weight(7))),
    "gelu": single((5, 6, 77), gelu),
    "softplus of a power": single((4, 33), _softplus_of_power),
    "log": single((4, 33), lambda g, x: g.op("Log", g.op("Abs", x))),
    "rounding": single((4, 33), lambda g, x: g.op("Round", g.op("Floor", g.op("Mul", x, g.const(9.0))))),
    "clip": single((4, 33), lambda g, x: g.op("Clip", x, g.const(-0.5), g.const(0.75))),
    "where": single((4, 35), _where),
    "broadcasts": single((2, 3, 5, 11), _broadcasts),
    "to bool and back": single((4, 33), lambda g, x: g.op("Cast", g.op("Less", x, g.const(0.1)), to=1)),
    "a bool output": single((4, 33), lambda g, x: g.op("Less", x, g.const(0.1)), result="bool"),
    "int64": single((4, 33), lambda g, x: g.op("Add", x, g.const(np.array(7))), "int64", "int64"),
    "logic of bytes": single((3, 7, 41), _logic, "bool", "bool"),
    "bytes": single(
        (5, 83), lambda g, x: g.op("Concat", x, g.op("BitwiseNot", x), axis=1), "uint8", "uint8", opset=18
    ),
    "pixels of bytes to planes": single(
        (1, 9, 50, 3), lambda g, x: g.op("Transpose", x, perm=[0, 3, 1, 2]), "uint8", "uint8"
    ),
    "uint8 to float": single((4, 33), lambda g, x: g.op("Cast", x, to=1), "uint8"),
    "concatenation of the last axis": single((3, 5, 23), _concat_last),
    "concatenation": single((3, 5, 23), lambda g, x: g.op("Concat", x, g.op("Neg", x), axis=1)),
    "slice with a step": single((9, 40), _every_other),
    "flip": single((4, 37), lambda g, x: g.op("Slice", x, *_bounds(g, [-1], [-(2**31)], [-1], [1]))),
    "tile": single((3, 10), lambda g, x: g.op("Tile", x, g.const(np.array([2, 3])))),
    "tile of a short row": single((3, 7), lambda g, x: g.op("Tile", x, g.const(np.array([2, 8])))),
    "expand": single((3, 1, 10), lambda g, x: g.op("Expand", x, g.const(np.array([2, 3, 4, 10])))),
    "pad": pad((2, 5, 18), [0, 1, 3, 1, 0, 2]),
    "pad by reflection": pad((5, 18), [1, 3, 2, 4], "reflect"),
    "pad by reflection, one axis": pad((3, 6, 18), [0, 0, 0, 0, 0, 8], "reflect"),
    "pad short rows": pad((2, 5, 6, 7), [0, 1, 2, 0, 0, 2, 1, 0]),
    "pad short rows and them": pad((3, 5, 7), [1, 2, 1, 0, 3, 2]),
    "pad short rows at one end": pad((4, 9, 20), [0, 0, 0, 0, 5, 0]),
    "pad short rows with the edge": pad((2, 6, 5), [1, 2, 0, 0, 3, 0], "edge"),
    "pad an image": pad((1, 4, 90, 48), [0, 1, 1, 0, 0, 1, 1, 0]),
    "cut short rows": pad((3, 9, 7), [0, -2, 0, 1, 1, 0]),
    "join short rows": single((3, 5, 6), _joined_rows),
    "pad by nothing": single((3, 6), lambda g, x: g.op("Neg", g.op("Pad", x, g.const(np.zeros(4, int))))),
    "pad with the edge": pad((5, 18), [1, 3, 2, 4], "edge"),
    "pad with long edges": pad((3, 5, 70), [0, 2, 9, 0, 1, 21], "edge"),
    "pad by wrapping": single(
        (3, 5, 50),
        lambda g, x: g.op("Pad", x, g.const(np.array([0, 2, 37, 0, 1, 40])), mode="wrap"),
        opset=19,
    ),
    "triangle": single((2, 13, 21), _triangle),
    "gather": single((3, 5), _gather_rows),
    "depth to space": single((1, 20, 3, 5), _depth_to_space),
    "transpose": transpose((37, 29), [1, 0]),
    "transpose of int64": single(
        (37, 29), lambda g, x: g.op("Transpose", g.op("Neg", x), perm=[1, 0]), "int64", "int64"
    ),
    "transpose of float64": single(
        (3, 18, 29), lambda g, x: g.op("Transpose", x, perm=[0, 2, 1]), "float64", "float64"
    ),
    "transpose of few columns": transpose((53, 3), [1, 0]),
    "transpose to few columns": transpose((3, 53), [1, 0]),
    "planes to pixels": single(
        (2, 3, 5, 39), lambda g, x: g.op("Transpose", _bytes(g, x), perm=[0, 2, 3, 1]), result="uint8"
    ),
    "padded planes to pixels": single((1, 4, 7, 50), _padded_pixels),
    "transpose of heads": transpose((2, 17, 4, 24), [0, 2, 1, 3]),
    "transpose of keys": transpose((2, 17, 4, 24), [0, 2, 3, 1]),
    "transpose of all": transpose((5, 6, 7, 8), [3, 2, 1, 0]),
    "to channels last": transpose((2, 19, 6, 7), [0, 2, 3, 1]),
    "to channels first": transpose((2, 6, 7, 19), [0, 3, 1, 2]),
    "transposed sum": single((19, 34), _transposed_sum),
    "resize bilinear": resize((1, 18, 5, 6), [1, 18, 11, 9], "linear", "half_pixel"),
    "resize corners": resize((1, 18, 5, 6), [1, 18, 11, 9], "linear", "align_corners"),
    "resize bilinear, rows of a period": resize((2, 3, 120), [2, 4, 168], "linear", "half_pixel"),
    "resize cubic, down": resize((1, 2, 6, 131), [1, 2, 4, 70], "cubic", "half_pixel"),
    "gather of constants": _permuted(37),
    "gather of constants far apart": _permuted(300),
    "max pool": pool("MaxPool", (2, 3, 13, 27), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    "max pool, ceil": pool("MaxPool", (1, 3, 14, 40), kernel_shape=(3, 3), strides=(2, 3), ceil_mode=1),
    "max pool, dilated": pool("MaxPool", (1, 2, 12, 19), kernel_shape=(3, 2), dilations=(2, 3)),
    "average pool of a signal": pool("AveragePool", (1, 3, 90), kernel_shape=(4,), strides=(4,)),
    "average pool of a volume": pool(
        "AveragePool", (1, 2, 5, 6, 20), kernel_shape=(2,) * 3, strides=(2,) * 3
    ),
    "resize nearest": resize((1, 18, 5, 6), [1, 18, 10, 12], "nearest", "asymmetric"),
    "resize nearest, a long row": resize((1, 2, 3, 41), [1, 2, 6, 82], "nearest", "asymmetric"),
    "resize nearest, four times": resize((1, 2, 3, 41), [1, 2, 12, 164], "nearest", "asymmetric"),
    "resize nearest, forty times": resize((1, 2, 3, 3), [1, 2, 6, 120], "nearest", "asymmetric"),
    "resize nearest, a third": resize((1, 2, 12, 123), [1, 2, 4, 41], "nearest", "half_pixel"),
    "repeated in the middle": single((1, 3, 5, 23), _upsampled),
}


#: Each way to read: in a row, broadcast, transposed, by an index that is computed.
SENTINELS = (
    "gelu",
    "softplus of a power",
    "where",
    "broadcasts",
    "int64",
    "concatenation of the last axis",
    "slice with a step",
    "gather",
    "transpose",
    "transpose of heads",
    "padded planes to pixels",
    "transposed sum",
    "resize bilinear",
    "resize nearest, a long row",
)
#: What NaN goes through.
NAN = ("gelu", "a long row", "clip", "softplus of a power", "transposed sum")
ON_REGISTER_FILES = on_register_files(MODELS, SENTINELS, others=("scalar", "128x32", "256x16"), both=NAN)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(MODELS, ON_REGISTER_FILES, tmp_path_factory.mktemp("elementwise"))


@pytest.mark.parametrize(("registers", "name"), ON_REGISTER_FILES)
def test_group_is_served_by_the_rule_and_right(library: Library, registers: str, name: str) -> None:
    compiled = library(registers)
    plan = compiled.plan(name)
    assert not plan.warnings
    assert {kernel.rule for kernel in plan.kernels} == {"elementwise"}
    compiled.check(name)


@pytest.mark.parametrize("registers", SWEPT)
@pytest.mark.parametrize("name", NAN)
def test_nan_stays_where_it_is(library: Library, registers: str, name: str) -> None:
    compiled = library(registers)
    x = random_inputs(MODELS[name], 6)["x"]
    x.reshape(-1)[[0, x.size // 2, -1]] = np.nan
    got, expected = compiled.run(name, {"x": x})["y"], compiled.expected(name, {"x": x})["y"]
    assert np.isnan(got).sum() == 3
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))


@pytest.mark.parametrize("registers", SWEPT)
def test_what_constants_gather_from_nearby_is_loaded_as_vectors(registers: str) -> None:
    def lane_by_lane(name: str) -> int:
        found: list[TensorLoad] = []
        for function in plan_of(MODELS[name], "m", target_with(registers)).functions.values():
            structural_walk(function.body, (TensorLoad, found.append))
        positions = [load.indices[0] for load in found]
        return sum("x" in str(i.ty) and (not isinstance(i, Ramp) or int(i.stride) > 1) for i in positions)

    assert lane_by_lane("gather of constants far apart")
    for name in ("resize bilinear, rows of a period", "resize cubic, down", "slice with a step"):
        assert not lane_by_lane(name)


def test_short_rows_are_cut_where_their_conditions_change() -> None:
    def cut(name: str, threads: int = 1) -> bool:
        plan = plan_of(MODELS[name], "m", target_with("512x32", threads=threads)).plan
        return any("short rows" in kernel.parameters for kernel in plan.kernels)

    for name in ("short rows", "short rows and them", "short rows at one end", "short rows with the edge"):
        assert cut(f"pad {name}")
    assert cut("cut short rows") and cut("join short rows")
    assert not cut("pad with long edges")
    assert cut("pad an image") and not cut("pad an image", threads=8), "few lines for eight threads"


def test_vectors_are_as_wide_and_tiled_as_what_is_read_and_computed_asks_for() -> None:
    def lanes(name: str, registers: str = "512x32") -> set[int]:
        kernels = plan_of(MODELS[name], "m", target_with(registers)).plan.kernels
        return {kernel.parameters["lanes"] for kernel in kernels}

    assert lanes("tile of a short row") == {4}
    assert lanes("gather") == {16}
    tiled = plan_of(MODELS["transpose of int64"], "m", target_with("512x32")).plan.kernels
    assert [kernel.parameters["tiled"] for kernel in tiled] == [True]
    assert lanes("logic of bytes") == lanes("bytes") == {64}
    assert lanes("logic of bytes", "scalar") == {1}
    assert lanes("pixels of bytes to planes") == {32}
    assert lanes("pixels of bytes to planes", "128x16") == {16}
    pixels = plan_of(MODELS["padded planes to pixels"], "m", target_with("512x32")).plan.kernels
    assert [kernel.parameters["interleaved"] for kernel in pixels] == [4]
