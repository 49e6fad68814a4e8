"""Numbers that a graph computes of numbers: products and powers are refused where they grow too large.

PyTorch computes them as Python's integers while it traces a program.
"""

from __future__ import annotations

from typing import Any

from edgepack.compiler.frontend.torch.pt2.forms import RefusedError

__all__ = ["refuse_large_integers"]

_BITS = 2048
#: Of a size, or of a number of the data.
_OWN = 64
_EXPONENT = 16


def refuse_large_integers(nodes: list[dict[str, Any]]) -> None:
    """Raise RefusedError for an arithmetic of numbers whose result could have thousands of bits.

    Args:
        nodes: copies of a graph's, in their order.
    """
    bits: dict[str, int] = {}
    for number, node in enumerate(nodes):
        kind = node["target"].rpartition(".")[2]
        if not node["target"].startswith(("_operator.", "torch.sym_", "math.")):
            continue
        operands = [_operand(one["arg"], bits) for one in node["inputs"]]
        widest = max((size for size, _ in operands), default=_OWN)
        large = widest + len(operands)
        if kind == "mul":
            large = sum(size for size, _ in operands)
        elif kind in ("pow", "lshift") and len(operands) == 2:
            exponent = operands[1][1]
            if exponent is None or abs(exponent) > (_EXPONENT if kind == "pow" else _OWN):
                raise _refused(number, node["target"])
            large = operands[0][0] * max(1, int(abs(exponent))) if kind == "pow" else operands[0][0] + _OWN
        if large > _BITS:
            raise _refused(number, node["target"])
        for one in node["outputs"]:
            for value in one.values():
                name = value.get("as_name") if isinstance(value, dict) else None
                if isinstance(name, str):
                    bits[name] = large


def _operand(argument: dict[str, Any], bits: dict[str, int]) -> tuple[int, int | float | None]:
    """The bits of an operand, and its value where it is a number."""
    ((_, value),) = argument.items()
    if isinstance(value, dict):
        name = value.get("as_name")
        if isinstance(name, str):
            return bits.get(name, _OWN), None
        value = value.get("as_int", value.get("as_float"))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _OWN, None
    return max(_OWN, int(value).bit_length() if isinstance(value, int) else _OWN), value


def _refused(number: int, target: str) -> RefusedError:
    error = RefusedError(f"computes a number of more than {_BITS} bits by {target}")
    return error.inside(number).inside("nodes")
