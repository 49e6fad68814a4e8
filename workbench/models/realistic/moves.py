"""Operators that move elements: transposes, slices, gathers, scatters, pads and the like."""

from __future__ import annotations

import numpy as np

from workbench.models.builder import Graph
from workbench.models.realistic.row import IMAGE, TOKENS, integers, one, row

one("transpose 0231", "Transpose", [1, 64, 56, 56], perm=[0, 2, 3, 1])
one("transpose 0312", "Transpose", [1, 56, 56, 64], perm=[0, 3, 1, 2])
one("transpose heads", "Transpose", [1, 128, 12, 64], perm=[0, 2, 1, 3])
one("transpose last two", "Transpose", [12, 128, 64], perm=[0, 2, 1])
one("transpose matrix", "Transpose", [1000, 700], perm=[1, 0])
one("transpose reversed", "Transpose", [16, 32, 48, 8], perm=[3, 2, 1, 0])
one("transpose uint8", "Transpose", [1, 224, 224, 3], perm=[0, 3, 1, 2], dtype="uint8")


@row("channel shuffle")
def _shuffle(g: Graph) -> None:
    x = g.op("Reshape", g.input("x", [1, 116, 28, 28]), g.const([1, 2, 58, 28, 28]))
    x = g.op("Transpose", x, perm=[0, 2, 1, 3, 4])
    g.output(g.op("Reshape", x, g.const([1, 116, 28, 28])))


def _concat(name: str, shapes: list[list[int]], axis: int, dtype: str = "float32") -> None:
    @row(name)
    def build(g: Graph) -> None:
        names = [g.input(f"x{i}", shape, dtype) for i, shape in enumerate(shapes)]
        g.output(g.op("Concat", *names, axis=axis), dtype)


_concat("concat channels", [[1, 64, 56, 56]] * 2, 1)
_concat("concat last", [[1, 128, 384], [1, 128, 200], [1, 128, 184]], -1)
_concat("concat interleaved", [[1, 128, 384, 1]] * 2, -1)
_concat("concat int64", [[8, 128, 64]] * 3, 1, "int64")


def _split(name: str, shape: list[int], axis: int, sizes: list[int]) -> None:
    @row(name)
    def build(g: Graph) -> None:
        for part in g.ops("Split", g.input("x", shape), g.const(sizes), outputs=len(sizes), axis=axis):
            g.output(part)


_split("split channels", IMAGE, 1, [32, 32])
_split("split last", [1, 128, 2304], -1, [768, 768, 768])


def _slice(
    name: str, shape: list[int], starts: list[int], ends: list[int], axes: list[int], steps: list[int]
) -> None:
    one(name, "Slice", shape, *(np.int64(v) for v in (starts, ends, axes, steps)))


_slice("slice channels", IMAGE, [16], [48], [1], [1])
_slice("slice step 2", IMAGE, [0, 0], [56, 56], [2, 3], [2, 2])
_slice("slice last step 2", [64, 128, 128], [1], [128], [2], [2])
_slice("slice last step 3", [64, 128, 128], [0], [128], [2], [3])
_slice("slice reversed", [64, 128, 128], [-1], [-(1 << 40)], [2], [-1])
_slice("slice window", [1, 3, 320, 320], [48, 48], [272, 272], [2, 3], [1, 1])


@row("focus: four slices, concat")
def _focus(g: Graph) -> None:
    x = g.input("x", [1, 3, 320, 320])
    parts = []
    for dy, dx in ((0, 0), (1, 0), (0, 1), (1, 1)):
        bounds = [g.const(v) for v in ([dy, dx], [320, 320], [2, 3], [2, 2])]
        parts.append(g.op("Slice", x, *bounds))
    g.output(g.op("Concat", *parts, axis=1))


one("tile", "Tile", [1, 64, 1, 56], np.int64([1, 1, 56, 1]))
one("tile last", "Tile", [64, 56, 7], np.int64([1, 1, 8]))
one("tile channels", "Tile", [1, 16, 56, 56], np.int64([1, 4, 1, 1]))
one("expand", "Expand", [1, 64, 1, 1], np.int64(IMAGE))
one("expand rows", "Expand", [1, 1, 128, 128], np.int64([1, 12, 128, 128]))
one("depthtospace", "DepthToSpace", [1, 256, 56, 56], blocksize=2)
one("depthtospace crd", "DepthToSpace", [1, 48, 112, 112], blocksize=4, mode="CRD")
one("spacetodepth", "SpaceToDepth", [1, 16, 112, 112], blocksize=2)
one("trilu upper", "Trilu", [12, 128, 128], np.int64(1), upper=1)
one("trilu lower", "Trilu", [12, 128, 128], upper=0)
one(
    "onehot",
    "OneHot",
    [256],
    np.int64(1000),
    np.float32([0, 1]),
    dtype="int64",
    to="float32",
    draw=integers(0, 1000),
)
one("onehot axis 0", "OneHot", [8192], np.int64(32), np.float32([0, 1]), dtype="int64", to="float32", axis=0)
one("centercroppad", "CenterCropPad", [1, 3, 256, 256], np.int64([224, 224]), opset=18, axes=[2, 3])
one(
    "col2im",
    "Col2Im",
    [1, 576, 784],
    np.int64([28, 28]),
    np.int64([3, 3]),
    opset=18,
    pads=[1] * 4,
    strides=[1, 1],
)


@row("reversesequence", n=integers(1, 65))
def _reverse(g: Graph) -> None:
    x, lengths = g.input("x", [64, 16, 256]), g.input("n", [16], "int64")
    g.output(g.op("ReverseSequence", x, lengths, time_axis=0, batch_axis=1))


_IMAGE_PADS = np.int64([0, 0, 3, 3, 0, 0, 3, 3])
for _mode in ("constant", "reflect", "edge", "wrap"):
    one(f"pad {_mode}", "Pad", IMAGE, _IMAGE_PADS, mode=_mode, opset=19)
one("pad channels", "Pad", IMAGE, np.int64([0, 16, 0, 0, 0, 16, 0, 0]))
one("pad reflect signal", "Pad", [1, 2, 48000], np.int64([0, 0, 512, 0, 0, 512]), mode="reflect")


@row("gather embedding")
def _embedding(g: Graph) -> None:
    g.output(g.op("Gather", g.weight(8000, 384), g.input("ids", [1, 256], "int64")))


@row("gather rows of an input")
def _gather_rows(g: Graph) -> None:
    g.output(g.op("Gather", g.input("x", [4096, 64]), g.input("ids", [2048], "int64"), axis=0))


@row("gather columns")
def _gather_columns(g: Graph) -> None:
    g.output(g.op("Gather", g.input("x", [512, 512]), g.input("ids", [256], "int64"), axis=1))


@row("gather constant indices")
def _gather_constant(g: Graph) -> None:
    g.output(g.op("Gather", g.input("x", IMAGE), g.const(np.arange(63, -1, -1)), axis=1))


@row("gather of a relative bias")
def _gather_bias(g: Graph) -> None:
    ids = g.rng.integers(0, 169, 49 * 49)
    table = g.input("x", [169, 12])
    g.output(g.op("Transpose", g.op("Gather", table, g.const(ids), axis=0), perm=[1, 0]))


@row("gatherelements")
def _gather_elements(g: Graph) -> None:
    g.output(g.op("GatherElements", g.input("x", [256, 512]), g.input("ids", [256, 512], "int64"), axis=1))


@row("gatherelements axis 0")
def _gather_elements_0(g: Graph) -> None:
    g.output(g.op("GatherElements", g.input("x", [256, 512]), g.input("ids", [256, 512], "int64"), axis=0))


@row("gathernd", ids=integers(0, 56))
def _gather_nd(g: Graph) -> None:
    g.output(g.op("GatherND", g.input("x", [56, 56, 64]), g.input("ids", [2000, 2], "int64")))


@row("gathernd points", ids=integers(0, 56))
def _gather_points(g: Graph) -> None:
    g.output(g.op("GatherND", g.input("x", [56, 56]), g.input("ids", [20000, 2], "int64")))


def _permutation(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.stack([rng.permutation(512) for _ in range(shape[0])])[:, : shape[1]]


def _distinct(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.permutation(4096)[: shape[0]].reshape(shape)


@row("scatterelements", ids=_permutation)
def _scatter_elements(g: Graph) -> None:
    ids = g.input("ids", [256, 256], "int64")
    g.output(g.op("ScatterElements", g.input("x", [256, 512]), ids, g.input("u", [256, 256]), axis=1))


@row("scatterelements add", opset=18, ids=integers(0, 512))
def _scatter_elements_add(g: Graph) -> None:
    ids, u = g.input("ids", [256, 256], "int64"), g.input("u", [256, 256])
    g.output(g.op("ScatterElements", g.input("x", [256, 512]), ids, u, axis=1, reduction="add"))


@row("scatternd rows", ids=_distinct)
def _scatter_rows(g: Graph) -> None:
    ids, u = g.input("ids", [1024, 1], "int64"), g.input("u", [1024, 64])
    g.output(g.op("ScatterND", g.input("x", [4096, 64]), ids, u))


@row("scatternd add", opset=18, ids=integers(0, 4096))
def _scatter_add(g: Graph) -> None:
    ids, u = g.input("ids", [1024, 1], "int64"), g.input("u", [1024, 64])
    g.output(g.op("ScatterND", g.input("x", [4096, 64]), ids, u, reduction="add"))


@row("scatternd points, constant")
def _scatter_points(g: Graph) -> None:
    ids = np.stack(np.unravel_index(g.rng.permutation(56 * 56)[:2000], (56, 56)), 1)
    g.output(g.op("ScatterND", g.input("x", [56, 56]), g.const(ids), g.input("u", [2000])))


@row("scatternd of a slice")
def _scatter_slice(g: Graph) -> None:
    ids = np.stack(np.meshgrid([0], np.arange(16, 112), np.arange(0, 384), indexing="ij"), -1)
    g.output(g.op("ScatterND", g.input("x", [1, 128, 384]), g.const(ids), g.input("u", [1, 96, 384])))


@row("rotaryembedding", opset=23, positions=integers(0, 128))
def _rotary(g: Graph) -> None:
    x = g.input("x", [1, 12, 128, 64])
    angles = g.rng.uniform(-1, 1, (128, 32)).astype("f")
    cos, sin = g.const(np.cos(angles)), g.const(np.sin(angles))
    positions = g.input("positions", [1, 128], "int64")
    g.output(g.op("RotaryEmbedding", x, cos, sin, positions))


@row("window partition")
def _windows(g: Graph) -> None:
    x = g.op("Reshape", g.input("x", [1, 56, 56, 96]), g.const([1, 8, 7, 8, 7, 96]))
    x = g.op("Transpose", x, perm=[0, 1, 3, 2, 4, 5])
    g.output(g.op("Reshape", x, g.const([64, 49, 96])))


@row("roll")
def _roll(g: Graph) -> None:
    x = g.input("x", [1, 56, 56, 96])
    for axis in (1, 2):
        back = g.op("Slice", x, g.const([3]), g.const([56]), g.const([axis]))
        front = g.op("Slice", x, g.const([0]), g.const([3]), g.const([axis]))
        x = g.op("Concat", back, front, axis=axis)
    g.output(x)


@row("tokens of an image")
def _tokens(g: Graph) -> None:
    x = g.op("Reshape", g.input("x", [1, 384, 14, 14]), g.const([1, 384, 196]))
    g.output(g.op("Add", g.op("Transpose", x, perm=[0, 2, 1]), g.weight(1, 196, 384)))


one("transpose int64", "Transpose", TOKENS, perm=[0, 2, 1], dtype="int64")
