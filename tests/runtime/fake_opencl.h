/* What a test tells the fake OpenCL driver (fake_opencl.c), and what it tells the test: its symbol `fake_cl`.
 */
#ifndef FAKE_OPENCL_H
#define FAKE_OPENCL_H

#include "fake.h"

typedef struct fake_device {
    const char *name;
    uint32_t platform;
    uint32_t gpu;
    uint32_t available;
    uint32_t compiler;
    uint32_t little_endian;
    uint32_t align_bits;
    uint64_t local_bytes;
    uint64_t most_bytes;    /* of one buffer */
    uint64_t total_bytes;   /* of all */
    size_t group;           /* work items of a work group */
    size_t kernel_group[3]; /* the same of each kernel */
    size_t items[3];
} fake_device;

typedef struct fake_cl_control {
    fake_calls f;
    int flushes;
    int compiled;        /* programs of a text */
    int refuses;         /* binaries */
    const char *version; /* of the platform */
    const char *driver;  /* its version */
    uint32_t platforms;
    uint32_t devices;
    fake_device device[2];
} fake_cl_control;

#endif
