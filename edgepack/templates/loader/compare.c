/* Compares an output with what was recorded.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader/loader.h"

#include <math.h>
#include <string.h>

static double from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double from_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half >> 15);
    uint32_t exponent = (uint32_t)(half >> 10) & 31u;
    uint32_t fraction = half & 1023u;
    double value;
    if (exponent == 31) {
        value = fraction != 0 ? (double)NAN : (double)INFINITY;
    } else if (exponent == 0) {
        value = ldexp((double)fraction, -24);
    } else {
        value = ldexp((double)(fraction + 1024u), (int)exponent - 25);
    }
    return sign ? -value : value;
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
    double wide;
    switch (dtype) {
    case EP_FLOAT16:
        return from_half((uint16_t)bits);
    case EP_BFLOAT16:
        return from_bits((uint32_t)bits << 16);
    case EP_FLOAT32:
        return from_bits((uint32_t)bits);
    case EP_FLOAT64:
        memcpy(&wide, &bits, sizeof wide);
        return wide;
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
    if (isnan(real_a) && isnan(real_b)) {
        return 0;
    }
    if (!isfinite(real_a) || !isfinite(real_b)) {
        return real_a == real_b ? 0 : (double)INFINITY;
    }
    return fabs(real_a - real_b);
}

comparison compare(const ep_tensor *tensor, const void *value, const void *reference, tolerance allowed) {
    comparison result = {0, 0, 0, 0};
    size_t size = ep_dtype_bytes(tensor->dtype);
    result.elements = tensor->nbytes / size;
    for (uint64_t i = 0; i < result.elements; i++) {
        uint64_t a = load(value, i, size);
        uint64_t b = load(reference, i, size);
        double real_a = to_real(tensor->dtype, a);
        double real_b = to_real(tensor->dtype, b);
        double error = distance(tensor->dtype, a, b, real_a, real_b);
        double magnitude = isfinite(real_b) ? fabs(real_b) : 0;
        result.max_abs_err = error > result.max_abs_err ? error : result.max_abs_err;
        result.max_abs_ref = magnitude > result.max_abs_ref ? magnitude : result.max_abs_ref;
        result.mismatches += error > allowed.absolute + allowed.relative * magnitude;
    }
    return result;
}
