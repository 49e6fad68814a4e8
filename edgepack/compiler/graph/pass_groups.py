"""The passes from Relax as it was imported to fused TIR, in named groups in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import IRModule

from edgepack.compiler.graph.attention import fuse_attention
from edgepack.compiler.graph.byte_operands import byte_operands
from edgepack.compiler.graph.byte_tables import look_ups_as_elementwise
from edgepack.compiler.graph.bytes_as_read import bytes_as_read
from edgepack.compiler.graph.bytes_between import bytes_between
from edgepack.compiler.graph.fold import fold_views
from edgepack.compiler.graph.forms import Forms
from edgepack.compiler.graph.group_norm import find_group_norms
from edgepack.compiler.graph.int16_operands import int16_operands
from edgepack.compiler.graph.isolate_added_bytes import isolate_added_bytes
from edgepack.compiler.graph.isolate_conversions import isolate_conversions
from edgepack.compiler.graph.isolate_gathered import isolate_gathered
from edgepack.compiler.graph.isolate_shared import isolate_shared
from edgepack.compiler.graph.isolate_small_results import isolate_small_results
from edgepack.compiler.graph.layout import Layout, channels_last
from edgepack.compiler.graph.legalize import legalize
from edgepack.compiler.graph.norms import fuse_norms
from edgepack.compiler.graph.products import matrix_products
from edgepack.compiler.graph.quantised import quantised
from edgepack.compiler.graph.quantised_weights import (
    warning_of_quantised_weights,
    warning_of_slow_products,
)
from edgepack.compiler.graph.safe_addresses import safe_addresses
from edgepack.plan.opt_level import ALL, FUSED, PLAIN, TILED, OptLevel

__all__ = ["PASS_GROUPS", "TO_LOOPS", "Asked", "ModulePass", "PassGroup"]

ModulePass: TypeAlias = Callable[[IRModule], IRModule]


@dataclass
class Asked:
    """What a module is lowered for.

    Attributes:
        forms: in which the target is fast.
        layout: of the module's convolutions and poolings, as it was imported.
        warnings: what the passes have to say to the user of the model's form.
    """

    forms: Forms
    layout: Layout
    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Notes a warning, unless it is empty."""
        if text:
            self.warnings.append(text)


@dataclass(frozen=True)
class PassGroup:
    """Passes that belong together.

    Attributes:
        name: short, of lower-case words with hyphens.
        title: what the group does, in a line.
        passes: those that run for what is asked, in order. None of them changes the module that it gets. They
            are a list, not one function, so that nobody holds the module before them, and its weights, longer
            than the first of them.
        level: of optimisation, from which on they run.
    """

    name: str
    title: str
    passes: Callable[[Asked], Sequence[ModulePass]]
    level: OptLevel = PLAIN


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


def _products_of_integers(asked: Asked) -> list[ModulePass]:
    forms = asked.forms

    def warn(module: IRModule) -> IRModule:
        asked.warn(warning_of_quantised_weights(module, forms.level))
        return module

    def convert(module: IRModule) -> IRModule:
        module, products = quantised(module, forms.quads, forms.exact_tiles, narrows=forms.narrows)
        if forms.filtered is not None:
            asked.warn(warning_of_slow_products(products, forms.pairs_rate))
        return module

    return [convert if forms.fast_integers else warn]


def _channels_last(asked: Asked) -> list[ModulePass]:
    if asked.layout != "NCHW":
        return []
    forms = asked.forms
    return [
        lambda module: channels_last(module, filtered=forms.filtered, shuffles=forms.shuffles),
        fold_views,
    ]


def _narrow_operands(asked: Asked) -> list[ModulePass]:
    forms = asked.forms
    passes: list[ModulePass] = []
    if forms.fast_integers and (quads := forms.quads) is not None:
        passes.append(lambda module: byte_operands(module, quads))
    as_read = partial(bytes_as_read, tiles=forms.exact_tiles, copies=forms.copies_padding, words=forms.words)
    return [*passes, int16_operands, as_read]


def _isolated(asked: Asked) -> list[ModulePass]:
    passes: list[ModulePass] = [bytes_between if asked.forms.words else isolate_added_bytes]
    return [*passes, look_ups_as_elementwise, isolate_conversions, isolate_small_results, isolate_shared]


_t = relax.transform

#: The last group: what becomes of the fused functions, each of which still has its operators before.
TO_LOOPS = PassGroup(
    "loops",
    "each fused function becomes one function of loops (TIR)",
    lambda _: [_t.FuseTIR(), _t.CanonicalizeBindings(), _t.DeadCodeElimination(["main"])],
)

#: In the order in which they run.
PASS_GROUPS = (
    PassGroup(
        "integers",
        "operators between DequantizeLinear and QuantizeLinear become operators on integers",
        _products_of_integers,
    ),
    PassGroup(
        "simplify",
        "views and arithmetic of shapes are folded, batch norms decomposed, aliases removed",
        # Views come first: that pass reads the frontend's names.
        lambda _: [fold_views, _t.DecomposeOpsForInference(), _t.CanonicalizeBindings()],
    ),
    PassGroup(
        "products",
        "einsums and products with vectors become matrix products",
        lambda _: [matrix_products, fold_views],
    ),
    PassGroup(
        "group-norms",
        "group and instance norms that are spelled out become one operator each",
        lambda _: [find_group_norms],
        level=ALL,
    ),
    PassGroup(
        "layout",
        "tensors that convolutions and poolings read get their channels last",
        _channels_last,
        level=TILED,
    ),
    PassGroup(
        "narrow-operands",
        "products of integers read bytes or int16 where these hold their operands",
        _narrow_operands,
        level=TILED,
    ),
    PassGroup(
        "norms",
        "layer norms and RMS norms that are spelled out become one operator each",
        lambda _: [fuse_norms],
        level=ALL,
    ),
    PassGroup(
        "attention",
        "products, softmax and product of attention become one operator",
        lambda _: [fuse_attention],
        level=ALL,
    ),
    PassGroup(
        "gathers",
        "what several gathers read is kept apart from them, so that it is computed once",
        lambda _: [isolate_gathered],
        level=FUSED,
    ),
    PassGroup(
        "legalize",
        "positions are brought into range, each operator becomes a function of loops (TIR)",
        lambda _: [legalize, safe_addresses, _t.AnnotateTIROpPattern()],
    ),
    PassGroup(
        "isolate",
        "look-ups become elementwise; conversions and what many read are kept apart from what is fused",
        _isolated,
        level=FUSED,
    ),
    PassGroup(
        "constants",
        "what depends on constants alone is computed, what nobody reads removed",
        lambda _: [_fold_constants, _t.DeadCodeElimination(["main"])],
    ),
    PassGroup(
        "fuse",
        "operators that one kernel computes become one function",
        lambda _: [_t.FuseOps()],
        level=FUSED,
    ),
    TO_LOOPS,
)
