"""Optimisation levels are what docs/internals/levels.md says, and compute the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

import edgepack
from edgepack.compiler.frontend.onnx.binding import bind
from edgepack.compiler.graph.pass_groups import PASS_GROUPS
from edgepack.compiler.kernels.registry import GPU_RULES, PAIR_RULES, RULES
from edgepack.compiler.planner.built import Built
from edgepack.plan.opt_level import ALL, OPT_LEVELS, PLAIN, OptLevel, describe_level
from edgepack.plan.target import CpuTarget
from workbench.compiled import Compiled, plan_of, target_with
from workbench.models import DIMS, LARGE, NETWORKS, build, save
from workbench.models.builder import Graph
from workbench.models.odd import ODD
from workbench.models.operators import CASES
from workbench.models.quantise import quantise

ROOT = Path(__file__).parents[3]
LOWER = tuple(level for level in OPT_LEVELS if level < ALL)

#: Operators of :func:`_network` that compute something when it runs, as TVM calls them: a Conv and a Gemm
#: with a bias are two, a Flatten is none, and the sum of constants is known.
OPERATORS = [
    *("conv2d", "add", "relu", "max_pool2d", "conv2d", "add", "conv2d", "add", "add", "relu"),
    *("conv2d", "relu", "concatenate", "mean", "matmul", "add", "softmax"),
]


def _network() -> onnx.ModelProto:
    g = Graph("network", seed=5)
    x = g.op("Conv", g.input("x", (1, 8, 20, 20)), g.weight(32, 8, 3, 3), g.weight(32), pads=[1] * 4)
    x = g.op("MaxPool", g.op("Relu", x), kernel_shape=[2, 2], strides=[2, 2])
    y = g.op("Conv", x, g.weight(32, 32, 3, 3), g.op("Add", g.weight(32), g.weight(32)), pads=[1] * 4)
    y = g.op("Relu", g.op("Add", y, g.op("Conv", x, g.weight(32, 32, 1, 1), g.weight(32))))
    z = g.op("Relu", g.op("Conv", y, g.weight(24, 32, 1, 1)))
    y = g.op("Flatten", g.op("GlobalAveragePool", g.op("Concat", y, z, axis=1)))
    g.op("Softmax", g.op("Gemm", y, g.weight(56, 10), g.weight(10)), name="y")
    g.output("y")
    return g.model()


@cache
def _built(level: OptLevel) -> Built:
    return plan_of(_network(), target=_at(level))


def _at(level: OptLevel, registers: str = "256x16", **options: int) -> CpuTarget:
    return replace(target_with(registers, **options), opt_level=level)


def _rules(model: onnx.ModelProto, level: OptLevel, **options: int) -> set[str]:
    return {kernel.rule for kernel in plan_of(model, target=_at(level, **options)).plan.kernels}


def test_at_level_0_each_operator_is_one_kernel() -> None:
    built = _built(0)
    operators = {kernel.symbol: kernel.ops for kernel in built.plan.kernels}
    assert [operators[step.kernel] for step in built.plan.steps] == [(name,) for name in OPERATORS]
    assert {kernel.rule for kernel in built.plan.kernels} == {"generic"}


def test_at_level_1_what_follows_a_convolution_is_computed_in_its_loops() -> None:
    built = _built(1)
    assert ("conv2d", "add", "relu") in {kernel.ops for kernel in built.plan.kernels}
    assert {kernel.rule for kernel in built.plan.kernels} == {"generic"}
    assert len(built.plan.steps) < 10
    assert built.plan.arena.nbytes < _built(0).plan.arena.nbytes


def test_below_level_2_weights_are_those_of_the_model() -> None:
    tensors = (onnx.numpy_helper.to_array(t) for t in _network().graph.initializer)
    weights = {array.tobytes() for array in tensors if array.ndim == 4 and array[0, 0].size > 1}
    packed = {array.tobytes() for array in _built(2).constants}
    assert len(weights) == 2 and not weights & packed
    for level in (0, 1):
        assert weights <= {array.tobytes() for array in _built(level).constants}
    assert sorted(map(np.size, _built(0).constants)) == sorted(map(np.size, _built(1).constants))


def test_winograd_is_of_level_3_alone() -> None:
    rules = [{kernel.rule for kernel in _built(level).plan.kernels} for level in OPT_LEVELS]
    assert "conv2d.igemm" in rules[2] and "matmul.packed" in rules[2]
    assert any("winograd" in rule for rule in rules[3]) and not any("winograd" in rule for rule in rules[2])


def test_attention_is_one_kernel_at_level_3_alone() -> None:
    model = build("vit")
    assert "attention" in _rules(model, 3)
    assert not {"attention", "generic"} & _rules(model, 2)


def test_two_convolutions_are_one_kernel_at_level_3_alone() -> None:
    g = Graph("pair", seed=3)
    x = g.op("Relu", g.conv(g.input("x", (1, 8, 81, 9)), 8, 20, 1, bias=True))
    g.op("Relu", g.conv(x, 20, 20, 3, groups=20), name="y")
    g.output("y")
    found = [_rules(g.model(), level, l2_bytes=16 * 1024) for level in (2, 3)]
    assert ["conv2d.chained" in rules for rules in found] == [False, True]


def test_a_concatenation_is_computed_in_place_at_level_3_alone() -> None:
    g = Graph("parts", seed=1)
    x = g.input("x", (1, 16, 13, 11))
    parts = [g.op("Relu", g.conv(x, 16, width, 1, bias=True)) for width in (32, 16)]
    g.op("Relu", g.conv(g.op("Concat", *parts, axis=1), 48, 8, 1), name="y")
    g.output("y")
    plans = [plan_of(g.model(), target=_at(level)).plan for level in (2, 3)]
    copied = [{"concatenate"} in [set(kernel.ops) for kernel in plan.kernels] for plan in plans]
    assert copied == [True, False]


def test_each_level_is_what_the_table_says() -> None:
    """A new rule or group of passes says at which level it is."""
    text = (ROOT / "docs" / "internals" / "levels.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([0-3]) \|.*?\| ([^|]*) \| ([^|]*)\|$", text, re.MULTILINE)
    assert [int(level) for level, *_ in rows] == list(OPT_LEVELS)
    passes, rules = ({int(row[0]): set(re.findall("`(.+?)`", row[n])) for row in rows} for n in (1, 2))
    for level in OPT_LEVELS:
        assert {group.name for group in PASS_GROUPS if group.level == level} == passes[level]
    pairs = {rule.name for rule in PAIR_RULES}
    all_rules = (*RULES, *GPU_RULES)
    assert {rule.name for rule in all_rules if rule.level == PLAIN} == rules[0]
    assert {rule.name for rule in all_rules if rule.level == ALL} | pairs == rules[3]
    assert not rules[1] and not rules[2] and not any(rule.level == 1 for rule in all_rules)


def test_a_lower_level_is_one_line_and_no_kernel_is_called_slow() -> None:
    g = Graph("slow", seed=2)
    g.op("Mod", g.input("x", (1, 24, 200, 20)), g.input("z", (1, 24, 200, 20)), fmod=1, name="y")
    g.output("y")
    for level in LOWER:
        plan = plan_of(g.model(), target=_at(level)).plan
        assert plan.warnings == (describe_level(level),)
        assert not plan.slow_kernels
    assert describe_level(ALL) == ""


def test_below_level_2_what_is_not_stored_small_is_said() -> None:
    quantised = plan_of(quantise(build("ds_cnn"), "u8s8"), target=_at(1)).plan.warnings
    assert any("integer weights are kept in 4 bytes each" in text for text in quantised)
    assert not any("float32" in t for t in plan_of(_network(), target=_at(2)).plan.warnings)
    half = plan_of(_network(), target=replace(_at(0), float16_weights=True)).plan.warnings
    assert any("weights of float16 are stored as float32" in text for text in half)


def _bound(name: str) -> onnx.ModelProto:
    model = build(name)
    bind(model, shapes={}, dims=DIMS.get(name, {}))
    return model


#: Networks that are quantised.
QUANTISED = ("resnet18", "mobilenetv2", "mobilenetv3", "efficientnet", "regnet", "unet_resize", "tcn", "vit")

#: A model of each kind.
SAMPLE: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "network": _network,
    "vit": lambda: _bound("vit"),
    "gru": lambda: _bound("gru"),
    "quantised": lambda: quantise(_bound("ds_cnn"), "u8s8"),
    **{
        name: {**CASES, **ODD}[name]
        for name in (
            *("conv_grouped", "convtranspose_asymmetric", "gather_nd", "topk", "reduceprod_axes"),
            *("resize_cubic_half_pixel", "cumsum", "layernorm", "argmax"),
        )
    },
}


@pytest.mark.parametrize(
    ("level", "registers"),
    [(0, "256x16"), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((1, "scalar"), (2, "128x16")))],
)
def test_each_level_computes_the_same(level: OptLevel, registers: str, tmp_path: Path) -> None:
    compiled = Compiled({name: make() for name, make in SAMPLE.items()}, tmp_path, _at(level, registers))
    for name in SAMPLE:
        compiled.check(name, seed=level)


@pytest.mark.slow
@pytest.mark.parametrize("registers", ["scalar", "256x16", "512x32"])
@pytest.mark.parametrize("level", LOWER)
def test_every_operator_at_every_level(level: OptLevel, registers: str, tmp_path: Path) -> None:
    models = {name: make() for name, make in {**CASES, **ODD}.items()}
    _check_all(Compiled(models, tmp_path, _at(level, registers)), level, list(models))


@pytest.mark.slow
@pytest.mark.parametrize("level", LOWER)
def test_every_network_at_every_level(level: OptLevel, tmp_path: Path) -> None:
    names = sorted(set(NETWORKS) - set(LARGE))
    models = {name: _bound(name) for name in names}
    _check_all(Compiled(models, tmp_path, _at(level), optimised=True), level, names)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.parametrize("level", LOWER)
def test_quantised_networks_at_every_level(level: OptLevel, name: str, tmp_path: Path) -> None:
    """As far off ONNX Runtime as a pack allows, which measures by how much one rounding more moves them."""
    model = save(quantise(_bound(name), "u8s8"), tmp_path, f"{name}.onnx")
    result = edgepack.pack(model, "host", tmp_path / "bundle", opt_level=level).verify()
    assert result.ok, result


def _check_all(compiled: Compiled, level: OptLevel, names: Sequence[str]) -> None:
    for name in names:
        kernels = compiled.plan(name).kernels
        assert level > PLAIN or all(len(kernel.ops) <= 1 for kernel in kernels), name
        assert level >= 2 or {k.rule for k in kernels} <= {r.name for r in RULES if r.level == PLAIN} | {
            "copy"
        }
        compiled.check(name, seed=level)
