/* What a test tells Metal's fake driver (fake_metal.c), and what it tells the test: its symbol `fake_mtl`. */
#ifndef FAKE_METAL_H
#define FAKE_METAL_H

#include "gpu.h"

typedef struct fake_control {
    int entered; /* calls of any function so far */
    int calls;   /* of functions that can fail */
    int fail_at; /* the number of the call that fails; 0: none */
    int lost;    /* whatever the GPU does fails */
    int launches;
    int waits;    /* command buffers that were waited for */
    int borrowed; /* buffers of memory that is another's */
    int no_source;
    int takes_compiled; /* libraries */
    char failed[64];
    size_t threads[3]; /* of a threadgroup of each kernel, at most */
    shim_limits gpu;
    int (*live)(void); /* objects that were not released */
} fake_control;

#endif
