"""Relax as it was imported to fused TIR: the groups of passes run, and what the kernel rules get to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import IRModule
from tvm.s_tir import SBlockRealize
from tvm.tirx import PrimFunc, SeqStmt

from edgepack.compiler.graph.checked_calls import check_calls
from edgepack.compiler.graph.forms import Forms
from edgepack.compiler.graph.fused_group import Anchor, FusedGroup
from edgepack.compiler.graph.layout import Layout
from edgepack.compiler.graph.legalize import ANCHOR
from edgepack.compiler.graph.pass_groups import PASS_GROUPS, TO_LOOPS, Asked, PassGroup
from edgepack.compiler.graph.rewrite import node_index, op_name
from edgepack.compiler.graph.safe_addresses import check_addresses

__all__ = ["Lowered", "lower", "lower_with_graphs"]


@dataclass(frozen=True)
class Lowered:
    """A model after lowering.

    Attributes:
        module: its ``main`` calls the fused functions with ``call_tir``; what else is in it is reshapes,
            tuples and constants.
        groups: the fused groups, by the names of their functions.
        warnings: what the user is told of the model's form.
        graphs: those inside its Ifs and loops, lowered, also those inside these, by name.
    """

    module: IRModule
    groups: Mapping[str, FusedGroup]
    warnings: tuple[str, ...] = ()
    graphs: Mapping[str, Lowered] = field(default_factory=dict)


def lower_with_graphs(
    module: IRModule,
    graphs: Mapping[str, IRModule],
    forms: Forms | None = None,
    layout: Layout = "NCHW",
    observe: Callable[[PassGroup, IRModule], None] | None = None,
) -> Lowered:
    """Lowers a module and those of the graphs inside its Ifs and loops.

    Args:
        graphs: by name.
        forms, layout, observe: as for :func:`lower`; only the module itself is observed.
    """
    inside = {name: _named(lower(graph, forms, layout), name) for name, graph in graphs.items()}
    lowered = lower(module, forms, layout, observe)
    said = (lowered.warnings, *(one.warnings for one in inside.values()))
    warnings = tuple(dict.fromkeys(text for texts in said for text in texts))
    return replace(lowered, warnings=warnings, graphs=inside)


def _named(lowered: Lowered, name: str) -> Lowered:
    """A graph whose fused groups have names that no other graph's have."""
    groups = {key: replace(group, name=f"{name}_{group.name}") for key, group in lowered.groups.items()}
    return replace(lowered, groups=groups)


def lower(
    module: IRModule,
    forms: Forms | None = None,
    layout: Layout = "NCHW",
    observe: Callable[[PassGroup, IRModule], None] | None = None,
) -> Lowered:
    """Normalises, lays out, legalises and fuses a module of static shapes.

    Args:
        module: Relax, one function ``main``, constants inside.
        forms: in which the target is fast; default those that are fast everywhere.
        layout: of the module's convolutions and poolings. Those that have channels last already are left so.
        observe: is told what the module is after each group of passes.

    Raises:
        InternalError: a function does not fit its call.
    """
    asked = Asked(forms or Forms(), layout)
    fused = IRModule()
    # The target only selects TVM's generic CPU legalisations.
    with tvm.target.Target("llvm"):
        for group in PASS_GROUPS:
            if group.level > asked.forms.level:
                continue
            if group is TO_LOOPS:
                fused = module
            for step in group.passes(asked):
                module = step(module)
            if observe is not None:
                observe(group, module)
    check_calls(module)
    return Lowered(module, _fused_groups(fused, module), tuple(asked.warnings))


def _fused_groups(fused: IRModule, lowered: IRModule) -> dict[str, FusedGroup]:
    """What ``lowered.main`` calls, by name.

    Args:
        fused: the module between FuseOps and FuseTIR, in which a group still shows its operators.
        lowered: the same one after FuseTIR.
    """
    groups = {}
    outputs = _output_counts(lowered["main"])
    for gvar, function in lowered.functions.items():
        name = gvar.name_hint
        if name not in outputs:
            continue
        source = fused[fused.get_global_var(name)]
        if isinstance(source, relax.Function):
            group = _describe(fused, source, name, function, outputs[name])
        else:
            operands = tuple(range(len(source.params) - outputs[name]))
            anchor = _anchor(source, operands, 0)
            operators = (name.rstrip("0123456789"),)
            group = FusedGroup(name, function, outputs[name], operators, anchor, sizes=(_size(source),))
        check_addresses(name, function)
        groups[name] = group
    return groups


def _output_counts(function: relax.Function) -> dict[str, int]:
    """For each function that ``function`` calls, how many tensors it returns."""
    counts = {}
    for block in function.body.blocks:
        for binding in block.bindings:
            if op_name(binding.value) == "relax.call_tir":
                ty = binding.var.ty
                counts[binding.value.args[0].name_hint] = (
                    len(ty.fields) if isinstance(ty, relax.TupleType) else 1
                )
    return counts


def _describe(
    module: IRModule, function: relax.Function, name: str, lowered: PrimFunc, outputs: int
) -> FusedGroup:
    """A fused Relax function with its operators, its anchor if it has exactly one, and the nodes inside.

    Args:
        name: of the function.
        lowered: what became of it, with so many ``outputs``.
    """
    index = {param: i for i, param in enumerate(function.params)}
    operators, anchors = [], []
    nodes: list[int | None] = []
    sizes: list[int] = []
    for block in function.body.blocks:
        for binding in block.bindings:
            if op_name(binding.value) != "relax.call_tir":
                continue
            callee, args = binding.value.args[0], binding.value.args[1]
            nodes.append(node_index(binding.var))
            sizes.append(_size(module[callee]))
            operators.append(callee.name_hint.rstrip("0123456789"))
            anchor = _anchor(module[callee], tuple(index.get(a) for a in args.fields), len(operators) - 1)
            if anchor is not None:
                anchors.append(anchor)
    return FusedGroup(
        name,
        lowered,
        outputs,
        tuple(operators),
        anchors[0] if len(anchors) == 1 else None,
        tuple(node for node in nodes if node is not None),
        sizes=tuple(sizes),
        operator_nodes=tuple(nodes),
    )


def _size(function: PrimFunc) -> int:
    """How many loop nests a function of one operator has."""
    body = function.body.block.body if isinstance(function.body, SBlockRealize) else function.body
    return len(body.seq) if isinstance(body, SeqStmt) else 1


def _anchor(function: PrimFunc, operands: tuple[int | None, ...], operator: int) -> Anchor | None:
    attributes = function.attrs.get(ANCHOR) if function.attrs else None
    if attributes is None:
        return None
    plain = {k: list(v) if isinstance(v, tuple | tvm_ffi.Array) else v for k, v in attributes.items()}
    return Anchor(str(plain.pop("kind")), plain, operands, operator)
