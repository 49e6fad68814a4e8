"""Which tensors are float16 in a GPU's memory, and that what must not be is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.graph.lower import lower
from edgepack.compiler.planner.build import Built
from edgepack.compiler.planner.build_gpu import build_gpu_plan
from edgepack.compiler.planner.measured import Measured
from edgepack.plan.calibration import CalibrationRanges
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.types import Launch
from workbench.compiled import FREE_COPIES
from workbench.executor import host_target
from workbench.models.builder import Graph
from workbench.models.gpu import attention

FP16 = GpuTarget("cuda", host_target(), capabilities=(87,), precision="fp16", speed=FREE_COPIES)


def planned(model: onnx.ModelProto, target: GpuTarget = FP16, large: frozenset[str] = frozenset()) -> Built:
    imported = import_model(model)
    signature = imported.signature
    measured = Measured(CalibrationRanges(large))
    return build_gpu_plan(
        lower(imported.module), signature, target, name="m", symbol_prefix="m_", measured=measured
    )


def argument_bytes(built: Built) -> list[list[int]]:
    """Of each launch, the bytes of each tensor that it is given."""
    return [[a.nbytes for a in s.arguments] for s in built.plan.steps if isinstance(s, Launch)]


def two(factor: float = 1.0) -> onnx.ModelProto:
    """A product of 16 x 32 by 32 x 64, tanh, and a product by 64 x 24 into the output."""
    g = Graph("two", seed=1)
    second = np.random.default_rng(1).normal(size=(64, 24)).astype(np.float32)
    y = g.op("Tanh", g.op("MatMul", g.input("x", (16, 32)), g.weight(32, 64)), name="middle")
    g.op("MatMul", y, g.const(second * np.float32(factor)), name="y")
    g.output("y")
    return g.model()


def test_weights_and_what_lies_between_kernels_are_halved() -> None:
    """Inputs and outputs are not: nothing is converted beside the kernels."""
    built = planned(two())
    assert argument_bytes(built) == [
        [4 * 16 * 32, 2 * 32 * 64, 2 * 16 * 64],
        [2 * 16 * 64, 2 * 64 * 24, 4 * 16 * 24],
    ]
    assert [constant.dtype for constant in built.plan.constants] == ["float16", "float16"]
    assert built.plan.params_bytes == 2 * (32 * 64 + 64 * 24)
    assert built.plan.gpu_arena.nbytes == 4 * 16 * 32 + 2 * 16 * 64
    assert not built.plan.warnings


def test_a_weight_that_float16_cannot_hold_stays_float32() -> None:
    built = planned(two(1e6))
    assert [constant.dtype for constant in built.plan.constants] == ["float16", "float32"]
    (text,) = built.plan.warnings
    assert "so it stays float32: float16 holds 6e-8 to 65504" in text
    (node,) = [n for s in built.plan.steps if isinstance(s, Launch) for n in s.nodes if "MatMul" in n][1:]
    assert repr(node) in text


def test_what_was_seen_to_be_too_large_stays_float32() -> None:
    names = planned(two()).plan.steps[1]
    assert isinstance(names, Launch)
    built = planned(two(), large=frozenset(names.nodes))
    assert argument_bytes(built)[0][-1] == 4 * 16 * 64


def test_float16_weights_alone_are_only_what_is_exact() -> None:
    """``--weights float16`` on a GPU in float32: the numbers are the model's to the last bit."""
    target = GpuTarget("cuda", host_target(), capabilities=(87,), float16_weights=True)
    assert [c.dtype for c in planned(two(), target).plan.constants] == ["float32", "float32"]
    model = two()
    for tensor in model.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            rounded = array.astype(np.float16).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(rounded, tensor.name))
    built = planned(model, target)
    assert [c.dtype for c in built.plan.constants] == ["float16", "float16"]
    assert argument_bytes(built)[0][-1] == 4 * 16 * 64


@pytest.mark.parametrize(("capabilities", "rule"), [((75, 90), "tensor_core"), ((72, 87), "contraction")])
def test_products_are_for_the_units_that_every_gpu_has(capabilities: tuple[int, ...], rule: str) -> None:
    """Both factors are float16: the input is not, so the first product is no such one."""
    built = planned(two(), replace(FP16, capabilities=capabilities))
    kernels = [s.kernel.partition("_g")[2] for s in built.plan.steps if isinstance(s, Launch)]
    assert [name.partition("_")[2] for name in kernels] == ["contraction", rule]
    assert [constant.dtype for constant in built.plan.constants] == ["float16", "float16"]
    columns = built.plan.constants[1].shape
    assert columns == ((24, 64) if rule == "tensor_core" else (64, 24))


def positions_of_products() -> onnx.ModelProto:
    """A product whose numbers become integers."""
    g = Graph("products", seed=4)
    x = g.op("MatMul", g.input("x", (16, 32)), g.weight(32, 64))
    g.op("Cast", g.op("Floor", x), to=onnx.TensorProto.INT64, name="y")
    g.output("y", "int64")
    return g.model()


@pytest.mark.parametrize("make", [two, positions_of_products])
def test_tf32_is_for_products_that_may_be_rounded(make: Callable[[], onnx.ModelProto]) -> None:
    """Nothing is float16 in memory; weights are stored column by column, those of positions as they were."""
    full = GpuTarget("cuda", host_target(), capabilities=(80,))
    built, exact = planned(make(), replace(full, precision="tf32")), planned(make(), full)
    rules = [name.rpartition("_g")[2].partition("_")[2] for name in built.gpu_kernels]
    assert [constant.dtype for constant in built.plan.constants if constant.dtype == "float16"] == []
    assert argument_bytes(built) == argument_bytes(exact)
    if make is two:
        assert rules == ["tensor_core", "tensor_core"]
        assert [constant.shape for constant in built.plan.constants] == [(64, 32), (24, 64)]
        assert all("ep_mma_tf32(sum" in text for text in built.gpu_kernels.values())
    else:
        assert "tensor_core" not in rules


def test_eight_terms_are_read_at_once_where_they_lie_together() -> None:
    """Of attention: projections, rows and columns of the scores; weights are stored column by column."""
    built = planned(attention(tokens=48), replace(FP16, capabilities=(80,)))
    texts = [text for name, text in built.gpu_kernels.items() if name.endswith("tensor_core")]
    reads = [(f"FETCH_16({name}_next" in text) for text in texts for name in ("first", "second")]
    # The values are read against their order, and the softmax's quotient is computed on the way; groups have
    # 17 channels.
    assert reads == [*[True] * 4, *[False] * 2, *[True] * 2, *[False] * 2, *[True] * 2]


def statistics() -> onnx.ModelProto:
    """A variance by hand: a sum of squares is far smaller than what it is a sum of, and may be far beyond."""
    g = Graph("statistics", seed=2)
    x = g.op("MatMul", g.input("x", (16, 32)), g.weight(32, 64))
    total = g.op("ReduceSum", g.op("Mul", x, x), g.const([1]), keepdims=1)
    g.op("MatMul", g.op("Div", x, g.op("Sqrt", total)), g.weight(64, 24), name="y")
    g.output("y")
    return g.model()


def positions() -> onnx.ModelProto:
    """A float that is computed, scaled, and becomes the position of a gather."""
    g = Graph("positions", seed=3)
    at = g.op("Mul", g.op("Sigmoid", g.input("x", (4096,))), g.const(np.float32(4000)))
    rows = g.op("Cast", g.op("Floor", at), to=onnx.TensorProto.INT64)
    g.op("Gather", g.input("table", (4096,)), rows, name="y")
    g.output("y")
    return g.model()


@pytest.mark.parametrize("make", [statistics, positions])
def test_sums_and_positions_stay_float32(make: Callable[[], onnx.ModelProto]) -> None:
    built, full = planned(make()), planned(make(), GpuTarget("cuda", host_target(), capabilities=(87,)))
    pairs = [
        (now, before)
        for one, other in zip(argument_bytes(built), argument_bytes(full), strict=True)
        for now, before in zip(one, other, strict=True)
    ]
    if make is positions:
        assert all(now == before for now, before in pairs)
    else:
        assert (4 * 16, 4 * 16) in pairs
        assert (2 * 16 * 64, 4 * 16 * 64) in pairs
