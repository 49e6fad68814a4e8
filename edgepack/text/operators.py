"""What operators are called where people read them: without what is TVM's own in their names."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["plain_operators"]

#: What TVM puts before the name of an operator whose form in loops has that name already.
_PREFIX = "tir_"
#: Multiplications of TFLite's integers by a factor below 1, in one of several forms.
_NAMES = {
    "multiply_fixed_point": "requantize",
    "multiply_once": "requantize",
    "multiply_split": "requantize",
    "high_mul": "multiply",
    "rounding_shift": "shift",
    "rounding_divide": "divide",
}


def plain_operators(names: Iterable[str]) -> tuple[str, ...]:
    """The names of a kernel's operators, as a plan has them, for a table: ``sigmoid`` for ``tir_sigmoid``."""
    return tuple(_NAMES.get(name, name.removeprefix(_PREFIX)) for name in names)
