/* What a test tells CUDA's fake driver (fake_cuda.c), and what it tells the test: its symbol `fake_cu`. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include "fake.h"

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

typedef struct fake_cu_control {
    fake_calls f;
    int depth;        /* contexts that are pushed */
    int graphs;       /* launches of one */
    int init;         /* what cuInit says, if no call fails */
    int refused_from; /* images of a higher capability are refused; 0: none */
    int refused_cubins;
    int host_memory;  /* all that is allocated is said to be in the process */
    int other_device; /* or on another device */
    int callers;      /* objects that are not the library's */
    char loaded[16];  /* the image */
    int devices;
    fake_gpu device[2];
} fake_cu_control;

#endif
