"""Channels last: right for every operator that follows the layout, and without transposes inside of a
network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.graph.lower import lower
from workbench.compiled import Compiled, plan_of
from workbench.models import build
from workbench.models.builder import Graph

Body = Callable[[Graph, str], str]
BODIES: dict[str, tuple[int, Body]] = {}


def body(transposes: int) -> Callable[[Body], Body]:
    """Registers what stands behind a 3x3 convolution to (1, 12, 8, 6); ``transposes`` is how many may
    remain."""

    def register(function: Body) -> Body:
        BODIES[function.__name__] = (transposes, function)
        return function

    return register


@body(2)
def spatial_output(g: Graph, x: str) -> str:
    return g.op("Relu", x)


@body(2)
def quantised(g: Graph, x: str) -> str:
    """Scales of each channel, and weights that are integers."""
    scale, zero = g.uniform(12, low=0.01, high=0.02), g.const([128] * 12, "uint8")
    y = g.op("DequantizeLinear", g.op("QuantizeLinear", x, scale, zero), scale, zero)
    weights = g.const(g.rng.integers(-100, 100, (8, 12, 3, 3)).astype("int8"))
    weights = g.op("DequantizeLinear", weights, g.uniform(8, low=0.01, high=0.02), axis=0)
    return g.op("Conv", y, weights, pads=[1, 1, 1, 1])


@body(1)
def global_mean(g: Graph, x: str) -> str:
    return g.op("Flatten", g.op("GlobalAveragePool", x))


@body(1)
def mean_without_dimensions(g: Graph, x: str) -> str:
    return g.op("ReduceMean", x, axes=[2, 3], keepdims=0)


@body(2)
def mean_over_channels(g: Graph, x: str) -> str:
    return g.op("Conv", g.op("ReduceMean", x, axes=[1], keepdims=1), g.weight(3, 1, 3, 3))


@body(2)
def mean_over_width(g: Graph, x: str) -> str:
    return g.op("ReduceMean", x, axes=[3], keepdims=0)


@body(1)
def maximum_of_everything_but_channels(g: Graph, x: str) -> str:
    return g.op("ReduceMax", x, axes=[0, 2, 3], keepdims=0)


@body(1)
def scale_by_squeeze_and_excite(g: Graph, x: str) -> str:
    s = g.op("GlobalAveragePool", x)
    s = g.op("Relu", g.op("Conv", s, g.weight(4, 12, 1, 1)))
    s = g.op("Sigmoid", g.op("Conv", s, g.weight(12, 4, 1, 1)))
    return g.op("GlobalAveragePool", g.op("Mul", x, s))


@body(1)
def constant_of_lower_rank(g: Graph, x: str) -> str:
    x = g.op("Add", x, g.weight(12, 1, 1))
    x = g.op("Mul", x, g.weight(8, 6))
    x = g.op("Sub", x, g.const(0.5))
    return g.op("GlobalMaxPool", g.op("Add", x, g.weight(6)))


@body(1)
def concatenate_channels(g: Graph, x: str) -> str:
    y = g.op("Concat", x, g.op("Relu", x), g.op("Neg", x), axis=1)
    return g.op("GlobalAveragePool", y)


@body(1)
def concatenate_rows(g: Graph, x: str) -> str:
    y = g.op("Concat", x, g.op("Relu", x), axis=-2)
    return g.op("GlobalAveragePool", g.op("Conv", y, g.weight(5, 12, 3, 3)))


@body(1)
def split_channels(g: Graph, x: str) -> str:
    a, b = g.ops("Split", x, g.const([5, 7]), outputs=2, axis=1)
    left = g.op("GlobalAveragePool", g.op("Conv", a, g.weight(4, 5, 3, 3)))
    right = g.op("GlobalAveragePool", g.op("Conv", b, g.weight(4, 7, 3, 3)))
    return g.op("Add", left, right)


@body(1)
def slice_and_pad(g: Graph, x: str) -> str:
    y = g.op("Slice", x, g.const([1, 0]), g.const([11, 5]), g.const([1, 3]), g.const([2, 1]))
    y = g.op("Pad", y, g.const([0, 0, 2, 1, 0, 0, 1, 3]), mode="reflect")
    return g.op("GlobalAveragePool", g.op("Conv", y, g.weight(3, 5, 3, 3)))


@body(1)
def pad_by_edges_and_a_number(g: Graph, x: str) -> str:
    y = g.op("Pad", x, g.const([0, 0, 1, 2, 0, 0, 1, 0]), mode="edge")
    y = g.op("Relu", g.op("Pad", y, g.const([0, 1, 1, 2, 0, 3, 0, 1]), g.const(0.5)))
    return g.op("GlobalMaxPool", y)


@body(1)
def padding_left_to_the_shapes(g: Graph, x: str) -> str:
    y = g.op("Conv", x, g.weight(5, 12, 2, 3), auto_pad="SAME_LOWER", strides=[1, 2])
    return g.op("GlobalAveragePool", g.op("Conv", y, g.weight(3, 5, 4, 3), auto_pad="SAME_UPPER"))


@body(1)
def chosen_columns(g: Graph, x: str) -> str:
    return g.op("GlobalAveragePool", g.op("Gather", x, g.const([4, 0, 0, 5]), axis=3))


@body(1)
def parametric_relu(g: Graph, x: str) -> str:
    return g.op("GlobalMaxPool", g.op("PRelu", x, g.weight(12, 1, 1)))


@body(1)
def tokens(g: Graph, x: str) -> str:
    """What a vision transformer does with its patches."""
    y = g.op("Transpose", g.op("Reshape", x, g.const([1, 12, 48])), perm=[0, 2, 1])
    return g.op("MatMul", y, g.weight(12, 9))


@body(1)
def tokens_and_back(g: Graph, x: str) -> str:
    """What SegFormer does between its stages."""
    y = g.op("Transpose", g.op("Reshape", x, g.const([1, 12, 48])), perm=[0, 2, 1])
    y = g.op("MatMul", y, g.weight(12, 12))
    y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1]), g.const([1, 12, 8, 6]))
    return g.op("GlobalAveragePool", g.op("Conv", y, g.weight(5, 12, 3, 3)))


@body(2)
def shuffle_channels(g: Graph, x: str) -> str:
    y = g.op("Reshape", x, g.const([1, 3, 4, 8, 6]))
    y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3, 4]), g.const([1, 12, 8, 6]))
    return g.op("GlobalAveragePool", g.op("Conv", y, g.weight(5, 12, 3, 3)))


@body(2)
def transpose_of_two(g: Graph, x: str) -> str:
    return g.op("Transpose", x, perm=[3, 1, 0, 2])


@body(2)
def flattened_image(g: Graph, x: str) -> str:
    return g.op("MatMul", g.op("Flatten", x), g.weight(576, 7))


@body(1)
def resized_and_cast(g: Graph, x: str) -> str:
    y = g.op("Resize", x, "", g.const([1.0, 1.0, 2.0, 2.0]), mode="nearest")
    y = g.op("Cast", g.op("Greater", y, g.const(0.1)), to=onnx.TensorProto.FLOAT)
    return g.op("GlobalAveragePool", y)


@body(1)
def select_by_condition(g: Graph, x: str) -> str:
    y = g.op("Where", g.op("Less", x, g.const(0.0)), g.op("Mul", x, g.const(0.1)), x)
    return g.op("GlobalAveragePool", g.op("Clip", y, g.const(-0.2), g.const(0.9)))


def _model(name: str) -> onnx.ModelProto:
    g = Graph(name, seed=sum(name.encode()))
    x = g.op("Conv", g.input("x", [1, 5, 10, 8]), g.weight(12, 5, 3, 3), g.weight(12))
    g.op("Identity", BODIES[name][1](g, x), name="y")
    g.output("y")
    return g.model()


def _transposes(model: onnx.ModelProto) -> list[str]:
    lowered = lower(import_model(model).module)
    return [op for group in lowered.groups.values() for op in group.operators if op.startswith("transpose")]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled({name: _model(name) for name in BODIES}, tmp_path_factory.mktemp("layout"))


@pytest.mark.parametrize("name", list(BODIES))
def test_operator_keeps_its_meaning_in_channels_last(compiled: Compiled, name: str) -> None:
    compiled.check(name)


@pytest.mark.parametrize("name", list(BODIES))
def test_no_more_transposes_than_the_layouts_need(name: str) -> None:
    assert len(_transposes(_model(name))) <= BODIES[name][0]


@pytest.mark.parametrize(
    "network",
    [
        *("mobilenetv3", "efficientnet"),
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("resnet18", "mobilenetv2", "light_squeezenet")),
    ],
)
def test_classifier_has_one_transpose_at_its_input(network: str) -> None:
    from edgepack.compiler.frontend.onnx.binding import bind
    from workbench.models import DIMS

    model = build(network)
    bind(model, shapes={}, dims=DIMS.get(network, {}))
    assert len(_transposes(model)) == 1


@pytest.mark.parametrize("rank", [1, 3])
def test_residual_blocks_of_other_ranks_have_transposes_only_at_their_ends(rank: int) -> None:
    g = Graph("blocks", seed=1)
    kernel = [3] * rank
    x = g.op("Conv", g.input("x", [1, 3, *[12] * rank]), g.weight(8, 3, *kernel), g.weight(8))
    for dilation in (1, 2):
        dilations, pads = [dilation] * rank, [dilation] * (2 * rank)
        y = g.op("Conv", g.act(x, "gelu"), g.weight(8, 8, *kernel), dilations=dilations, pads=pads)
        x = g.op("Add", x, y)
    x = g.op("MaxPool", x, kernel_shape=[2] * rank, strides=[2] * rank)
    g.op("Conv", x, g.weight(4, 8, *[1] * rank), name="y")
    g.output("y")
    assert len(_transposes(g.model())) == 2


def test_segmentation_network_has_transposes_only_at_its_ends() -> None:
    assert len(_transposes(build("unet_resize"))) <= 2


def test_values_survive_a_change_of_layout_and_back(tmp_path: Path) -> None:
    """A value that one reader wants channels first and another channels last exists in both forms."""
    g = Graph("both", seed=1)
    x = g.op("Conv", g.input("x", [1, 4, 9, 7]), g.weight(6, 4, 3, 3))
    g.op("Conv", x, g.weight(5, 6, 3, 3), name="a")
    g.op("Softmax", x, axis=-1, name="b")
    g.op("Transpose", x, perm=[0, 2, 3, 1], name="c")
    for name in "abc":
        g.output(name)
    Compiled({"both": g.model()}, tmp_path).check("both")


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("attributes", [{}, {"pads": [1, 1, 1, 1], "output_padding": [1, 1]}])
def test_transposed_convolution_becomes_plain_ones(attributes: dict[str, list[int]], constant: bool) -> None:
    """As TVM writes it, every output pixel tests each tap. Phases of fewer taps do not multiply by zeros."""
    g = Graph("up", seed=1)
    w = g.weight(8, 4, 3, 3) if constant else g.input("w", [8, 4, 3, 3])
    g.op("ConvTranspose", g.input("x", [1, 8, 5, 6]), w, strides=[2, 2], name="y", **attributes)
    g.output("y")
    lowered = lower(import_model(g.model()).module)
    operators = [op for group in lowered.groups.values() for op in group.operators]
    assert [op for op in operators if op.startswith("conv2d")] == 4 * ["conv2d"]
    kernels = plan_of(g.model()).plan.kernels
    flops = sum(kernel.flops for kernel in kernels if kernel.rule.startswith("conv2d."))
    assert flops == 2 * 3 * 3 * 8 * 4 * (6 * 7)


@pytest.mark.slow
def test_transposed_convolutions_of_every_kind(tmp_path: Path) -> None:
    """Ranks, windows, strides, dilations, paddings and groups at random, weights constant or not."""
    models = {}
    for number in range(100):
        random = np.random.default_rng(number)
        rank, group = int(random.integers(1, 4)), int(random.choice([1, 1, 2, 4]))

        def draw(low: int, high: int, count: int = rank, random: Any = random) -> list[int]:
            return [int(n) for n in random.integers(low, high, count)]

        channels, out = 4 * draw(1, 3, 1)[0], draw(1, 5, 1)[0]
        form = {"strides": draw(1, 4), "dilations": draw(1, 3), "pads": draw(0, 3, 2 * rank), "group": group}
        form["output_padding"] = [n % stride for n, stride in zip(draw(0, 3), form["strides"], strict=True)]
        g = Graph(f"t{number}", seed=number)
        shape = [channels, out, *draw(1, 6)]
        w = g.input("w", shape) if number % 2 else g.weight(*shape)
        x = g.input("x", [draw(1, 3, 1)[0], channels, *draw(5, 7)])
        g.op("ConvTranspose", x, w, g.weight(group * out), name="y", **form)
        g.output("y")
        models[f"t{number}"] = g.model()
    compiled = Compiled(models, tmp_path)
    for name in models:
        compiled.check(name)
