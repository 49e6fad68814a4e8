"""A module of Relax as text: TVMScript, in which constants have names, and nodes of the model are named."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GlobalVar, IRModule

from edgepack.compiler.graph.rewrite import is_constant, node_index, numpy_of, op_name, shape_of

__all__ = ["FusedFunction", "fused_functions", "module_text", "operator_counts"]

#: Elements of a constant that are shown.
SHOWN = 4

#: The number by which TVM tells functions of one name apart: of ``conv2d10`` and ``add5`` in
#: ``fused_conv2d10_add5``.
_NUMBER = re.compile(r"(?<=[^\d_])\d+(?=_|$)")

#: Lines of a function: what binds the value of a node, whose index it has; what binds a value that the
#: frontend computes on the way to such; what calls a function of the module.
_OF_NODE = re.compile(r"\s*n(\d+)_\d*(?::| =)")
_ON_THE_WAY = re.compile(r"\s*lv\d*(?::.*)? = R\.(?!call_tir)")
_CALL = re.compile(r"\s*\w+(?::.*)? = (?:R\.call_tir\()?(?:cls\.)?(\w+)\b(?!\.)")

#: A line that says what a named constant is.
_CONSTANT = re.compile(r"\s*(const\d+): R\.Tensor")


def operator_counts(module: IRModule) -> dict[str, int]:
    """How often ``main`` calls each operator of Relax (``nn.conv2d``), and each function that operators have
    become (``fused_conv2d_add``): what numbers tell apart counts as one. Sorted by name."""
    counts: Counter[str] = Counter()
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Call):
                counts[_called(binding.value)] += 1
    return dict(sorted(counts.items()))


def _called(call: relax.Call) -> str:
    name = op_name(call)
    function = call.args[0] if name == "relax.call_tir" else call.op
    if isinstance(function, GlobalVar):
        return _NUMBER.sub("", str(function.name_hint))
    return name.removeprefix("relax.") or "call"


@dataclass(frozen=True)
class FusedFunction:
    """What is in a function that operators were fused to.

    Attributes:
        nodes: indices of the model's nodes, in order.
        operators: as a kernel of it lists them.
    """

    nodes: tuple[int, ...]
    operators: tuple[str, ...]


def fused_functions(module: IRModule, before: IRModule | None) -> dict[str, FusedFunction]:
    """The functions of operators that are not ``main``, by name.

    Args:
        before: the module before operators were fused, which tells of which node a function's result is: it
            has no name in the function.
    """
    readers = {} if before is None else _readers(before)
    found = {}
    for gvar, function in module.functions.items():
        if gvar.name_hint == "main" or not isinstance(function, relax.Function):
            continue
        nodes, operators = [], []
        for block in function.body.blocks:
            for binding in block.bindings:
                index = node_index(binding.var)
                if op_name(binding.value) == "relax.call_tir":
                    operators.append(_called(binding.value))
                    if index is None:
                        index = next((readers[key] for key in _reads(binding.value) if key in readers), None)
                nodes.append(index)
        known = dict.fromkeys(index for index in nodes if index is not None)
        found[str(gvar.name_hint)] = FusedFunction(tuple(known), tuple(operators))
    return found


def _readers(module: IRModule) -> dict[tuple[str, str], int]:
    """Of ``main``: by the function that a node's value is computed by, and the name of a value that it reads,
    the node."""
    found: dict[tuple[str, str], int] = {}
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            index = node_index(binding.var)
            if index is not None and isinstance(binding.value, relax.Call):
                for key in _reads(binding.value):
                    found.setdefault(key, index)
    return found


def _reads(call: relax.Call) -> list[tuple[str, str]]:
    """What a call of a function of loops calls, with the name of each value of a node that it reads."""
    if op_name(call) != "relax.call_tir":
        return []
    callee, args = str(call.args[0].name_hint), call.args[1].fields
    return [(callee, str(a.name)) for a in args if isinstance(a, relax.Var) and node_index(a) is not None]


def module_text(
    module: IRModule,
    nodes: Sequence[str],
    known: Collection[str] = (),
    functions: Mapping[str, FusedFunction] = MappingProxyType({}),
) -> str:
    """The module in TVMScript.

    Args:
        nodes: names of the model's nodes, by the index that variables carry: each stands above the first line
            of what is computed for it.
        known: functions that are left out, because they are as the reader has seen them before.
        functions: what was fused, by the functions' names: their calls have their nodes above them.
    """
    shown: dict[Any, Any] = {}
    values: dict[str, str] = {}
    for gvar, function in module.functions.items():
        if gvar.name_hint in known:
            continue
        is_graph = isinstance(function, relax.Function)
        shown[gvar] = _with_named_constants(function, values) if is_graph else function
    lines: list[str] = []
    last: tuple[int, ...] = ()
    first = None  # line of the first value on the way to a node's
    for line in IRModule(shown).script(show_meta=False).splitlines():
        constant, indices = _CONSTANT.match(line), _nodes_of(line, functions)
        if indices and indices != last:
            indent = line[: len(line) - len(line.lstrip())]
            named = ", ".join(_shown(nodes, index) for index in indices)
            lines.insert(len(lines) if first is None else first, f"{indent}# {named}")
        if indices:
            last, first = indices, None
        elif not _ON_THE_WAY.match(line):
            first = None
        elif first is None:
            first = len(lines)
        lines.append(line.rstrip() + (f"  # {values[constant[1]]}" if constant is not None else ""))
    return "\n".join(lines) + "\n"


def _nodes_of(line: str, functions: Mapping[str, FusedFunction]) -> tuple[int, ...]:
    """Indices of the nodes whose values a line computes, where it says so."""
    if (call := _CALL.match(line)) is not None and call[1] in functions:
        return functions[call[1]].nodes
    node = _OF_NODE.match(line)
    return () if node is None else (int(node[1]),)


def _shown(nodes: Sequence[str], index: int) -> str:
    """A node's name, on a line: names are the model's and may hold anything."""
    name = nodes[index] if index < len(nodes) else str(index)
    return name if name.isprintable() else ascii(name)


def _with_named_constants(function: relax.Function, values: dict[str, str]) -> relax.Function:
    """The function with a free variable in the place of each tensor that is constant: scalars are short.

    Args:
        values: gets, by the variable's name, what the constant holds.
    """
    named: dict[relax.Expr, relax.Var] = {}

    def use(expr: Any) -> Any:
        if is_constant(expr) and shape_of(expr):
            if expr not in named:
                named[expr] = relax.Var(f"const{len(values)}", expr.ty)
                values[named[expr].name] = _abbreviated(expr)
            return named[expr]
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([use(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(use(expr.tuple_value), expr.index)
        if isinstance(expr, relax.Call):
            return relax.Call(expr.op, [use(arg) for arg in expr.args], expr.attrs, expr.ty_args)
        return expr

    blocks = []
    for block in function.body.blocks:
        bindings = [
            relax.VarBinding(binding.var, use(binding.value))
            if isinstance(binding, relax.VarBinding)
            else binding
            for binding in block.bindings
        ]
        kind = relax.DataflowBlock if isinstance(block, relax.DataflowBlock) else relax.BindingBlock
        blocks.append(kind(bindings))
    body = relax.SeqExpr(blocks, use(function.body.body))
    if not named:
        return function
    return relax.Function(list(function.params), body, function.ret_ty, function.is_pure, function.attrs)


def _abbreviated(constant: relax.Expr) -> str:
    """``37632 bytes: 0.0123 -0.45 ...``."""
    array = numpy_of(constant)
    first = " ".join(_number(value) for value in array.reshape(-1)[:SHOWN])
    more = " ..." if array.size > SHOWN else ""
    return f"{array.nbytes} bytes: {first}{more}".rstrip(": ")


def _number(value: Any) -> str:
    return str(value) if isinstance(value, np.integer | np.bool_) else f"{float(value):.6g}"
