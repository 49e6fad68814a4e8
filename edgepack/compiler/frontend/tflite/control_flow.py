"""``IF`` and ``WHILE`` that stay (``branches.py``), as ONNX's If and Loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.model import Operator, Subgraph

if TYPE_CHECKING:
    import onnx

__all__ = ["write_control_flow"]

#: Writes the operators of a graph.
Write = Callable[[Emitter, Subgraph], None]


def write_control_flow(emitter: Emitter, operator: Operator, write: Write) -> None:
    """Writes an operator that has graphs, and these by ``write``.

    Raises:
        KeyError: a tensor is read that nothing computes.
    """
    condition, *given = (emitter.value(index) for index in operator.inputs)
    condition = emitter.reshape(condition, ())
    if operator.kind == "IF":
        made = [emitter.tensors[index] for index in operator.outputs]
        results = [(one.shape, one.dtype) for one in made]
        graphs = [
            _branch(emitter, graph, called, given, write)
            for graph, called in zip(operator.graphs, ("then", "else"), strict=True)
        ]
        names = emitter.ops("If", [condition], results, then_branch=graphs[0], else_branch=graphs[1])
    else:
        (graph,) = operator.graphs
        body = _body(emitter, graph, given, write)
        carried = [(emitter.shape(name), emitter.dtype(name)) for name in given]
        names = emitter.ops("Loop", ["", condition, *given], carried, body=body)
    for index, name in zip(operator.outputs, names, strict=True):
        emitter.result(index, name)


def _branch(
    emitter: Emitter, graph: Subgraph, called: str, given: list[str], write: Write
) -> onnx.GraphProto:
    inner = emitter.inner(graph, called)
    for index, name in zip(graph.inputs, given, strict=True):
        inner.reads(index, emitter, name)
    write(inner, graph)
    emitter.hybrid += inner.hybrid
    return inner.graph([], [inner.output(index, inner.tensors[index].name) for index in graph.outputs])


def _body(emitter: Emitter, graph: Subgraph, given: list[str], write: Write) -> onnx.GraphProto:
    """A trip of a loop: what it carries is not known in it, whatever it is before the first one."""
    import numpy as np

    inner = emitter.inner(graph, "body")
    inputs = [inner.declared(inner.fresh("trip"), (), np.int64), inner.declared(inner.fresh("on"), (), bool)]
    inputs += [
        inner.takes(index, emitter.shape(name), emitter.dtype(name))
        for index, name in zip(graph.inputs, given, strict=True)
    ]
    write(inner, graph)
    emitter.hybrid += inner.hybrid
    first, *others = graph.outputs
    goes_on = inner.op("Identity", inner.reshape(inner.value(first), ()))
    return inner.graph(inputs, [goes_on, *(inner.output(i, inner.tensors[i].name) for i in others)])
