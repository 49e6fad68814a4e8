"""Which operators TorchScript of strangers may call: arithmetic on tensors, numbers and texts.

The list stands beside this module; ``tools/write_script_operators.py`` writes it of the operators' schemas.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["QUANTISED", "is_allowed", "others_of"]

#: PT2E's operators, which PyTorch defines in Python.
QUANTISED = "quantized_decomposed"


@cache
def _listed() -> frozenset[str]:
    text = Path(__file__).with_name("operators.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if not line.startswith("#"))


def is_allowed(name: str) -> bool:
    """Whether an operator, by its whole name (``aten::add``), is on the list."""
    library, _, own = name.partition("::")
    return name in _listed() or (library == QUANTISED and own.isidentifier())


def others_of(schemas: Iterable[Any]) -> set[str]:
    """The names (``save``) of PyTorch's operators that are not on the list and take no tensor.

    A text's or a number's method of such a name is the operator, and PyTorch may compute it while it compiles
    code, where its operands are constants; so no method of an archive has one.

    Args:
        schemas: of all operators that PyTorch has.
    """
    return {
        schema.name.rpartition("::")[2]
        for schema in schemas
        if schema.name.startswith("aten::")
        and not is_allowed(schema.name)
        and not any("Tensor" in str(one.type) for one in schema.arguments)
    }
