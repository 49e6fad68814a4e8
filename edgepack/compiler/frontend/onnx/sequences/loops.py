"""Loops that carry lists or optional values: they carry the tensors that these consist of, or stack what each
trip adds to a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.regions import names_read
from edgepack.compiler.frontend.onnx.sequences.scope import Scope
from edgepack.compiler.frontend.onnx.sequences.trips import declare_shapes, trips_of, why_unknown
from edgepack.compiler.frontend.onnx.sequences.values import (
    Element,
    Part,
    Partition,
    Rest,
    Tensors,
    Value,
    element_type,
    same_form,
)

if TYPE_CHECKING:
    import onnx

__all__ = ["follow_loop"]


def follow_loop(
    scope: Scope,
    node: onnx.NodeProto,
    body: onnx.GraphProto,
    inferred: onnx.GraphProto,
    follow: Callable[[Scope], None],
) -> None:
    """Writes a Loop without lists, as far as they are known; the scope learns what its results are.

    Args:
        body: the graph inside.
        inferred: the same, with types.
        follow: follows a graph.
    """
    values = {place: scope.value(name) for place, name in enumerate(node.input[2:])}
    kept = {place: value for place, value in values.items() if same_form(value, value) and value is not None}
    grown: dict[int, Tensors] = {}
    context = scope.context
    changed, refusals = context.changed, dict(context.refusals)
    while True:
        trial = _Trial(scope, node, body, inferred, kept, grown)
        follow(trial.inside)
        if trial.fits():
            trial.write()
            unknown = [place for place, value in values.items() if value and place not in {*kept, *grown}]
            if unknown:
                context.refuse(node, *why_unknown(scope, node, body, unknown[0]))
            return
        context.changed, context.refusals = changed, dict(refusals)


class _Trial:
    """A loop whose body is followed with what is supposed of the lists that it carries.

    Args:
        kept: by place among what is carried, those that have the same form before and behind each trip.
        grown: those to which each trip appends, or before whose tensors it puts some, as many each time.
    """

    def __init__(
        self,
        scope: Scope,
        node: onnx.NodeProto,
        body: onnx.GraphProto,
        inferred: onnx.GraphProto,
        kept: dict[int, Value],
        grown: dict[int, Tensors],
    ) -> None:
        import onnx

        self.scope, self.kept, self.grown = scope, kept, grown
        self.node, self.body = onnx.NodeProto(), onnx.GraphProto()
        self.node.CopyFrom(node)
        self.body.CopyFrom(body)
        self.node.output.extend([""] * (len(body.output) - 1 - len(node.output)))
        self.inside = Scope(self.body, inferred, scope.context, scope)
        self.results: list[tuple[str, Value]] = []
        self.params: dict[int, list[str]] = {}
        for place, start in kept.items():
            name = self.body.input[2 + place].name
            value, self.params[place] = self.inside.like(start, name)
            self.inside.define(name, value)
        for place, whole in grown.items():
            name = self.body.input[2 + place].name
            self.inside.values[name] = Tensors((Rest(name),), whole.dtype)

    def _behind(self, place: int) -> Value | None:
        """What a list is behind a trip."""
        return self.inside.value(self.body.output[1 + place].name)

    def fits(self) -> bool:
        """Whether what was supposed is so; where it is not, less is supposed from now on."""
        wrong = [place for place, start in self.kept.items() if not same_form(start, self._behind(place))]
        for place in wrong:
            start = self.kept.pop(place)
            if isinstance(start, Tensors) and trips_of(self.scope, self.node, self.body):
                self.grown[place] = start
        if wrong:
            return False
        wrong = [place for place in self.grown if not self._grows(place)]
        for place in wrong:
            del self.grown[place]
        return not wrong

    def _grows(self, place: int) -> bool:
        """Whether each trip adds tensors of one shape to a list, at one end, and nothing in the body reads
        it."""
        name, behind = self.body.input[2 + place].name, self._behind(place)
        if not isinstance(behind, Tensors) or len(behind.elements) < 2:
            return False
        added = [one for one in behind.elements if not isinstance(one, Rest)]
        at_an_end = Rest(name) in (behind.elements[0], behind.elements[-1])
        if not at_an_end or len(added) != len(behind.elements) - 1:
            return False
        if None in map(self.inside.static, added):
            declare_shapes(self.scope, self.node, self.inside, self._supposed())
        if None in map(self.inside.static, added):
            return False
        made = {
            own
            for own, value in self.inside.values.items()
            if isinstance(value, Tensors) and Rest(name) in value.elements
        }
        only = all(made.issuperset(n.output) or made.isdisjoint(names_read(n)) for n in self.inside.nodes)
        results = [index for index, value in enumerate(self.body.output) if value.name in made]
        return only and results == [1 + place]

    def _supposed(self) -> dict[str, tuple[str, str]]:
        """By name of a tensor that the body is given, what it is before the first trip and behind each."""
        found: dict[str, tuple[str, str]] = {}
        for place, start in enumerate(self.node.input[2:]):
            value, result = self.body.input[2 + place], self.body.output[1 + place]
            if place in self.kept:
                behind = self._behind(place)
                assert behind is not None
                ends = zip(self.scope.leaves(self.kept[place]), self.inside.leaves(behind), strict=True)
                found |= dict(zip(self.params[place], ends, strict=True))
            elif place not in self.grown and value.type.WhichOneof("value") == "tensor_type":
                found[value.name] = start, result.name
        return found

    def write(self) -> None:
        """Writes the loop and what its lists are."""
        for place in sorted({*self.kept, *self.grown}, reverse=True):
            if place in self.kept:
                self._carry(place)
            else:
                self._stack(place)
            self.scope.context.changed = True
        self.inside.finish()
        for attribute in self.node.attribute:
            if attribute.name == "body":
                attribute.g.CopyFrom(self.body)
        self.scope.keep(self.node)
        for name, value in self.results:
            self.scope.define(name, value)

    def _carry(self, place: int) -> None:
        """Has the loop carry the tensors of a list."""
        import onnx

        start, behind = self.kept[place], self._behind(place)
        assert behind is not None
        given, declared = self.scope.leaves(start), element_type(self.body.input[2 + place])
        inputs = []
        for param, name in zip(self.params[place], given, strict=True):
            value = onnx.ValueInfoProto(name=param)
            value.type.tensor_type.elem_type = self.scope.dtype(name) or declared
            inputs.append(value)
        self.inside.give(1 + place, behind)
        _put(self.body.input, 2 + place, inputs)
        result, names = self.scope.like(start, self._result(place))
        self.results.append((self.node.output[place], result))
        self.node.input[:] = [*self.node.input[: 2 + place], *given, *self.node.input[3 + place :]]
        self.node.output[:] = [*self.node.output[:place], *names, *self.node.output[place + 1 :]]

    def _stack(self, place: int) -> None:
        """Has the loop stack what each trip adds to a list."""
        import onnx

        start, behind = self.grown[place], self._behind(place)
        assert isinstance(behind, Tensors)
        trips = trips_of(self.scope, self.node, self.body)
        added = [one for one in behind.elements if not isinstance(one, Rest)]
        parts: list[Partition] = []
        for one in added:
            shape, dtype = self.inside.static(one), self.inside.dtype(one)
            assert shape is not None
            inner = self.inside.tensor(one)
            name = self.inside.op("Identity", inner, result=self.scope.context.fresh(f"{inner}/added"))
            self.body.output.append(onnx.ValueInfoProto(name=name))
            stacked = self.scope.context.fresh(f"{self._result(place)}/stacked")
            self.node.output.append(stacked)
            self.scope.declare(stacked, dtype, (trips, *shape))
            parts.append(Partition(stacked, 0, (1,) * trips, keep=False))
        appended = isinstance(behind.elements[0], Rest)
        order = range(trips) if appended else reversed(range(trips))
        each: list[Element] = [Part(of, trip) for trip in order for of in parts]
        whole = (*start.elements, *each) if appended else (*each, *start.elements)
        dtype = start.dtype or self.inside.dtype(added[0])
        self.results.append((self.node.output[place], Tensors(whole, dtype)))
        del self.node.input[2 + place], self.node.output[place]
        del self.body.input[2 + place], self.body.output[1 + place]

    def _result(self, place: int) -> str:
        return str(self.node.output[place]) or f"{self.body.output[1 + place].name}/behind"


def _put(field: Any, place: int, values: Sequence[onnx.ValueInfoProto]) -> None:
    """Puts values in the place of one."""
    copies = [type(one).FromString(one.SerializeToString()) for one in field]
    copies[place : place + 1] = values
    del field[:]
    field.extend(copies)
