"""A model that ends at other tensors (``--outputs``): operators that these do not need are left out before
any is converted, so that it need not be known what they compute."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

from edgepack.compiler.frontend.onnx.cut import split_names
from edgepack.compiler.frontend.tflite.branches import VARIABLES
from edgepack.compiler.frontend.tflite.model import LEFT_OUT, Model, Subgraph

__all__ = ["cut_behind"]


def cut_behind(model: Model, outputs: Sequence[str]) -> Model:
    """The model up to tensors of its first subgraph, which become its outputs; itself where it has not all of
    these names, so that whoever reads them next says so.

    Args:
        model: as it was read.
        outputs: names of tensors, one or several with commas between them; none leave the model as it is.
    """
    main = model.main
    named = {tensor.name: tensor.index for tensor in main.tensors}
    names = split_names(outputs, named.keys())
    if not names or any(name not in named for name in names):
        return model
    ends = tuple(named[name] for name in names)
    kept = _needed(main, ends)
    if len(kept) == len(main.operators) and ends == main.outputs:
        return model
    graph = replace(main, operators=tuple(main.operators[place] for place in kept), outputs=ends)
    tables, own = copy(model.tables), copy(model.tables.subgraphs[0])
    own.operators, own.outputs = [own.operators[place] for place in kept], list(ends)
    tables.subgraphs = [own, *model.tables.subgraphs[1:]]
    return replace(model, subgraphs=(graph, *model.subgraphs[1:]), tables=tables)


def _needed(graph: Subgraph, ends: Sequence[int]) -> list[int]:
    """Places of operators that compute some tensors, and of those that use variables, with what they need."""
    needed, kept = set(ends), list[int]()
    for place in reversed(range(len(graph.operators))):
        operator = graph.operators[place]
        if operator.kind in VARIABLES or not needed.isdisjoint(operator.outputs):
            kept.append(place)
            needed.update(index for index in operator.inputs if index != LEFT_OUT)
    return kept[::-1]
