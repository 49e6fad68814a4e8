/* What the fake drivers of GPUs have in common: how a test makes a call fail, what it is told, and kernels,
 * those of gpu_model.h, in C. Whoever breaks a rule of the driver's reference is told so by abort(). */
#ifndef FAKE_H
#define FAKE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The start of each driver's control. */
typedef struct fake_calls {
    int entered; /* calls of any function so far */
    int calls;   /* of functions that can fail */
    int fail_at; /* the number of the call that fails; 0: none */
    int lost;    /* the device is: whatever has to do with it fails */
    int live;    /* objects that were not released */
    int waiting; /* commands that nobody has waited for */
    int launches;
    int late;        /* so often the device is not done when it is asked; -1: never */
    char failed[64]; /* the function that did */
} fake_calls;

#define RULE(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s: broken: %s\n", __func__, #condition); \
            abort(); \
        } \
    } while (0)

/* Whether this call is the one that is to fail. */
static inline int fake_fails(fake_calls *calls, const char *function) {
    calls->entered++;
    if (++calls->calls == calls->fail_at) {
        snprintf(calls->failed, sizeof calls->failed, "%s", function);
        return 1;
    }
    return 0;
}

/* Whether the device is not done yet. */
static inline int fake_late(fake_calls *calls) {
    int late = calls->late != 0;
    calls->late -= calls->late > 0;
    return late;
}

static inline void fake_scale(const float *x, const float *weights, const float *copied, float *y) {
    for (size_t i = 0; i < 1600; i++) {
        RULE(weights[i % 16] == copied[i % 16]);
        y[i] = x[i] * weights[i % 16];
    }
}

static inline void fake_total(const float *x, float *y) {
    y[0] = 0;
    for (size_t i = 0; i < 1600; i += 16) {
        y[0] += x[i];
    }
}

static inline void fake_add_total(const float *x, const float *sum, float *y) {
    for (size_t i = 0; i < 1600; i++) {
        y[i] = x[i] + sum[0];
    }
}

#endif
