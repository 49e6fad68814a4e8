"""What a serialised graph may call, by name: operators, arithmetic of sizes; and texts that operators take.

PyTorch resolves each name below the module ``torch`` (torch/_export/serde/serialize.py,
``deserialize_operator``). That it is an operator, and its arguments those of its schema, is asked again where
PyTorch is (:mod:`edgepack.compiler.frontend.torch.operators`).
"""

from __future__ import annotations

import re
from typing import Any

from edgepack.compiler.frontend.torch.pt2.forms import RefusedError, Text, shown
from edgepack.compiler.frontend.torch.pt2.names import OPERATOR_NAMES, is_name

__all__ = ["TARGET", "is_operator", "library_of", "text_of", "textual"]

#: Libraries of operators.
_LIBRARIES = ("aten", "prims", "prim", "quantized_decomposed", "torchao", "torchvision", "_quantized")
_HIGHER_ORDER = (
    "cond", "while_loop", "scan", "associative_scan", "map_impl", "wrap_with_set_grad_enabled",
    "wrap_with_autocast", "wrap", "invoke_subgraph",
)  # fmt: skip
_OPERATOR = re.compile(rf"torch\.ops\.({'|'.join(_LIBRARIES)})\.(\w+)(?:\.(\w+))?", re.ASCII)
#: Arithmetic of sizes.
_ARITHMETIC = frozenset(
    [f"_operator.{name}" for name in (
        *("getitem", "add", "sub", "mul", "floordiv", "mod", "truediv", "pow", "neg", "pos", "eq", "ne"),
        *("lt", "le", "gt", "ge", "and_", "or_", "not_", "lshift", "rshift"),
    )]
    + [f"math.{name}" for name in ("ceil", "floor", "trunc", "sqrt")]
    + [f"torch.{name}" for name in (
        *("sym_float", "sym_fresh_size", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt"),
        *("sym_sum", "_sym_sqrt", "_check", "_check_is_size"),
    )]
    + [f"torch.ops.higher_order.{name}" for name in _HIGHER_ORDER]
)  # fmt: skip
#: Operators that read or write files.
_FILES = re.compile(r"(?:from_file|save|load|open|read|write|fork|exec)\w*")

#: What a text of this argument may be, whatever the operator is; None: nothing needs it, and it is emptied.
_TEXTS = {
    "UPLO": "L|U",
    "approximate": "none|tanh",
    "assert_msg": None,
    "device_type": "cpu|cuda",
    "driver": "gels|gelsy|gelsd|gelss|gesvd|gesvdj|gesvda",
    "equation": r"[A-Za-z.,> \-]{0,1000}",
    "indexing": "ij|xy",
    "interpolation": "linear|lower|higher|midpoint|nearest",
    "mapping_type": "SYMMETRIC|ASYMMETRIC|SYMMETRIC_NO_CLIPPING_ERR",
    "mode": "constant|reflect|replicate|circular|reduced|complete|r|nearest|linear|bilinear|bicubic|trilinear"
    "|area|nearest-exact",
    "norm": "forward|backward|ortho",
    "ord": "fro|nuc",
    "p": "fro|nuc",
    "pad_mode": "constant|reflect|replicate|circular",
    "padding": "same|valid",
    "padding_mode": "zeros|border|reflection|constant|reflect|replicate|circular",
    "padding_side": "left|right",
    "reduce": "sum|prod|mean|amax|amin|max|min|add|multiply",
    "reduction": "none|sum|prod|mean|amax|amin|max|min",
    "rounding_mode": "trunc|floor",
    "side": "left|right",
    "zero_point_domain": "INT|FLOAT|NONE",
}


def is_operator(target: str) -> bool:
    """Whether a target is an operator of a library, no arithmetic and none that takes graphs."""
    return _OPERATOR.fullmatch(target) is not None


def library_of(target: str) -> str:
    """What stands before an operator's name: ``aten``; "" where it is none."""
    found = _OPERATOR.fullmatch(target)
    return found[1] if found else ""


def textual(argument: str) -> bool:
    """Whether texts of this argument of an operator are known."""
    return argument in _TEXTS


def text_of(target: str, argument: str, text: str) -> str:
    """A text that is an argument, as PyTorch may have it.

    Args:
        target: what is called.
        argument: its name; "" in calls that take graphs.

    Raises:
        RefusedError: no such argument takes texts, or not this one.
    """
    if target in _ARITHMETIC:
        if re.fullmatch(r"[\w.\-]{0,200}", text, re.ASCII) and not text.startswith("__"):
            return text
        raise RefusedError(f"is {shown(text)}, which is no plain word")
    allowed = _TEXTS.get(argument, "(?!)")
    if allowed is None:
        return ""
    if not re.fullmatch(allowed, text, re.ASCII):
        raise RefusedError(f"is the text {shown(text)}, which {argument or 'this argument'} never is")
    return text


def _known(target: str) -> str | None:
    if target in _ARITHMETIC:
        return target
    found = _OPERATOR.fullmatch(target)
    if found is None or _FILES.fullmatch(found[2]):
        return None
    names: tuple[Any, ...] = found.groups()
    plain = all(name is None or is_name(name) or name in OPERATOR_NAMES for name in names[:2])
    overload = names[2] is None or not names[2].startswith("_")
    return target if plain and overload else None


def _called(value: Any, levels: int) -> str:
    try:
        return str(_TARGET(value, levels))
    except RefusedError:
        raise RefusedError(f"calls {shown(value)}, which is no operator that computes something") from None


_TARGET = Text(_known, "an operator", 300)
TARGET = _called
