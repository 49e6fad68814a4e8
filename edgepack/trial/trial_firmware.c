/* A small program around trial_library.c for a device without an operating system: see trial_program.c. */
#include <stddef.h>

int edgepack_trial(float *out, const float *in, size_t count);

int main(void)
{
    static float values[8];

    return edgepack_trial(values, values + 4, 4);
}
