/* A small program around trial_library.c, with a thread: what `edgepack doctor` links to try a toolchain out. */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

int edgepack_trial(float *out, const float *in, size_t count);

static void *work(void *data)
{
    float *values = data;

    edgepack_trial(values, values + 4, 4);
    return NULL;
}

int main(void)
{
    float values[8] = {0};
    pthread_t thread;

    if (pthread_create(&thread, NULL, work, values) != 0 || pthread_join(thread, NULL) != 0) {
        return 1;
    }
    printf("%g %g %g %g\n", (double)values[0], (double)values[1], (double)values[2], (double)values[3]);
    return 0;
}
