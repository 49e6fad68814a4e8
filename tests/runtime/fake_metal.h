/* What a test tells Metal's fake driver (fake_metal.c), and what it tells the test: its symbol `fake_mtl`. */
#ifndef FAKE_METAL_H
#define FAKE_METAL_H

#include "fake.h"
#include "gpu.h"

typedef struct fake_mtl_control {
    fake_calls f;
    int waits;    /* command buffers that were waited for */
    int borrowed; /* buffers of memory that is another's */
    int no_source;
    int takes_compiled; /* libraries */
    size_t threads[3];  /* of a threadgroup of each kernel, at most */
    shim_limits gpu;
} fake_mtl_control;

#endif
