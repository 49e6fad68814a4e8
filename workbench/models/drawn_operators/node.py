"""A model of one operator under construction: what its schema allows is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["NodeDraw", "Operator", "Recipe", "Recipes", "opsets_of"]

#: The newest opset that ONNX Runtime is known to run all of, and the oldest that it promises.
NEWEST, OLDEST = 23, 7

#: Elements of a tensor, at most.
MOST_ELEMENTS = 700

_SIZES = (0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 17, 33)
_FLOATS = (0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 0.5, -0.5, 1e-37, -1e-37, 1e30, -1e30, 89.0, -104.0)
_LIMITS = (-20.0, -12.5, 12.5, 20.0, 1e4, -1e4, 3e38, -3e38, 2.5, -2.5, 1e-7, -1e-7)
_PREFERRED = ("float32",) * 8

_T = TypeVar("_T")


@dataclass(frozen=True)
class Operator:
    """A drawn model with inputs.

    Attributes:
        model: of one node.
        inputs: by name; what is not among them is a constant of the model.
        special: whether NaN, infinities or ends of ranges are among its numbers.
    """

    seed: int
    name: str
    model: onnx.ModelProto
    inputs: Mapping[str, np.ndarray]
    special: bool

    def __str__(self) -> str:
        node = self.model.graph.node[0]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        constants = {t.name: numpy_helper.to_array(t) for t in self.model.graph.initializer}
        shown = [
            f"{name}: {kind}{array.dtype}{list(array.shape)}"
            + (f"={array.tolist()}" if array.size <= 8 else "")
            for kind, arrays in (("", self.inputs), ("constant ", constants))
            for name, array in arrays.items()
        ]
        opset = self.model.opset_import[0].version
        return f"{self.seed} {self.name} opset {opset} {attributes} {list(node.input)} {'; '.join(shown)}"


class NodeDraw:
    """Draws what an operator is given.

    Attributes:
        rng: of the seed.
        opset: of which the model is.
        schema: the standard operator's in that opset.
        special: whether numbers that operators treat apart may be drawn.
    """

    def __init__(
        self, seed: int, operator: str, rng: np.random.Generator, opset: int, domain: str = ""
    ) -> None:
        self.seed, self.operator, self.rng, self.opset, self.domain = seed, operator, rng, opset, domain
        self.schema = None if domain else onnx.defs.get_schema(operator, opset)
        self.special = self.chance(0.5)
        self._inputs: dict[str, np.ndarray] = {}
        self._constants: dict[str, np.ndarray] = {}

    def draw(self, *choices: _T) -> _T:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, part: float = 0.5) -> bool:
        return bool(self.rng.random() < part)

    def whole(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, which is drawn too."""
        return int(self.rng.integers(low, high + 1))

    def axis(self, rank: int) -> int:
        """One of ``rank`` axes, from the front or from the back."""
        return self.whole(-rank, rank - 1)

    def has(self, attribute: str) -> bool:
        return self.schema is not None and attribute in self.schema.attributes

    def attributes(self, **drawn: Any) -> dict[str, Any]:
        """Those that this opset has, each left out now and then."""
        return {name: value for name, value in drawn.items() if self.has(name) and self.chance(0.8)}

    def type_of(self, index: int = 0, without: Sequence[str] = ()) -> np.dtype[Any]:
        """A type that an input may have, float32 more often than others."""
        assert self.schema is not None
        formal = self.schema.inputs[min(index, len(self.schema.inputs) - 1)]
        named = [t.removeprefix("tensor(").removesuffix(")") for t in formal.types]
        known = [{"float": "float32", "double": "float64"}.get(name, name) for name in named]
        known = [name for name in known if hasattr(np, name) and name not in without and name != "string"]
        known = [name for name in known if name.startswith(("float", "int", "uint", "bool"))]
        known += [name for name in _PREFERRED if name in known]
        return np.dtype(self.draw(*sorted(known)))

    def shape(self, least: int = 0, most: int = 5, *, empty: bool = True) -> list[int]:
        """Sizes of ``least`` to ``most`` axes, sometimes 0 where it may be empty."""
        rank = self.whole(least, most)
        sizes = [self.draw(*_SIZES) for _ in range(rank)]
        if not empty or self.chance(0.8):
            sizes = [max(size, 1) for size in sizes]
        while np.prod(sizes, dtype=float) > MOST_ELEMENTS:
            sizes[int(np.argmax(sizes))] //= 2
        return sizes

    def broadcast(self, shape: Sequence[int]) -> list[int]:
        """Sizes of an operand that is broadcast to ``shape``: fewer axes, some of one element."""
        kept = list(shape)[self.whole(0, len(shape)) if self.chance() else 0 :]
        return [1 if self.chance(0.3) else size for size in kept]

    def numbers(
        self, dtype: np.dtype[Any] | str, shape: Sequence[int], *, special: bool = True, scale: float = 2.0
    ) -> np.ndarray:
        """Numbers of a type; with those that operators treat apart among them where the model has such."""
        dtype = np.dtype(dtype)
        count = int(np.prod(shape))
        if dtype.kind == "b":
            values = self.rng.random(count) < 0.5
        elif dtype.kind == "f":
            values = self.rng.normal(0, scale, count)
            if special and self.special:
                with np.errstate(over="ignore"):
                    values = self._sprinkled(values, np.asarray(_FLOATS + _LIMITS)).astype(dtype)
        else:
            ends = np.iinfo(dtype)
            values = self.rng.integers(max(ends.min, -9), 10, count).astype(dtype)
            if special and self.special:
                apart = [ends.min, ends.max, 0, 1, max(ends.min, -1), ends.max // 2 + 1, ends.max // 2]
                values = self._sprinkled(values, np.asarray(apart, dtype))
        return values.astype(dtype).reshape(tuple(shape))

    def _sprinkled(self, values: np.ndarray, apart: np.ndarray) -> np.ndarray:
        found = self.rng.random(values.size) < self.draw(0.1, 0.5, 1.0)
        return np.where(found, self.rng.choice(apart, values.size), values)

    def input(self, array: np.ndarray, *, constant: float = 0.25) -> str:
        """An operand of the run, or as often as ``constant`` says one of the model; its name."""
        kept = self._constants if self.chance(constant) else self._inputs
        name = f"i{len(self._inputs) + len(self._constants)}"
        kept[name] = np.asarray(array)
        return name

    def constant(self, array: Any, dtype: str = "int64") -> str:
        return self.input(np.asarray(array, dtype), constant=1)

    def parameter(self, name: str, value: Any, position: int) -> tuple[dict[str, Any], list[str]]:
        """What older opsets have as an attribute and newer ones as an input: the attribute, or the inputs
        that follow the first ``position`` ones."""
        if self.has(name):
            return {name: value}, []
        assert self.schema is not None
        formal = [parameter.name for parameter in self.schema.inputs]
        gap = formal.index(name) - position
        return {}, [""] * gap + [self.constant(value)]

    def done(self, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> Operator:
        """The model of a node with these inputs."""
        if not self._inputs:  # of constants alone nothing is left to compute
            name = next(name for name in inputs if name)
            self._inputs[name] = self._constants.pop(name)
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        results = [f"o{n}" for n in range(outputs)]
        node = helper.make_node(self.operator, given, results, "node", domain=self.domain, **attributes)
        graph = helper.make_graph(
            [node],
            "drawn",
            [_info(name, array) for name, array in self._inputs.items()],
            [onnx.ValueInfoProto(name=name) for name in results],
            [numpy_helper.from_array(array, name) for name, array in self._constants.items()],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(self.domain, 1)] if self.domain else []
        model = _typed(helper.make_model(graph, opset_imports=opsets, ir_version=10))
        return Operator(self.seed, self.operator, model, self._inputs, self.special)


def _info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """With the outputs' types."""
    known = onnx.shape_inference.infer_shapes(model, data_prop=True)
    for value, found in zip(model.graph.output, known.graph.output, strict=True):
        value.type.CopyFrom(found.type)
    return model


Recipe = Callable[[NodeDraw], Operator]


class Recipes(dict[str, Recipe]):
    """By operator what draws a model of it."""

    def of(self, *operators: str) -> Callable[[Recipe], Recipe]:
        def add(function: Recipe) -> Recipe:
            self.update(dict.fromkeys(operators, function))
            return function

        return add


@cache
def opsets_of(operator: str, domain: str = "") -> tuple[tuple[int, int], ...]:
    """First and last opset of each of the operator's versions that is in use; those of the standard domain
    that an operator of another one may stand beside."""
    if domain:
        return ((11, NEWEST),)
    versions = {
        s.since_version: s.deprecated
        for s in onnx.defs.get_all_schemas_with_history()
        if s.name == operator and s.domain == ""
    }
    since = sorted(versions)
    ends = [*(version - 1 for version in since[1:]), NEWEST]
    pairs = [
        (max(first, OLDEST), min(last, NEWEST))
        for first, last in zip(since, ends, strict=True)
        if not versions[first]
    ]
    return tuple(pair for pair in pairs if pair[0] <= pair[1])
