"""Our own conversion of a few ONNX operators, where TVM's importer hides an operator from the passes.

TVM writes Clip and Einsum as opaque TIR, and Max, Min and Sum as a reduction over a stack of their operands.
As elementwise operators they follow any layout and fuse into the kernel before them; an Einsum that is known
becomes a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from edgepack.compiler.frontend.onnx import (
    activations,
    casts,
    custom,
    dynamic_quantisation,
    fixed_point,
    gathers,
    recurrent,
    region_import,
    scans,
    selection,
    zero_divisors,
)
from edgepack.compiler.frontend.onnx.classical import operator as tree_walks
from edgepack.compiler.frontend.onnx.padding import pad

__all__ = ["OPERATORS", "convert"]


def convert(builder: Any, op_type: str, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """The Relax expression for a node; None where TVM's own converter is to be used.

    Args:
        builder: the importer's ``relax.BlockBuilder``.
        inputs: the node's operands; None for one that is left out.
        attributes: the node's attributes as the importer reads them.
    """
    converter = _CONVERTERS.get(op_type)
    return converter(builder, inputs, attributes, opset) if converter else None


def _pairwise(name: str) -> Callable[..., Any]:
    def converter(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
        from tvm import relax

        operator = getattr(relax.op, name)
        if len(inputs) == 1:
            return inputs[0]
        return reduce(lambda a, b: builder.normalize(operator(builder.emit(a), b)), inputs)

    return converter


def _mean(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    from tvm import relax

    total = builder.normalize(_pairwise("add")(builder, inputs, attributes, opset))
    return relax.op.multiply(builder.emit(total), relax.const(1 / len(inputs), str(total.ty.dtype)))


def _clip(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    from tvm import relax

    x = inputs[0]
    dtype = str(x.ty.dtype)
    if opset < 11:
        bounds = [
            relax.const(float(attributes[k]), dtype) if k in attributes else None for k in ("min", "max")
        ]
    else:
        bounds = [*inputs[1:], None, None][:2]
    for operator, bound in zip((relax.op.maximum, relax.op.minimum), bounds, strict=True):
        if bound is not None:
            x = builder.emit(operator(x, bound))
    return x


def _einsum(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    from tvm import relax

    equation = attributes["equation"]
    text = equation.decode() if isinstance(equation, bytes) else str(equation)
    return relax.op.einsum(tuple(builder.emit(x) for x in inputs), text.replace(" ", ""))


def _bit_cast(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """The same bits as another type of that size; of bool it is a comparison with zero, or a number."""
    import onnx
    from tvm import relax, te, tirx

    x = inputs[0]
    source = str(x.ty.dtype)
    target = str(onnx.helper.tensor_dtype_to_np_dtype(int(attributes["to"])))
    if "bool" in (source, target):
        return relax.op.astype(x, target)

    def reinterpreted(data: te.Tensor) -> te.Tensor:
        return te.compute(
            data.shape,
            lambda *place: tirx.reinterpret(target, data(*place)),
            name="reinterpret",
            tag="elemwise",
        )

    return builder.call_te(reinterpreted, x, primfunc_name_hint="reinterpret")


_CONVERTERS: dict[str, Callable[..., Any]] = {
    **activations.CONVERTERS,
    **casts.CONVERTERS,
    **recurrent.CONVERTERS,
    "BitCast": _bit_cast,
    **scans.CONVERTERS,
    **custom.CONVERTERS,
    **region_import.CONVERTERS,
    **dynamic_quantisation.CONVERTERS,
    **fixed_point.CONVERTERS,
    **gathers.CONVERTERS,
    **selection.CONVERTERS,
    **tree_walks.CONVERTERS,
    **zero_divisors.CONVERTERS,
    "Clip": _clip,
    "Einsum": _einsum,
    "Max": _pairwise("maximum"),
    "Mean": _mean,
    "Min": _pairwise("minimum"),
    "Pad": pad,
    "Sum": _pairwise("add"),
}

#: What is converted here, also what TVM knows nothing of.
OPERATORS = frozenset(_CONVERTERS)
