"""Concatenations whose parts are computed in place, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from edgepack.compiler.kernels import registry
from workbench.compiled import Compiled, target_with
from workbench.models.builder import Graph


def _branches(g: Graph, x: str, cin: int, widths: tuple[int, ...]) -> list[str]:
    """A 1x1 convolution of the first width, 3x3 ones of the others."""
    return [
        g.op("Relu", g.conv(x, cin, width, 1 if i == 0 else 3, bias=True)) for i, width in enumerate(widths)
    ]


def _finish(g: Graph, y: str) -> onnx.ModelProto:
    g.op("Identity", y, name="y")
    g.output("y")
    return g.model()


def _channels(*widths: int, batch: int = 1) -> onnx.ModelProto:
    g = Graph("channels", seed=1)
    x = g.op("Relu", g.conv(g.input("x", [batch, 16, 13, 11]), 16, 16, 1, bias=True))
    y = g.op("Concat", *_branches(g, x, 16, widths), axis=1)
    return _finish(g, g.conv(y, sum(widths), 8, 1))


def _nested() -> onnx.ModelProto:
    g = Graph("nested", seed=2)
    x = g.op("Relu", g.conv(g.input("x", [1, 8, 9, 9]), 8, 8, 1, bias=True))
    inner = g.op("Concat", *_branches(g, x, 8, (24, 16)), axis=1)
    y = g.op("Concat", inner, *_branches(g, x, 8, (32,)), axis=1)
    return _finish(g, g.conv(y, 72, 8, 1))


def _rows() -> onnx.ModelProto:
    """Parts that lie behind each other, of odd sizes."""
    g = Graph("rows", seed=3)
    x = g.input("x", [7, 24])
    parts = [g.op("Softmax", x, axis=-1), g.op("Tanh", g.linear(x, 24, 24)), g.op("Exp", x)]
    y = g.op("Concat", *parts, axis=0)
    return _finish(g, g.op("Softmax", g.linear(y, 24, 5), axis=-1))


def _twice() -> onnx.ModelProto:
    """A part that comes twice, and one that something else reads too."""
    g = Graph("twice", seed=4)
    x = g.op("Relu", g.conv(g.input("x", [1, 8, 9, 9]), 8, 8, 1, bias=True))
    a, b = _branches(g, x, 8, (16, 16))
    both = g.conv(g.op("Concat", a, b, a, axis=1), 48, 16, 1)
    return _finish(g, g.op("Add", both, b))


#: Model, and how many concatenations are left.
CASES: dict[str, tuple[Callable[[], onnx.ModelProto], int]] = {
    "vectors": (lambda: _channels(32, 64), 0),
    "odd": (lambda: _channels(5, 19, 33), 0),
    "batch": (lambda: _channels(16, 24, batch=2), 0),
    "nested": (_nested, 1),
    "rows": (_rows, 0),
    "twice": (_twice, 1),
}


@pytest.mark.parametrize("case", CASES)
def test_concatenation_in_place(case: str, tmp_path: Path) -> None:
    build, left = CASES[case]
    compiled = Compiled({"m": build()}, tmp_path)
    assert _concatenations(compiled) == left
    compiled.check("m")


def _concatenations(compiled: Compiled, name: str = "m") -> int:
    """How many are left."""
    return sum(set(kernel.ops) == {"concatenate"} for kernel in compiled.plan(name).kernels)


def _rules(compiled: Compiled, name: str = "m") -> set[str]:
    return {kernel.rule for kernel in compiled.plan(name).kernels}


@dataclass(frozen=True)
class Part:
    """What stands between two convolutions, of an odd width and of a vector's, in a concatenation.

    Attributes:
        rule: that is expected to compute it.
        op_type: of the operator, of which ``attributes`` says what is not 3x3 with padding 1.
        cin, width: channels of its input and of its output.
        groups: of a convolution.
    """

    rule: str
    op_type: str
    cin: int
    width: int
    groups: int = 1
    batch: int = 1
    stride: int = 1
    attributes: dict[str, Any] | None = None

    def model(self) -> onnx.ModelProto:
        g = Graph("part", seed=5)
        x = g.input("x", [self.batch, self.cin, 13, 11])
        x = g.op("Relu", g.conv(x, self.cin, self.cin, 1, bias=True))
        left, right = (g.conv(x, self.cin, width, 1, stride=self.stride) for width in (7, 16))
        if self.op_type == "Conv":
            part = g.conv(x, self.cin, self.width, groups=self.groups, stride=self.stride, bias=True)
            part = g.op("Relu", part)
        else:
            window: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [self.stride] * 2, "pads": [1] * 4}
            part = g.op(self.op_type, x, **window, **self.attributes or {})
        y = g.op("Concat", left, part, right, axis=1)
        return _finish(g, g.conv(y, 7 + self.width + 16, 8, 1))


DEPTHWISE, GROUPED = "conv2d.depthwise", "conv2d.grouped"
PADDING_COUNTS = {"count_include_pad": 1}

PARTS = {
    "depthwise": Part(DEPTHWISE, "Conv", 32, 32, groups=32),
    "depthwise, odd": Part(DEPTHWISE, "Conv", 43, 43, groups=43, batch=2),
    "depthwise, few channels": Part(DEPTHWISE, "Conv", 3, 3, groups=3),
    "depthwise, stride 2": Part(DEPTHWISE, "Conv", 24, 24, groups=24, batch=3, stride=2),
    "max": Part("pool2d.max", "MaxPool", 48, 48),
    "max, odd": Part("pool2d.max", "MaxPool", 37, 37, batch=2, stride=2),
    "average": Part("pool2d.average", "AveragePool", 32, 32, batch=2),
    "average, odd": Part("pool2d.average", "AveragePool", 19, 19, attributes=PADDING_COUNTS),
    "groups side by side": Part(GROUPED, "Conv", 32, 32, groups=8),
    "groups, a narrow vector": Part(GROUPED, "Conv", 20, 20, groups=5, batch=2),
    "groups, odd": Part(GROUPED, "Conv", 19, 38, groups=19),
    "groups that fill a vector": Part(GROUPED, "Conv", 32, 32, groups=4, batch=2, stride=2),
}


@pytest.fixture(scope="module", params=[pytest.param("256x16", marks=pytest.mark.slow), "512x32"])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {name: part.model() for name, part in PARTS.items()}
    return Compiled(models, tmp_path_factory.mktemp("parts"), target_with(request.param))


@pytest.mark.parametrize("name", PARTS)
def test_part_is_computed_in_place_by_its_rule(parts: Compiled, name: str) -> None:
    assert _concatenations(parts, name) == 0
    assert PARTS[name].rule in _rules(parts, name)
    parts.check(name)


def test_copy_stays_where_the_first_rule_ignores_the_pitch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The slower rule behind it, which heeds the row stride, does not take over."""
    heedless = [
        replace(r, heeds_row_stride=r.heeds_row_stride and r.name != DEPTHWISE) for r in registry.RULES
    ]
    monkeypatch.setattr(registry, "RULES", heedless)
    compiled = Compiled({"m": PARTS["depthwise"].model()}, tmp_path)
    assert _concatenations(compiled) == 1
    assert DEPTHWISE in _rules(compiled)
    compiled.check("m")


def test_copy_stays_beside_a_part_that_no_rule_computes_in_place(tmp_path: Path) -> None:
    """The rule that serves a mean over channels ignores a row stride; the other part has one no more."""
    g = Graph("mean", seed=6)
    x = g.op("Relu", g.conv(g.input("x", [1, 16, 9, 7]), 16, 16, 1, bias=True))
    pool = g.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    mean = g.op("ReduceMean", x, axes=[1], keepdims=1)
    model = _finish(g, g.conv(g.op("Concat", pool, mean, axis=1), 17, 8, 1))
    compiled = Compiled({"m": model}, tmp_path)
    assert _concatenations(compiled) == 1
    assert {"pool2d.max", "rowwise"} <= _rules(compiled)
    compiled.check("m")
