"""Relax as it was imported to fused TIR: the order of the passes, and what the kernel rules get to see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import IRModule
from tvm.s_tir import SBlockRealize
from tvm.tirx import PrimFunc, SeqStmt

from edgepack.compiler.graph.attention import fuse_attention
from edgepack.compiler.graph.byte_operands import byte_operands
from edgepack.compiler.graph.byte_tables import look_ups_as_elementwise
from edgepack.compiler.graph.bytes_as_read import bytes_as_read
from edgepack.compiler.graph.dilated import FilteredTiles
from edgepack.compiler.graph.filtered_integers import ExactTiles
from edgepack.compiler.graph.fold import fold_views
from edgepack.compiler.graph.fused_group import Anchor, FusedGroup
from edgepack.compiler.graph.group_norm import find_group_norms
from edgepack.compiler.graph.int16_operands import int16_operands
from edgepack.compiler.graph.isolate_conversions import isolate_conversions
from edgepack.compiler.graph.isolate_gathered import isolate_gathered
from edgepack.compiler.graph.isolate_shared import isolate_shared
from edgepack.compiler.graph.isolate_small_results import isolate_small_results
from edgepack.compiler.graph.layout import Layout, channels_last
from edgepack.compiler.graph.legalize import ANCHOR, legalize
from edgepack.compiler.graph.norms import fuse_norms
from edgepack.compiler.graph.products import matrix_products
from edgepack.compiler.graph.quantised import quantised
from edgepack.compiler.graph.quantised_values import ByteProducts
from edgepack.compiler.graph.quantised_weights import (
    warning_of_quantised_weights,
    warning_of_slow_products,
)
from edgepack.compiler.graph.rewrite import node_index, op_name
from edgepack.compiler.graph.safe_indices import safe_indices

__all__ = ["Forms", "Lowered", "lower"]


@dataclass(frozen=True)
class Lowered:
    """A model after lowering.

    Attributes:
        module: its ``main`` calls the fused functions with ``call_tir``; what else is in it is reshapes,
            tuples and constants.
        groups: the fused groups, by the names of their functions.
        warnings: what the user is told of the model's form.
    """

    module: IRModule
    groups: Mapping[str, FusedGroup]
    warnings: tuple[str, ...] = ()


@contextmanager
def _memoised_builds() -> Iterator[None]:
    """FoldConstant builds an LLVM module for each call that it folds; most are the same function again."""
    build = tvm.get_global_func("tirx.build")
    cache: dict[int, list[tuple[IRModule, tvm.runtime.Module]]] = {}

    def memoised(module: IRModule, *args: Any) -> tvm.runtime.Module:
        key = tvm_ffi.structural_hash(module)
        for known, result in cache.get(key, []):
            if tvm_ffi.structural_equal(known, module):
                return result
        result = build(module, *args)
        cache.setdefault(key, []).append((module, result))
        return result

    tvm.register_global_func("tirx.build", memoised, override=True)
    try:
        yield
    finally:
        tvm.register_global_func("tirx.build", build, override=True)


def _fold_constants(module: IRModule) -> IRModule:
    """Evaluates on this machine, whatever the target, what depends on constants only."""
    with _memoised_builds(), tvm.target.Target("llvm"):
        return relax.transform.FoldConstant()(module)


@dataclass(frozen=True)
class Forms:
    """What a graph may become on a target that is fast with it.

    Attributes:
        fast_integers: the target multiplies integers faster than float32: products of dequantised tensors are
            those of their integers.
        quads: how it multiplies bytes, if it does.
        narrows: it rounds vectors of float32 to integers by one instruction, and narrows integers with
            saturation.
        filtered: the tiles by which convolutions by 3x3 have Winograd's form, whose weights take more memory:
            dilated ones are taken apart for it; None where they may not have it.
        pairs_rate: multiply-adds of int16 in the time of one of float32.
        exact_tiles: the tiles by which convolutions of integers by 3x3 have Winograd's form, given their
            bounds; None where they may not have it.
        shuffles: elements at steps along a row are loads and shuffles: small windows are pooled as slices
            where an image is channels first.
    """

    fast_integers: bool = False
    quads: ByteProducts | None = None
    narrows: bool = False
    filtered: FilteredTiles | None = None
    exact_tiles: ExactTiles | None = None
    pairs_rate: float = 1.0
    shuffles: bool = False


def lower(module: IRModule, forms: Forms | None = None, layout: Layout = "NCHW") -> Lowered:
    """Normalises, lays out, legalises and fuses a module of static shapes.

    Args:
        module: Relax, one function ``main``, constants inside.
        forms: in which the target is fast; default those that are fast everywhere.
        layout: of the module's convolutions and poolings. Those that have channels last already are left so.
    """
    t, forms = relax.transform, forms or Forms()
    warning = "" if forms.fast_integers else warning_of_quantised_weights(module)
    # The target only selects TVM's generic CPU legalisations.
    with tvm.target.Target("llvm"):
        if forms.fast_integers:
            module, products = quantised(module, forms.quads, forms.exact_tiles, narrows=forms.narrows)
            if forms.filtered is not None:
                warning = warning_of_slow_products(products, forms.pairs_rate)
        module = fold_views(module)  # first: it reads the frontend's names
        module = t.DecomposeOpsForInference()(module)
        module = t.CanonicalizeBindings()(module)
        module = matrix_products(module)
        module = fold_views(module)
        module = find_group_norms(module)
        if layout == "NCHW":
            module = channels_last(module, filtered=forms.filtered, shuffles=forms.shuffles)
            module = fold_views(module)
        if forms.fast_integers and forms.quads is not None:
            module = byte_operands(module, forms.quads)
        module = bytes_as_read(int16_operands(module), forms.exact_tiles)
        module = fuse_norms(module)
        module = fuse_attention(module)
        module = isolate_gathered(module)
        module = safe_indices(module)
        module = legalize(module)
        module = t.AnnotateTIROpPattern()(module)
        module = isolate_conversions(look_ups_as_elementwise(module))
        module = isolate_small_results(module)
        module = isolate_shared(module)
        module = _fold_constants(module)
        module = t.DeadCodeElimination(["main"])(module)
        fused = t.FuseOps()(module)
        lowered = t.FuseTIR()(fused)
        lowered = t.CanonicalizeBindings()(lowered)
        lowered = t.DeadCodeElimination(["main"])(lowered)
    return Lowered(lowered, _fused_groups(fused, lowered), (warning,) if warning else ())


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
