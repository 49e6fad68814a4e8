"""How the cases are written: a function that fills a graph, registered under a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx

from workbench.models.builder import Graph

__all__ = ["CASES", "above_one", "case", "positive", "simple", "unit"]

CASES: dict[str, Callable[[], onnx.ModelProto]] = {}

Build = Callable[[Graph], None]


def case(name: str, *, opset: int = 17) -> Callable[[Build], Build]:
    """Registers a function that fills a graph."""

    def register(build: Build) -> Build:
        def make() -> onnx.ModelProto:
            g = Graph(name, seed=sum(name.encode()), opset=opset)
            build(g)
            return g.model()

        assert name not in CASES, name
        CASES[name] = make
        return build

    return register


def simple(
    name: str,
    op: str,
    shape: list[int],
    *constants: Any,
    opset: int = 17,
    dtype: str = "float32",
    to: str | None = None,
    prefix: Callable[[Graph, str], str] | None = None,
    shape_out: list[int] | None = None,
    **attributes: Any,
) -> None:
    """A case of one node: ``op(x, *constants)``; a constant "" is an input left out.

    ``shape_out`` is needed where onnx cannot infer it.
    """

    @case(name, opset=opset)
    def build(g: Graph) -> None:
        x = g.input("x", shape, dtype)
        x = prefix(g, x) if prefix else x
        inputs = [c if isinstance(c, str) else g.const(c) for c in constants]
        g.op(op, x, *inputs, name="y", **attributes)
        g.output("y", to or dtype, shape_out)


def positive(g: Graph, x: str) -> str:
    return g.op("Add", g.op("Abs", x), g.const(0.1))


def unit(g: Graph, x: str) -> str:
    return g.op("Mul", g.op("Tanh", x), g.const(0.9))


def above_one(g: Graph, x: str) -> str:
    return g.op("Add", g.op("Abs", x), g.const(1.1))
