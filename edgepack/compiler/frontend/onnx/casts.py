"""Casts of floating point numbers to integers, as one conversion of vectors.

TVM's importer goes through int64 and remainders of it, which no CPU before AVX-512 has as vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["CONVERTERS"]

#: What the number is while it is converted: a type that holds all bounds of the integers exactly.
_EXACT = {"bfloat16": "float32", "float16": "float32", "float32": "float32", "float64": "float64"}


def _cast(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """Cast of computed floating point numbers to integers; None for others.

    Numbers beyond the integer's range have no defined result. As with ONNX Runtime on x86 they become the
    least int32 (int64 for int64 and uint32), as do infinities and NaN, of which narrower types take the low
    bits: these wrap around.
    """
    import numpy as np
    import onnx
    from tvm import relax
    from tvm.ir import GenericConst

    x = inputs[0]
    if not isinstance(x, relax.Expr) or isinstance(x, GenericConst | relax.ShapeExpr):
        return None
    source = str(getattr(x.ty, "dtype", ""))
    target = onnx.helper.tensor_dtype_to_np_dtype(int(attributes["to"]))
    if source not in _EXACT or not np.issubdtype(target, np.integer) or target == np.uint64:
        return None
    if source != _EXACT[source]:
        source = _EXACT[source]
        x = builder.normalize(relax.op.astype(x, source))
    wide = "int64" if target in (np.int64, np.uint32) else "int32"
    least = relax.const(float(np.iinfo(wide).min), source)
    inside = relax.op.less(relax.op.abs(x), relax.const(-float(np.iinfo(wide).min), source))  # not NaN
    inside = builder.emit(inside)
    # Of arithmetic TVM writes the numbers down, of a choice it reads them from memory: so it is seen that the
    # conversion is of ordinary numbers. LLVM makes one constant of it.
    flag = builder.emit(relax.op.astype(inside, source))
    beyond = builder.emit(relax.op.subtract(least, builder.emit(relax.op.multiply(flag, least))))
    whole = relax.op.astype(builder.normalize(relax.op.where(inside, x, beyond)), wide)
    return whole if str(target) == wide else relax.op.astype(builder.normalize(whole), str(target))


#: Converters by operator, as :mod:`edgepack.compiler.frontend.onnx.converters` has them.
CONVERTERS = {"Cast": _cast}
