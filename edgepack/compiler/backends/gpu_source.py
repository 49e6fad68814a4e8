"""What all of a GPU's kernels stand behind: the names by which their text calls what each language calls
otherwise.

The text (``kernels/gpu/code.py``) is C. Each back end defines the macros of its own language (``KERNEL``,
``BUFFER``, ``POSITIONS``, ``GLOBAL``, ``SHARED``, ``SHARED_POINTER``, ``RESTRICT``, ``ALIGNED``, ``GROUP``,
``THREAD``, ``BARRIER``, ``UNROLL``, ``FUNCTION``, ``FLOAT4``), the types ``ep_int64``, ``ep_uint64``,
``ep_int8``, and of float16 the type ``ep_half`` of an element in memory, ``LOAD_HALF``, ``STORE_HALF`` and
``ROUND_HALF``: numbers are computed as float32, and rounded to nearest even.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["gpu_source"]

#: What C leaves undefined of integers, as ``compiler/backends/defined`` has it for CPUs: a quotient and a
#: remainder by 0 are 0, and of the least integer by -1 they wrap; a shift by fewer bits than none, or by all,
#: leaves nothing but the sign. ``floor_`` rounds down.
_SIGNED = """
FUNCTION @type div_@type(@type a, @type b) {
  return b == 0 ? 0 : b == -1 ? (@type)(0 - (@unsigned)a) : a / b;
}

FUNCTION @type mod_@type(@type a, @type b) {
  return b == 0 || b == -1 ? 0 : a % b;
}

FUNCTION @type floor_div_@type(@type a, @type b) {
  return div_@type(a, b) - (mod_@type(a, b) != 0 && (a < 0) != (b < 0));
}

FUNCTION @type floor_mod_@type(@type a, @type b) {
  return mod_@type(a, b) + (mod_@type(a, b) != 0 && (a < 0) != (b < 0) ? b : 0);
}

FUNCTION @type shift_left_@type(@type a, @type bits) {
  return bits < 0 || bits > @last ? 0 : (@type)((@unsigned)a << bits);
}

FUNCTION @type shift_right_@type(@type a, @type bits) {
  return bits < 0 || bits > @last ? (a < 0 ? -1 : 0) : a >> bits;
}
"""

#: The larger and the smaller of two numbers: NaN if one is, as on CPUs (``kernels/cpu/emit/vector_math.py``).
_EXTREMES = """
FUNCTION float ep_larger(float a, float b) {
  return a > b || a != a ? a : b;
}

FUNCTION float ep_smaller(float a, float b) {
  return a < b || a != a ? a : b;
}
"""

_UNSIGNED = """
FUNCTION @type div_@type(@type a, @type b) {
  return b == 0 ? 0 : a / b;
}

FUNCTION @type mod_@type(@type a, @type b) {
  return b == 0 ? 0 : a % b;
}

FUNCTION @type floor_div_@type(@type a, @type b) {
  return div_@type(a, b);
}

FUNCTION @type floor_mod_@type(@type a, @type b) {
  return mod_@type(a, b);
}

FUNCTION @type shift_left_@type(@type a, @type bits) {
  return bits > @last ? 0 : a << bits;
}

FUNCTION @type shift_right_@type(@type a, @type bits) {
  return bits > @last ? 0 : a >> bits;
}
"""

#: The nearest integer towards 0: of a larger number the largest one, of NaN 0.
_CONVERSION = """
FUNCTION @type to_@type(float x) {
  return x >= @beyond ? @most : x > @before ? (@type)x : x == x ? @least : 0;
}
"""


def _integers() -> str:
    """The functions for each type that C computes integers in."""
    return "".join(
        _functions(ctype, bits, signed)
        for ctype, bits, signed in (
            *(("int", 32, True), ("uint", 32, False)),
            *(("ep_int64", 64, True), ("ep_uint64", 64, False)),
        )
    )


def _functions(ctype: str, bits: int, signed: bool) -> str:
    most = (1 << bits - signed) - 1
    suffix = ("" if signed else "u") + ("l" if bits == 64 else "")
    number = f"({ctype})0x{most:x}{suffix}"
    names = {
        "type": ctype,
        "unsigned": "uint" if bits == 32 else "ep_uint64",
        "last": str(bits - 1),
        "beyond": f"{most + 1}.0f",
        "before": f"-{most + 1}.0f" if signed else "-1.0f",
        "most": number,
        "least": f"(-{number} - 1)" if signed else "0",
    }
    text = (_SIGNED if signed else _UNSIGNED) + _CONVERSION
    return re.sub(r"@(\w+?)(?=\b|_)", lambda found: names[found[1]], text)


def gpu_source(macros: str, kernels: Mapping[str, str]) -> str:
    """All kernels as one program.

    Args:
        macros: what the language calls otherwise.
        kernels: the text of each, by symbol.
    """
    return "\n".join([macros + _EXTREMES + _integers(), *(text for _, text in sorted(kernels.items()))])
