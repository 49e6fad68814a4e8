/* What check.c knows of the model: recorded.c has it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_FIRMWARE_CHECK_H
#define EDGEPACK_FIRMWARE_CHECK_H

#include <edgepack/runtime.h>

#include "loader/compare.h"

enum { CHECK_GUARD = 64, CHECK_PROFILED = 9 }; /* bytes around outputs that nothing may change; runs */

/* Recorded data, and room for results: two of each output with a guard on both sides. */
typedef struct check_output {
    const unsigned char *expected;
    unsigned char *first;
    unsigned char *second;
    tolerance allowed;
} check_output;

typedef struct check_data {
    const ep_descriptor *model;
    ep_status (*run_direct)(void); /* from `inputs` to `buffers`, in `memory`, without a session */
    const ep_const_buffer *inputs;
    ep_buffer *buffers; /* one for each output */
    const check_output *outputs;
    unsigned char *memory; /* of the session */
    size_t memory_bytes;
    uint64_t *step_ns; /* of one run */
    uint64_t *profile; /* CHECK_PROFILED of each step */
} check_data;

extern const check_data check;

#endif
