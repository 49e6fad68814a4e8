"""How the rows are written: a function that fills a graph, registered under a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from edgepack.compiler.frontend.onnx.sampling import random_inputs
from edgepack.compiler.frontend.onnx.support import SEQUENCES
from workbench.models.builder import Graph

__all__ = ["IMAGE", "NOT_MEASURED", "ROWS", "TOKENS", "Row", "between", "integers", "one", "row"]

#: A feature map of an early stage, and the tokens of a small transformer.
IMAGE = [1, 64, 56, 56]
TOKENS = [1, 128, 768]

Build = Callable[[Graph], None]
Draw = Callable[[np.random.Generator, Sequence[int]], np.ndarray]

#: Operators that docs/operators.md lists and no row has.
NOT_MEASURED = {
    **dict.fromkeys(("Constant", "ConstantOfShape", "EyeLike", "Shape", "Size"), "is folded away"),
    **dict.fromkeys(
        (
            "Flatten",
            "Identity",
            "Squeeze",
            "Unsqueeze",
        ),
        "moves nothing",
    ),
    **dict.fromkeys(
        ("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix", "Range"),
        "has constant inputs and is folded away",
    ),
    **dict.fromkeys(("If", "Loop", "Scan"), "is what its body is"),
    **dict.fromkeys(sorted(SEQUENCES), "is taken out: a split, a slice, a concatenation is left"),
    "Dropout": "does nothing in inference",
    **dict.fromkeys(("GRU", "LSTM", "RNN"), "benchmarks/compare.py has recurrent networks"),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), "is for training"),
    "Scatter": "is ScatterElements",
    "Upsample": "is Resize",
    **dict.fromkeys(
        (
            "BitCast",
            "CausalConvWithState",
            "FlexAttention",
            "LinearAttention",
            "SwiGLU",
            "TensorScatter",
            "CumProd",
        ),
        "ONNX Runtime has no kernel for it",
    ),
    "CastLike": "is Cast",
    "MaxUnpool": "its indices have to be those of a pooling",
    "ai.onnx.ml.ArrayFeatureExtractor": "is Gather",
    "ai.onnx.ml.Binarizer": "is Greater",
    "TfIdfVectorizer": "is a table of words that no small model stands for",
    "ai.onnx.ml.TreeEnsemble": "is a table of constants that no small model stands for",
    "ai.onnx.preview.FlexAttention": "ONNX Runtime has no kernel for it",
}


@dataclass(frozen=True)
class Row:
    """A model of one operator, or of a few that stand for one.

    Attributes:
        draw: how inputs are drawn that cannot be normally distributed, by name.
        why_slow: why it may be less than half as fast as ONNX Runtime, by the device on which it may. On all
            others it is guarded.
    """

    name: str
    build: Build
    opset: int
    draw: dict[str, Draw] = field(default_factory=dict)
    why_slow: Mapping[str, str] = field(default_factory=dict)

    def operators(self) -> set[str]:
        """Those of its nodes."""
        g = Graph(self.name)
        self.build(g)
        return {node.op_type for node in g.nodes}

    def model(self) -> onnx.ModelProto:
        """Of static shapes."""
        g = Graph(self.name, seed=sum(self.name.encode()), opset=self.opset, ir_version=10)
        self.build(g)
        return g.model()

    def inputs(self, model: onnx.ModelProto) -> dict[str, np.ndarray]:
        """The same ones each time."""
        arrays = random_inputs(model, 0)
        rng = np.random.default_rng(0)
        for name, draw in self.draw.items():
            arrays[name] = draw(rng, arrays[name].shape).astype(arrays[name].dtype)
        return arrays


ROWS: dict[str, Row] = {}


def row(
    name: str, *, opset: int = 17, why_slow: Mapping[str, str] | None = None, **draw: Draw
) -> Callable[[Build], Build]:
    """Registers a function that fills a graph."""

    def register(build: Build) -> Build:
        assert name not in ROWS, name
        ROWS[name] = Row(name, build, opset, draw, why_slow or {})
        return build

    return register


def one(
    name: str,
    op: str,
    shape: Sequence[int],
    *others: Any,
    opset: int = 17,
    dtype: str = "float32",
    to: str | None = None,
    outputs: int = 1,
    shape_out: Sequence[int] | None = None,
    draw: Draw | None = None,
    cast_to: int | None = None,
    why_slow: Mapping[str, str] | None = None,
    **attributes: Any,
) -> None:
    """A row of one node: ``op(x, *others)``.

    Args:
        others: an array is a constant, a tuple (shape, dtype) an input, "" an input left out.
        shape_out: where onnx cannot infer it.
        draw: how x is drawn.
        cast_to: the attribute ``to``.
        why_slow: as of the row.
    """
    if cast_to is not None:
        attributes["to"] = cast_to

    def build(g: Graph) -> None:
        names = [g.input("x", shape, dtype)]
        for index, other in enumerate(others):
            if isinstance(other, str):
                names.append(other)
            elif isinstance(other, tuple):
                names.append(g.input(f"x{index + 1}", *other))
            else:
                names.append(g.const(other))
        results = g.ops(op, *names, outputs=outputs, name="y", **attributes)
        g.output(results[0], to or dtype, shape_out)

    row(name, opset=opset, why_slow=why_slow, **({"x": draw} if draw else {}))(build)


def between(low: float, high: float) -> Draw:
    """Uniform numbers."""
    return lambda rng, shape: rng.uniform(low, high, shape)


def integers(low: int, high: int) -> Draw:
    """Uniform integers, ``high`` excluded."""
    return lambda rng, shape: rng.integers(low, high, shape)
