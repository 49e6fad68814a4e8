"""Models of Ifs and loops in each other, drawn by a seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Drawn"]

SHAPE = (3, 4)

node = helper.make_node


def tensor(name: str, dtype: int = TensorProto.FLOAT, shape: Sequence[int] = SHAPE) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


class Drawn:
    """A model of Ifs and loops in each other, drawn by a seed. All tensors are float32[3,4] and bounded.

    Attributes:
        inputs: of the model; trips of some loops, and thresholds of conditions, are among them.
    """

    def __init__(self, seed: int, depth: int = 2) -> None:
        self.rng = np.random.default_rng(seed)
        self.count = 0
        self.constants = {"zero": np.float32(0), "one": np.int64(1), "yes": np.asarray(True)}
        self.inputs = [tensor("x"), tensor("y"), tensor("n", TensorProto.INT64, [])]
        self.inputs.append(tensor("rows", shape=[5, *SHAPE]))
        self.constants["five"] = np.int64(5)
        nodes: list[onnx.NodeProto] = []
        values = self.statements(nodes, ["x", "y"], depth, 6)
        results = [self.added(nodes, "Identity", v) for v in self.drawn(values[2:], 3)]
        outputs = [tensor(name) for name in results]
        tensors = [numpy_helper.from_array(np.asarray(v), k) for k, v in self.constants.items()]
        graph = helper.make_graph(nodes, f"drawn{seed}", self.inputs, outputs, tensors)
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def added(self, nodes: list[onnx.NodeProto], op: str, *inputs: str, **attributes: object) -> str:
        name = self.name(op)
        nodes.append(node(op, list(inputs), [name], name=name, **attributes))
        return name

    def drawn(self, values: Sequence[str], most: int) -> list[str]:
        count = int(self.rng.integers(1, most + 1))
        return [str(v) for v in self.rng.choice(list(values), count)]

    def statements(
        self, nodes: list[onnx.NodeProto], known: Sequence[str], depth: int, count: int
    ) -> list[str]:
        """Appends statements; the values that are known behind them."""
        values = list(known)
        for _ in range(count):
            kind = self.rng.choice(["op", "op", "If", "Loop"] if depth else ["op"])
            if kind == "op":
                values.append(self.operator(nodes, values))
            elif kind == "If":
                values += self.branches(nodes, values, depth - 1)
            else:
                values += self.loop(nodes, values, depth - 1)
        return values

    def operator(self, nodes: list[onnx.NodeProto], values: Sequence[str]) -> str:
        a, b = (str(v) for v in self.rng.choice(list(values), 2))
        op = str(self.rng.choice(["MatMul", "Add", "Mul", "Relu", "Neg"]))
        if op == "MatMul":
            weight = self.name("weight")
            self.constants[weight] = self.rng.standard_normal((4, 4)).astype(np.float32)  # type: ignore[assignment]
            return self.added(nodes, "Tanh", self.added(nodes, op, a, weight))
        found = self.added(nodes, op, a, b) if op in {"Add", "Mul"} else self.added(nodes, op, a)
        return self.added(nodes, "Tanh", found)

    def row(self, nodes: list[onnx.NodeProto], step: str) -> str:
        """A product of another row of the input ``rows`` in each trip."""
        weight = self.name("weight")
        self.constants[weight] = self.rng.standard_normal((4, 4)).astype(np.float32)  # type: ignore[assignment]
        row = self.added(nodes, "Gather", "rows", self.added(nodes, "Mod", step, "five"), axis=0)
        return self.added(nodes, "Tanh", self.added(nodes, "MatMul", row, weight))

    def condition(self, nodes: list[onnx.NodeProto], values: Sequence[str]) -> str:
        total = self.added(nodes, "ReduceSum", str(self.rng.choice(list(values))), keepdims=0)
        return self.added(nodes, "Greater", total, "zero")

    def branches(self, nodes: list[onnx.NodeProto], values: Sequence[str], depth: int) -> list[str]:
        condition = self.condition(nodes, values)
        count, graphs = int(self.rng.integers(1, 3)), []
        for _ in range(2):
            inner: list[onnx.NodeProto] = []
            here = self.statements(inner, values, depth, int(self.rng.integers(1, 4)))
            results = [str(v) for v in self.rng.choice(here, count)]
            outputs = [tensor(self.added(inner, "Identity", name)) for name in results]
            graphs.append(helper.make_graph(inner, self.name("branch"), [], outputs))
        names = [self.name("chosen") for _ in range(count)]
        made = dict(zip(("then_branch", "else_branch"), graphs, strict=True))
        nodes.append(node("If", [condition], names, name=names[0], **made))
        return names

    def loop(self, nodes: list[onnx.NodeProto], values: Sequence[str], depth: int) -> list[str]:
        starts = self.drawn(values, 3)
        carried = [self.name("carried") for _ in starts]
        step, going = self.name("step"), self.name("going")
        inner: list[onnx.NodeProto] = []
        rows = [self.row(inner, step)] if self.rng.random() < 0.5 else []
        here = self.statements(inner, [*values, *carried, *rows], depth, int(self.rng.integers(1, 4)))
        on = self.added(inner, "Identity", going)
        if self.rng.random() < 0.5:
            on = self.condition(inner, here)
        results = [self.added(inner, "Identity", str(v)) for v in self.rng.choice(here, len(starts))]
        inputs = [tensor(step, TensorProto.INT64, []), tensor(going, TensorProto.BOOL, [])]
        body = helper.make_graph(
            inner,
            self.name("body"),
            [*inputs, *map(tensor, carried)],
            [tensor(on, TensorProto.BOOL, []), *map(tensor, results)],
        )
        names = [self.name("looped") for _ in starts]
        count = str(self.rng.choice(["n", "long"]))
        self.constants.setdefault("long", np.int64(90))
        first = str(self.rng.choice(["", self.condition(nodes, values)]))
        nodes.append(node("Loop", [count, first, *starts], names, name=names[0], body=body))
        return names
