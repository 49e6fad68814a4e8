"""Kernels for GPUs: models through the OpenCL driver of the system (PoCL), and what the plans are like."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.backends.opencl import opencl_source
from edgepack.compiler.planner.build_gpu import GPU_ALIGNMENT
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.types import Copy, Kernel, Launch, Plan, Step
from tests.models import build
from tests.models.builder import Graph
from tests.models.evaluate import random_inputs, run_onnxruntime
from tests.models.odd import ODD
from tests.models.operators import CASES
from tests.support.compiled import assert_close, plan_of
from tests.support.executor import host_target
from tests.support.opencl import OpenClExecutor, driver

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


def convolution() -> onnx.ModelProto:
    """Tiles that stick out on all sides, padding, and a tail that reads another tensor."""
    g = Graph("convolution", seed=1)
    x, other = g.input("x", (2, 20, 17, 33)), g.input("other", (2, 40, 9, 17))
    y = g.op("Conv", x, g.weight(40, 20, 3, 3), g.weight(40), strides=[2, 2], pads=[1, 1, 1, 1])
    g.op("Relu", g.op("Add", y, other), name="y")
    g.output("y")
    return g.model()


def products() -> onnx.ModelProto:
    """A batch of products of activations, one by a vector, and a tail with an elementary function."""
    g = Graph("products", seed=2)
    a, b = g.input("a", (3, 70, 41)), g.input("b", (3, 41, 50))
    y = g.op("Tanh", g.op("MatMul", a, b), name="y")
    g.op("MatMul", g.op("ReduceMean", y, axes=[1], keepdims=0), g.weight(50, 300), name="vector")
    g.output("y")
    g.output("vector")
    return g.model()


def rows() -> onnx.ModelProto:
    """Reductions along memory and across it, longer than a work group and no power of two."""
    g = Graph("rows", seed=3, opset=17)
    x = g.input("x", (5, 700))
    s = g.op("Softmax", x, axis=-1, name="soft")
    g.op("LayerNormalization", s, g.weight(700), g.weight(700), axis=-1, name="norm")
    g.op("ReduceMax", g.op("Reshape", x, g.const([70, 50])), axes=[0], keepdims=0, name="across")
    for name in ("soft", "norm", "across"):
        g.output(name)
    return g.model()


def target(**capabilities: int) -> GpuTarget:
    return GpuTarget("opencl", host_target(), **capabilities)


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
        assert_close(model, got, dict(zip((o.name for o in model.graph.output), expected, strict=True)))


def test_each_form_of_kernel(tmp_path: Path) -> None:
    models = {"convolution": convolution(), "products": products(), "rows": rows()}
    check(models, tmp_path, target(least_groups=4))


def test_small_models(tmp_path: Path) -> None:
    check({name: SMALL[name]() for name in SENTINELS}, tmp_path, target())


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(SMALL), 20))
def test_all_small_models(first: int, tmp_path: Path) -> None:
    check({name: SMALL[name]() for name in sorted(SMALL)[first : first + 20]}, tmp_path, target())


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("capabilities", [{}, {"group_size": 64, "local_bytes": 8192, "least_groups": 1}])
def test_networks(name: str, capabilities: dict[str, int], tmp_path: Path) -> None:
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
    assert rules == {"opencl.contraction", "opencl.reduction", "opencl.element"}


def kernels(model: onnx.ModelProto) -> list[Kernel]:
    return [k for k in plan_of(model, "m", target()).plan.kernels if k.backend == "opencl"]


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
