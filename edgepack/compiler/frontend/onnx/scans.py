"""Our own conversion of cumulative sums and products, for which TVM's importer has no code for a CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from edgepack.errors import ModelError

__all__ = ["CONVERTERS"]

#: Types that are added up as another one, which holds all of their values.
COMPUTED_AS = {"float16": "float32", "bfloat16": "float32"}


def _scan(operator: str) -> Callable[..., Any]:
    def converter(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
        from tvm import relax
        from tvm.ir import GenericConst

        from edgepack.compiler.graph.rewrite import dtype_of, shape_of
        from edgepack.compiler.graph.scan import Scan, emit_scan

        del opset
        x, name = inputs[0], attributes["tvm_custom"]["name"] or "without name"
        if not isinstance(inputs[1], GenericConst):
            raise ModelError(
                f"The {operator} node {name} cannot be compiled: its axis is known at run time only.",
                hint="Export the model with a constant axis.",
            )
        axis, rank = int(inputs[1].value.numpy().reshape(-1)[0]), len(shape_of(x))
        if not -rank <= axis < rank:
            raise ModelError(
                f"The {operator} node {name} has the axis {axis}; its input has rank {rank}.",
                hint="Export the model again.",
            )
        exclusive, reverse = (bool(attributes.get(key, 0)) for key in ("exclusive", "reverse"))
        dtype = dtype_of(x)
        wide = COMPUTED_AS.get(dtype, dtype)
        x = builder.emit(relax.op.astype(x, wide)) if wide != dtype else builder.emit(x)
        y = emit_scan(builder, Scan(operator == "CumProd", axis % rank, exclusive, reverse), x)
        return builder.emit(relax.op.astype(y, dtype)) if wide != dtype else y

    return converter


#: As those of ``converters.py``.
CONVERTERS = {operator: _scan(operator) for operator in ("CumSum", "CumProd")}
