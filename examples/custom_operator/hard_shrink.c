/* y = x where |x| > threshold, else 0; also counts, for each row, how many elements are kept. */
#include <stdint.h>

/* As ops.yaml declares it: inputs, outputs, then the arguments. 0 is success. */
int32_t hard_shrink(const float *x, float *y, int32_t *kept, int32_t rows, int32_t columns, float threshold) {
    for (int32_t row = 0; row < rows; row++) {
        kept[row] = 0;
        for (int32_t column = 0; column < columns; column++) {
            const float value = x[row * columns + column];
            const int keep = value > threshold || value < -threshold;
            y[row * columns + column] = keep ? value : 0.0f;
            kept[row] += keep;
        }
    }
    return 0;
}
