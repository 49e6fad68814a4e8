"""``IF``, ``WHILE`` and composites: what they call stands with them, or in their place.

Short branches are both computed, and what the condition says is taken; they have no effects. Others stay, and
are taken or not when the model runs, as is the body of a ``WHILE``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgepack.compiler.frontend.tflite.model import Model, Operator, Subgraph, Tensor
from edgepack.errors import ModelError

__all__ = ["VARIABLES", "with_called_graphs"]

#: Operators of variables that are kept between runs.
VARIABLES = ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")

#: Most levels of branches within branches, most operators, and most tensors of all graphs that are called,
#: counted at each call: what has more is a damaged file.
_MOST_LEVELS, _MOST_OPERATORS, _MOST_TENSORS = 8, 1 << 16, 1 << 20

#: Most operators of the branches of an IF that are both computed.
_MOST_SELECTED = 32

#: Operators that take long, or whose time is not known.
_LONG = {
    *("BATCH_MATMUL", "CONV_2D", "CONV_3D", "CONV_3D_TRANSPOSE", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"),
    *("IF", "SVDF", "TOPK_V2", "TRANSPOSE_CONV", "UNIDIRECTIONAL_SEQUENCE_LSTM"),
    *("UNIDIRECTIONAL_SEQUENCE_RNN", "WHILE"),
}


def with_called_graphs(model: Model) -> Subgraph:
    """The first subgraph, where control flow that stays has the graphs that it calls.

    Raises:
        ModelError: a graph is not there, takes or returns other tensors than its call, calls itself, or
            changes variables, or is of a ``WHILE`` and reads some.
    """
    return _Resolver(model).graph(0, 0)


class _Resolver:
    def __init__(self, model: Model) -> None:
        self._model, self._operators, self._tensors = model, 0, 0

    def graph(self, index: int, level: int) -> Subgraph:
        """A subgraph of the model; ``level`` is how many calls it is away from the first one."""
        given = self._model.subgraphs[index]
        if level > _MOST_LEVELS:
            raise ModelError("Branches of the model call each other.", hint="Convert the model again.")
        self._count(given)
        tensors, operators = _Tensors(given.tensors), list[Operator]()
        for one in given.operators:
            if one.kind == "IF" and not one.custom:
                operators += self._if(one, tensors, level)
            elif one.kind == "WHILE" and not one.custom:
                operators += self._while(one, tensors, level)
            elif one.kind == "STABLEHLO_COMPOSITE" and not one.custom:
                operators += self._composite(one, tensors, level)
            else:
                operators.append(one)
        return replace(given, tensors=tuple(tensors.all), operators=tuple(operators))

    def _if(self, call: Operator, tensors: _Tensors, level: int) -> list[Operator]:
        sizes = len(call.inputs) - 1, len(call.outputs)
        graphs = [self._called(call, f"{name}SubgraphIndex", sizes, level) for name in ("then", "else")]
        if any(map(_changes_variables, graphs)):
            raise _refused_variables("An IF")
        if not all(map(_is_short, graphs)) and not any(map(_reads_variables, graphs)):
            return [replace(call, graphs=tuple(graphs))]
        made, results = list[Operator](), []
        for graph in graphs:
            operators, outputs = self._inlined(graph, call.inputs[1:], tensors, call.index)
            made += operators
            results.append(outputs)
        for index, pair in zip(call.outputs, zip(*results, strict=True), strict=True):
            made.append(Operator(call.index, "SELECT_V2", 1, (call.inputs[0], *pair), (index,)))
        return made

    def _while(self, call: Operator, tensors: _Tensors, level: int) -> list[Operator]:
        """The condition before the first trip, and a ``WHILE`` that begins with it and whose body returns it
        too, before what it carries."""
        count = len(call.inputs)
        condition = self._called(call, "condSubgraphIndex", (count, 1), level)
        body = self._called(call, "bodySubgraphIndex", (count, len(call.outputs)), level)
        if count != len(call.outputs):
            raise ModelError(
                f"WHILE takes {count} tensors and returns {len(call.outputs)}.",
                hint="Convert the model again.",
            )
        if any(map(_reads_variables, (condition, body))):
            raise _refused_variables("A WHILE")
        before, (first,) = self._inlined(condition, call.inputs, tensors, call.index)
        own = _Tensors(body.tensors)
        behind, (again,) = self._inlined(condition, body.outputs, own, call.index)
        whole = replace(
            body,
            tensors=tuple(own.all),
            operators=(*body.operators, *behind),
            outputs=(again, *body.outputs),
        )
        return [*before, replace(call, inputs=(first, *call.inputs), graphs=(whole,))]

    def _composite(self, call: Operator, tensors: _Tensors, level: int) -> list[Operator]:
        """What a converter kept together, for whoever has a kernel for all of it: its parts."""
        sizes = len(call.inputs), len(call.outputs)
        graph = self._called(call, "decompositionSubgraphIndex", sizes, level)
        made, results = self._inlined(graph, call.inputs, tensors, call.index)
        computed = {index for one in made for index in one.outputs}
        own, copies = dict[int, int](), list[Operator]()
        for index, result in zip(call.outputs, results, strict=True):
            if result in computed and result not in own:
                own[result] = index
            else:  # an operand, or a result that is returned twice
                copies.append(Operator(call.index, "RESHAPE", 1, (own.get(result, result),), (index,)))
        moved = [
            replace(
                one,
                inputs=tuple(own.get(index, index) for index in one.inputs),
                outputs=tuple(own.get(index, index) for index in one.outputs),
            )
            for one in made
        ]
        return [*moved, *copies]

    def _called(self, call: Operator, option: str, sizes: tuple[int, int], level: int) -> Subgraph:
        """A graph that a call names, which takes and returns so many tensors."""
        index = int(call.options.get(option) or 0)
        if not 0 < index < len(self._model.subgraphs):
            raise ModelError(
                f"{call.kind} calls a subgraph {index} that is not there.", hint="Convert it again."
            )
        graph = self._model.subgraphs[index]
        if (len(graph.inputs), len(graph.outputs)) != sizes:
            raise ModelError(
                f"{call.kind} gives subgraph {index} {sizes[0]} tensors and takes {sizes[1]} of it; it takes "
                f"{len(graph.inputs)} and gives {len(graph.outputs)}.",
                hint="Convert the model again.",
            )
        return self.graph(index, level + 1)

    def _inlined(
        self, graph: Subgraph, given: Sequence[int], tensors: _Tensors, index: int
    ) -> tuple[list[Operator], list[int]]:
        """Operators that compute a graph of the tensors ``given``, and where its results are then.

        Args:
            tensors: of the caller, to which the graph's own are added.
            index: of the operator that calls it.
        """
        self._count(graph)
        places = _copied(graph, dict(zip(graph.inputs, given, strict=True)), tensors)
        made = []
        for one in graph.operators:
            inputs = tuple(places.get(i, i) for i in one.inputs)
            outputs = tuple(places[i] for i in one.outputs)
            inner = tuple(places[i] for i in one.intermediates)
            made.append(replace(one, index=index, inputs=inputs, outputs=outputs, intermediates=inner))
        return made, [places[i] for i in graph.outputs]

    def _count(self, graph: Subgraph) -> None:
        """Counts what is written of a graph: the graphs inside it again for each copy."""
        self._tensors += len(graph.tensors)
        for _ in graph.all_operators():
            self._operators += 1
            if self._operators > _MOST_OPERATORS or self._tensors > _MOST_TENSORS:
                raise ModelError(
                    "Branches of the model, written out, have too many operators.",
                    hint="Convert the model again.",
                )


class _Tensors:
    """The tensors of a graph that gets those of others.

    Attributes:
        all: in order.
    """

    def __init__(self, given: Sequence[Tensor]) -> None:
        self.all = list(given)
        self._names = {tensor.name for tensor in given}

    def add(self, tensor: Tensor) -> int:
        """Adds one, under a name that no other has; its index."""
        index, name = len(self.all), tensor.name
        if name in self._names:
            name = f"{name}_{index}"
        while name in self._names:
            name += "_"
        self._names.add(name)
        self.all.append(replace(tensor, index=index, name=name))
        return index


def _is_short(graph: Subgraph) -> bool:
    """Whether a branch takes about as long as to choose between its results and others."""
    return len(graph.operators) <= _MOST_SELECTED and all(one.kind not in _LONG for one in graph.operators)


def _changes_variables(graph: Subgraph) -> bool:
    return any(
        one.kind in ("ASSIGN_VARIABLE", "CALL_ONCE")
        or any(index >= 0 and owner.tensors[index].variable for index in one.inputs)
        for owner, one in graph.all_operators()
    )


def _reads_variables(graph: Subgraph) -> bool:
    return _changes_variables(graph) or any(one.kind in VARIABLES for _, one in graph.all_operators())


def _refused_variables(what: str) -> ModelError:
    return ModelError(
        f"{what} of the model uses variables that are kept between runs, which are to be used whatever the "
        "data are.",
        hint="Read and assign them outside of it, or cut the model before it (--outputs).",
    )


def _copied(graph: Subgraph, given: Mapping[int, int], tensors: _Tensors) -> dict[int, int]:
    """Adds a graph's tensors but those that are given; where each is now."""
    places = dict(given)
    for tensor in graph.tensors:
        if tensor.index not in places:
            places[tensor.index] = tensors.add(tensor)
    return places
