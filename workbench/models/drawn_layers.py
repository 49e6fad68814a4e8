"""Loops and Scans that are recurrent layers, written in many ways, drawn by a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["DEFECTS", "DrawnLayer"]

GATES = {"LSTM": ("i", "f", "g", "o"), "GRU": ("z", "r", "n"), "RNN": ("n",)}

#: What makes a layer none, by name, and the cells that can have it.
DEFECTS = {
    "one gate is another function": ("LSTM", "GRU"),
    "a state is bounded": ("LSTM", "GRU", "RNN"),
    "the cell's state is stacked": ("LSTM",),
    "the state before is stacked": ("GRU", "RNN"),
    "a step reads the state of two steps before": ("LSTM", "GRU", "RNN"),
    "a gate is of the cell's state by a matrix": ("LSTM",),
    "the trip's number is a factor": ("LSTM", "GRU", "RNN"),
    "every second element is read": ("LSTM", "GRU", "RNN"),
    "a mask chooses": ("LSTM", "GRU", "RNN"),
    "a mask chooses one state": ("LSTM",),
    "the state is projected": ("LSTM",),
}


def value(name: str, shape: Sequence[int | str] = (), dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, list(shape))


class DrawnLayer:
    """A model of a loop that is a layer, or by a defect is none.

    Attributes:
        about: what was drawn, by name.
        layers: operators that it becomes.
    """

    def __init__(self, seed: int, defect: str = "") -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.defect = defect
        self.about: dict[str, object] = {}
        cells = DEFECTS[defect] if defect else ("LSTM", "GRU", "RNN")
        self.cell = cells[seed % len(cells)]
        self.steps, self.batch = int(rng.integers(2, 9)), int(rng.integers(1, 4))
        self.columns, self.size = int(rng.integers(1, 6)), int(rng.integers(1, 8))
        self.rank = self.draw("rank", 2, 2, 3)
        self.loop = self.draw("loop", "Loop", "Loop", "condition", "Scan", "buffer")
        if defect in ("every second element is read", "a mask chooses one state"):
            self.loop = "Loop"
        self.backwards = self.draw("backwards", False, True)
        self.time = self.draw("time axis", 0, 1)
        self.order = [str(gate) for gate in rng.permutation(GATES[self.cell])]
        self.sigmoid = self.draw("sigmoid", "Sigmoid", "Sigmoid", "HardSigmoid", "Clip", "Min")
        masks = not defect and self.loop != "Scan"
        self.masked = self.draw("mask", "", "", "given", "opposite") if masks else ""
        if defect == "a mask chooses one state":
            self.about["mask"] = self.masked = "given"
        self.body: list[onnx.NodeProto] = []
        self.inner: dict[str, np.ndarray] = {}
        self.outer: dict[str, np.ndarray] = {}
        self.count = 0
        self.layers = [self.cell]
        self.model = self._model()

    def draw(self, what: str, *choices: object) -> object:
        self.about[what] = chosen = choices[int(self.rng.integers(len(choices)))]
        return chosen

    # Writing ---------------------------------------------------------------------------------------------

    def op(self, operator: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        return self.ops(operator, *inputs, outputs=outputs, **attributes)[0]

    def ops(self, operator: str, *inputs: str, outputs: int, **attributes: object) -> list[str]:
        self.count += 1
        names = [f"{operator}{self.count}_{number}" for number in range(outputs)]
        self.body.append(helper.make_node(operator, list(inputs), names, name=names[0], **attributes))
        return names

    def const(self, array: object, dtype: type = np.float32) -> str:
        """A constant, of the body or of the graph around it."""
        self.count += 1
        name = f"constant{self.count}"
        where = self.inner if self.rng.integers(2) else self.outer
        where[name] = np.asarray(array, dtype)
        return name

    def weights(self, *shape: int) -> np.ndarray:
        return (self.rng.standard_normal(shape) * 0.6).astype(np.float32)

    # The cell ----------------------------------------------------------------------------------------------

    def product(self, row: str, columns: int, results: int) -> str:
        """A row by weights, maybe with a bias."""
        form = self.draw("product", "MatMul", "Gemm", "transposed")
        if form == "MatMul" or self.rank == 3:
            name = self.op("MatMul", row, self.const(self.weights(columns, results)))
            return self.op("Add", self.const(self.weights(results)), name) if self.rng.integers(2) else name
        bias = [self.const(self.weights(results))] if self.rng.integers(2) else []
        if form == "Gemm":
            return self.op("Gemm", row, self.const(self.weights(columns, results)), *bias, alpha=0.5)
        return self.op("Gemm", row, self.const(self.weights(results, columns)), *bias, transB=1)

    def gates(self, x: str, h: str, names: Sequence[str]) -> dict[str, str]:
        """The arguments of some gates, of the inputs and the state."""
        form = self.draw("gates", "joined", "two products", "apart", "inputs together")
        count = len(names)
        if form == "joined":
            row = self.op("Concat", x, h, axis=-1 if self.rank == 3 else 1)
            return self.split(self.product(row, self.columns + self.size, count * self.size), names)
        if form == "two products":
            ours = self.product(x, self.columns, count * self.size)
            theirs = self.product(h, self.size, count * self.size)
            return self.split(self.op("Add", ours, theirs), names)
        ours = self.split(self.product(x, self.columns, count * self.size), names)
        found = {}
        for name in names:
            own = ours[name]
            if form == "apart":
                own = self.product(x, self.columns, self.size)
            found[name] = self.op("Add", self.product(h, self.size, self.size), own)
        return found

    def split(self, row: str, names: Sequence[str]) -> dict[str, str]:
        """Columns of a row, by name."""
        if len(names) == 1:
            return {names[0]: row}
        form = self.draw("split", "Split", "Slice", "Reshape")
        if form == "Split":
            return dict(zip(names, self.ops("Split", row, outputs=len(names), axis=-1), strict=True))
        found, leading = {}, [1] * (self.rank - 2)
        if form == "Reshape":
            shape = self.const([*leading, self.batch, len(names), self.size], np.int64)
            row = self.op("Reshape", row, shape)
        for number, name in enumerate(names):
            if form == "Reshape":
                found[name] = self.op("Gather", row, self.const(number, np.int64), axis=self.rank - 1)
                continue
            ends = [number * self.size], [(number + 1) * self.size], [self.rank - 1]
            found[name] = self.op("Slice", row, *(self.const(one, np.int64) for one in ends))
        return found

    def sigmoid_of(self, row: str) -> str:
        if self.sigmoid == "HardSigmoid":
            return self.op("HardSigmoid", row, alpha=0.25)
        if self.sigmoid in ("Clip", "Min"):
            row = self.op("Add", self.op("Mul", row, self.const(0.2)), self.const(0.5))
        if self.sigmoid == "Clip":
            return self.op("Clip", row, self.const(0), self.const(1))
        if self.sigmoid == "Min":
            return self.op("Max", self.op("Min", row, self.const(1)), self.const(0))
        return self.op("Sigmoid", row)

    def lstm(self, x: str, states: Mapping[str, str]) -> dict[str, str]:
        h, c = states["h"], states["c"]
        rows = self.gates(x, h, self.order)
        if self.draw("forget bias", False, True):
            rows["f"] = self.op("Add", rows["f"], self.const(1))
        if self.defect == "a gate is of the cell's state by a matrix":
            rows["i"] = self.op(
                "Add", rows["i"], self.op("MatMul", c, self.const(self.weights(self.size, self.size)))
            )
        elif not self.defect and self.rng.integers(4) == 0:
            self.about["peephole"] = True
            rows["i"] = self.op("Add", rows["i"], self.op("Mul", c, self.const(self.weights(self.size))))
        i, f = self.sigmoid_of(rows["i"]), self.sigmoid_of(rows["f"])
        if not self.defect and self.rng.integers(4) == 0:
            self.about["coupled"] = True
            i = self.op("Sub", self.const(1), f)
        other = self.defect == "one gate is another function"
        o = self.op("Relu", rows["o"]) if other else self.sigmoid_of(rows["o"])
        g = self.op("Tanh", rows["g"])
        new = self.op("Add", self.op("Mul", i, g), self.op("Mul", c, f))
        if self.defect == "a state is bounded":
            new = self.op("Clip", new, self.const(-0.5), self.const(0.5))
        hidden = self.op("Mul", self.op("Tanh", new), o)
        if self.defect == "the state is projected":
            hidden = self.op("MatMul", hidden, self.const(self.weights(self.size, self.size)))
        return {"h": hidden, "c": new}

    def gru(self, x: str, states: Mapping[str, str]) -> dict[str, str]:
        h = states["h"]
        rows = self.gates(x, h, [gate for gate in self.order if gate != "n"])
        z, r = self.sigmoid_of(rows["z"]), self.sigmoid_of(rows["r"])
        if self.defect == "one gate is another function":
            r = self.op("Tanh", rows["r"])
        ours = self.product(x, self.columns, self.size)
        if self.draw("reset", "before", "after") == "before":
            theirs = self.product(self.op("Mul", r, h), self.size, self.size)
        else:
            theirs = self.op("Mul", r, self.product(h, self.size, self.size))
        n = self.op("Tanh", self.op("Add", theirs, ours))
        if self.draw("update", "kept", "taken") == "taken":
            z = self.op("Sub", self.const(1), z)
        form = self.draw("blend", "both", "difference", "other difference")
        if form == "both":
            new = self.op("Mul", self.op("Sub", self.const(1), z), n)
            new = self.op("Add", new, self.op("Mul", z, h))
        elif form == "difference":
            new = self.op("Add", n, self.op("Mul", z, self.op("Sub", h, n)))
        else:
            new = self.op("Sub", h, self.op("Mul", self.op("Sub", h, n), self.op("Sub", self.const(1), z)))
        return {"h": new}

    def rnn(self, x: str, states: Mapping[str, str]) -> dict[str, str]:
        row = self.gates(x, states["h"], ["n"])["n"]
        return {"h": self.op(str(self.draw("function", "Tanh", "Relu", "Sigmoid", "Softsign")), row)}

    # The loop ----------------------------------------------------------------------------------------------

    def _trip(self, x: str, states: Mapping[str, str], number: str) -> tuple[dict[str, str], str]:
        """States behind a trip, and what is stacked."""
        read = dict(states)
        if self.defect == "a step reads the state of two steps before":
            read["h"] = states["older"]
        new = {"LSTM": self.lstm, "GRU": self.gru, "RNN": self.rnn}[self.cell](x, read)
        if self.defect == "a step reads the state of two steps before":
            new["older"] = self.op("Identity", states["h"])
        if self.defect == "a state is bounded" and self.cell != "LSTM":
            new["h"] = self.op("Clip", new["h"], self.const(-0.3), self.const(0.4))
        if self.defect == "the trip's number is a factor":
            factor = self.op("Cast", number, to=TensorProto.FLOAT)
            new["h"] = self.op("Mul", new["h"], self.op("Add", factor, self.const(0.5)))
        if self.defect == "a mask chooses":
            mask = self.op("Greater", self.op("ReduceMax", x, axes=[-1], keepdims=1), self.const(0))
            new = {name: self.op("Where", mask, new[name], states[name]) for name in new}
        stacked = new["h"]
        if self.masked:
            new, stacked = self._masked(new, states)
        elif self.defect == "the cell's state is stacked":
            stacked = new["c"]
        elif self.defect == "the state before is stacked":
            stacked = states["h"]
        elif not self.defect and self.rng.integers(4) == 0:
            self.about["head"] = True
            stacked = self.op("Relu", self.product(stacked, self.size, self.size))
        return new, stacked

    def _masked(self, new: Mapping[str, str], states: Mapping[str, str]) -> tuple[dict[str, str], str]:
        """States that are others where a mask says so, as before elsewhere, and what is stacked."""
        mask = self.op("Gather", "mask", self._place(), axis=0)
        opposite = bool(self.about["mask"] == "opposite")
        if opposite:
            mask = self.op("Not", mask)
        form = self.draw("masked by", "Where", "product", "difference")

        def chosen(one: str, other: str) -> str:
            if form == "Where":
                return self.op("Where", mask, one, other)
            number = self.op("Cast", mask, to=TensorProto.FLOAT)
            if form == "product":
                rest = self.op("Cast", self.op("Not", mask), to=TensorProto.FLOAT)
            else:
                rest = self.op("Sub", self.const(1), number)
            return self.op("Add", self.op("Mul", number, one), self.op("Mul", other, rest))

        behind = {name: chosen(new[name], states[name]) for name in new if name != "result"}
        if self.defect:
            behind["c"] = new["c"]
        if "result" in states:
            behind["result"] = chosen(new["h"], states["result"])
        what = self.draw("stacked", "state", "result", "zeros")
        if what == "zeros":
            zeros = self.const(np.zeros((*[1] * (self.rank - 1), self.size)))
            return behind, chosen(new["h"], zeros)
        return behind, behind["result" if what == "result" and "result" in behind else "h"]

    def _model(self) -> onnx.ModelProto:
        names = ["h", *(["c"] if self.cell == "LSTM" else [])]
        if self.defect == "a step reads the state of two steps before":
            names.append("older")
        if self.masked and self.draw("result is carried", False, True):
            names.append("result")
        state = [*[1] * (self.rank - 2), self.batch, self.size]
        element = [*[1] * (self.rank - 2), self.batch, self.columns]
        rows = self.steps * (2 if self.defect == "every second element is read" else 1)
        self.time = min(int(str(self.time)), len(element) - 1)
        sequence = [*element[: self.time], rows, *element[self.time :]]
        if self.loop == "Scan":
            return self._scan(names, state, element, sequence)
        inputs = [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL)]
        x = self.op("Gather", "x", self._place(), axis=self.time)
        new, stacked = self._trip(x, {name: f"{name}_before" for name in names}, "i")
        self.body.append(helper.make_node("Identity", ["go"], ["on"]))
        carried = [value(f"{name}_before", state) for name in names]
        outputs = [value(new[name], state) for name in names]
        parts = [value(stacked, state)]
        given, ends = [f"{name}0" for name in names], [f"{name}_last" for name in names]
        trips, condition = "trips", ""
        self.outer["trips"] = np.asarray(self.steps, np.int64)
        if self.loop == "condition":
            trips, condition = "", "yes"
            self.outer |= {"yes": np.asarray(True), "zero": np.asarray(0, np.int32)}
            later = self.op("Add", "time", self.const(1, np.int32))
            self.body[-2:] = [self.body[-1]]
            self.body.append(
                helper.make_node("Less", [later, self.const(self.steps, np.int32)], ["on"], name="less")
            )
            carried, outputs = (
                [*carried, value("time", [], TensorProto.INT32)],
                [*outputs, value(later, [], TensorProto.INT32)],
            )
            given, ends = [*given, "zero"], [*ends, "time_last"]
        if self.loop == "buffer":
            self.outer["empty"] = np.zeros((self.steps, *state), np.float32)
            place = self.op("Reshape", self._place(), self.const([1, 1], np.int64))
            row = self.op("Unsqueeze", stacked, self.const([0], np.int64))
            written = self.op("ScatterND", "buffer", place, row)
            carried.append(value("buffer", [self.steps, *state]))
            outputs.append(value(written, [self.steps, *state]))
            given, ends, parts = [*given, "empty"], [*ends, "all"], []
        body = helper.make_graph(
            self.body,
            "body",
            [*inputs, *carried],
            [value("on", [], TensorProto.BOOL), *outputs, *parts],
            self._tensors(self.inner),
        )
        loop = helper.make_node(
            "Loop", [trips, condition, *given], [*ends, *(["all"] if parts else [])], body=body, name="loop"
        )
        return self._whole(loop, names, state, sequence)

    def _place(self) -> str:
        """The index of the element of a trip."""
        place = "i"
        if self.defect == "every second element is read":
            place = self.op("Mul", place, self.const(2, np.int64))
        if self.backwards:
            place = self.op("Sub", self.const(self.steps - 1, np.int64), place)
        return place

    def _scan(
        self, names: Sequence[str], state: list[int], element: list[int], sequence: list[int]
    ) -> onnx.ModelProto:
        self.outer["numbers"] = np.arange(self.steps, dtype=np.int64)
        new, stacked = self._trip("row", {name: f"{name}_before" for name in names}, "number")
        # ONNX Runtime is wrong about Scans whose results are another result, or an operand, too.
        stacked = self.op("Identity", stacked)
        axis = self.draw("stacked along", 0, 1)
        body = helper.make_graph(
            self.body,
            "body",
            [
                *(value(f"{name}_before", state) for name in names),
                value("row", element),
                value("number", [], TensorProto.INT64),
            ],
            [*(value(new[name], state) for name in names), value(stacked, state)],
            self._tensors(self.inner),
        )
        scan = helper.make_node(
            "Scan",
            [*(f"{name}0" for name in names), "x", "numbers"],
            [*(f"{name}_last" for name in names), "all"],
            body=body,
            num_scan_inputs=2,
            scan_input_axes=[self.time, 0],
            scan_input_directions=[int(bool(self.backwards)), 0],
            scan_output_axes=[axis],
            scan_output_directions=[int(self.rng.integers(2))],
            name="scan",
        )
        return self._whole(scan, names, state, sequence)

    def _whole(
        self, loop: onnx.NodeProto, names: Sequence[str], state: list[int], sequence: list[int]
    ) -> onnx.ModelProto:
        inputs = [value("x", sequence)]
        if self.masked:
            inputs.append(value("mask", [self.steps, *state[:-1], 1], TensorProto.BOOL))
        for name in names:
            if self.draw(f"{name} at first", "0", "given") == "0":
                self.outer[f"{name}0"] = np.zeros(state, np.float32)
            else:
                inputs.append(value(f"{name}0", state))
        wanted = ["all", *(f"{name}_last" for name in names if self.rng.integers(3))]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in wanted]
        graph = helper.make_graph([loop], "drawn", inputs, outputs, self._tensors(self.outer))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    @staticmethod
    def _tensors(constants: Mapping[str, np.ndarray]) -> list[onnx.TensorProto]:
        return [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
