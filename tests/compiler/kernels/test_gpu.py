"""Kernels for GPUs: models through the OpenCL driver of the system (PoCL), and what the plans are like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tvm import te, tirx

from edgepack.compiler.backends.opencl import opencl_source
from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.implement_gpu import implement_on_gpu
from edgepack.compiler.planner.layout import GPU_ALIGNMENT
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.opt_level import OptLevel
from edgepack.plan.types import Copy, Kernel, Launch, Plan, Step
from tests.support.opencl import OpenClExecutor, driver
from workbench.compiled import FREE_COPIES, assert_close, plan_of
from workbench.executor import host_target
from workbench.models import build
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs, run_onnxruntime
from workbench.models.gpu import attention, causal_attention, convolution, masked_attention, products, rows
from workbench.models.odd import ODD
from workbench.models.operators import CASES

SMALL = {**CASES, **ODD}

#: Small models of each form of expression and position, and some that the CPU computes.
SENTINELS = (
    *("conv_stride_asymmetric_pads", "conv_grouped", "convtranspose_asymmetric", "averagepool_ceil"),
    *(
        "softmax_axis_1",
        "reduceprod_axes",
        "gelu_tanh",
        "gather_nd",
        "where_broadcast",
        "isnan",
        "pad_reflect",
    ),
    *("resize_cubic_half_pixel", "mod_int64", "bitshift", "cast_int8", "equal_bool", "topk"),
)

NETWORKS = (
    *("mobilenetv3", "vit", "unet_transpose", "unet_resize", "segformer", "yolo", "wav2vec2", "hifigan"),
    *("lstm", "r3d", "convnext", "tcn"),
)


#: Rules of kernels at the second level of optimisation.
LEVEL_2 = {"element", "contraction", "reduction", "rows", "partial_sums"}


def target(**capabilities: Any) -> GpuTarget:
    return GpuTarget("opencl", host_target(), **capabilities, speed=FREE_COPIES)


def check(models: dict[str, onnx.ModelProto], folder: Path, on: GpuTarget) -> None:
    """Every model, all kernels in one program, against ONNX Runtime."""
    found = driver(folder / "pocl")
    built = {name: plan_of(model, f"m{i}", on) for i, (name, model) in enumerate(models.items())}
    executor = OpenClExecutor(built, folder / "kernels", found)
    for name, model in models.items():
        inputs, plan = random_inputs(model, 3), built[name].plan
        results = executor.run(name, [np.asarray(inputs[spec.name]) for spec in plan.inputs])
        got = dict(zip((spec.name for spec in plan.outputs), results, strict=True))
        expected = run_onnxruntime(model, inputs)
        rounded = "float16" if on.precision == "fp16" else None
        names = (o.name for o in model.graph.output)
        assert_close(model, got, dict(zip(names, expected, strict=True)), rounded)


@pytest.mark.parametrize(
    ("level", "allowed", "models"),
    [
        (0, {"element"}, ("convolution",)),
        pytest.param(1, {"element"}, ("attention",), marks=pytest.mark.slow),
        (2, LEVEL_2, ("attention",)),
        pytest.param(2, LEVEL_2, ("rows",), marks=pytest.mark.slow),
    ],
)
def test_each_level_of_optimisation(
    level: OptLevel, allowed: set[str], models: Sequence[str], tmp_path: Path
) -> None:
    every = {"convolution": convolution, "rows": rows, "attention": attention}
    on = replace(target(least_groups=3), host=replace(host_target(), opt_level=level))
    check({name: every[name]() for name in models}, tmp_path, on)
    for name in models:
        kernels = plan_of(every[name](), "m", on).plan.kernels
        assert {k.rule for k in kernels} <= {f"opencl.{rule}" for rule in allowed}
        assert level or all(len(k.ops) == 1 for k in kernels)


def test_each_form_of_kernel(tmp_path: Path) -> None:
    """Products are there in float16, and with both in the slow tests."""
    models = {"convolution": convolution(), "rows": rows(), "windows": windows()}
    check(models, tmp_path, target(least_groups=3))
    rules = [k.rule for k in plan_of(models["windows"], "m", target(least_groups=3)).plan.kernels]
    assert rules.count("opencl.window") == 3, rules


def test_groups_share_the_terms_of_a_deep_product(tmp_path: Path) -> None:
    check({"deep": deep_product()}, tmp_path, target())
    plan = plan_of(deep_product(), "m", target()).plan
    product, sums = (step for step in plan.steps if isinstance(step, Launch))
    assert product.groups[2] == 2 * 4 and sums.groups[1:] == (1, 1)
    flops = {kernel.symbol: kernel.flops for kernel in plan.kernels}
    assert flops[product.kernel] >= 2 * 2 * 40 * 700 * 48 and flops[sums.kernel] == 0


def test_each_form_of_kernel_with_float16_in_memory(tmp_path: Path) -> None:
    """A product, softmax, and a product; sums are float32: what is off is the rounding of tensors."""
    g = Graph("half", seed=7)
    a = g.op("MatMul", g.input("x", (2, 33, 40)), g.weight(40, 50))
    g.op("MatMul", g.op("Softmax", a, axis=-1), g.weight(50, 20), name="y")
    g.output("y")
    on = target(least_groups=4, precision="fp16")
    check({"half": g.model()}, tmp_path, on)
    text = opencl_source(plan_of(g.model(), "half", on).gpu_kernels)
    assert text.count("STORE_HALF(p") >= 2


def test_small_models(tmp_path: Path) -> None:
    check({name: SMALL[name]() for name in SENTINELS}, tmp_path, target())


def test_attention_is_one_kernel(tmp_path: Path) -> None:
    """Also with float16 in memory; where there are too few groups for its work, it is three kernels."""
    check({"masked": masked_attention()}, tmp_path, target(least_groups=4))
    check({"half": causal_attention()}, tmp_path, target(group_size=64, precision="fp16"))
    rules = [kernel.rule for kernel in kernels(masked_attention())]
    assert rules == ["opencl.attention"] * 2
    assert "opencl.attention" in {kernel.rule for kernel in kernels(causal_attention())}
    few = plan_of(attention(1, 600, 48), "m", target(least_groups=1000)).plan
    assert "opencl.attention" not in {kernel.rule for kernel in few.kernels}


def deep_product() -> onnx.ModelProto:
    """Few rows and columns, many terms: groups share them."""
    g = Graph("deep", seed=2)
    a = g.op("MatMul", g.input("x", (2, 40, 700)), g.input("w", (2, 700, 48)))
    g.op("Tanh", g.op("Add", a, g.weight(48)), name="y")
    g.output("y")
    return g.model()


def grouped(channels: Sequence[tuple[int, int]], groups: int, side: int = 9) -> onnx.ModelProto:
    """Convolutions by 3x3 in groups, of stride 1 and 2 in turn, each behind another.

    Args:
        channels: of a group, in and out.
    """
    g = Graph("grouped", seed=8)
    x = g.input("x", (2, groups * channels[0][0], side, side))
    for i, (inputs, outputs) in enumerate(channels):
        weights = g.weight(groups * outputs, inputs, 3, 3), g.weight(groups * outputs)
        x = g.op("Relu", g.op("Conv", x, *weights, group=groups, pads=[1] * 4, strides=[1 + i % 2] * 2))
    g.op("Identity", x, name="y")
    g.output("y")
    return g.model()


def grouped_others() -> onnx.ModelProto:
    """A convolution along one dimension in groups, and a transposed one."""
    g = Graph("others", seed=9)
    y = g.op("Conv", g.input("x", (2, 36, 31)), g.weight(48, 9, 3), group=4, strides=[2], name="along")
    z = g.op("ConvTranspose", g.op("Relu", y), g.weight(48, 8, 4), group=4, strides=[2], name="transposed")
    g.output(y)
    g.output(z)
    return g.model()


def test_groups_of_channels_are_a_batch_of_products(tmp_path: Path) -> None:
    """The output's channel is in both factors, in the first only by its group."""
    model = grouped([(8, 16)], groups=3)
    check({"grouped": model}, tmp_path, target())
    plan = plan_of(model, "m", target()).plan
    (product,) = (kernel for kernel in plan.kernels if kernel.flops)
    assert product.rule == "opencl.contraction"
    (launch,) = (step for step in plan.steps if isinstance(step, Launch) and step.kernel == product.symbol)
    assert launch.groups[2] == 3, "a product for each group"
    assert launch.threads[0] < launch.threads[1], "as narrow as 16 channels"


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_groups_of_channels(precision: str, tmp_path: Path) -> None:
    on = target(least_groups=4, precision=precision)
    models = {f"of {n}": grouped([(n, n), (n, n)], 32, 12) for n in (4, 8, 16)}
    models = {**models, "others": grouped_others(), "uneven": grouped([(3, 17), (17, 5), (5, 33)], 2)}
    check(models, tmp_path, on)
    built = plan_of(models["others"], "m", on).plan
    assert {k.rule for k in built.kernels if k.flops > 1 << 16} == {"opencl.contraction"}


def windows() -> onnx.ModelProto:
    """Depthwise convolutions and a pooling whose windows overlap, and two poolings whose windows do not, or
    share too little."""
    g = Graph("windows", seed=1)
    options: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    a = g.op("Conv", g.input("x", (1, 32, 28, 28)), g.weight(32, 1, 3, 3), g.weight(32), group=32, **options)
    a = g.op("MaxPool", g.op("MaxPool", g.op("Relu", a), **options), strides=[2, 2], **options)
    a = g.op("Conv", a, g.weight(32, 1, 5, 5), kernel_shape=[5, 5], pads=[2, 2, 2, 2], group=32)
    g.op("AveragePool", a, kernel_shape=[2, 2], strides=[2, 2], name="y")
    g.output("y")
    return g.model()


def softmaxes() -> onnx.ModelProto:
    """Rows that one work item computes, that lanes share, that are not contiguous, and one that is too long
    for the memory of a group; a normalisation of one row."""
    g = Graph("softmaxes", seed=3)
    for number, (shape, axis) in enumerate([((300, 3), 1), ((40, 70), 1), ((3, 50, 6), 1), ((1, 9001), 1)]):
        x = g.input(f"x{number}", shape)
        g.op("Softmax" if number else "LogSoftmax", x, axis=axis, name=f"y{number}")
        g.output(f"y{number}")
    g.op("LayerNormalization", g.input("x", (1, 1, 130)), g.weight(130), axis=-1, name="y")
    g.output("y")
    return g.model()


def test_a_softmax_is_one_kernel_where_its_rows_fit_into_memory(tmp_path: Path) -> None:
    check({"softmaxes": softmaxes()}, tmp_path, target())
    rules = [kernel.rule for kernel in kernels(softmaxes())]
    assert rules.count("opencl.rows") == 4 and len(rules) == 4 + 4, rules


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_products(precision: str, tmp_path: Path) -> None:
    check({"products": products()}, tmp_path, target(least_groups=4, precision=precision))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("first", range(0, len(SMALL), 20))
def test_all_small_models(first: int, precision: str, tmp_path: Path) -> None:
    names = sorted(SMALL)[first : first + 20]
    check({name: SMALL[name]() for name in names}, tmp_path, target(precision=precision))


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    "capabilities",
    [{}, {"group_size": 64, "local_bytes": 8192, "least_groups": 1}, {"precision": "fp16"}],
)
def test_networks(name: str, capabilities: dict[str, Any], tmp_path: Path) -> None:
    check({name: build(name)}, tmp_path, target(**capabilities))


@pytest.mark.parametrize("group_size", [64, 256])
def test_launches_stay_within_the_device(group_size: int) -> None:
    for make in (convolution, products, rows):
        plan = plan_of(make(), "m", target(group_size=group_size, local_bytes=8192)).plan
        launches = [step for step in plan.steps if isinstance(step, Launch)]
        assert launches
        for launch in launches:
            assert prod(launch.threads) <= group_size
            assert launch.local_bytes <= 8192
            assert min(launch.groups) >= 1


def test_rules() -> None:
    rules = {kernel.rule for make in (convolution, products, rows) for kernel in kernels(make())}
    assert rules == {"opencl.contraction", "opencl.reduction", "opencl.rows", "opencl.element"}


def kernels(model: onnx.ModelProto) -> list[Kernel]:
    return [k for k in plan_of(model, "m", target()).plan.kernels if k.backend == "opencl"]


@pytest.mark.parametrize(("initial", "rules"), [(0.0, ["reduction"]), (1.0, ["element"])])
def test_only_a_sum_that_starts_from_nothing_is_shared(initial: float, rules: list[str]) -> None:
    """Each work item of a group starts from the initial value, which must not count more than once."""
    total = te.comm_reducer(lambda a, b: a + b, lambda dtype: tirx.const(initial, dtype))
    x, k = te.placeholder((4, 256), "float32"), te.reduce_axis((0, 256))
    function = te.create_prim_func([x, te.compute((4,), lambda i: total(x[i, k], axis=k))])
    group = FusedGroup("total", function, 1, ("total",))
    assert list(implement_on_gpu(group, target()).rules) == rules


def test_equal_kernels_are_one() -> None:
    g = Graph("twice", seed=4)
    y = g.input("x", (1, 16, 8, 8))
    for _ in range(3):
        y = g.op("Relu", g.op("Conv", y, g.weight(16, 16, 3, 3), g.weight(16), pads=[1, 1, 1, 1]))
    g.op("Identity", y, name="y")
    g.output("y")
    built = plan_of(g.model(), "m", target())
    launches = [step.kernel for step in built.plan.steps if isinstance(step, Launch)]
    convolutions = [kernel for kernel in launches if kernel.endswith("contraction")]
    assert len(convolutions) == 3
    assert len(set(convolutions)) == 1


def test_what_the_cpu_computes_is_copied_there_and_back() -> None:
    """TopK between operators of the GPU; its warning says why."""
    g = Graph("between", seed=5)
    x = g.input("x", (4, 64))
    values, _ = g.ops("TopK", g.op("Tanh", x), g.const([8]), outputs=2, axis=-1)
    g.op("Sigmoid", values, name="y")
    g.output("y")
    plan = plan_of(g.model(), "m", target()).plan
    kinds = [
        ("up" if step.upload else "down") if isinstance(step, Copy) else type(step).__name__.lower()
        for step in plan.steps
    ]
    assert kinds == ["up", "launch", "down", "step", "up", "launch", "down"]
    assert [text for text in plan.warnings if "the CPU computes it" in text]
    assert Plan.from_json(plan.to_json()) == plan


def test_buffers_are_aligned_and_apart() -> None:
    plan = plan_of(build("unet_resize"), "m", target()).plan
    for buffer in plan.gpu_arena.buffers:
        assert buffer.offset % GPU_ALIGNMENT == 0
        assert buffer.offset + buffer.nbytes <= plan.gpu_arena.nbytes
    for step in plan.steps:
        assert not isinstance(step, Step), "the CPU computes nothing of a U-Net"
        for argument in step.arguments if isinstance(step, Launch) else [step.device]:
            assert argument.nbytes > 0


def test_numbers_are_exact_in_the_source() -> None:
    """A decimal of seven digits, as TVM's generators write it, is not the number."""
    g = Graph("number", seed=6)
    g.op("Mul", g.input("x", (8,)), g.const(np.float32(1 / 3)), name="y")
    g.output("y")
    text = opencl_source(plan_of(g.model(), "m", target()).gpu_kernels)
    assert f"{np.float32(1 / 3):.9g}f" in text
