/* The command bench: times by the clock, or counts of instructions under an emulator.
 * SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "firmware.h"
#include "machine.h"
#include "report.h"

/* ---- Instructions ---- */

/* Ticks of the board's counter: of a thousand instructions, a whole number that is at least 1000; and what is
 * between two calls of the clock. */
typedef struct scale {
    uint32_t thousand;
    uint64_t clock;
} scale;

static uint64_t rounded(uint64_t value, uint32_t divisor) {
    return (value + divisor / 2) / divisor;
}

static uint64_t ticks_of_a_million(void) {
    uint64_t before = edgepack_now_ns();
    million_instructions();
    return edgepack_now_ns() - before;
}

/* Nonzero where the counter does not advance with instructions. */
static int find_scale(scale *found) {
    uint64_t once = rounded(ticks_of_a_million(), 1000);
    uint64_t again = rounded(ticks_of_a_million(), 1000);
    uint64_t before = edgepack_now_ns();
    found->clock = edgepack_now_ns() - before;
    found->thousand = (uint32_t)(once < again ? once : again); /* the clock's own instructions are in both */
    return once + 1 < again || again + 1 < once || found->thousand < 1000;
}

/* The instructions between two calls of the clock, without its own. */
static uint64_t instructions(const scale *scale, uint64_t ticks) {
    uint64_t all = rounded(ticks * 1000, scale->thousand);
    uint64_t own = rounded(scale->clock * 1000, scale->thousand);
    return all > own ? all - own : 0;
}

/* ---- Times ---- */

static uint64_t median(uint64_t *values, size_t count) {
    for (size_t i = 1; i < count; i++) {
        for (size_t j = i; j > 0 && values[j - 1] > values[j]; j--) {
            uint64_t larger = values[j - 1];
            values[j - 1] = values[j];
            values[j] = larger;
        }
    }
    return values[count / 2];
}

/* A time in units of so many ns, or instructions where there is a scale. */
static void report_measured(const char *key, const scale *scale, uint64_t ticks, double unit_ns) {
    if (scale != NULL) {
        report_number(key, instructions(scale, ticks));
    } else {
        report_real(key, (double)ticks / unit_ns);
    }
}

static ep_status report_steps(ep_session *session, const scale *scale) {
    uint32_t steps = check.model->step_count;
    size_t runs = scale != NULL ? 1 : CHECK_PROFILED;
    ep_status status = ep_session_profile(session, check.step_ns, steps);
    for (size_t i = 0; i < runs && status == EP_OK; i++) {
        status = check_run(session);
        for (uint32_t step = 0; step < steps; step++) {
            check.profile[step * CHECK_PROFILED + i] = check.step_ns[step];
        }
    }
    report_open(scale != NULL ? "step_instructions" : "steps_us", '[');
    for (uint32_t step = 0; step < steps && status == EP_OK; step++) {
        report_measured(NULL, scale, median(&check.profile[step * CHECK_PROFILED], runs), 1e3);
    }
    report_close(']');
    return status;
}

static int measure(const command *what, const scale *scale) {
    ep_model model;
    ep_session *session = NULL;
    size_t session_bytes = 0;
    uint64_t start = edgepack_now_ns();
    ep_status status = check_open(what, &model, &session);
    uint64_t loaded = edgepack_now_ns();
    if (status == EP_OK) {
        status = check_run(session);
    }
    uint64_t first = edgepack_now_ns();
    for (uint32_t i = 0; i < what->warmup && status == EP_OK; i++) {
        status = check_run(session);
    }
    if (status != EP_OK) {
        return report_status(status);
    }
    ep_session_bytes(&model, NULL, &session_bytes);
    report_open(NULL, '{');
    report_text("status", "ok");
    report_number("threads", 1);
    report_measured(scale != NULL ? "load_instructions" : "load_ms", scale, loaded - start, 1e6);
    if (scale == NULL) {
        report_real("first_result_ms", (double)(first - start) / 1e6);
    }
    report_open(scale != NULL ? "run_instructions" : "runs_ms", '[');
    for (uint32_t i = 0; i < what->runs; i++) {
        uint64_t before = edgepack_now_ns();
        check_run(session);
        report_measured(NULL, scale, edgepack_now_ns() - before, 1e6);
    }
    report_close(']');
    report_number("peak_rss_bytes", 0);
    report_number("arena_bytes", check.model->arena_bytes);
    report_number("session_bytes", session_bytes);
    if (what->profile || scale != NULL) {
        report_steps(session, scale);
    }
    report_close('}');
    report_end();
    ep_session_destroy(session);
    ep_model_close(&model);
    return CHECK_DONE;
}

int check_bench(const command *what) {
    scale scale = {0, 0};
    for (uint32_t i = 0; i < check.model->output_count; i++) {
        check.buffers[i].data = check.outputs[i].first;
        check.buffers[i].nbytes = (size_t)check.model->outputs[i].nbytes;
    }
    if (!what->instructions) {
        return measure(what, NULL);
    }
    firmware_count_instructions();
    if (find_scale(&scale) != 0) {
        return report_error("COUNTER",
                            "The board's counter does not advance with instructions: qemu needs -icount");
    }
    return measure(what, &scale);
}
