"""Concatenations whose parts are computed in place, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from tests.models.builder import Graph
from tests.support.compiled import Compiled


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
    kept = [k for k in compiled.plan("m").kernels if set(k.ops) == {"concatenate"}]
    assert len(kept) == left
    compiled.check("m")
