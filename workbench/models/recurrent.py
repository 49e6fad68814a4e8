"""Recurrent networks, written as torch.onnx writes them (batch first: a transpose before and behind)."""

from __future__ import annotations

import onnx

from workbench.models.builder import Graph

__all__ = ["stacked"]

#: Gates of each operator.
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def stacked(
    operator: str,
    layers: int,
    inputs: int,
    size: int,
    steps: int,
    *,
    classes: int,
    bidirectional: bool = False,
    streaming: bool = False,
    last: bool = False,
    seed: int = 0,
) -> onnx.ModelProto:
    """Layers on top of each other, and a linear layer behind them: logits of each step.

    Args:
        operator: "RNN", "GRU" or "LSTM".
        inputs: elements of a step's input, [1, steps, inputs].
        streaming: the states are an input and an output, [layers, 1, size]; only for one direction.
        last: logits of the last step alone.
    """
    g = Graph(operator.lower(), seed=seed)
    x = g.op("Transpose", g.input("x", (1, steps, inputs)), perm=[1, 0, 2])
    states = ["h", "c"] if operator == "LSTM" else ["h"]
    given = [g.input(f"{name}0", (layers, 1, size)) for name in states] if streaming else []
    kept: list[list[str]] = [[] for _ in states]
    directions = 2 if bidirectional else 1
    for layer in range(layers):
        depth = inputs if layer == 0 else directions * size
        rows, std = GATES[operator] * size, size**-0.5
        weights = [g.weight(directions, rows, depth, std=std), g.weight(directions, rows, size, std=std)]
        before = [g.op("Slice", name, g.const([layer]), g.const([layer + 1]), g.const([0])) for name in given]
        y, *after = g.ops(
            operator,
            x,
            *weights,
            g.weight(directions, 2 * rows, std=std),
            "",
            *before,
            outputs=1 + len(states),
            hidden_size=size,
            direction="bidirectional" if bidirectional else "forward",
            **({"linear_before_reset": 1} if operator == "GRU" else {}),
        )
        for names, name in zip(kept, after, strict=True):
            names.append(name)
        if bidirectional:
            y = g.op("Transpose", y, perm=[0, 2, 1, 3])
            x = g.op("Reshape", y, g.const([0, 0, -1]))
        else:
            x = g.op("Squeeze", y, g.const([1]))
    x = g.op("Transpose", x, perm=[1, 0, 2])
    if last:
        x = g.op("Gather", x, g.const(-1), axis=1)
    x = g.op("MatMul", x, g.weight(directions * size, classes, std=size**-0.5))
    g.op("Add", x, g.weight(classes, std=0.1), name="logits")
    g.output("logits")
    if streaming:
        for name, parts in zip(states, kept, strict=True):
            g.op("Concat", *parts, axis=0, name=name)
            g.output(name)
    return g.model()
