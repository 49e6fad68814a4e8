/* What a test tells CUDA's fake driver (fake_cuda.c), and what it tells the test: its symbol `fake_cu`. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef struct fake_gpu {
    const char *name;
    int capability; /* 10 * major + minor */
    int threads;    /* of a block */
    int block[3];
    int grid[3];
    int shared_bytes;
    int kernel_threads[3]; /* of a block of each kernel */
    size_t total_bytes;
} fake_gpu;

typedef struct fake_control {
    int entered; /* calls of any function so far */
    int calls;   /* of functions that can fail */
    int fail_at; /* the number of the call that fails; 0: none */
    int lost;    /* a kernel failed: whatever has to do with the context fails */
    int live;    /* objects that were not released */
    int waiting; /* commands that nobody has waited for */
    int depth;   /* contexts that are current */
    int launches;
    int graphs;       /* launches of one */
    int init;         /* what cuInit says, if no call fails */
    int refused_from; /* images of a higher capability are refused; 0: none */
    int refused_cubins;
    char failed[32];
    char loaded[16]; /* the image */
    int devices;
    fake_gpu device[2];
} fake_control;

#endif
