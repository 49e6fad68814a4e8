"""What names a fused group in a file of tuned schedules: the same text wherever a model has such a group."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.gpu.contract import HalfOperands
from edgepack.plan.tuned import PAIR

__all__ = ["group_key"]

#: Hexadecimal digits of the hash at the end of a key.
DIGITS = 12

#: Operators that are named in a key, at most; the hash is of all.
NAMED = 4


def group_key(groups: Sequence[FusedGroup], half: HalfOperands | None = None) -> str:
    """Operators, shapes and types for a reader, then a hash of all that a schedule depends on: also the
    anchor's attributes, and how the group's tensors lie in memory. Numbers in the group, such as scales, are
    not in it.

    Args:
        groups: that one call computes: one, or two in their order.
        half: on a GPU, what of the one group is float16 in its memory, and constant.
    """
    return PAIR.join(_key(group, half) for group in groups)


def _key(fused: FusedGroup, half: HalfOperands | None) -> str:
    buffers = [_tensor(buffer) for buffer in fused.function.params]
    anchor = fused.anchor
    whole = {
        "operators": list(fused.operators),
        "buffers": buffers,
        "outputs": fused.outputs,
        "kind": anchor.kind if anchor else "",
        "operands": list(anchor.operands) if anchor else [],
        "attributes": _plain(anchor.attributes) if anchor else {},
        "row_stride": fused.row_stride,
        "float16_params": sorted(fused.float16_params),
        "callers_params": sorted(fused.callers_params),
        "rounded_to": fused.rounded_to,
        "narrow_params": sorted(fused.narrow_params),
        "by_rows": fused.by_rows,
    }
    if fused.word_params:
        whole["word_params"] = sorted(fused.word_params)
    if half is not None:
        whole["half"] = [sorted(half.params), half.temps, sorted(half.constants), half.tf32]
    text = repr(sorted(whole.items()))
    digest = hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
    more = ["..."] if len(fused.operators) > NAMED else []
    head = "+".join([*fused.operators[:NAMED], *more])
    reads = anchor.operands if anchor else ()
    shapes = [buffers[i] for i in reads if i is not None] or buffers[:2]
    return f"{head} {' '.join(shapes)} -> {buffers[-1]} {digest}"


def _tensor(buffer: Any) -> str:
    return f"{buffer.dtype}[{','.join(str(int(extent)) for extent in buffer.shape)}]"


def _plain(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Attributes as text, numbers as Python prints them."""

    def text(value: Any) -> str:
        try:
            return str(int(value))
        except (TypeError, ValueError):
            pass
        if isinstance(value, str | bytes):
            return str(value)
        return f"[{','.join(map(text, value))}]" if isinstance(value, Iterable) else str(value)

    return {name: text(value) for name, value in sorted(attributes.items())}
