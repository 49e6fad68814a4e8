"""Isolate conversions: what reads or writes float16 or bfloat16 is a fused group of its own.

All values between inputs and outputs are float32 (frontend/onnx/float16.py), so there are few conversions,
and no other kernel needs to know these types.
"""

from __future__ import annotations

from tvm.ir import IRModule
from tvm.tirx import PrimFunc

__all__ = ["isolate_conversions"]

#: TVM's pattern of what is never fused.
OPAQUE = 8

HALVES = {"float16", "bfloat16"}


def isolate_conversions(module: IRModule) -> IRModule:
    """Keeps functions that read or write half precision from being fused.

    Args:
        module: legalised, with TVM's operator patterns annotated (``AnnotateTIROpPattern``).
    """
    functions = dict(module.functions.items())
    for gvar, function in functions.items():
        if isinstance(function, PrimFunc) and any(str(b.dtype) in HALVES for b in function.params):
            functions[gvar] = function.with_attr("op_pattern", OPAQUE)
    return IRModule(functions, attrs=module.attrs)
