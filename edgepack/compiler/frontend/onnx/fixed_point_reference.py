"""The operators of ``fixed_point.py`` for ONNX's own evaluator: NumPy, in integers of 64 bits."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.fixed_point import (
    DOMAIN,
    HIGH_MUL,
    MULTIPLY,
    MULTIPLY_ONCE,
    MULTIPLY_UP,
    ROUNDING_DIVIDE,
    ROUNDING_SHIFT,
    SPLIT,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["fixed_point_operators", "multiply", "rounding_shift"]


def high_mul(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    return np.asarray((a.astype(np.int64) * b.astype(np.int64) + (1 << 30)) >> 31, np.int32)


def rounding_shift(x: NDArray[Any], exponent: NDArray[Any]) -> NDArray[Any]:
    """round(x / 2**exponent), halves away from zero, int32."""
    import numpy as np

    wide, by = x.astype(np.int64), exponent.astype(np.int64)
    half = np.where(by > 0, np.left_shift(np.int64(1), np.maximum(by - 1, 0)), 0)
    down = np.where((wide < 0) & (by > 0), 1, 0)  # halves away from zero
    return np.asarray((wide + half - down) >> by, np.int32)


def _rounding_divide(x: NDArray[Any], divisor: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    wide, by = np.abs(x.astype(np.int64)), divisor.astype(np.int64)
    return np.asarray(np.sign(x) * ((wide + by // 2) // by), np.int32)


def multiply(x: NDArray[Any], multiplier: NDArray[Any], shift: NDArray[Any]) -> NDArray[Any]:
    """x * multiplier / 2**31 * 2**shift, rounded twice, int32."""
    import numpy as np

    left = np.left_shift(x.astype(np.int32), np.maximum(shift, 0).astype(np.int32))
    return rounding_shift(high_mul(left, multiplier), np.maximum(-shift, 0))


def multiply_once(
    x: NDArray[Any], multiplier: NDArray[Any], shift: NDArray[Any], split: int = 0
) -> NDArray[Any]:
    """round(x * multiplier / 2**shift), halves away from zero, int32."""
    import numpy as np

    wide, sign, by = x.astype(np.int64), (x < 0).astype(np.int64), shift.astype(np.int64)
    if split:
        low = (wide * (multiplier & ((1 << SPLIT) - 1)) - sign) >> SPLIT
        product, by = wide * (multiplier >> SPLIT) + low, by - SPLIT
    else:
        product = wide * multiplier.astype(np.int64) - sign
    return np.asarray((product + np.left_shift(np.int64(1), by - 1)) >> by, np.int32)


def _multiply_up(x: NDArray[Any], multiplier: NDArray[Any], shift: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    product, by = x.astype(np.int64) * multiplier.astype(np.int64), shift.astype(np.int64)
    return np.asarray((product + np.left_shift(np.int64(1), by - 1)) >> by, np.int32)


@cache
def fixed_point_operators() -> list[Any]:
    """Classes of ``onnx.reference``, one for each operator."""
    from onnx.reference.op_run import OpRun

    def operator(name: str, function: Any) -> Any:
        def run(self: Any, *operands: NDArray[Any], **attributes: Any) -> tuple[NDArray[Any]]:
            del self
            more = {"split": attributes["split"]} if attributes.get("split") else {}
            return (function(*operands, **more),)

        return type(name, (OpRun,), {"op_domain": DOMAIN, "_run": run})

    functions = {
        HIGH_MUL: high_mul,
        ROUNDING_DIVIDE: _rounding_divide,
        ROUNDING_SHIFT: rounding_shift,
        MULTIPLY: multiply,
        MULTIPLY_ONCE: multiply_once,
        MULTIPLY_UP: _multiply_up,
    }
    return [operator(name, function) for name, function in functions.items()]
