/* Kernels of a small model, by hand: what the worker's kernels.o looks like to everything that comes after it.
 * y = relu(x * scale + bias) in float32, and its sign in int8; one task per row. */
#include <stdint.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(name) JOIN(PREFIX, name)

enum { COLUMNS = 8 };

int32_t NAME(scale)(void *x_, void *scale_, void *out_, int32_t lo, int32_t hi);
int32_t NAME(bias_relu)(void *x_, void *bias_, void *out_, void *sign_, int32_t lo, int32_t hi);

int32_t NAME(scale)(void *x_, void *scale_, void *out_, int32_t lo, int32_t hi) {
    const float *x = x_;
    const float *scale = scale_;
    float *out = out_;
    for (int32_t row = lo; row < hi; row++) {
        for (int32_t i = 0; i < COLUMNS; i++) {
            out[row * COLUMNS + i] = x[row * COLUMNS + i] * scale[i];
        }
    }
    return 0;
}

int32_t NAME(bias_relu)(void *x_, void *bias_, void *out_, void *sign_, int32_t lo, int32_t hi) {
    const float *x = x_;
    const float *bias = bias_;
    float *out = out_;
    int8_t *sign = sign_;
    for (int32_t row = lo; row < hi; row++) {
        for (int32_t i = 0; i < COLUMNS; i++) {
            float y = x[row * COLUMNS + i] + bias[i];
            out[row * COLUMNS + i] = y > 0 ? y : 0;
            sign[row * COLUMNS + i] = y > 0;
        }
    }
    return 0;
}
