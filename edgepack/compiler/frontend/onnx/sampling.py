"""Draws random inputs that make sense to a model: indices in range, masks of 0 and 1, no zero divisors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.binding import ModelInput, model_inputs
from edgepack.compiler.frontend.onnx.shapes import all_nodes, infer_shapes
from edgepack.compiler.frontend.onnx.storage_types import as_bytes, storage_name

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = ["drawn_inputs", "integer_range", "random_inputs"]

#: Operators through which a value reaches another place unchanged, from the input with this index.
MOVES = {
    **dict.fromkeys(("Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "Transpose"), (0,)),
    **dict.fromkeys(("Slice", "Expand", "Tile", "Split", "CastLike", "Gather", "Dropout"), (0,)),
    "Concat": None,
    "Where": (1, 2),
    "Clip": (0,),
}

#: (operator, index of the input that holds indices) and the index of the input that they point into.
INDEXED = {
    ("Gather", 1): 0,
    ("GatherElements", 1): 0,
    ("ScatterElements", 1): 0,
    ("Scatter", 1): 0,
    ("EmbedLayerNormalization", 0): 2,
    ("EmbedLayerNormalization", 1): 4,
    ("EmbedLayerNormalization", 8): 3,
    ("NegativeLogLikelihoodLoss", 1): 0,
    ("QEmbedLayerNormalization", 0): 2,
    ("QEmbedLayerNormalization", 1): 4,
    ("ReverseSequence", 1): 0,
    ("RoiAlign", 2): 0,
    ("RotaryEmbedding", 1): 2,
    ("RotaryEmbedding", 3): 1,
    ("SoftmaxCrossEntropyLoss", 1): 0,
}

#: By operator, the axis that the indices are along, where that is not its attribute ``axis``, by default 0.
INDEXED_AXES = {"NegativeLogLikelihoodLoss": 1, "SoftmaxCrossEntropyLoss": 1}

#: (operator, index of the input that is a mask of 0 and 1).
MASKS = {
    ("Attention", 3),
    ("EmbedLayerNormalization", 7),
    ("MultiHeadAttention", 4),
    ("QAttention", 5),
    ("QEmbedLayerNormalization", 7),
}

#: Most trips of a loop whose number is drawn; at least there is one.
MOST_TRIPS = 8

#: Least and greatest value of integers that index nothing, where 8-bit ones take all values that they can.
FREE_RANGE = (-8, 8)

#: What they are drawn from where the model cannot run on these: they count or index something after all.
SMALLER_RANGES = ((0, 1), (0, 0))


@dataclass(frozen=True)
class Use:
    """A node that reads a value, and as which of its inputs."""

    node: onnx.NodeProto
    index: int


def drawn_inputs(
    model: onnx.ModelProto, seed: int, given: Mapping[str, NDArray[Any]], magnitude: float = 1.0
) -> Iterator[dict[str, NDArray[Any]]]:
    """The inputs to try one after the other until the model runs on them: :func:`random_inputs`, then with
    smaller integers. ``given`` ones stay as they are; floats are ``magnitude`` times as large as usual."""
    import numpy as np

    before: dict[str, NDArray[Any]] = {}
    for free in (FREE_RANGE, *SMALLER_RANGES):
        arrays = {**random_inputs(model, seed, free, magnitude), **given}
        if not before or any(not np.array_equal(arrays[name], before[name]) for name in integers(arrays)):
            yield arrays
        before = arrays


def integers(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """The names of those whose elements are integers."""
    return [name for name, array in arrays.items() if array.dtype.kind in "iu"]


def random_inputs(
    model: onnx.ModelProto, seed: int, free: tuple[int, int] = FREE_RANGE, magnitude: float = 1.0
) -> dict[str, NDArray[Any]]:
    """One array per input, by name: floats normally distributed, the rest by :func:`integer_range`.

    Args:
        model: all input shapes static.
        seed: the same seed and model give the same arrays on any machine.
        free: least and greatest value of integers that index nothing.
        magnitude: standard deviation of floats.
    """
    import numpy as np

    graph = _Uses(model)
    elements = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    arrays = {}
    for index, item in enumerate(model_inputs(model)):
        rng = np.random.default_rng([seed, index])
        shape = tuple(dim for dim in item.shape or () if isinstance(dim, int))
        element = elements.get(item.name, 0)
        arrays[item.name] = (
            _draw_stored(rng, shape, element)
            if storage_name(element)
            else _draw(rng, item, shape, graph, free, magnitude)
        )
    return arrays


def integer_range(model: onnx.ModelProto, name: str) -> tuple[int, int] | None:
    """Least and greatest value of the input ``name`` that is valid as an index; None if it is none."""
    return _Uses(model).index_range(name)


def _draw_stored(rng: np.random.Generator, shape: tuple[int, ...], element: int) -> NDArray[Any]:
    """Numbers around 0 as a bundle holds an element type of few bits."""
    import numpy as np
    import onnx

    dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
    return as_bytes(np.asarray(rng.standard_normal(shape), np.float32).astype(dtype))


def _draw(
    rng: np.random.Generator,
    item: ModelInput,
    shape: tuple[int, ...],
    graph: _Uses,
    free: tuple[int, int],
    magnitude: float,
) -> NDArray[Any]:
    import ml_dtypes
    import numpy as np

    if item.dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape), bool)
    if "float" in item.dtype:
        dtype = ml_dtypes.bfloat16 if item.dtype == "bfloat16" else np.dtype(item.dtype)
        return np.asarray(magnitude * rng.standard_normal(shape)).astype(dtype)
    limits = np.iinfo(item.dtype)
    found = graph.index_range(item.name)
    if found is None and free == FREE_RANGE and (number := graph.compared_with(item.name)) is not None:
        found = (number, number)
    if found is None and limits.bits > 8 and graph.is_mask(item.name):
        mask = np.asarray(rng.integers(0, 2, shape), item.dtype)
        if shape:
            mask[..., 0] = 1  # a row without any 1 has no defined softmax
        return mask
    all_values = limits.bits == 8 and free == FREE_RANGE
    low, high = found or ((limits.min, limits.max) if all_values else free)
    low, high = max(low, limits.min), min(high, limits.max)
    if graph.is_divisor(item.name):
        low, high = 1, max(high, 1)
    return np.asarray(rng.integers(low, high, shape, endpoint=True), item.dtype)


class _Uses:
    """Where the values of a graph go."""

    def __init__(self, model: onnx.ModelProto) -> None:
        import onnx
        from onnx import numpy_helper

        inferred = infer_shapes(model)
        self.uses: dict[str, list[Use]] = defaultdict(list)
        for node in all_nodes(inferred.graph):
            for index, name in enumerate(node.input):
                if name:
                    self.uses[name].append(Use(node, index))
        graph = inferred.graph
        self.shapes = {
            value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for value in (*graph.input, *graph.value_info, *graph.output)
        }
        self.shapes.update({tensor.name: list(tensor.dims) for tensor in graph.initializer})
        small = [tensor for tensor in graph.initializer if len(tensor.dims) <= 1]
        for node in graph.node:
            values = [a.t for a in node.attribute if a.HasField("t") and len(a.t.dims) <= 1]
            if node.op_type == "Constant" and len(values) == len(node.output) == 1:
                small.append(onnx.TensorProto())
                small[-1].CopyFrom(values[0])
                small[-1].name = node.output[0]
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in small}

    def index_range(self, name: str) -> tuple[int, int] | None:
        bounds = [self._bound(use, offset) for use, offset in self._reached(name)]
        known = [bound for bound in bounds if bound is not None]
        if not known:
            return None
        low, high = max(low for low, _ in known), min(high for _, high in known)
        return (low, max(low, high))

    def is_mask(self, name: str) -> bool:
        """Becomes a float or a condition: what an attention mask does."""
        targets = {"Where", "And", "Not", "Equal"}
        for use, _ in self._reached(name):
            if (
                use.node.op_type in targets
                or "mask" in name.lower()
                or (use.node.op_type, use.index) in MASKS
            ):
                return True
            if (
                use.node.op_type == "Sub"
                and use.index == 1
                and self.shapes.get(use.node.input[0]) in ([], [1])
            ):
                return True
        return False

    def compared_with(self, name: str) -> int | None:
        """What an input of one number is compared with: that chooses one of the model's ways."""
        for use, offset in self._reached(name) if prod(self.shapes.get(name, [0])) == 1 else ():
            constant = self._constant(use) if use.node.op_type == "Equal" else None
            if constant is not None:
                return constant - offset
        return None

    def is_divisor(self, name: str) -> bool:
        return any(use.node.op_type in ("Div", "Mod") and use.index == 1 for use, _ in self._reached(name))

    def _reached(self, name: str) -> Iterator[tuple[Use, int]]:
        """All uses of the value, also after it was moved, or added to a constant: with the sum of these."""
        todo, seen = [(name, 0)], set()
        while todo:
            value, offset = todo.pop()
            if value in seen:
                continue
            seen.add(value)
            for use in self.uses[value]:
                yield use, offset
                op = use.node.op_type
                moves = MOVES.get(op, ())
                if op in MOVES and (moves is None or use.index in moves):
                    todo += [(output, offset) for output in use.node.output]
                elif op in ("Add", "Sub") and (constant := self._constant(use)) is not None:
                    shift = constant if op == "Add" else -constant
                    todo += [(output, offset + shift) for output in use.node.output]

    def _constant(self, use: Use) -> int | None:
        """The constant that the value is added to, or that is subtracted from it."""
        if use.node.op_type == "Sub" and use.index == 1:
            return None
        array = self.constants.get(use.node.input[1 - use.index])
        return int(array.max()) if array is not None and array.size and array.dtype.kind == "i" else None

    def _bound(self, use: Use, offset: int) -> tuple[int, int] | None:
        op = use.node.op_type
        size: int | None = None
        if (op, use.index) == ("Loop", 0):
            return (1 - offset, MOST_TRIPS - offset)
        if (op, use.index) in INDEXED:
            shape = self.shapes.get(use.node.input[INDEXED[op, use.index]], [])
            names = ("axis", "time_axis")
            axis = INDEXED_AXES.get(op, next((a.i for a in use.node.attribute if a.name in names), 0))
            size = shape[axis] if shape else None
        elif op in ("GatherND", "ScatterND") and use.index == 1:
            shape = self.shapes.get(use.node.input[0], [])
            size = min(shape) if shape else None
        elif op == "OneHot" and use.index == 0:
            depth = self.constants.get(use.node.input[1])
            size = int(depth.max()) if depth is not None else None
        if not size:
            return None
        return (max(0, -offset), size - 1 - offset)
