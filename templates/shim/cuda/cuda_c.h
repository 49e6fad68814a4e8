/* CUDA C as C++ of the CPU: what NVRTC has built in and kernels of edgepack use. Compiled with clang's
 * -fsanitize=thread, whose callbacks are in memory.c. SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_CUDA_C_H
#define EDGEPACK_CUDA_C_H

#include "call.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__   inline
#define __align__(nbytes) __attribute__((aligned(nbytes)))
#define __launch_bounds__(...)
/* Blocks run one after the other, so one copy does; memory.c fills it before each. */
#define __shared__      static __attribute__((section("shim_shared"), used))
#define threadIdx       (shim_thread())
#define blockIdx        (shim_block())
#define blockDim        (shim_block_size())
#define gridDim         (shim_grid_size())
#define __syncthreads() shim_barrier(__FILE__, __LINE__)

#define SHIM_BITS(name, to, from) \
    static inline to name(from value) { \
        to result; \
        __builtin_memcpy(&result, &value, sizeof result); \
        return result; \
    }
SHIM_BITS(__int_as_float, float, int)
SHIM_BITS(__float_as_int, int, float)
SHIM_BITS(__uint_as_float, float, unsigned)
SHIM_BITS(__float_as_uint, unsigned, float)
SHIM_BITS(__longlong_as_double, double, long long)
SHIM_BITS(__double_as_longlong, long long, double)

/* float16 as the instructions cvt.f32.f16 and cvt.rn.f16.f32 convert it; __CUDA_ARCH__ is not defined. */
static inline float ep_half_value(unsigned short bits) {
    _Float16 half;
    __builtin_memcpy(&half, &bits, sizeof half);
    return (float)half;
}
static inline unsigned short ep_half_bits(float value) {
    const _Float16 half = (_Float16)value;
    unsigned short bits;
    __builtin_memcpy(&bits, &half, sizeof bits);
    return bits;
}

/* As cvt.rna.tf32.f32: to the nearest number with 13 bits less, away from 0 where two are as near. */
static inline unsigned ep_tf32_bits(float value) {
    unsigned bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    if (value != value) {
        return 0x7fffe000;
    }
    return (bits & 0x7f800000) == 0x7f800000 ? bits : (bits + 0x1000) & ~0x1fffu;
}

/* No header of the C library is included: in CUDA C these are overloaded. */
#define SHIM_1(name) \
    static inline float name(float a) { \
        return __builtin_##name##f(a); \
    } \
    static inline float name##f(float a) { \
        return __builtin_##name##f(a); \
    } \
    static inline double name(double a) { \
        return __builtin_##name(a); \
    }
#define SHIM_2(name) \
    static inline float name(float a, float b) { \
        return __builtin_##name##f(a, b); \
    } \
    static inline float name##f(float a, float b) { \
        return __builtin_##name##f(a, b); \
    } \
    static inline double name(double a, double b) { \
        return __builtin_##name(a, b); \
    }
SHIM_1(acos)
SHIM_1(acosh)
SHIM_1(asin)
SHIM_1(asinh)
SHIM_1(atan)
SHIM_1(atanh)
SHIM_1(ceil)
SHIM_1(cos)
SHIM_1(cosh)
SHIM_1(erf)
SHIM_1(erfc)
SHIM_1(exp)
SHIM_1(exp2)
SHIM_1(expm1)
SHIM_1(fabs)
SHIM_1(floor)
SHIM_1(log)
SHIM_1(log10)
SHIM_1(log1p)
SHIM_1(log2)
SHIM_1(nearbyint)
SHIM_1(rint)
SHIM_1(round)
SHIM_1(sin)
SHIM_1(sinh)
SHIM_1(sqrt)
SHIM_1(tan)
SHIM_1(tanh)
SHIM_1(trunc)
SHIM_2(atan2)
SHIM_2(copysign)
SHIM_2(fmax)
SHIM_2(fmin)
SHIM_2(fmod)
SHIM_2(hypot)
SHIM_2(pow)
static inline float fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
static inline float fmaf(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
static inline double fma(double a, double b, double c) {
    return __builtin_fma(a, b, c);
}
static inline float exp10(float a) {
    return __builtin_powf(10.0f, a);
}
static inline float rsqrt(float a) {
    return 1.0f / __builtin_sqrtf(a);
}
static inline float rsqrtf(float a) {
    return 1.0f / __builtin_sqrtf(a);
}

#define isnan(x)    __builtin_isnan(x)
#define isinf(x)    __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)

#define SHIM_MIN_MAX(type) \
    static inline type min(type a, type b) { \
        return b < a ? b : a; \
    } \
    static inline type max(type a, type b) { \
        return a < b ? b : a; \
    }
SHIM_MIN_MAX(int)
SHIM_MIN_MAX(unsigned)
SHIM_MIN_MAX(long)
SHIM_MIN_MAX(unsigned long)
SHIM_MIN_MAX(long long)
SHIM_MIN_MAX(unsigned long long)
static inline float min(float a, float b) {
    return __builtin_fminf(a, b);
}
static inline float max(float a, float b) {
    return __builtin_fmaxf(a, b);
}
static inline int abs(int a) {
    return a < 0 ? -a : a;
}
static inline long long abs(long long a) {
    return a < 0 ? -a : a;
}

/* ---- Vectors ---- */

/* As vectors of the compiler, so that each is read at once, as on the GPU, which asks for its alignment. */
#define SHIM_VECTORS(type) \
    typedef type type##2 __attribute__((ext_vector_type(2))); \
    typedef type type##4 __attribute__((ext_vector_type(4))); \
    static inline type##2 make_##type##2(type x, type y) { \
        return type##2 {x, y}; \
    } \
    static inline type##4 make_##type##4(type x, type y, type z, type w) { \
        return type##4 {x, y, z, w}; \
    }
SHIM_VECTORS(float)
SHIM_VECTORS(int)
typedef unsigned uint;
SHIM_VECTORS(uint)

/* ---- Matrices ---- */

static inline float shim_tf32_value(uint bits) {
    const float value = __uint_as_float(bits);
    if ((bits & 0x1fff) != 0 && value == value) {
        shim_fail("a factor of mma.sync was not rounded to TF32");
    }
    return value;
}

/* mma.sync.m16n8k16.row.col.f32.f16.f16.f32 by the fragments of PTX ISA: lane = 4 group + t has of a the rows
 * group and group + 8 with the words t and t + 4 of their terms, of b the column group with the same words,
 * of c those rows with the columns 2 t and 2 t + 1. A word of 32 bits has two terms; of
 * m16n8k8.f32.tf32.tf32.f32 it has one, and all else is the same. */
__attribute__((no_sanitize("thread"))) static inline void shim_mma(float *c, const uint *a, const uint *b,
                                                                   int tf32, int line) {
    uint *own = (uint *)shim_lane_slot(shim_lane());
    __builtin_memcpy(own, a, 16);
    __builtin_memcpy(own + 4, b, 8);
    shim_warp_wait(line);
    const unsigned group = shim_lane() / 4, t = shim_lane() % 4;
    for (unsigned number = 0; number < 4; number++) {
        const unsigned row = group + number / 2 * 8, column = 2 * t + number % 2;
        float sum = c[number];
        for (unsigned k = 0; k < 8; k++) {
            const uint *of_a = (const uint *)shim_lane_slot(row % 8 * 4 + k % 4);
            const uint *of_b = (const uint *)shim_lane_slot(column * 4 + k % 4);
            const uint x = of_a[row / 8 + k / 4 * 2], y = of_b[4 + k / 4];
            if (tf32) {
                sum += shim_tf32_value(x) * shim_tf32_value(y);
                continue;
            }
            sum += ep_half_value((unsigned short)x) * ep_half_value((unsigned short)y);
            sum += ep_half_value((unsigned short)(x >> 16)) * ep_half_value((unsigned short)(y >> 16));
        }
        c[number] = sum;
    }
    shim_warp_wait(line);
}
/* ldmatrix.sync.aligned.m8n8.b16: lane i + 8 j says where row i of matrix j lies, 16 bytes of shared memory,
 * and lane gets of each matrix word lane % 4 of row lane / 4, which counts as its own access. */
__attribute__((no_sanitize("thread"))) static inline void shim_ldmatrix(uint *words, const void *row,
                                                                        unsigned matrices, int line) {
    __builtin_memcpy(shim_lane_slot(shim_lane()), &row, sizeof row);
    if (shim_lane() < 8 * matrices && ((unsigned long long)row % 16 != 0 || !shim_is_shared(row))) {
        shim_fail("a row of ldmatrix is not at a multiple of 16 bytes of shared memory");
    }
    shim_warp_wait(line);
    for (unsigned j = 0; j < matrices; j++) {
        const uint *from;
        __builtin_memcpy(&from, shim_lane_slot(j * 8 + shim_lane() / 4), sizeof from);
        from += shim_lane() % 4;
        shim_access(from, sizeof *from, 0);
        words[j] = *from;
    }
    shim_warp_wait(line);
}
#define LDMATRIX_4(words, row) shim_ldmatrix(&(words)[0], row, 4, __LINE__)
#define LDMATRIX_2(words, row) shim_ldmatrix(&(words)[0], row, 2, __LINE__)

/* cp.async, and the groups of it; with -DCOPIES_ASYNC=0 the text is as for compute capability 7.5. */
#if !defined(COPIES_ASYNC)
#define COPIES_ASYNC 1
#endif
#if COPIES_ASYNC
__attribute__((no_sanitize("thread"))) static inline void ep_copy_16(void *to, const void *from, int inside) {
    if (!shim_is_shared(to) || (inside && shim_is_shared(from))) {
        shim_fail("an asynchronous copy is not from global to shared memory");
    }
    shim_copy_begin(to, from, inside);
}
#define COPIES_END            shim_copy_group()
#define COPIES_ARRIVED(count) shim_copy_wait(count)
#endif

#define ep_mma(c, a, b)      shim_mma(c, a, b, 0, __LINE__)
#define ep_mma_tf32(c, a, b) shim_mma(c, a, b, 1, __LINE__)

#endif
