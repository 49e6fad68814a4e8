"""Integer divisions by a constant that is 0 somewhere: TVM refuses them, or ends with a failed assertion.

A quotient and a remainder by 0 are 0, as they are where the divisor is computed
(``compiler/backends/defined``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["CONVERTERS"]


def _without_zeros(divide: Callable[[Any, Any], Any], builder: Any, a: Any, divisor: Any) -> Any:
    """``a`` by a constant, times 0 where that is 0."""
    import numpy as np
    from tvm import relax

    ordinary = np.where(divisor == 0, np.ones_like(divisor), divisor)
    result = builder.emit(divide(a, relax.const(ordinary, str(divisor.dtype))))
    return relax.op.multiply(result, relax.const((divisor != 0).astype(divisor.dtype), str(divisor.dtype)))


def _converter(operator: str) -> Callable[..., Any]:
    def convert(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
        """None where TVM's own conversion serves."""
        import numpy as np
        from tvm import relax
        from tvm.ir import GenericConst

        a, b = inputs
        if not isinstance(b, GenericConst) or isinstance(a, GenericConst) or not isinstance(a, relax.Expr):
            return None
        divisor = b.value.numpy()
        if not np.issubdtype(divisor.dtype, np.integer) or divisor.all():
            return None
        remainder = relax.op.mod if attributes.get("fmod", 0) else relax.op.floor_mod
        return _without_zeros(relax.op.divide if operator == "Div" else remainder, builder, a, divisor)

    return convert


#: Converters by operator, as :mod:`edgepack.compiler.frontend.onnx.converters` has them.
CONVERTERS: dict[str, Callable[..., Any]] = {name: _converter(name) for name in ("Div", "Mod")}
