"""Programs of lists of tensors, drawn by a seed: taken apart and joined, edited, carried by loops, chosen by
branches, in optional values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["DrawnLists"]

Shape = tuple[int, ...]

node = helper.make_node


def tensor(name: str, shape: Sequence[int] | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def a_list(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)


@dataclass(frozen=True)
class Frame:
    """A graph that is being drawn: its nodes, and what it may read.

    Attributes:
        tensors: their shapes, by name.
        lists: the shapes of their tensors, by name.
        depth: how many graphs may be inside each other in it.
    """

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: dict[str, Shape] = field(default_factory=dict)
    lists: dict[str, list[Shape]] = field(default_factory=dict)
    depth: int = 2

    def inside(self) -> Frame:
        return replace(
            self, nodes=[], tensors=dict(self.tensors), lists=dict(self.lists), depth=self.depth - 1
        )


class DrawnLists:
    """A model of some statements about lists of float32 tensors.

    Attributes:
        model: of static shapes; its outputs are tensors.
    """

    def __init__(self, seed: int, statements: int = 9) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset = int(self.rng.choice([11, 13, 15, 17, 18, 20, 21]))
        self.count, self.constants = 0, dict[str, np.ndarray]()
        self.positions: dict[str, int] = {}
        frame = Frame(tensors={"x": (4, 3), "y": (2, 6, 2), "z": (5,)})
        inputs = [tensor(name, shape) for name, shape in frame.tensors.items()]
        inputs.append(tensor("c", [], TensorProto.BOOL))
        frame.lists[self.added(frame, "SequenceConstruct", "x", "x")] = [(4, 3)] * 2
        for _ in range(statements):
            self.statement(frame)
        results = self.results(frame)
        inputs += [tensor(name, [], TensorProto.INT64) for name in self.positions]
        tensors = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(frame.nodes, f"lists{seed}", inputs, results, tensors)
        opsets = [helper.make_opsetid("", self.opset)]
        self.model = helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def inputs(self, seed: int) -> dict[str, np.ndarray]:
        """Numbers for a run; positions are within their lists."""
        rng = np.random.default_rng(seed)
        found = {
            value.name: rng.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim])
            for value in self.model.graph.input
            if value.type.tensor_type.elem_type == TensorProto.FLOAT
        }
        arrays = {name: array.astype(np.float32) for name, array in found.items()}
        places = {n: np.asarray(rng.integers(-most, most), np.int64) for n, most in self.positions.items()}
        return {**arrays, "c": np.asarray(bool(rng.integers(2))), **places}

    # Parts ---------------------------------------------------------------------------------------------

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def const(self, value: object) -> str:
        name = self.name("constant")
        self.constants[name] = np.asarray(value)
        return name

    def added(self, frame: Frame, op: str, *inputs: str, **attributes: object) -> str:
        name = self.name(op)
        frame.nodes.append(node(op, list(inputs), [name], name=name, **attributes))
        return name

    def one_of(self, names: Sequence[str]) -> str:
        return str(self.rng.choice(list(names)))

    def position(self, frame: Frame, number: int) -> str:
        """A constant, or what folds to it when shapes are known."""
        if self.rng.integers(3):
            return self.const(np.asarray(number, self.rng.choice([np.int64, np.int32])))
        # Shapes of what loops give are not known in a branch that is looked at as a whole.
        name = self.one_of(list(frame.tensors) if frame.depth == 2 else ["x", "y", "z"])
        rank = self.added(frame, "Size", self.added(frame, "Shape", name))
        return self.added(frame, "Add", rank, self.const(np.int64(number - len(frame.tensors[name]))))

    def place(self, count: int) -> int:
        """A place in a list, from its start or its end."""
        return int(self.rng.integers(-count, count))

    def like(self, frame: Frame, shape: Shape) -> str:
        """A tensor of a shape."""
        known = [name for name, one in frame.tensors.items() if one == shape]
        if known:
            source = self.one_of(known)
        else:
            count = self.const(np.asarray(shape, np.int64))
            total = self.added(frame, "ReduceSum", self.one_of(["x", "y", "z"]), keepdims=0)
            source = self.added(frame, "Expand", total, count)
        name = self.added(frame, "Tanh", source)
        frame.tensors[name] = shape
        return name

    # Statements ----------------------------------------------------------------------------------------

    def statement(self, frame: Frame) -> None:
        plain: list[Callable[[Frame], None]] = [
            *(
                self.split,
                self.construct,
                self.insert,
                self.erase,
                self.at,
                self.chosen,
                self.joined,
                self.move,
            )
        ]
        if self.opset >= 13 and frame.depth:
            plain += [self.branches, self.states, self.grown]
        if self.opset >= 17 and frame.depth == 2:
            plain += [self.optional, self.mapped]
        plain[int(self.rng.integers(len(plain)))](frame)

    def split(self, frame: Frame) -> None:
        name = self.one_of([n for n, shape in frame.tensors.items() if shape])
        shape = frame.tensors[name]
        axis = int(self.rng.integers(len(shape)))
        extent, sizes = shape[axis], list[int]()
        kind = int(self.rng.integers(4))
        operands, attributes = [name], {"axis": axis - len(shape) * int(self.rng.integers(2))}
        if kind < 2:
            attributes["keepdims"] = kind
            sizes = [1] * extent
        elif kind == 2:
            size = int(self.rng.integers(1, extent + 1))
            operands.append(self.position(frame, size))
            sizes = [min(size, extent - at) for at in range(0, extent, size)]
        else:
            while sum(sizes) < extent:
                sizes.append(int(self.rng.integers(1, extent - sum(sizes) + 1)))
            operands.append(self.const(np.asarray(sizes, np.int64)))
        shapes = [(*shape[:axis], *([size] if kind else []), *shape[axis + 1 :]) for size in sizes]
        frame.lists[self.added(frame, "SplitToSequence", *operands, **attributes)] = shapes

    def construct(self, frame: Frame) -> None:
        names = [self.one_of(list(frame.tensors)) for _ in range(int(self.rng.integers(1, 4)))]
        if not self.rng.integers(4):
            frame.lists[self.added(frame, "SequenceEmpty")] = []
            return
        frame.lists[self.added(frame, "SequenceConstruct", *names)] = [frame.tensors[n] for n in names]

    def insert(self, frame: Frame) -> None:
        name, new = self.one_of(list(frame.lists)), self.one_of(list(frame.tensors))
        shapes, operands = list(frame.lists[name]), [name, new]
        if shapes and self.rng.integers(3):
            at = self.place(len(shapes))
            operands.append(self.position(frame, at))
            shapes.insert(at, frame.tensors[new])
        else:
            shapes.append(frame.tensors[new])
        frame.lists[self.added(frame, "SequenceInsert", *operands)] = shapes

    def erase(self, frame: Frame) -> None:
        name = self.one_of(list(frame.lists))
        shapes, operands = list(frame.lists[name]), [name]
        if not shapes:
            return
        if self.rng.integers(3):
            at = self.place(len(shapes))
            operands.append(self.position(frame, at))
        else:
            at = -1
        del shapes[at]
        frame.lists[self.added(frame, "SequenceErase", *operands)] = shapes

    def at(self, frame: Frame) -> None:
        name = self.one_of(list(frame.lists))
        shapes = frame.lists[name]
        if not shapes:
            return
        at = self.place(len(shapes))
        if self.rng.integers(3):
            place = self.position(frame, at)
        else:
            length = self.added(frame, "SequenceLength", name)
            place = self.added(frame, "Sub", length, self.const(np.int64(len(shapes) - at % len(shapes))))
        frame.tensors[self.added(frame, "SequenceAt", name, place)] = shapes[at]

    def chosen(self, frame: Frame) -> None:
        """What a run chooses, inserts or erases."""
        name = self.one_of(list(frame.lists))
        shapes = list(frame.lists[name])
        if not shapes or len(set(shapes)) > 1:
            return
        place = self.name("position")
        self.positions[place] = len(shapes)
        kind = int(self.rng.integers(3))
        if kind == 0:
            frame.tensors[self.added(frame, "SequenceAt", name, place)] = shapes[0]
        elif kind == 1:
            frame.lists[self.added(frame, "SequenceErase", name, place)] = shapes[1:]
        else:
            new = self.like(frame, shapes[0])
            frame.lists[self.added(frame, "SequenceInsert", name, new, place)] = [*shapes, shapes[0]]

    def joined(self, frame: Frame) -> None:
        name = self.one_of(list(frame.lists))
        shapes = frame.lists[name]
        if not shapes or len({len(shape) for shape in shapes}) > 1:
            return
        rank, new = len(shapes[0]), len(set(shapes)) == 1 and bool(self.rng.integers(2))
        axes = [
            axis
            for axis in range(rank + new)
            if new or len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) == 1
        ]
        if not axes or sum(map(np.prod, shapes)) > 600:
            return
        axis = int(self.rng.choice(axes))
        shape = list(shapes[0])
        if new:
            shape.insert(axis, len(shapes))
        else:
            shape[axis] = sum(one[axis] for one in shapes)
        axis -= (rank + new) * int(self.rng.integers(2))
        result = self.added(frame, "ConcatFromSequence", name, axis=axis, new_axis=int(new))
        frame.tensors[result] = tuple(shape)

    def move(self, frame: Frame) -> None:
        name = self.one_of(list(frame.tensors))
        frame.tensors[self.added(frame, self.one_of(["Tanh", "Neg"]), name)] = frame.tensors[name]

    def optional(self, frame: Frame) -> None:
        name = self.one_of(list(frame.lists))
        result = self.added(frame, "OptionalGetElement", self.added(frame, "Optional", name))
        frame.lists[result] = frame.lists[name]

    def mapped(self, frame: Frame) -> None:
        name = self.one_of(list(frame.lists))
        shapes = frame.lists[name]
        if not shapes or len(set(shapes)) > 1:
            return
        like = self.like(frame, shapes[0])
        part, other, result = self.name("part"), self.name("other"), self.name("result")
        body = helper.make_graph(
            [node("Sub", [part, other], [result], name=result)],
            self.name("map"),
            [tensor(part, shapes[0]), tensor(other, shapes[0])],
            [tensor(result, shapes[0])],
        )
        frame.lists[self.added(frame, "SequenceMap", name, like, body=body)] = shapes

    # Control flow --------------------------------------------------------------------------------------

    def edited(self, frame: Frame, name: str, shapes: Sequence[Shape]) -> str:
        """A list whose tensors have the shapes of those of another one, of which some are replaced."""
        for _ in range(int(self.rng.integers(1, 3)) if shapes else 0):
            at = int(self.rng.integers(len(shapes)))
            old = self.added(frame, "SequenceAt", name, self.position(frame, at))
            new = self.added(frame, "Tanh", self.added(frame, "Add", old, self.like(frame, shapes[at])))
            name = self.added(frame, "SequenceErase", name, self.position(frame, at))
            last = at == len(shapes) - 1
            operands = [name, new] if last else [name, new, self.position(frame, at)]
            name = self.added(frame, "SequenceInsert", *operands)
        return name

    def branches(self, frame: Frame) -> None:
        name = self.one_of(list(frame.lists))
        shapes, graphs = frame.lists[name], []
        if not shapes:
            return
        for branch in ("then_branch", "else_branch"):
            inner = frame.inside()
            if not self.rng.integers(3):
                self.statement(inner)
            made = self.edited(inner, name, shapes)
            graphs.append((branch, helper.make_graph(inner.nodes, self.name("branch"), [], [a_list(made)])))
        frame.lists[self.added(frame, "If", "c", **dict(graphs))] = shapes

    def states(self, frame: Frame) -> None:
        """A loop that carries a list and a tensor, and stacks what it makes of them."""
        name = self.one_of(list(frame.lists))
        shapes = frame.lists[name]
        if not shapes:
            return
        trips, inner, carried = int(self.rng.choice([1, 2, 3, 40])), frame.inside(), self.name("carried")
        inner.lists[carried] = list(shapes)
        if not self.rng.integers(3):
            self.statement(inner)
        behind = self.edited(inner, carried, shapes)
        first = self.added(inner, "SequenceAt", behind, self.const(np.int64(0)))
        each = self.added(inner, "Neg", first)
        results = self.loop(frame, inner, trips, [(a_list(carried), name, a_list(behind))], [each])
        frame.lists[results[0]] = shapes
        frame.tensors[results[1]] = (trips, *shapes[0])

    def grown(self, frame: Frame) -> None:
        """A loop that appends to a list, or puts before its tensors, and may read another by its counter."""
        name, other = self.one_of(list(frame.lists)), self.one_of(list(frame.lists))
        trips, inner, carried = int(self.rng.choice([1, 2, 3, 40])), frame.inside(), self.name("carried")
        state = self.one_of(list(frame.tensors))
        shape, own = frame.tensors[state], self.name("state")
        inner.tensors[own] = shape
        new = own
        step = self.name("step")
        read = frame.lists[other]
        if read and len(set(read)) == 1 and read[0] == shape and trips <= len(read):
            new = self.added(inner, "Add", new, self.added(inner, "SequenceAt", other, step))
        new = self.added(inner, "Tanh", self.added(inner, "Add", new, self.like(inner, shape)))
        front = bool(frame.lists[name]) and bool(self.rng.integers(2))
        place = [self.const(np.int64(0))] if front else []
        behind = self.added(inner, "SequenceInsert", carried, new, *place)
        pairs = [(a_list(carried), name, a_list(behind)), (tensor(own, None), state, tensor(new, None))]
        results = self.loop(frame, inner, trips, pairs, [], step)
        added, before = [shape] * trips, frame.lists[name]
        frame.lists[results[0]] = [*added, *before] if front else [*before, *added]
        frame.tensors[results[1]] = shape

    def loop(
        self,
        frame: Frame,
        inner: Frame,
        trips: int,
        carried: Sequence[tuple[onnx.ValueInfoProto, str, onnx.ValueInfoProto]],
        stacked: Sequence[str],
        step: str = "",
    ) -> list[str]:
        """Adds a Loop; the names of its results.

        Args:
            carried: what it is in the body, before the loop, and behind a trip.
            step: the number of the trip.
        """
        step, go = step or self.name("step"), self.name("go")
        on = self.added(inner, "Identity", go)
        body = helper.make_graph(
            inner.nodes,
            self.name("body"),
            [tensor(step, [], TensorProto.INT64), tensor(go, [], TensorProto.BOOL), *(c[0] for c in carried)],
            [tensor(on, [], TensorProto.BOOL), *(c[2] for c in carried), *(tensor(s, None) for s in stacked)],
        )
        results = [self.name("behind") for _ in range(len(carried) + len(stacked))]
        operands = [self.const(np.int64(trips)), "", *(c[1] for c in carried)]
        frame.nodes.append(node("Loop", operands, results, name=results[0], body=body))
        return results

    def results(self, frame: Frame) -> list[onnx.ValueInfoProto]:
        """Outputs: tensors, and of each list its length, and one of its tensors."""
        found = []
        for name in list(frame.lists)[1:]:
            found.append(tensor(self.added(frame, "SequenceLength", name), [], TensorProto.INT64))
            shapes = frame.lists[name]
            if shapes:
                at = self.place(len(shapes))
                element = self.added(frame, "SequenceAt", name, self.const(np.int64(at)))
                found.append(tensor(self.added(frame, "Neg", element), shapes[at]))
        for name in list(frame.tensors)[3:][-4:]:
            found.append(tensor(self.added(frame, "Neg", name), frame.tensors[name]))
        return found
