/* A small library of the kind that a bundle has: what `edgepack doctor` compiles to try a toolchain out. It
 * includes no header of a C library, for firmware may have none. */
#include <stddef.h>

__attribute__((visibility("default"))) int edgepack_trial(float *out, const float *in, size_t count);

float expf(float x);
void *memcpy(void *to, const void *from, size_t nbytes);

static const float weights[4] __attribute__((aligned(64))) = {1.0f, 2.0f, 3.0f, 4.0f};

int edgepack_trial(float *out, const float *in, size_t count)
{
    size_t i;

    memcpy(out, in, count * sizeof *out);
    for (i = 0; i < count; i++) {
        out[i] = expf(out[i]) * weights[i % 4];
    }
    return 0;
}
