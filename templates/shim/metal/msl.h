/* The Metal shading language as C++ of the CPU: what kernels of edgepack use of it, and no more. Compiled
 * with clang's -fsanitize=thread, whose callbacks are in common/memory.c. SPDX-License-Identifier: Apache-2.0
 */
#ifndef EDGEPACK_MSL_H
#define EDGEPACK_MSL_H

#include "call.h"

#define kernel
#define device
#define constant             const
/* Threadgroups run one after the other, so one copy does; memory.c fills it before each. */
#define threadgroup          static __attribute__((section("shim_shared"), used))
#define SHARED_POINTER(type) type *

typedef _Float16 half;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef uint uint3 __attribute__((ext_vector_type(3)));
typedef uint uint4 __attribute__((ext_vector_type(4)));
typedef ulong ulong2 __attribute__((ext_vector_type(2)));
typedef float float2 __attribute__((ext_vector_type(2)));
typedef float float4 __attribute__((ext_vector_type(4)));

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

/* ---- Matrices of SIMD-groups ---- */

namespace metal {

/* Thread i of a SIMD-group has the elements 2 i and 2 i + 1, row by row; kernels cannot tell, on a GPU
 * neither. What was not loaded is no number. */
template <class T> struct shim_matrix {
    T own[2] = {(T)__builtin_nanf(""), (T)__builtin_nanf("")};
};

} // namespace metal

typedef metal::shim_matrix<half> simdgroup_half8x8;
typedef metal::shim_matrix<float> simdgroup_float8x8;

namespace metal {

template <class T, int columns, int rows> static inline shim_matrix<T> make_filled_simdgroup_matrix(T value) {
    static_assert(columns == 8 && rows == 8, "there are matrices of 8 x 8 only");
    shim_matrix<T> made;
    made.own[0] = made.own[1] = value;
    return made;
}

/* All threads of the SIMD-group come to this line; each reads, or writes, what it has of the matrix. */
template <class T>
static inline void simdgroup_load(shim_matrix<T> &to, const T *from, ulong line, ulong2 origin = ulong2{0, 0},
                                  bool transposed = false, int at = __builtin_LINE()) {
    shim_warp_wait(at);
    for (unsigned i = 0; i < 2; i++) {
        const unsigned element = 2 * shim_lane() + i;
        const ulong row = transposed ? element % 8 : element / 8,
                    column = transposed ? element / 8 : element % 8;
        to.own[i] = from[(origin.y + row) * line + origin.x + column];
    }
}

template <class T>
static inline void simdgroup_store(const shim_matrix<T> &from, T *to, ulong line, int at = __builtin_LINE()) {
    shim_warp_wait(at);
    for (unsigned i = 0; i < 2; i++) {
        const unsigned element = 2 * shim_lane() + i;
        to[element / 8 * line + element % 8] = from.own[i];
    }
}

/* d = a b + c, with sums in float. */
template <class T>
__attribute__((no_sanitize("thread"))) static inline void
simdgroup_multiply_accumulate(shim_matrix<float> &d, const shim_matrix<T> &a, const shim_matrix<T> &b,
                              const shim_matrix<float> &c, int at = __builtin_LINE()) {
    T *own = (T *)shim_lane_slot(shim_lane());
    __builtin_memcpy(own, a.own, sizeof a.own);
    __builtin_memcpy(own + 2, b.own, sizeof b.own);
    shim_warp_wait(at);
    for (unsigned i = 0; i < 2; i++) {
        const unsigned row = (2 * shim_lane() + i) / 8, column = (2 * shim_lane() + i) % 8;
        float sum = c.own[i];
        for (unsigned k = 0; k < 8; k++) {
            const T *of_a = (const T *)shim_lane_slot((row * 8 + k) / 2);
            const T *of_b = (const T *)shim_lane_slot((k * 8 + column) / 2);
            sum = fma((float)of_a[k % 2], (float)of_b[2 + column % 2], sum);
        }
        d.own[i] = sum;
    }
    shim_warp_wait(at);
}

} // namespace metal

/* The SIMD-group of a thread, which a kernel may have as an argument before the positions. */
template <> struct shim_argument<uint> {
    static constexpr uint32_t listed = 0;
    __attribute__((no_sanitize("thread"))) static uint get(void **, int, int) {
        return shim_thread_number() / 32;
    }
};

/* The last two arguments of a kernel are positions: of the threadgroup, then of the thread in it. */
template <> struct shim_argument<uint3> {
    static constexpr uint32_t listed = 0;
    __attribute__((no_sanitize("thread"))) static uint3 get(void **, int number, int count) {
        const shim_index at = number == count - 2 ? shim_block() : shim_thread();
        return uint3{at.x, at.y, at.z};
    }
};

#endif
