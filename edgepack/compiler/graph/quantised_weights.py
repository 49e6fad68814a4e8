"""What is said of a quantised model where a target is no faster with it."""

from __future__ import annotations

from math import prod

from tvm.ir import IRModule

from edgepack.compiler.graph.quantised_products import QuantisedProducts
from edgepack.compiler.graph.rewrite import is_constant, op_name, shape_of
from edgepack.plan.opt_level import ALL, TILED, OptLevel

__all__ = ["warning_of_quantised_weights", "warning_of_slow_products"]

#: Elements of the smallest model's weights for which it is worth a word.
LEAST_ELEMENTS = 512

#: How many times as long convolutions of int16 take directly as in Winograd's form, by the side of its tiles,
#: at least where it saves least (``python benchmarks/convolution.py integers``).
INTEGERS = {2: 1.9, 4: 2.5}

#: How many times as long as in float32 a network is estimated to take from which on it is said.
SLOWER = 1.05


def warning_of_quantised_weights(module: IRModule, level: OptLevel = ALL) -> str:
    """A warning for a model with weights that are dequantised integers, for a target on which they become
    float32; "" for another model.

    Args:
        module: as it was imported.
        level: of optimisation; plain loops multiply float32 on every target.
    """
    elements = sum(
        prod(shape_of(binding.value.args[0]))
        for block in module["main"].body.blocks
        for binding in block.bindings
        if op_name(binding.value) == "relax.dequantize" and is_constant(binding.value.args[0])
    )
    if elements < LEAST_ELEMENTS:
        return ""
    if level < TILED:
        return (
            "the model is quantised, and plain loops multiply float32 only: its"
            f" {elements:,} integer weights are kept in 4 bytes each"
        )
    return (
        "the model is quantised, and this target's kernels multiply float32 only: its"
        f" {elements:,} integer weights are kept in 4 bytes each, and it is no faster than the model that it"
        " was made from; pack that one instead"
    )


def warning_of_slow_products(products: QuantisedProducts, pairs_rate: float) -> str:
    """A warning for a model that is estimated to take longer than the float32 model that it was made from,
    which has Winograd's form in convolutions that integers have not, or by smaller tiles; "" for another.

    Args:
        pairs_rate: multiply-adds of int16 in the time of one of float32.
    """
    rates = {False: pairs_rate, True: products.quads.rate if products.quads else pairs_rate}
    integers = sum(count / rates[of_quads] for of_quads, count in products.work.items())
    for (of_quads, side), count in products.exact.items():
        integers -= count / rates[of_quads] - count / max(rates[of_quads], pairs_rate * INTEGERS[side])
    if not products.floats or (slower := integers / products.floats) < SLOWER:
        return ""
    return (
        f"the model is quantised, and estimated to take {slower:.1f} times as long here as the float32 model"
        " that it was made from: many of its products are convolutions whose form in float32 (Winograd's)"
        " saves more multiplications than their form of these integers does here; pack that one where time"
        " matters more than space"
    )
