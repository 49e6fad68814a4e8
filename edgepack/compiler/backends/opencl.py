"""OpenCL C for the GPU, which the driver compiles when the model is opened.

OpenCL C 1.2 is what every driver of the last ten years takes (Mali, Adreno, PowerVR, Intel, NVIDIA, AMD,
PoCL).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgepack.compiler.backends.gpu_source import gpu_source
from edgepack.plan.binary import Binary

__all__ = ["opencl_source", "write_opencl"]

_MACROS = """\
#define KERNEL(x, y, z) __kernel __attribute__((reqd_work_group_size(x, y, z)))
#define BUFFER(number)
#define POSITIONS
#define FUNCTION inline
#define GLOBAL __global
#define SHARED __local
#define SHARED_POINTER(type) __local type *
#define RESTRICT restrict
#define ALIGNED(nbytes) __attribute__((aligned(nbytes)))
#define FLOAT4(value) (float4)(value)
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
/* Without cl_khr_fp16, which few drivers have, half is a type in memory only. */
typedef half ep_half;
#define LOAD_HALF(from, at) vload_half(at, from)
#define STORE_HALF(to, at, value) vstore_half_rte(value, at, to)
FUNCTION float ep_round_half(float value) {
  ushort bits;
  vstore_half_rte(value, 0, (half *)&bits);
  return vload_half(0, (half *)&bits);
}
#define ROUND_HALF(value) ep_round_half(value)
"""


def opencl_source(kernels: Mapping[str, str]) -> str:
    """All kernels as one program.

    Args:
        kernels: the text of each, by symbol (``kernels/gpu/code.py``).
    """
    return gpu_source(_MACROS, kernels)


def write_opencl(kernels: Mapping[str, str], folder: Path) -> list[Binary]:
    """Writes the program into a folder."""
    (folder / "kernels.cl").write_text(opencl_source(kernels), encoding="utf-8", newline="\n")
    return [Binary("kernels.cl", "opencl", "source")]
