"""The schema of tensors' types, sizes and places, shared by programs and by weights."""

from __future__ import annotations

from typing import Any

from edgepack.compiler.frontend.torch.pt2.arithmetic import SYMBOL, rewritten
from edgepack.compiler.frontend.torch.pt2.forms import (
    Choice,
    Flag,
    Integer,
    ListOf,
    Maybe,
    Real,
    Record,
    RefusedError,
    Text,
    Variant,
    shown,
)

__all__ = [
    "BYTES",
    "DEVICE",
    "DTYPE",
    "LAYOUT",
    "MEMORY_FORMAT",
    "RANGES",
    "STORED",
    "SYM_BOOL",
    "SYM_FLOAT",
    "SYM_INT",
    "TENSOR",
]

#: Bytes of an element, by PyTorch's number of its type (torch/_export/serde/schema.py, ``ScalarType``).
BYTES = {
    1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 9: 4, 10: 8, 11: 16, 12: 1, 13: 2,
    28: 2, 29: 1, 30: 1, 31: 1, 32: 1, 33: 1, 34: 4, 35: 8,
}  # fmt: skip

_MOST_AXES = 64
_SIZE = Integer(0, (1 << 62))
_EXPRESSION = Text(rewritten, "arithmetic of small numbers", 20_000)


def _size_text(value: Any, levels: int) -> str:
    try:
        return _EXPRESSION(value, levels)
    except RefusedError:
        raise RefusedError(f"is the size {shown(value)}, which is no arithmetic of small numbers") from None


_HINT = Variant({"as_int": Integer(-(1 << 63), (1 << 63) - 1), "as_bool": Flag(), "as_float": Real()})
_SYMBOLIC = Record({"expr_str": _size_text}, {"hint": Maybe(_HINT)})


def _device(value: Any, levels: int) -> dict[str, Any]:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind in ("cuda", "xpu", "mps", "hpu", "npu", "xla", "mtia", "privateuseone"):
        raise RefusedError(
            f"is on the device {kind}",
            instead=f"{{model}} was exported on the device {kind}, and edgepack reads programs of the CPU.",
            hint="Export module.cpu() with inputs on the CPU; for which GPU it is packed, --device says.",
        )
    found = Record({"type": Choice(("cpu", "meta"))}, {"index": Maybe(Integer(0, 0))})
    return found(value, levels)


DEVICE = _device
DTYPE = Choice(tuple(BYTES))
LAYOUT = Choice(tuple(range(8)))
MEMORY_FORMAT = Choice(tuple(range(1, 5)))

SYM_INT = Variant({"as_expr": _SYMBOLIC, "as_int": Integer()})
SYM_FLOAT = Variant({"as_expr": _SYMBOLIC, "as_float": Real()})
SYM_BOOL = Variant({"as_expr": _SYMBOLIC, "as_bool": Flag()})
_SIZES = ListOf(Variant({"as_expr": _SYMBOLIC, "as_int": _SIZE}), _MOST_AXES)

#: A tensor of a graph: its sizes may be symbolic.
TENSOR = Record(
    {
        "dtype": DTYPE,
        "sizes": _SIZES,
        "requires_grad": Flag(),
        "device": DEVICE,
        "strides": _SIZES,
        "storage_offset": Variant({"as_expr": _SYMBOLIC, "as_int": _SIZE}),
        "layout": LAYOUT,
    }
)

_STORED_SIZES = ListOf(Variant({"as_int": _SIZE}), _MOST_AXES)
#: A tensor whose numbers are in the file.
STORED = Record(
    {
        "dtype": DTYPE,
        "sizes": _STORED_SIZES,
        "requires_grad": Flag(),
        "device": DEVICE,
        "strides": _STORED_SIZES,
        "storage_offset": Variant({"as_int": _SIZE}),
        "layout": Choice((7,)),
    }
)

_SYMBOL = Text(lambda text: text if SYMBOL.fullmatch(text) else None, "a symbol")


def _range_key(value: Any, levels: int) -> str:
    """A symbol; PyTorch writes constraints of sums and products by their arithmetic too."""
    try:
        return _SYMBOL(value, levels)
    except RefusedError:
        raise RefusedError(f"is the size {shown(value)}, which is no arithmetic of small numbers") from None


_END = Maybe(Integer(-(1 << 63), 1 << 63))
#: What symbols are from and to.
RANGES = _range_key, Record({"min_val": _END, "max_val": _END})
