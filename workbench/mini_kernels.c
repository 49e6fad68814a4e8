/* Hand-written kernels of the test models: they keep the contract of edgepack's generated ones, so that the
 * runtime is tested without a compiler of models. PREFIX makes the symbols of two models differ. */
#include <stdint.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)
#define NAME(name)  JOIN(PREFIX, name)

enum { ROW = 16 };

int32_t NAME(scale)(void *x, void *weights, void *y, int32_t lo, int32_t hi);
int32_t NAME(blur)(void *x, void *y, void *scratch, int32_t lo, int32_t hi);
int32_t NAME(total)(void *x, void *y, int32_t lo, int32_t hi);
int32_t NAME(add_total)(void *x, void *total, void *y, int32_t lo, int32_t hi);
int32_t NAME(convert)(void *x, void *halves, void *flags, void *longs, int32_t lo, int32_t hi);
int32_t NAME(fail_if_negative)(void *x, int32_t lo, int32_t hi);

/* y[task][i] = x[task][i] * weights[i] */
int32_t NAME(scale)(void *x, void *weights, void *y, int32_t lo, int32_t hi) {
    const float *from = x;
    const float *factor = weights;
    float *to = y;
    for (int32_t i = lo * ROW; i < hi * ROW; i++) {
        to[i] = from[i] * factor[i % ROW];
    }
    return 0;
}

/* y[task][i] = x[task][i] + x[task][(i + 1) % ROW], by way of the thread's own scratch */
int32_t NAME(blur)(void *x, void *y, void *scratch, int32_t lo, int32_t hi) {
    const float *from = x;
    float *to = y;
    float *row = scratch;
    for (int32_t task = lo; task < hi; task++) {
        for (int32_t i = 0; i < ROW; i++) {
            row[i] = from[task * ROW + (i + 1) % ROW];
        }
        for (int32_t i = 0; i < ROW; i++) {
            to[task * ROW + i] = from[task * ROW + i] + row[i];
        }
    }
    return 0;
}

/* One task: y[0] = sum of the first element of each of 100 rows of x */
int32_t NAME(total)(void *x, void *y, int32_t lo, int32_t hi) {
    const float *from = x;
    float sum = 0;
    for (int32_t task = lo; task < hi; task++) {
        for (int32_t row = 0; row < 100; row++) {
            sum += from[row * ROW];
        }
    }
    *(float *)y = sum;
    return 0;
}

int32_t NAME(add_total)(void *x, void *total, void *y, int32_t lo, int32_t hi) {
    const float *from = x;
    float *to = y;
    for (int32_t i = lo * ROW; i < hi * ROW; i++) {
        to[i] = from[i] + *(const float *)total;
    }
    return 0;
}

/* Of the small whole numbers 0 to 3 in x: their float16 bits, whether they are odd, and themselves as int64
 */
int32_t NAME(convert)(void *x, void *halves, void *flags, void *longs, int32_t lo, int32_t hi) {
    static const uint16_t bits[4] = {0x0000, 0x3c00, 0x4000, 0x4200};
    for (int32_t i = lo; i < hi; i++) {
        int8_t value = ((const int8_t *)x)[i];
        ((uint16_t *)halves)[i] = bits[value & 3];
        ((uint8_t *)flags)[i] = value & 1;
        ((int64_t *)longs)[i] = value;
    }
    return 0;
}

/* Task i fails if x[i] is negative. */
int32_t NAME(fail_if_negative)(void *x, int32_t lo, int32_t hi) {
    for (int32_t i = lo; i < hi; i++) {
        if (((const int8_t *)x)[i] < 0) {
            return 1;
        }
    }
    return 0;
}
