"""The Metal shading language for the GPU: one library, which the driver compiles when the model is opened, or
Apple's compiler when it is packed, where Xcode is installed.

Version 2.3 is what macOS 11 and iOS 14 take, and all later ones. Numbers are computed as the text says:
the runtime asks for no "fast math" (``templates/runtime/gpu/metal.c``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from edgepack.compiler.backends.gpu_source import gpu_source
from edgepack.errors import ToolchainError
from edgepack.plan.binary import Binary
from edgepack.system.apple_metal import compile_library, metal_version

__all__ = ["metal_source", "write_metal"]

_MACROS = """\
#include <metal_stdlib>
using namespace metal;
#define KERNEL(x, y, z) [[max_total_threads_per_threadgroup((x) * (y) * (z))]] kernel
#define BUFFER(number) [[buffer(number)]]
#define POSITIONS \\
  , uint3 ep_group [[threadgroup_position_in_grid]], uint3 ep_thread [[thread_position_in_threadgroup]]
#define SIMDGROUPS , uint ep_simdgroup [[simdgroup_index_in_threadgroup]]
#define SIMDGROUP ((int)ep_simdgroup)
#define FUNCTION inline
#define GLOBAL device
#define SHARED threadgroup
#if !defined(SHARED_POINTER)
#define SHARED_POINTER(type) threadgroup type *
#endif
#define RESTRICT
#define ALIGNED(nbytes) __attribute__((aligned(nbytes)))
#define FLOAT4(value) float4(value)
#define GROUP(axis) ((int)ep_group[axis])
#define THREAD(axis) ((int)ep_thread[axis])
#define BARRIER threadgroup_barrier(mem_flags::mem_threadgroup)
#define UNROLL _Pragma("clang loop unroll(full)")
typedef long ep_int64;
typedef ulong ep_uint64;
typedef char ep_int8;
typedef half ep_half;
#define LOAD_HALF(from, at) ((float)(from)[at])
#define STORE_HALF(to, at, value) ((to)[at] = (half)(value))
#define ROUND_HALF(value) ((float)(half)(value))
"""

#: Functions that other languages have and Metal has not. Their names are macros, so that a later version of
#: Metal may have them.
_FUNCTIONS = """
/* x P(t), t = 2 (x / 3.84)^2 - 1, of |x| <= 3.84; beyond, erf rounds to one. P was fitted to erf(x) / x. */
FUNCTION float ep_erf(float x) {
  const float a = min(max(x, -3.84f), 3.84f);
  const float t = fma(a * a, 0.135633677f, -1.0f);
  float p = -5.71412325e-4f;
  p = fma(p, t, 1.46911561e-3f);
  p = fma(p, t, -1.16169453e-3f);
  p = fma(p, t, 1.81202660e-3f);
  p = fma(p, t, -6.24579098e-3f);
  p = fma(p, t, 1.18306698e-2f);
  p = fma(p, t, -1.77712813e-2f);
  p = fma(p, t, 2.73870919e-2f);
  p = fma(p, t, -4.08989340e-2f);
  p = fma(p, t, 5.63405193e-2f);
  p = fma(p, t, -7.30130747e-2f);
  p = fma(p, t, 9.08005605e-2f);
  p = fma(p, t, -1.10553685e-1f);
  p = fma(p, t, 1.36518449e-1f);
  p = fma(p, t, -1.83765382e-1f);
  p = fma(p, t, 3.68239462e-1f);
  return isnan(x) ? x : min(max(p * a, -1.0f), 1.0f);
}

/* What 1 + x loses of x is made good by the quotient (HP-15C Advanced Functions Handbook, appendix). */
FUNCTION float ep_log1p(float x) {
  const float y = 1.0f + x;
  return y == 1.0f ? x : isinf(y) ? y : log(y) * (x / (y - 1.0f));
}

FUNCTION float ep_hypot(float x, float y) {
  const float most = max(fabs(x), fabs(y)), least = min(fabs(x), fabs(y));
  const float ratio = least / most;
  return isinf(x) || isinf(y) ? INFINITY : most == 0.0f ? most : most * sqrt(fma(ratio, ratio, 1.0f));
}
#define erf ep_erf
#define log1p ep_log1p
#define hypot ep_hypot
"""


def metal_source(kernels: Mapping[str, str]) -> str:
    """All kernels as one library.

    Args:
        kernels: the text of each, by symbol (``kernels/gpu/code.py``).
    """
    return gpu_source(_MACROS + _FUNCTIONS, kernels)


def write_metal(
    kernels: Mapping[str, str], triple: str, folder: Path, warn: Callable[[str], None]
) -> list[Binary]:
    """Writes the library's text into a folder and, with Xcode, the library.

    Args:
        triple: what the program beside it is compiled for (``arm64-apple-macosx11.0``).
        warn: is told why there is no library although there is a compiler.
    """
    source, library = folder / "kernels.metal", folder / "kernels.metallib"
    source.write_text(metal_source(kernels), encoding="utf-8", newline="\n")
    binaries = [Binary(source.name, "metal", "source")]
    if metal_version():
        try:
            compile_library(source, library, triple)
            binaries.append(Binary(library.name, "metal", "metallib"))
        except ToolchainError as error:
            said = (error.detail or str(error)).strip().splitlines()[-1]
            warn(f"The GPU's driver compiles the kernels on the device, for Xcode did not: {said}")
    return binaries
