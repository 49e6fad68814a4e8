/* Functions of the C library that kernels may call and that are in no library where the compiler comes
 * without one (zig brings the others). They compute in double precision with a few operations: right to the
 * last bit or two, small, and slow, for kernels seldom call them. SPDX-License-Identifier: Apache-2.0 */
#if defined(__has_include)
#if __has_include(<math.h>)
#define FIRMWARE_HAS_LIBRARY 1
#endif
#endif

#if defined(FIRMWARE_HAS_LIBRARY)

typedef int firmware_library_is_the_compilers; /* ISO C wants a declaration */

#else

#include <stdint.h>

double exp(double x);
double log(double x);
double sqrt(double x);

float acosf(float x);
float acoshf(float x);
float asinf(float x);
float asinhf(float x);
float atan2f(float y, float x);
float atanf(float x);
float atanhf(float x);
float coshf(float x);
float erff(float x);
float expm1f(float x);
float ldexpf(float x, int power);
float log1pf(float x);
float nearbyintf(float x);
float powf(float x, float y);
float rintf(float x);
float roundevenf(float x);
float sinhf(float x);
float tanhf(float x);

static const double pi = 3.14159265358979323846;

/* For |x| below this, functions take the first terms of their series: formulas for larger x would cancel. */
static const double tiny = 1e-4;

/* |x|; +0 for -0. */
static double absolute(double x) {
    return x > 0 ? x : 0 - x;
}

static int negative(float x) {
    union {
        float value;
        uint32_t bits;
    } pun;
    pun.value = x;
    return pun.bits >> 31 != 0;
}

/* For a >= 0: the argument brought below tan(pi / 12), then the Taylor series; error 1e-13. */
static double arctangent(double a) {
    const double root = 1.73205080756887729353; /* of 3 */
    double offset = 0;
    int inverse = a > 1;
    double x = inverse ? 1 / a : a;
    if (x > 0.26794919243112270647) {
        offset = pi / 6;
        x = (x * root - 1) / (x + root);
    }
    double power = x;
    double sum = 0;
    for (int n = 1; n < 25; n += 2) {
        sum += (n & 2 ? -power : power) / n;
        power *= x * x;
    }
    sum += offset;
    return inverse ? pi / 2 - sum : sum;
}

float atanf(float x) {
    return (float)(x < 0 ? -arctangent(-(double)x) : x > 0 ? arctangent(x) : (double)x);
}

float asinf(float x) {
    double a = absolute(x);
    double y = a < tiny ? a + a * a * a / 6 : arctangent(a / sqrt((1 - a) * (1 + a)));
    return (float)(negative(x) ? -y : y);
}

float acosf(float x) {
    return (float)(2 * arctangent(sqrt((1 - (double)x) / (1 + (double)x))));
}

float atan2f(float y, float x) {
    double a = absolute(x);
    double b = absolute(y);
    if (x != x || y != y) {
        return x + y;
    }
    double angle = b == 0 ? 0 : a == b ? pi / 4 : arctangent(b / a);
    angle = negative(x) ? pi - angle : angle;
    return (float)(negative(y) ? -angle : angle);
}

float expm1f(float x) {
    double d = x;
    return (float)(absolute(d) < tiny ? d * (1 + d / 2 + d * d / 6) : exp(d) - 1);
}

float log1pf(float x) {
    double d = x;
    return (float)(absolute(d) < tiny ? d - d * d / 2 + d * d * d / 3 : log(1 + d));
}

float sinhf(float x) {
    double d = x;
    double up = exp(d);
    return (float)(absolute(d) < tiny ? d + d * d * d / 6 : (up - 1 / up) / 2);
}

float coshf(float x) {
    double up = exp(x);
    return (float)((up + 1 / up) / 2);
}

float tanhf(float x) {
    double d = x;
    if (absolute(d) < tiny) {
        return (float)(d * (1 - d * d / 3));
    }
    return (float)(d > 20 ? 1 : d < -20 ? -1 : 1 - 2 / (exp(2 * d) + 1));
}

float asinhf(float x) {
    double a = absolute(x);
    double y = a < tiny ? a - a * a * a / 6 : log(a + sqrt(a * a + 1));
    return (float)(negative(x) ? -y : y);
}

float acoshf(float x) {
    double d = x;
    return (float)log(d + sqrt(d - 1) * sqrt(d + 1)); /* NaN below 1 */
}

float atanhf(float x) {
    double d = x;
    return (float)(absolute(d) < tiny ? d + d * d * d / 3 : log((1 + d) / (1 - d)) / 2);
}

/* erf(a) = 2 / sqrt(pi) exp(-a**2) sum of 2**n a**(2n+1) / (2n+1)!!: nothing cancels. */
float erff(float x) {
    const double scale = 1.12837916709551257390;
    double a = absolute(x);
    double sum = 0;
    double term = a;
    if (a < tiny) {
        return (float)(scale * (double)x * (1 - a * a / 3));
    }
    if (a > 4) {
        return x > 0 ? 1.0f : -1.0f;
    }
    for (int n = 1; term > 1e-12 * sum; n += 2) {
        sum += term;
        term *= 2 * a * a / (n + 2);
    }
    double y = x != x ? (double)x : scale * exp(-a * a) * sum;
    return (float)(x < 0 ? -y : y);
}

/* To the nearest whole number, halves to the even one. */
float rintf(float x) {
    const float whole = 8388608.0f; /* 2**23: from here on there are no fractions */
    float a = negative(x) ? -x : x;
    if (!(a < whole)) {
        return x;
    }
    volatile float shifted = a + whole;
    a = shifted - whole;
    return negative(x) ? -a : a;
}

float nearbyintf(float x) {
    return rintf(x);
}

float roundevenf(float x) {
    return rintf(x);
}

float ldexpf(float x, int power) {
    union {
        uint64_t bits;
        double value;
    } scale;
    int bounded = power > 300 ? 300 : power < -300 ? -300 : power;
    scale.bits = (uint64_t)(bounded + 1023) << 52;
    return (float)((double)x * scale.value);
}

float powf(float x, float y) {
    float a = negative(x) ? -x : x;
    if (y == 0 || x == 1) {
        return 1;
    }
    if (x != x || y != y) {
        return x + y;
    }
    int whole = rintf(y) == y;
    int odd = whole && rintf(y / 2) != y / 2;
    if (negative(x) && !whole && a > 0 && a - a == 0) {
        return (x - x) / (x - x);
    }
    double result = a == 1 ? 1 : exp((double)y * log(a));
    return (float)(negative(x) && odd ? -result : result);
}

#endif
