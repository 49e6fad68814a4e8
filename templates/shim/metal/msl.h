/* The Metal shading language as C++ of the CPU: what kernels of edgepack use of it, and no more. Compiled
 * with clang's -fsanitize=thread, whose callbacks are in common/memory.c. SPDX-License-Identifier: Apache-2.0
 */
#ifndef EDGEPACK_MSL_H
#define EDGEPACK_MSL_H

#include "call.h"

#define kernel
#define device
#define constant    const
/* Threadgroups run one after the other, so one copy does; memory.c fills it before each. */
#define threadgroup static __attribute__((section("shim_shared"), used))

typedef _Float16 half;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef uint uint3 __attribute__((ext_vector_type(3)));

#define INFINITY __builtin_inff()
#define NAN      __builtin_nanf("")

namespace metal {

enum class mem_flags { mem_none, mem_device, mem_threadgroup };

static inline void shim_wait(mem_flags what, const char *file, int line) {
    if (what != mem_flags::mem_threadgroup) {
        shim_fail("the barrier of line %d orders no threadgroup memory", line);
    }
    shim_barrier(file, line);
}
#define threadgroup_barrier(flags) metal::shim_wait(flags, __FILE__, __LINE__)

#define SHIM_1(name, builtin) \
    static inline float name(float a) { \
        return builtin(a); \
    }
#define SHIM_2(name, builtin) \
    static inline float name(float a, float b) { \
        return builtin(a, b); \
    }
SHIM_1(acos, __builtin_acosf)
SHIM_1(acosh, __builtin_acoshf)
SHIM_1(asin, __builtin_asinf)
SHIM_1(asinh, __builtin_asinhf)
SHIM_1(atan, __builtin_atanf)
SHIM_1(atanh, __builtin_atanhf)
SHIM_1(ceil, __builtin_ceilf)
SHIM_1(cos, __builtin_cosf)
SHIM_1(cosh, __builtin_coshf)
SHIM_1(exp, __builtin_expf)
SHIM_1(exp2, __builtin_exp2f)
SHIM_1(fabs, __builtin_fabsf)
SHIM_1(floor, __builtin_floorf)
SHIM_1(log, __builtin_logf)
SHIM_1(log10, __builtin_log10f)
SHIM_1(log2, __builtin_log2f)
SHIM_1(rint, __builtin_rintf)
SHIM_1(round, __builtin_roundf)
SHIM_1(sin, __builtin_sinf)
SHIM_1(sinh, __builtin_sinhf)
SHIM_1(sqrt, __builtin_sqrtf)
SHIM_1(tan, __builtin_tanf)
SHIM_1(tanh, __builtin_tanhf)
SHIM_1(trunc, __builtin_truncf)
SHIM_2(atan2, __builtin_atan2f)
SHIM_2(copysign, __builtin_copysignf)
SHIM_2(fmax, __builtin_fmaxf)
SHIM_2(fmin, __builtin_fminf)
SHIM_2(fmod, __builtin_fmodf)
SHIM_2(pow, __builtin_powf)
static inline float exp10(float a) {
    return __builtin_powf(10.0f, a);
}
static inline float rsqrt(float a) {
    return 1.0f / __builtin_sqrtf(a);
}
static inline float fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
static inline bool isnan(float a) {
    return __builtin_isnan(a);
}
static inline bool isinf(float a) {
    return __builtin_isinf(a);
}
static inline bool isfinite(float a) {
    return __builtin_isfinite(a);
}

#define SHIM_MIN_MAX(type) \
    static inline type min(type a, type b) { \
        return b < a ? b : a; \
    } \
    static inline type max(type a, type b) { \
        return a < b ? b : a; \
    }
SHIM_MIN_MAX(char)
SHIM_MIN_MAX(uchar)
SHIM_MIN_MAX(short)
SHIM_MIN_MAX(ushort)
SHIM_MIN_MAX(int)
SHIM_MIN_MAX(uint)
SHIM_MIN_MAX(long)
SHIM_MIN_MAX(ulong)
SHIM_2(min, __builtin_fminf)
SHIM_2(max, __builtin_fmaxf)

} // namespace metal

/* The last two arguments of a kernel are positions: of the threadgroup, then of the thread in it. */
template <> struct shim_argument<uint3> {
    static constexpr uint32_t listed = 0;
    __attribute__((no_sanitize("thread"))) static uint3 get(void **, int number, int count) {
        const shim_index at = number == count - 2 ? shim_block() : shim_thread();
        return uint3{at.x, at.y, at.z};
    }
};

#endif
