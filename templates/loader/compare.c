/* Compares an output with what was recorded.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader/compare.h"

#include <float.h>

static double from_bits(uint32_t bits) {
    union {
        uint32_t bits;
        float value;
    } pun;
    pun.bits = bits;
    return (double)pun.value;
}

static double from_wide_bits(uint64_t bits) {
    union {
        uint64_t bits;
        double value;
    } pun;
    pun.bits = bits;
    return pun.value;
}

static double infinity(void) {
    return from_bits(0x7f800000u);
}

static double from_half(uint16_t half) {
    uint32_t exponent = (uint32_t)(half >> 10) & 31u;
    uint32_t fraction = half & 1023u;
    double value;
    if (exponent == 31) {
        value = fraction != 0 ? from_bits(0x7fc00000u) : infinity();
    } else if (exponent == 0) {
        value = (double)fraction / 16777216.0; /* 2**24 */
    } else {
        value = from_bits((exponent + 112u) << 23 | fraction << 13);
    }
    return half >> 15 ? -value : value;
}

static uint64_t load(const void *data, uint64_t index, size_t size) {
    const unsigned char *p = (const unsigned char *)data + (size_t)index * size;
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value |= (uint64_t)p[i] << (8 * i);
    }
    return value;
}

static double to_real(uint32_t dtype, uint64_t bits) {
    switch (dtype) {
    case EP_FLOAT16:
        return from_half((uint16_t)bits);
    case EP_BFLOAT16:
        return from_bits((uint32_t)bits << 16);
    case EP_FLOAT32:
        return from_bits((uint32_t)bits);
    case EP_FLOAT64:
        return from_wide_bits(bits);
    case EP_INT8:
        return (double)(int8_t)bits;
    case EP_INT16:
        return (double)(int16_t)bits;
    case EP_INT32:
        return (double)(int32_t)bits;
    case EP_INT64:
        return (double)(int64_t)bits;
    default:
        return (double)bits;
    }
}

static double absolute(double value) {
    return value < 0 ? -value : value;
}

static int finite(double value) {
    return absolute(value) <= DBL_MAX;
}

/* |a - b|: exact where it is small enough to matter, also between integers that double cannot tell apart. */
static double distance(uint32_t dtype, uint64_t a, uint64_t b, double real_a, double real_b) {
    if (a == b) {
        return 0;
    }
    if (dtype == EP_INT64) {
        return (int64_t)a < (int64_t)b ? (double)(b - a) : (double)(a - b);
    }
    if (dtype == EP_UINT64) {
        return a < b ? (double)(b - a) : (double)(a - b);
    }
    if (real_a != real_a && real_b != real_b) { /* both are NaN */
        return 0;
    }
    if (!finite(real_a) || !finite(real_b)) {
        return real_a == real_b ? 0 : infinity();
    }
    return absolute(real_a - real_b);
}

comparison compare(const ep_tensor *tensor, const void *value, const void *reference, tolerance allowed) {
    comparison result = {0, 0, 0, 0, 0, 0};
    size_t size = ep_dtype_bytes(tensor->dtype);
    result.elements = tensor->nbytes / size;
    for (uint64_t i = 0; i < result.elements; i++) {
        uint64_t a = load(value, i, size);
        uint64_t b = load(reference, i, size);
        double real_a = to_real(tensor->dtype, a);
        double real_b = to_real(tensor->dtype, b);
        double error = distance(tensor->dtype, a, b, real_a, real_b);
        double magnitude = finite(real_b) ? absolute(real_b) : 0;
        result.max_abs_err = error > result.max_abs_err ? error : result.max_abs_err;
        result.max_abs_ref = magnitude > result.max_abs_ref ? magnitude : result.max_abs_ref;
        result.sum_sq_err += error * error;
        result.sum_sq_ref += magnitude * magnitude;
        result.mismatches += error > allowed.absolute + allowed.relative * magnitude;
    }
    return result;
}
