"""Our own conversion of Pad: TVM's is opaque TIR, of which no pass can tell what is padded by how much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["pad"]

#: Modes of ONNX and of Relax.
MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def pad(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any], opset: int) -> Any:
    """``relax.nn.pad`` of a float32 tensor by constant widths, none of them negative; None for others."""
    from tvm import relax
    from tvm.ir import GenericConst

    x, *others = inputs
    others = [*others, None, None, None][:3]
    mode = MODES.get(attributes.get("mode", b"constant").decode("utf-8"))
    value: Any = attributes.get("value", 0.0)
    if opset < 11:
        widths = attributes.get("pads")
    else:
        if not all(o is None or isinstance(o, GenericConst) for o in others) or others[0] is None:
            return None
        known = [[] if o is None else o.value.numpy().reshape(-1).tolist() for o in others]
        value = known[1][0] if known[1] else 0.0
        rank = len(x.ty.shape)
        widths = _on_all_axes(known[0], range(rank) if others[2] is None else known[2], rank)
    if mode is None or widths is None or str(x.ty.dtype) != "float32" or min(widths, default=0) < 0:
        return None
    if not any(widths):
        return x
    rank = len(x.ty.shape)
    pairs = [int(n) for axis in range(rank) for n in (widths[axis], widths[rank + axis])]
    return relax.op.nn.pad(x, pairs, mode, float(value))


def _on_all_axes(widths: Sequence[int], axes: Sequence[int], rank: int) -> list[int]:
    """Widths before and after each axis of the tensor, of those along ``axes``."""
    found = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        found[axis % rank], found[rank + axis % rank] = widths[i], widths[len(axes) + i]
    return found
