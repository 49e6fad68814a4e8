"""Where a model can be cut around nodes that cannot be compiled: the largest part before them, and after."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.cut import cut, node_reads, static_shape
from edgepack.compiler.frontend.onnx.shapes import infer_shapes
from edgepack.errors import EdgepackError

if TYPE_CHECKING:
    import onnx

__all__ = ["Attempt", "suggest_cuts"]

#: Tries a part of the model; returns the outputs of further nodes that cannot be compiled, by name: none if
#: all can. Raises EdgepackError where it cannot be compiled for another reason.
Attempt = Callable[["onnx.ModelProto"], Collection[str]]

#: How often a part is made smaller because of a node that turned out not to be compilable either.
ATTEMPTS = 12


def suggest_cuts(
    model: onnx.ModelProto,
    refused: Collection[str],
    attempt: Attempt,
    names: Collection[str] | None = None,
) -> tuple[dict[str, Any], ...]:
    """Parts of a model that can be compiled, each tried out; as ``cuts`` of :class:`ModelError`.

    Args:
        model: all input shapes static. Not changed.
        refused: names of outputs of the nodes that cannot be compiled.
        attempt: says whether a part can.
        names: tensors where it may be cut, those of the user's file; None for all of ``model``.
    """
    graph = _Graph(model, names)
    found = (_part(model, graph, kind, set(refused), attempt) for kind in ("before", "after"))
    return tuple(cut for cut in found if cut is not None)


def _part(
    model: onnx.ModelProto, graph: _Graph, kind: str, refused: set[str], attempt: Attempt
) -> dict[str, Any] | None:
    import onnx

    for _ in range(ATTEMPTS):
        chosen = graph.before(refused) if kind == "before" else graph.after(refused)
        if not chosen.nodes or chosen.nodes >= graph.computing:  # what is refused is none of its nodes
            return None
        if foreign := graph.foreign(chosen):
            refused |= foreign
            continue
        part = onnx.ModelProto()
        part.CopyFrom(model)
        try:
            cut(part, ImportOptions(inputs=chosen.inputs, outputs=chosen.outputs))
            more = set(attempt(part))
        except EdgepackError:
            return None
        if not more:
            return {
                "part": kind,
                "inputs": list(chosen.inputs),
                "outputs": list(chosen.outputs),
                "nodes": len(chosen.nodes),
                "of": len(graph.computing),
            }
        if not graph.nodes_of(more) - graph.nodes_of(refused):
            return None
        refused |= more
    return None


@dataclass(frozen=True)
class _Chosen:
    nodes: set[int]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass
class _Graph:
    """Which node reads what; nodes are known by their index.

    Attributes:
        names: tensors where it may be cut; None for all.
        computing: nodes that depend on what is in an input, not on constants and sizes alone.
    """

    model: onnx.ModelProto
    names: Collection[str] | None = None
    computing: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        graph = self.model.graph
        inferred = infer_shapes(self.model).graph
        types = {value.name: value for value in (*inferred.value_info, *inferred.input)}
        fixed = {tensor.name for tensor in graph.initializer}
        self.reads = [tuple(dict.fromkeys(node_reads(node))) for node in graph.node]
        self.outputs = [value.name for value in graph.output]
        for index, node in enumerate(graph.node):
            of_size = node.op_type in ("Shape", "Size") and static_shape(types.get(node.input[0])) is not None
            if of_size or fixed.issuperset(self.reads[index]):
                fixed.update(node.output)
            else:
                self.computing.add(index)
        self.producer = {name: index for index in self.computing for name in graph.node[index].output if name}

    def nodes_of(self, tensors: Collection[str]) -> set[int]:
        return {self.producer[name] for name in tensors if name in self.producer}

    def foreign(self, chosen: _Chosen) -> set[str]:
        """Outputs of the nodes that are to be left out too, so that the cut is at tensors of ``names``."""
        if self.names is None:
            return set()
        found = {name for name in chosen.outputs if name not in self.names}
        inputs = {name for name in chosen.inputs if name not in self.names}
        readers = [index for index in chosen.nodes if not inputs.isdisjoint(self.reads[index])]
        return found | set(self._made(readers))

    def before(self, refused: Collection[str]) -> _Chosen:
        """What does not depend on the refused nodes, up to all that the others read of it."""
        behind = self._behind(self.nodes_of(refused))
        nodes = self.computing - behind
        read = {name for index in behind for name in self.reads[index]} | set(self.outputs)
        return _Chosen(nodes, outputs=tuple(name for name in self._made(nodes) if name in read))

    def after(self, refused: Collection[str]) -> _Chosen:
        """What depends on the refused nodes and leads to none of them, from all that it reads of the rest."""
        bad = self.nodes_of(refused)
        nodes = self._behind(bad) - self._leading(bad)
        others = set(self._made(self.computing - nodes))
        inputs = dict.fromkeys(
            name for index in sorted(nodes) for name in self.reads[index] if name in others
        )
        made = set(self._made(nodes))
        outputs = tuple(name for name in self.outputs if name in made)
        return _Chosen(nodes, tuple(inputs), () if len(outputs) == len(self.outputs) else outputs)

    def _made(self, nodes: Collection[int]) -> Iterator[str]:
        for index in sorted(nodes):
            yield from (name for name in self.model.graph.node[index].output if name)

    def _behind(self, start: set[int]) -> set[int]:
        """``start`` and all nodes that depend on it."""
        found, tensors = set(start), set(self._made(start))
        for index in sorted(self.computing - start):
            if not tensors.isdisjoint(self.reads[index]):
                found.add(index)
                tensors.update(self._made((index,)))
        return found

    def _leading(self, start: set[int]) -> set[int]:
        """``start`` and all nodes that it depends on."""
        found, todo = set(start), list(start)
        while todo:
            new = self.nodes_of(self.reads[todo.pop()]) - found
            found |= new
            todo += new
        return found
