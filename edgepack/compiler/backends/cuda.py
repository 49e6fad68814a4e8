"""Machine code for NVIDIA's GPUs: CUDA C, compiled by NVRTC.

NVRTC comes with ``pip install edgepack[cuda]``; neither a toolkit nor a driver is needed to pack. For each
compute capability of the device there is a cubin; the driver compiles the PTX of the newest one for later
GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edgepack.compiler.backends.gpu_source import gpu_source
from edgepack.compiler.backends.nvrtc import Nvrtc
from edgepack.plan.binary import Binary

__all__ = ["cuda_source", "write_cuda"]

_MACROS = """\
#define KERNEL(x, y, z) extern "C" __global__ __launch_bounds__((x) * (y) * (z))
#define BUFFER(number)
#define POSITIONS
#define FUNCTION __device__ inline
#define GLOBAL
#define SHARED __shared__
#define SHARED_POINTER(type) type *
#define RESTRICT __restrict__
#define FLOAT4(value) make_float4(value, value, value, value)
#define ALIGNED(nbytes) __align__(nbytes)
#define GROUP_0 blockIdx.x
#define GROUP_1 blockIdx.y
#define GROUP_2 blockIdx.z
#define GROUP(axis) ((int)GROUP_##axis)
#define THREAD_0 threadIdx.x
#define THREAD_1 threadIdx.y
#define THREAD_2 threadIdx.z
#define THREAD(axis) ((int)THREAD_##axis)
#define BARRIER __syncthreads()
#define UNROLL _Pragma("unroll")
#if !defined(INFINITY)
#define INFINITY __int_as_float(0x7f800000)
#endif
#if !defined(NAN)
#define NAN __int_as_float(0x7fffffff)
#endif
typedef long long ep_int64;
typedef unsigned long long ep_uint64;
typedef signed char ep_int8;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned short ep_half;
/* NVRTC has no header for float16; these are the instructions. */
#if defined(__CUDA_ARCH__)
FUNCTION float ep_half_value(ep_half bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
FUNCTION ep_half ep_half_bits(float value) {
  ep_half bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
/* c += a b of 16x16 and 16x8 by a warp, by the fragments that PTX ISA has under mma.m16n8k16. */
FUNCTION void ep_mma(float *c, const uint *a, const uint *b) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif __CUDA_ARCH__ >= 750
  for (int half = 0; half < 2; ++half) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
  }
#endif
}
#endif
/* The nearest number with 10 bits behind the point, as the units for TF32 take it; c += a b of 16x8 and 8x8
 * by the fragments of mma.m16n8k8. */
#if defined(__CUDA_ARCH__)
FUNCTION uint ep_tf32_bits(float value) {
  uint bits = 0;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
#endif
  return bits;
}
FUNCTION void ep_mma_tf32(float *c, const uint *a, const uint *b) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
#endif
FUNCTION float ep_tf32(float value) { return __uint_as_float(ep_tf32_bits(value)); }
FUNCTION uint4 ep_tf32x4(uint4 x) {
  return make_uint4(ep_tf32_bits(__uint_as_float(x.x)), ep_tf32_bits(__uint_as_float(x.y)),
                    ep_tf32_bits(__uint_as_float(x.z)), ep_tf32_bits(__uint_as_float(x.w)));
}
#define HALF_BITS(value) ep_half_bits(value)
#define LOAD_HALF(from, at) ep_half_value((from)[at])
#define STORE_HALF(to, at, value) ((to)[at] = ep_half_bits(value))
#define ROUND_HALF(value) ep_half_value(ep_half_bits(value))
"""


def cuda_source(kernels: Mapping[str, str]) -> str:
    """All kernels as one program.

    Args:
        kernels: the text of each, by symbol (``kernels/gpu/code.py``).
    """
    return gpu_source(_MACROS, kernels)


def write_cuda(kernels: Mapping[str, str], capabilities: Sequence[int], folder: Path) -> list[Binary]:
    """Writes the program, a cubin for each compute capability, and PTX for the newest, into a folder.

    Args:
        capabilities: 10 * major + minor of each (87: Orin).

    Raises:
        ToolchainError: NVRTC is missing, or too old or too new for one of them.
        InternalError: NVRTC does not take the source.
    """
    source = cuda_source(kernels)
    (folder / "kernels.cu").write_text(source, encoding="utf-8", newline="\n")
    nvrtc = Nvrtc()
    jobs = [(capability, "cubin") for capability in sorted(capabilities)] + [(max(capabilities), "ptx")]
    with ThreadPoolExecutor() as threads:
        made = list(threads.map(lambda job: nvrtc.compiled(source, *job), jobs))
    binaries = [Binary("kernels.cu", "cuda", "source")]
    for (capability, kind), content in zip(jobs, made, strict=True):
        name = f"kernels_{capability}.{kind}"
        (folder / name).write_bytes(content)
        binaries.append(Binary(name, "cuda", kind, capability))
    return binaries
