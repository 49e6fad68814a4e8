"""What is said of a quantised model where a target does not multiply integers."""

from __future__ import annotations

from math import prod

from tvm.ir import IRModule

from edgepack.compiler.graph.rewrite import is_constant, op_name, shape_of

__all__ = ["warning_of_quantised_weights"]

#: Elements of the smallest model's weights for which it is worth a word.
LEAST_ELEMENTS = 512


def warning_of_quantised_weights(module: IRModule) -> str:
    """A warning for a model with weights that are dequantised integers, for a target on which they become
    float32; "" for another model.

    Args:
        module: as it was imported.
    """
    elements = sum(
        prod(shape_of(binding.value.args[0]))
        for block in module["main"].body.blocks
        for binding in block.bindings
        if op_name(binding.value) == "relax.dequantize" and is_constant(binding.value.args[0])
    )
    if elements < LEAST_ELEMENTS:
        return ""
    return (
        "the model is quantised, and this target's kernels multiply float32 only: its"
        f" {elements:,} integer weights are kept in 4 bytes each, and it is no faster than the model that it"
        " was made from; pack that one instead"
    )
