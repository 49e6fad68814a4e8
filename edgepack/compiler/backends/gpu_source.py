"""What all of a GPU's kernels stand behind: the names by which their text calls what each language calls
otherwise.

The text (``kernels/gpu/code.py``) is C. Each back end defines the macros of its own language (``KERNEL``,
``BUFFER``, ``POSITIONS``, ``GLOBAL``, ``SHARED``, ``SHARED_POINTER``, ``RESTRICT``, ``ALIGNED``, ``GROUP``,
``THREAD``, ``BARRIER``, ``UNROLL``, ``FUNCTION``, ``FLOAT4``), the types ``ep_int64``, ``ep_uint64``,
``ep_int8``, and of float16 the type ``ep_half`` of an element in memory, ``LOAD_HALF``, ``STORE_HALF`` and
``ROUND_HALF``: numbers are computed as float32, and rounded to nearest even.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["gpu_source"]

_FUNCTIONS = """
/* Quotient and remainder of a division that rounds down. */
FUNCTION int floor_div(int a, int b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

FUNCTION int floor_mod(int a, int b) {
  return a - floor_div(a, b) * b;
}

FUNCTION ep_int64 floor_div64(ep_int64 a, ep_int64 b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

FUNCTION ep_int64 floor_mod64(ep_int64 a, ep_int64 b) {
  return a - floor_div64(a, b) * b;
}
"""


def gpu_source(macros: str, kernels: Mapping[str, str]) -> str:
    """All kernels as one program.

    Args:
        macros: what the language calls otherwise.
        kernels: the text of each, by symbol.
    """
    return "\n".join([macros + _FUNCTIONS, *(text for _, text in sorted(kernels.items()))])
