/* What check.c and measure.c know of the model, which recorded.c has, and what they give to each other.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_FIRMWARE_CHECK_H
#define EDGEPACK_FIRMWARE_CHECK_H

#include <edgepack/runtime.h>

#include "loader/compare.h"

enum { CHECK_GUARD = 64, CHECK_PROFILED = 9 }; /* bytes around outputs that nothing may change; runs */
enum { CHECK_DONE = 0, CHECK_FAILED = 1, CHECK_WORDS = 16 };

/* Recorded data, and room for results: two of each output with a guard on both sides. */
typedef struct check_output {
    const unsigned char *expected;
    unsigned char *first;
    unsigned char *second;
    tolerance allowed;
} check_output;

typedef struct check_data {
    const ep_descriptor *model;
    ep_status (*open)(ep_model *model); /* with the params of the image, or those beside it */
    /* From `inputs` to `buffers`, in `memory`, without a session. */
    ep_status (*run_direct)(const ep_model *model);
    const ep_const_buffer *inputs;
    ep_buffer *buffers; /* one for each output */
    const check_output *outputs;
    unsigned char *memory; /* of the session */
    size_t memory_bytes;
    uint64_t *step_ns; /* of one run */
    uint64_t *profile; /* CHECK_PROFILED of each step */
} check_data;

extern const check_data check;

/* The command line: its words, and its options behind the second one. */
typedef struct command {
    const char *words[CHECK_WORDS];
    size_t count;
    uint32_t threads;
    uint32_t warmup;
    uint32_t runs;
    int profile;
    int instructions;
} command;

ep_status check_open(const command *what, ep_model *model, ep_session **session);
ep_status check_run(ep_session *session); /* from `inputs` to `buffers` */

/* From the recorded inputs to `buffers`. */
ep_status check_run(ep_session *session);

/* Measures runs by the clock; or, where it was told --instructions, counts their instructions and those of
 * each step, under an emulator whose counter advances with them. Returns the program's exit status. */
int check_bench(const command *what);

#endif
