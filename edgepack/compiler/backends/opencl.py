"""OpenCL C for the GPU: the text of a plan's kernels, behind what the language calls by other names.

OpenCL C 1.2 is what every driver of the last ten years takes (Mali, Adreno, PowerVR, Intel, NVIDIA, AMD,
PoCL).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["opencl_source", "write_opencl"]

_PROLOGUE = """\
#define KERNEL(x, y, z) __kernel __attribute__((reqd_work_group_size(x, y, z)))
#define GLOBAL __global
#define SHARED __local
#define RESTRICT restrict
#define GROUP(axis) ((int)get_group_id(axis))
#define THREAD(axis) ((int)get_local_id(axis))
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#if defined(__OPENCL_C_VERSION__) && __OPENCL_C_VERSION__ >= 200
#define UNROLL __attribute__((opencl_unroll_hint))
#else
#define UNROLL
#endif
typedef long ep_int64;
typedef ulong ep_uint64;
typedef char ep_int8;

/* Quotient and remainder of a division that rounds down. */
inline int floor_div(int a, int b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

inline int floor_mod(int a, int b) {
  return a - floor_div(a, b) * b;
}

inline ep_int64 floor_div64(ep_int64 a, ep_int64 b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

inline ep_int64 floor_mod64(ep_int64 a, ep_int64 b) {
  return a - floor_div64(a, b) * b;
}
"""


def opencl_source(kernels: Mapping[str, str]) -> str:
    """All kernels as one program.

    Args:
        kernels: the text of each, by symbol (``kernels/gpu/code.py``).
    """
    return "\n".join([_PROLOGUE, *(text for _, text in sorted(kernels.items()))])


def write_opencl(kernels: Mapping[str, str], output: Path) -> None:
    """Writes the program to a file."""
    output.write_text(opencl_source(kernels), encoding="utf-8", newline="\n")
