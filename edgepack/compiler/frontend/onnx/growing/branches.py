"""Ifs whose branches read what grows with each trip of a loop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.growing.follow import follow
from edgepack.compiler.frontend.onnx.growing.scope import Scope
from edgepack.compiler.frontend.onnx.growing.values import UnknownError, Value
from edgepack.compiler.frontend.onnx.regions import names_read
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes

if TYPE_CHECKING:
    import onnx

__all__ = ["if_"]


def if_(scope: Scope, node: onnx.NodeProto, index: int) -> list[Value]:
    """Follows both branches of an If, which must give results of the same sizes."""
    import onnx

    del index
    values = attributes(node)
    branches: list[tuple[Scope, list[Value]]] = []
    for key in ("then_branch", "else_branch"):
        inner = Scope(scope.shared, scope, values[key].initializer)
        follow(inner, values[key].node)
        branches.append((inner, [inner.value(value.name) for value in values[key].output]))
    (_, one), (_, other) = branches
    padded = any(value.padded for value in (*one, *other))
    if not padded and not any(scope.value(name).padded for name in names_read(node) if name):
        made = scope.kept(node)
        known = [a if a.dims == b.dims else Value("") for a, b in zip(one, other, strict=True)]
        return [replace(m, element=k.element, dims=k.dims) for m, k in zip(made, known, strict=True)]
    if any(a.dims != b.dims for a, b in zip(one, other, strict=True)):
        raise UnknownError("its branches give results of different sizes")
    graphs = {}
    for key, (inner, results) in zip(("then_branch", "else_branch"), branches, strict=True):
        outputs = []
        for result in results:
            own = inner.op("Identity", inner.zeroed(result))
            outputs.append(inner.described(own.name, result))
        constants = [*values[key].initializer, *inner.initializers]
        graphs[key] = onnx.helper.make_graph(inner.nodes, values[key].name or key, [], outputs, constants)
    names = list(node.output)
    given = [scope.value(node.input[0]).name]
    scope.nodes.append(onnx.helper.make_node("If", given, names, node.name, **graphs))
    return [
        Value(name, value.element, value.dims, zero=frozenset(value.padded))
        for name, value in zip(names, one, strict=True)
    ]
