"""Operators of a program, asked of PyTorch: each is registered, and its operands are of its schema.

Names were looked at before (:mod:`.pt2.calls`). What reads or writes files, starts something, or takes
objects, takes texts or types that no operator has which computes tensors of tensors and numbers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from edgepack.compiler.frontend.torch.pt2.calls import is_operator, textual
from edgepack.compiler.frontend.torch.pt2.forms import RefusedError

__all__ = ["refuse_other_operators"]

#: Words of the types of operands and results.
_TYPES = re.compile(
    "Tensor|int|SymInt|bool|SymBool|float|SymFloat|number|complex|ScalarType|Layout|MemoryFormat"
    "|Device|Generator|List|Optional|str|NoneType"
)
_TENSORS = frozenset(
    {"as_tensor", "as_tensors", "as_optional_tensor", "as_optional_tensors", "as_nested_tensors"}
)
_TEXTS = frozenset({"as_string", "as_strings"})


def refuse_other_operators(program: dict[str, Any]) -> None:
    """Raise RefusedError for a call of what is no operator, or with operands that it does not take.

    Args:
        program: a copy (:func:`.pt2.program.program`).
    """
    try:
        _graph(program["graph_module"]["graph"])
    except RefusedError as refused:
        refused.inside("graph_module").inside("models/model.json: ")
        raise


def _graph(graph: dict[str, Any]) -> None:
    for number, node in enumerate(graph["nodes"]):
        try:
            if is_operator(node["target"]):
                _check_operands(node, _types_of(node["target"]))
            for one in node["inputs"]:
                _operand(one["arg"])
        except RefusedError as refused:
            refused.inside(number).inside("nodes").inside("graph")
            raise


def _operand(argument: dict[str, Any]) -> None:
    """Look at graphs and operators that are operands."""
    ((kind, value),) = argument.items()
    if kind == "as_graph":
        _graph(value["graph"])
    elif kind == "as_operator" and is_operator(value):
        _types_of(value)
    elif kind == "as_string_to_argument":
        for one in value.values():
            _operand(one)


@lru_cache(maxsize=4096)
def _types_of(target: str) -> dict[str, str] | None:
    """The types of an operator's operands by name, as text; None where PyTorch does not have the operator.

    Raises:
        RefusedError: it takes or returns more than tensors and numbers.
    """
    import torch

    operator: Any = torch.ops
    for name in target.removeprefix("torch.ops.").split("."):
        operator = getattr(operator, name, None)
    if isinstance(operator, torch._ops.OpOverloadPacket):
        operator = getattr(operator, "default", None)
    if operator is None:
        return None
    schema = operator._schema if isinstance(operator, torch._ops.OpOverload) else None
    if schema is None or "..." in str(schema):
        raise RefusedError(f"calls {target!r}, which is no operator that computes something")
    for one in (*schema.arguments, *schema.returns):
        words = set(re.findall(r"[\w.]+", str(one.real_type)))
        if not all(map(_TYPES.fullmatch, words)) or ("str" in words and not textual(one.name)):
            raise RefusedError(
                f"calls {target!r}, which takes or returns {one.real_type} ({one.name or 'a result'})"
            )
    return {one.name: str(one.real_type) for one in schema.arguments}


def _check_operands(node: dict[str, Any], types: dict[str, str] | None) -> None:
    if types is None:
        return  # PyTorch says so itself, by name
    for one in node["inputs"]:
        ((kind, _),) = one["arg"].items()
        taken = types.get(one["name"])
        if taken is None:
            raise RefusedError(f"gives {node['target']} an operand {one['name']!r}, which it does not have")
        textual_one = "str" in taken
        fits = kind in _TEXTS if textual_one else kind not in _TEXTS
        if kind in _TENSORS:
            fits = "Tensor" in taken
        if kind == "as_device":
            fits = "Device" in taken
        if kind != "as_none" and not fits:
            raise RefusedError(f"gives {node['target']} {kind} as operand {one['name']!r}, which is {taken}")
