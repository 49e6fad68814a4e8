"""Writes a model anew in float64, wherever ONNX Runtime has kernels of it: what rounding does to its results.

What has no such kernel (convolutions) stays as it is and reads values that are off by up to half a unit in
the last place, as any other program's are, so that what it makes of that is seen too. For networks that
enlarge rounding, that is done to every result: runs with other draws are then as good as other programs
(Parker, "Monte Carlo Arithmetic", 1997).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.external_data import copy_fields
from edgepack.compiler.frontend.onnx.function_bodies import inlined
from edgepack.compiler.frontend.onnx.model_file import default_opset
from edgepack.compiler.frontend.onnx.shapes import infer_shapes, inner_graphs

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["DRAWS", "in_double", "with_draw"]

#: Factors whose products with a value have fractions that are as good as random; one for each draw.
_FACTORS = (74567.13, 91234.71, 120345.37, 65432.93)

#: How many runs differ from each other.
DRAWS = len(_FACTORS)

#: The added input that chooses one of them: int64, rank 0.
_DRAW = "edgepack/draw"

#: The oldest opset in which all that is written here has kernels of float64.
_OLDEST = 9

#: Kernels that take float64 when a session is made, and refuse it in a run.
_REFUSING = {"GRU", "LSTM"}

#: What hands values on, or takes one of several: it rounds nothing.
_EXACT = {
    *("Abs", "Cast", "Ceil", "Clip", "Compress", "Concat", "ConstantOfShape", "DepthToSpace", "Expand"),
    *("Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Identity", "Max", "MaxPool", "Min", "Neg"),
    *("Pad", "Range", "ReduceMax", "ReduceMin", "Relu", "Reshape", "ReverseSequence", "Round"),
    *("ScatterElements", "ScatterND", "Sign", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "TopK"),
    *("Transpose", "Trilu", "Unsqueeze", "Where"),
}

#: Nodes with graphs inside, all of whose floats become float64.
_NESTED = ("If", "Loop", "Scan")


class _UnknownTypeError(Exception):
    """The type of a value cannot be inferred."""


def in_double(model: onnx.ModelProto, *, everywhere: bool = False) -> onnx.ModelProto | None:
    """A model that computes the same in float64, where ONNX Runtime has kernels of that; its inputs keep
    their types, and :func:`with_draw` adds one. What depends on constants alone stays, for it is folded.

    Args:
        model: as ONNX Runtime runs it; not changed.
        everywhere: also move each result by up to half a unit in the last place of its own type.

    Returns:
        None for a model of an old opset, one in which nothing would become float64, or one of values whose
        types cannot be inferred.
    """
    import onnx

    if default_opset(model) < _OLDEST:
        return None
    model = inlined(model)
    writer = _Writer(model, everywhere)
    try:
        nodes = writer.graph(model.graph.node, _Scope(constant=_constants(model)))
    except _UnknownTypeError:
        return None
    if not writer.doubled:
        return None
    result = onnx.ModelProto()
    copy_fields(model, result, "graph")
    copy_fields(model.graph, result.graph, "node", "value_info", "output")
    result.graph.node.extend([*writer.first(), *nodes])
    result.graph.initializer.extend(writer.numbers.values())
    result.graph.input.append(onnx.helper.make_tensor_value_info(_DRAW, onnx.TensorProto.INT64, ()))
    result.graph.output.extend(writer.outputs(model.graph.output))
    return result


def with_draw(arrays: Mapping[str, NDArray[Any]], draw: int) -> dict[str, NDArray[Any]]:
    """The inputs of a run of such a model, from 0 to ``DRAWS`` - 1; of one not done ``everywhere``, all runs
    are about alike."""
    import numpy as np

    return {**arrays, _DRAW: np.asarray(draw, np.int64)}


def _constants(model: onnx.ModelProto) -> set[str]:
    return {"", *(tensor.name for tensor in model.graph.initializer)}


class _Scope:
    """What is known of the values that nodes of one graph can read.

    Attributes:
        constant: names of those that depend on constants alone.
        double: names of those that have become float64.
        raised: names of copies in float64 of others.
    """

    def __init__(
        self, constant: set[str], double: set[str] | None = None, raised: dict[str, str] | None = None
    ) -> None:
        self.constant, self.double, self.raised = constant, double or set(), raised or {}

    def inside(self) -> _Scope:
        """That of a graph inside."""
        return _Scope({*self.constant}, {*self.double}, {**self.raised})


class _Writer:
    """Writes nodes.

    Attributes:
        numbers: constants that are written with, by value.
        doubled: how many nodes compute in float64.
    """

    def __init__(self, model: onnx.ModelProto, everywhere: bool) -> None:
        import onnx

        self._opset = default_opset(model)
        self._everywhere = everywhere
        self._types: dict[str, int] = {}
        self._read_types(infer_shapes(model).graph)
        self._count = 0
        #: Half a unit in the last place, as a part of a value, by type.
        self._units = {
            onnx.TensorProto.FLOAT: 2.0**-24,
            onnx.TensorProto.FLOAT16: 2.0**-11,
            onnx.TensorProto.BFLOAT16: 2.0**-8,
        }
        self.numbers: dict[object, onnx.TensorProto] = {}
        self._nodes: list[onnx.NodeProto] = []
        self.doubled = 0

    def _read_types(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self._types[tensor.name] = tensor.data_type
        for value in (*graph.input, *graph.value_info, *graph.output):
            self._types[value.name] = value.type.tensor_type.elem_type
        for node in graph.node:
            for inner in inner_graphs(node):
                self._read_types(inner)

    def _is_float(self, name: str) -> bool:
        """Whether a value has floats of fewer bits."""
        if not (kind := self._types.get(name, 0)):
            raise _UnknownTypeError(name)
        return kind in self._units

    # graphs -------------------------------------------------------------------------------------------

    def graph(self, nodes: Sequence[onnx.NodeProto], scope: _Scope) -> list[onnx.NodeProto]:
        """What is written for the nodes of a graph."""
        before, self._nodes = self._nodes, []
        for node in nodes:
            if all(name in scope.constant for name in node.input) and not any(inner_graphs(node)):
                scope.constant.update(node.output)
                self._nodes.append(node)
            else:
                self._node(node, scope)
        written, self._nodes = self._nodes, before
        return written

    def first(self) -> Iterator[onnx.NodeProto]:
        """What all others may read."""
        import numpy as np
        import onnx

        yield onnx.helper.make_node("Gather", [self._const(np.asarray(_FACTORS)), _DRAW], ["edgepack/factor"])

    def outputs(self, values: Sequence[onnx.ValueInfoProto]) -> Iterator[onnx.ValueInfoProto]:
        """The graph's outputs: names alone, for the session infers their types."""
        import onnx

        for value in values:
            yield onnx.ValueInfoProto(name=value.name)

    def _node(self, node: onnx.NodeProto, scope: _Scope) -> None:
        import onnx

        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        standard = node.domain in ("", "ai.onnx")
        if standard and node.op_type in _NESTED:
            inputs, outputs = [True] * len(node.input), [True] * len(node.output)
        elif standard and node.op_type == "Cast" and self._is_float(node.output[0]):
            next(item for item in copy.attribute if item.name == "to").i = onnx.TensorProto.DOUBLE
            inputs, outputs = [node.input[0] in scope.double], [True]
        elif standard and node.op_type == "Cast":
            inputs, outputs = [node.input[0] in scope.double], [False]
        else:
            inputs, outputs = _in_double(node, self._opset) if standard else ([], [])
        for index, name in enumerate(node.input):
            wanted = bool(inputs) and inputs[index]
            if name and self._is_float(name) and wanted != (name in scope.double):
                copy.input[index] = self._raised(name, scope) if wanted else self._lowered(name)
        for item in copy.attribute if standard and node.op_type in _NESTED else ():
            if item.HasField("g"):
                self._inner(item.g, scope.inside())
        rounded = []
        for index, name in enumerate(node.output):
            if name and outputs and outputs[index] and self._is_float(name):
                scope.double.add(name)
                rounded.append(index)
        self.doubled += bool(rounded) and node.op_type not in _EXACT
        self._nodes.append(copy)
        if self._everywhere and standard and node.op_type not in (*_EXACT, *_NESTED):
            for index in rounded:
                copy.output[index] = self._fresh()
                self._moved(copy.output[index], self._types[node.output[index]], node.output[index])

    def _inner(self, graph: onnx.GraphProto, scope: _Scope) -> None:
        """A graph inside, in place: its inputs and results are float64."""
        import onnx

        scope.constant.update(tensor.name for tensor in graph.initializer)
        for value in graph.input:
            if self._is_float(value.name):
                value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
                scope.double.add(value.name)
        nodes = self.graph(graph.node, scope)
        before, self._nodes = self._nodes, nodes
        for value in graph.output:
            if self._is_float(value.name):
                value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
                if value.name not in scope.double:
                    value.name = self._raised(value.name, scope)
        self._nodes = before
        del graph.node[:], graph.value_info[:]
        graph.node.extend(nodes)

    # values -------------------------------------------------------------------------------------------

    def _raised(self, name: str, scope: _Scope) -> str:
        """A value in float64."""
        import onnx

        if name not in scope.raised:
            scope.raised[name] = self._op("Cast", name, to=onnx.TensorProto.DOUBLE)
        return scope.raised[name]

    def _lowered(self, name: str) -> str:
        """A value of its own type again, off by as much as rounding may make it."""
        kind = self._types[name]
        return self._op("Cast", self._moved(name, kind), to=kind)

    def _moved(self, name: str, kind: int, output: str = "") -> str:
        """A value in float64, moved by up to half a unit in the last place of a type."""
        import numpy as np

        unit = self._units[kind]
        bounded = self._op("Min", name, self._const(np.asarray(1e30)))  # an infinity has no fraction
        bounded = self._op("Max", bounded, self._const(np.asarray(-1e30)))
        scrambled = self._op("Mul", bounded, "edgepack/factor")
        fraction = self._op("Sub", scrambled, self._op("Floor", scrambled))
        width = self._op("Mul", fraction, self._const(np.asarray(2 * unit)))
        scale = self._op("Add", width, self._const(np.asarray(1 - unit)))
        return self._op("Mul", name, scale, output=output)

    def _const(self, value: NDArray[Any]) -> str:
        from onnx import numpy_helper

        key = value.tobytes()
        if key not in self.numbers:
            self.numbers[key] = numpy_helper.from_array(value, f"edgepack/number_{len(self.numbers)}")
        return str(self.numbers[key].name)

    def _fresh(self) -> str:
        self._count += 1
        return f"edgepack/double_{self._count}"

    def _op(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        import onnx

        name = output or self._fresh()
        self._nodes.append(onnx.helper.make_node(op_type, inputs, [name], **attributes))
        return name


def _in_double(node: onnx.NodeProto, opset: int) -> tuple[list[bool], list[bool]]:
    """Which inputs and outputs a kernel of ONNX Runtime takes and gives in float64; empty if it has none."""
    import onnx

    if node.op_type in _REFUSING:
        return [], []
    try:
        schema = onnx.defs.get_schema(node.op_type, opset)
    except onnx.defs.SchemaError:
        return [], []
    keys: set[str] = set()
    for (oldest, newest), types in _kernels().get(node.op_type, ()):
        if oldest <= schema.since_version <= newest:
            wide = {key for key, names in types.items() if "tensor(double)" in names}
            keys = max(keys, wide, key=len)
    if not keys:
        return [], []
    return _which(node.input, schema.inputs, keys), _which(node.output, schema.outputs, keys)


def _which(names: Sequence[str], formal: Sequence[Any], keys: set[str]) -> list[bool]:
    """For each operand whether its type is one of ``keys``; the last formal one may stand for several."""
    return [formal[min(index, len(formal) - 1)].type_str in keys for index in range(len(names))]


@lru_cache(maxsize=1)
def _kernels() -> dict[str, list[tuple[tuple[int, int], dict[str, list[str]]]]]:
    """By standard operator the kernels for CPUs: versions of the operator, and types by type parameter."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found: dict[str, list[tuple[tuple[int, int], dict[str, list[str]]]]] = {}
    for kernel in getattr(state, "get_all_opkernel_def", list)():
        if kernel.provider == "CPUExecutionProvider" and kernel.domain == "":
            found.setdefault(kernel.op_name, []).append((kernel.version_range, kernel.type_constraints))
    return found
