"""Machine code for NVIDIA's GPUs: CUDA C, compiled by NVRTC.

NVRTC comes with the extra ``cuda``; neither a toolkit nor a driver is needed to pack. For each
compute capability of the device there is a cubin; the driver compiles the PTX of the newest one for later
GPUs. Where the device says that its driver may be older than NVRTC, the PTX is of the version that this
driver takes (``ptx.py``), for the least capability, and cubins are made only by an NVRTC whose cubins it
takes.

NVIDIA's assembler chooses registers so that one more block finds room on a multiprocessor, even where it then
has to spill a few. Such kernels get a bound with which it does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path

from edgepack.compiler.backends.gpu_source import gpu_source
from edgepack.compiler.backends.nvrtc import Nvrtc, Resources
from edgepack.compiler.backends.ptx import lowered
from edgepack.plan.binary import Binary
from edgepack.plan.cuda_driver import takes_cubins

__all__ = ["REGISTERS", "cuda_source", "without_spills", "write_cuda"]

#: Registers of 32 bits of a multiprocessor (CUDA C++ Programming Guide, technical specifications per compute
#: capability).
REGISTERS = 65536

#: Threads of a block, in a kernel's text.
_THREADS = re.compile(r"\bKERNEL\((\d+), (\d+), (\d+)\)")

_MACROS = """\
#define KERNEL(x, y, z) extern "C" __global__ __launch_bounds__((x) * (y) * (z))
/* The assembler is to leave room for that many blocks on a multiprocessor. */
#define BOUNDED_KERNEL(blocks, x, y, z) extern "C" __global__ __launch_bounds__((x) * (y) * (z), blocks)
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
#define ROLLED _Pragma("unroll 1")
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
/* Matrices of 8 rows of 16 bytes of shared memory, by ldmatrix: a thread says where one of their rows lies,
 * thread i + 8 j row i of matrix j, and gets word lane % 4 of row lane / 4 of each. */
#if defined(__CUDA_ARCH__)
FUNCTION void ep_ldmatrix4(uint *words, const void *row) {
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"((uint)__cvta_generic_to_shared(row)) : "memory");
#endif
}
FUNCTION void ep_ldmatrix2(uint *words, const void *row) {
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "r"((uint)__cvta_generic_to_shared(row)) : "memory");
#endif
}
/* Since 8.0, 16 bytes are copied to shared memory by themselves, or zeros where they are not inside. */
#if __CUDA_ARCH__ >= 800
#define COPIES_ASYNC 1
FUNCTION void ep_copy_16(void *to, const void *from, int inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"((uint)__cvta_generic_to_shared(to)), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
#define COPIES_END asm volatile("cp.async.commit_group;" ::: "memory")
#define COPIES_ARRIVED(count) asm volatile("cp.async.wait_group %0;" :: "n"(count) : "memory")
#else
#define COPIES_ASYNC 0
#endif
#define LDMATRIX_4(words, row) ep_ldmatrix4(&(words)[0], row)
#define LDMATRIX_2(words, row) ep_ldmatrix2(&(words)[0], row)
#endif
/* FETCH_16 begins such a copy, COPIES_END ends a group of copies, and COPIES_ARRIVED waits for all groups of
 * this thread but the last ones. Where there is none, 16 bytes are read into registers, and KEEP_16 writes
 * them behind the multiplication to the only stage that there is. AHEAD: tiles that are read before the first
 * one is multiplied. */
#if COPIES_ASYNC
#define STAGES(count) (count)
#define AHEAD(count) ((count) - 1)
#define FETCH_16(held, to, from, inside) ep_copy_16(to, from, inside)
#define KEEP_16(to, held) ((void)0)
#else
#define STAGES(count) 1
#define AHEAD(count) 1
#define FETCH_16(held, to, from, inside) \\
  ((held) = (inside) ? *(const uint4 *)(from) : make_uint4(0, 0, 0, 0))
#define KEEP_16(to, held) (*(uint4 *)(to) = (held))
#define COPIES_END ((void)0)
#define COPIES_ARRIVED(count) ((void)0)
#endif
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


def without_spills(
    kernels: Mapping[str, str], capability: int, nvrtc: Nvrtc
) -> tuple[bytes, dict[str, Resources]]:
    """Machine code ("cubin") for a compute capability, and what each kernel takes: a kernel that would spill
    leaves room for fewer blocks, as many as it does not spill with, or spills least.

    Args:
        kernels: the text of each, by symbol.
    """
    code, taken = nvrtc.measured(cuda_source(kernels), capability)
    spilling = {name: one for name, one in taken.items() if one.spilled}
    bounded = {name: _bounded(name, kernels[name], one, capability, nvrtc) for name, one in spilling.items()}
    if all(kernels[name] == text for name, text in bounded.items()):
        return code, taken
    return nvrtc.measured(cuda_source({**kernels, **bounded}), capability)


def _bounded(name: str, text: str, taken: Resources, capability: int, nvrtc: Nvrtc) -> str:
    """The text of a kernel that spills, with the bound with which it spills least; without one if that is as
    good."""
    threads = _THREADS.search(text)
    assert threads is not None
    now = REGISTERS // (prod(map(int, threads.groups())) * taken.registers)
    best, spilled = text, taken.spilled
    for blocks in range(now - 1, 0, -1):
        bounded = text.replace("KERNEL(", f"BOUNDED_KERNEL({blocks}, ", 1)
        found = nvrtc.resources(cuda_source({name: bounded}), capability)[name].spilled
        if found < spilled:
            best, spilled = bounded, found
        if spilled == 0:
            break
    return best


def write_cuda(
    kernels: Mapping[str, str], capabilities: Sequence[int], folder: Path, driver: str = ""
) -> list[Binary]:
    """Writes the program, cubins, and PTX into a folder: a cubin for each compute capability, and PTX for the
    newest; where a driver is named, what that takes, and PTX for the least capability.

    Args:
        capabilities: 10 * major + minor of each (87: Orin).
        driver: CUDA version of the oldest driver ("10.2"); "" for one as new as NVRTC.

    Raises:
        ToolchainError: NVRTC is missing, or too old or too new for one of them; its PTX needs what the
            driver's version of PTX lacks.
        InternalError: NVRTC does not take the source.
    """
    source = cuda_source(kernels)
    (folder / "kernels.cu").write_text(source, encoding="utf-8", newline="\n")
    nvrtc = Nvrtc(driver)
    cubins = sorted(capabilities) if not driver or takes_cubins(driver, nvrtc.version) else []
    if driver:
        cubins = [capability for capability in cubins if capability in nvrtc.capabilities()]
    ptx = min(capabilities) if driver else max(capabilities)
    jobs = [(capability, "cubin") for capability in cubins] + [(ptx, "ptx")]

    def made_of(job: tuple[int, str]) -> bytes:
        capability, kind = job
        if kind == "cubin":
            return without_spills(kernels, capability, nvrtc)[0]
        return nvrtc.compiled(source, capability, kind)

    with ThreadPoolExecutor() as threads:
        made = list(threads.map(made_of, jobs))
    binaries = [Binary("kernels.cu", "cuda", "source")]
    for (capability, kind), content in zip(jobs, made, strict=True):
        name = f"kernels_{capability}.{kind}"
        taken = lowered(content, driver, capability) if driver and kind == "ptx" else content
        (folder / name).write_bytes(taken)
        binaries.append(Binary(name, "cuda", kind, capability))
    return binaries
