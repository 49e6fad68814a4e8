"""Follows the nodes of a graph, and writes them anew where a size is known at run time only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.growing.extents import Extent
from edgepack.compiler.frontend.onnx.growing.mixing import MIXING
from edgepack.compiler.frontend.onnx.growing.node import Node
from edgepack.compiler.frontend.onnx.growing.numbers import numbers_of
from edgepack.compiler.frontend.onnx.growing.rules import RULES
from edgepack.compiler.frontend.onnx.growing.scope import Scope
from edgepack.compiler.frontend.onnx.growing.values import UnknownError, Value
from edgepack.compiler.frontend.onnx.regions import names_read
from edgepack.compiler.frontend.onnx.rewrites.editor import known_form
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, node_name

if TYPE_CHECKING:
    import onnx

__all__ = ["follow"]

#: Inputs whose numbers are sizes or places.
SHAPED = {
    **{"ConstantOfShape": (0,), "Expand": (1,), "Range": (0, 1, 2), "Reshape": (1,)},
    **{"Slice": (1, 2), "Tile": (1,)},
}

#: What takes a trip its time.
WORKING = {"GRU", "Gemm", "LSTM", "MatMul", "MatMulInteger", "RNN"}

_ALL = {**RULES, **MIXING}


def follow(scope: Scope, nodes: Sequence[onnx.NodeProto]) -> None:
    """Follows nodes in order; what is known of their results is in the scope then.

    Raises:
        RefusedNodesError: a node cannot be computed where a size is known at run time only.
    """
    for index, node in enumerate(nodes):
        with known_form(node, index):
            try:
                standard = node.domain in ("", "ai.onnx")
                made = scope.shared.control.get(node.op_type) if standard else None
                found = made(scope, node, index) if made else _results(scope, node, standard)
            except UnknownError as error:
                raise RefusedNodesError(
                    f"The {node.op_type} node {node_name(node, index)} cannot be computed with a size that "
                    f"changes with each trip of a Loop: {error}.",
                    hint="Export the model with room for all trips from the start, or cut it before the Loop "
                    "(--outputs).",
                    tensors=[name for name in node.output if name],
                ) from error
        for name, value in zip(node.output, found, strict=True):
            scope.know(name, value)


def _results(scope: Scope, node: onnx.NodeProto, standard: bool) -> list[Value]:
    """The results of a node without graphs inside."""
    import onnx

    n = Node(scope, node)
    padded = any(scope.value(name).padded for name in names_read(node) if name)
    if padded and not standard:
        raise UnknownError("it is not known what it does with padding")
    if not standard:
        return scope.kept(node)
    if padded and n.op in ("Shape", "Size"):
        numbers = _sizes(n)
        shape = [len(numbers)] if n.op == "Shape" else []
        return [scope.amount(numbers, onnx.TensorProto.INT64, shape)]
    if padded or _is_shaped(n):
        if n.op not in _ALL:
            raise UnknownError("it is not known what it does with padding")
        try:
            found = _ALL[n.op](n)
            scope.shared.rewritten += 1
        except UnknownError as error:
            if padded:
                raise
            found = [replace(one, why=str(error)) for one in scope.kept(node)]
    else:
        found = scope.kept(node)
    try:
        _note_work(n, found)
        return [_numbered(n, found[0]), *found[1:]] if found else found
    except (IndexError, KeyError, TypeError, ValueError):  # a form that is refused elsewhere, or not at all
        return found


def _note_work(n: Node, found: Sequence[Value]) -> None:
    """Notes how much a product or layer computes."""
    if n.op not in WORKING or any(value.dims is None for value in (n[0], n[1], found[0])):
        return
    left, right, result = (n.scope.shape(value) for value in (n[0], n[1], found[0]))
    number = prod(left) * right[1] if n.op in ("GRU", "LSTM", "RNN") else prod(result) * left[-1]
    n.scope.shared.work.append((bool(n[0].padded or n[1].padded), number))


def _sizes(n: Node) -> tuple[int | Extent | None, ...]:
    dims = n.dims(0)
    if n.op == "Shape":
        return dims[n.about.get("start", 0) : n.about.get("end", len(dims))]
    numbers = numbers_of("ReduceProd", [Value("", numbers=dims)], {})
    if numbers is None:
        raise UnknownError("it multiplies sizes that change with each trip")
    return numbers


def _is_shaped(n: Node) -> bool:
    """Whether it reads numbers as sizes that are no constants, but known."""
    for number in SHAPED.get(n.op, ()):
        value = n[number]
        if value.name and value.numbers is not None and n.scope.array(value.name) is None:
            return all(n[other].numbers is not None for other in SHAPED[n.op] if n[other].name)
    return False


def _numbered(n: Node, value: Value) -> Value:
    """A result with the numbers that it is known to be."""
    if value.numbers is not None or value.dims is None or len(value.dims) > 1:
        return value
    numbers = numbers_of(n.op, n.given, n.about)
    length = value.dims[0] if value.dims else 1
    return value if numbers is None or len(numbers) != length else replace(value, numbers=numbers)
