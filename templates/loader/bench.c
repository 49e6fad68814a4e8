/* bench: how long loading, the first result and each run take, and the peak of memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader/loader.h"

#include <stdlib.h>

typedef struct benchmark {
    ep_model model;
    ep_session *session;
    tensors data;
    size_t session_bytes;
    uint64_t load_ns;
    uint64_t first_result_ns; /* from the start of the process, less the time to get the inputs */
    uint64_t *run_ns;
    uint64_t *step_ns; /* per step, all runs of it in a row */
    uint64_t *profile; /* of one run */
} benchmark;

static ep_status run_once(const benchmark *b) {
    const ep_descriptor *model = b->model.descriptor;
    return ep_session_run(b->session, b->data.run_inputs, model->input_count, b->data.outputs,
                          model->output_count);
}

static int load_inputs(benchmark *b, const command *what) {
    if (tensors_make(&b->data, what->model, 0) != 0) {
        return report_status(EP_E_NO_MEMORY);
    }
    if (what->folder != NULL) {
        return tensors_load(b->data.inputs, what->model->input_count, what->folder, "input");
    }
    tensors_fill(&b->data);
    return LOADER_OK;
}

/* Opens the model, makes a session and runs it once. */
static int first_result(benchmark *b, const command *what) {
    uint64_t before_inputs = system_now_ns();
    int result = load_inputs(b, what);
    if (result != LOADER_OK) {
        return result;
    }
    uint64_t before_load = system_now_ns();
    ep_options options = EP_OPTIONS_INIT;
    options.threads = what->threads;
    options.schedule = what->schedule;
    ep_status status = ep_model_open(what->model, what->params, &b->model);
    if (status == EP_OK) {
        status = ep_session_bytes(&b->model, &options, &b->session_bytes);
    }
    if (status == EP_OK) {
        status = ep_session_create(&b->model, &options, &b->session);
    }
    uint64_t after_load = system_now_ns();
    if (status == EP_OK) {
        status = run_once(b);
    }
    b->load_ns = after_load - before_load;
    b->first_result_ns = system_now_ns() - what->start_ns - (before_load - before_inputs);
    return status == EP_OK ? LOADER_OK : report_status(status);
}

static int measure_runs(benchmark *b, const command *what) {
    ep_status status = EP_OK;
    b->run_ns = calloc((size_t)what->runs + 1, sizeof *b->run_ns);
    if (b->run_ns == NULL) {
        return report_status(EP_E_NO_MEMORY);
    }
    for (uint64_t i = 0; i < what->warmup && status == EP_OK; i++) {
        status = run_once(b);
    }
    for (uint64_t i = 0; i < what->runs && status == EP_OK; i++) {
        uint64_t before = system_now_ns();
        status = run_once(b);
        b->run_ns[i] = system_now_ns() - before;
    }
    return status == EP_OK ? LOADER_OK : report_status(status);
}

/* How long each step takes, measured in runs of their own: reading the clock after each step slows a run. */
static int measure_steps(benchmark *b, const command *what) {
    size_t steps = b->model.descriptor->step_count;
    size_t runs = (size_t)what->runs;
    b->step_ns = calloc(steps * runs + 1, sizeof *b->step_ns);
    b->profile = calloc(steps + 1, sizeof *b->profile);
    if (b->step_ns == NULL || b->profile == NULL) {
        return report_status(EP_E_NO_MEMORY);
    }
    ep_status status = ep_session_profile(b->session, b->profile, steps);
    for (size_t i = 0; i < runs && status == EP_OK; i++) {
        status = run_once(b);
        for (size_t step = 0; step < steps; step++) {
            b->step_ns[step * runs + i] = b->profile[step];
        }
    }
    return status == EP_OK ? LOADER_OK : report_status(status);
}

static void print(const benchmark *b, const command *what) {
    size_t runs = (size_t)what->runs;
    json out = {stdout, 0};
    json_open(&out, NULL, '{');
    json_text(&out, "status", "ok");
    json_u64(&out, "threads", what->threads != 0 ? what->threads : b->model.descriptor->default_threads);
    json_real(&out, "load_ms", (double)b->load_ns / 1e6);
    json_real(&out, "first_result_ms", (double)b->first_result_ns / 1e6);
    json_open(&out, "runs_ms", '[');
    for (size_t i = 0; i < runs; i++) {
        json_real(&out, NULL, (double)b->run_ns[i] / 1e6);
    }
    json_close(&out, ']');
    json_u64(&out, "peak_rss_bytes", system_peak_rss());
    report_variant(&out, &b->model);
    json_u64(&out, "arena_bytes", b->model.descriptor->arena_bytes);
    json_u64(&out, "session_bytes", b->session_bytes);
    if (b->step_ns != NULL) {
        json_open(&out, "steps_us", '['); /* medians */
        for (size_t step = 0; step < b->model.descriptor->step_count; step++) {
            json_real(&out, NULL, (double)loader_median(b->step_ns + step * runs, runs) / 1e3);
        }
        json_close(&out, ']');
    }
    json_close(&out, '}');
    fputc('\n', stdout);
}

int command_bench(const command *what) {
    if (what->beside_count > 0) { /* in turns: nothing of what follows */
        return command_turns(what);
    }
    static const benchmark empty;
    benchmark b = empty;
    int result = first_result(&b, what);
    if (result == LOADER_OK) {
        result = measure_runs(&b, what);
    }
    if (result == LOADER_OK && what->profile) {
        result = measure_steps(&b, what);
    }
    if (result == LOADER_OK) {
        print(&b, what);
    }
    ep_session_destroy(b.session);
    ep_model_close(&b.model);
    tensors_free(&b.data);
    free(b.run_ns);
    free(b.step_ns);
    free(b.profile);
    return result;
}
