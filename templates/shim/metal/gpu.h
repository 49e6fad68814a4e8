/* What the driver asks of the GPU that it stands for.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_SHIM_GPU_H
#define EDGEPACK_SHIM_GPU_H

#include "shim.h"

typedef struct shim_limits {
    const char *name;
    size_t shared_bytes; /* of a threadgroup */
    size_t buffer_bytes; /* of one buffer */
    size_t total_bytes;
    unsigned family; /* of Apple's GPUs */
    int old;         /* the system does not tell how much there is in all */
    int missing;     /* there is no GPU */
} shim_limits;

const shim_limits *shim_gpu(void);

/* Threads of a threadgroup of this kernel at most. */
size_t shim_most_threads(const shim_kernel *kernel);
/* Whether it has not done what it was given when it is asked for that. */
int shim_late(void);
/* The text of which a compiled library is; null: it takes none, and is given the text instead. */
const char *shim_compiled(void);
/* Whether this is a text whose kernels it can run. */
int shim_has_source(const char *text);

#endif
