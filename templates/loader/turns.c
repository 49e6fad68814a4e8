/* bench --beside: several variants of the library, measured in turns. What slows the machine down for a while
 * slows all of them, so their ratios are steadier than their times.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader/loader.h"

#include <stdlib.h>

enum { LEAST_TURNS = 7 }; /* however long they take */

typedef struct side {
    ep_model model;
    uint64_t *turn_ns; /* per turn, the median of its runs */
    uint64_t *step_ns; /* per turn, per step: the same; null without --profile */
} side;

typedef struct turns {
    const command *what;
    tensors data;
    side *sides;
    size_t count;
    size_t done;  /* turns */
    void *memory; /* of one session at a time, so that all compute at the same place */
    size_t memory_bytes;
    uint64_t *run_ns;  /* of one side's runs in a turn */
    uint64_t *profile; /* of one run */
    uint64_t *samples; /* per step, all runs of it in a row */
} turns;

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

uint64_t loader_median(uint64_t *values, size_t count) {
    qsort(values, count, sizeof *values, by_size);
    return values[count / 2];
}

static size_t steps_of(const side *s) {
    return s->model.descriptor->step_count;
}

static ep_options options_of(const turns *t) {
    ep_options options = EP_OPTIONS_INIT;
    options.threads = t->what->threads;
    options.schedule = t->what->schedule;
    options.memory = t->memory;
    options.memory_bytes = t->memory_bytes;
    return options;
}

/* Opens all variants; memory is what the largest session needs. */
static ep_status open_sides(turns *t) {
    ep_status status = EP_OK;
    for (size_t i = 0; i < t->count && status == EP_OK; i++) {
        const ep_descriptor *model = i == 0 ? t->what->model : t->what->beside[i - 1];
        ep_options options = options_of(t);
        size_t needed = 0;
        status = ep_model_open(model, t->what->params, &t->sides[i].model);
        if (status == EP_OK) {
            status = ep_session_bytes(&t->sides[i].model, &options, &needed);
        }
        t->memory_bytes = needed > t->memory_bytes ? needed : t->memory_bytes;
    }
    return status;
}

static int make_room(turns *t) {
    size_t runs = (size_t)t->what->runs;
    size_t count = (size_t)t->what->turns;
    size_t most = 0;
    for (size_t i = 0; i < t->count; i++) {
        size_t steps = steps_of(&t->sides[i]);
        t->sides[i].turn_ns = calloc(count + 1, sizeof(uint64_t));
        t->sides[i].step_ns = t->what->profile ? calloc(count * steps + 1, sizeof(uint64_t)) : NULL;
        if (t->sides[i].turn_ns == NULL || (t->what->profile && t->sides[i].step_ns == NULL)) {
            return 1;
        }
        most = steps > most ? steps : most;
    }
    t->memory = malloc(t->memory_bytes + 1);
    t->run_ns = calloc(runs + 1, sizeof(uint64_t));
    t->profile = calloc(most + 1, sizeof(uint64_t));
    t->samples = calloc(t->what->profile ? most * runs + 1 : 1, sizeof(uint64_t));
    return t->memory == NULL || t->run_ns == NULL || t->profile == NULL || t->samples == NULL;
}

static ep_status run_once(const turns *t, ep_session *session) {
    const ep_descriptor *model = t->what->model;
    return ep_session_run(session, t->data.run_inputs, model->input_count, t->data.outputs,
                          model->output_count);
}

static ep_status measure_runs(turns *t, const side *s, ep_session *session) {
    size_t steps = steps_of(s);
    size_t runs = (size_t)t->what->runs;
    ep_status status = EP_OK;
    if (t->what->profile && steps > 0) {
        status = ep_session_profile(session, t->profile, steps);
    }
    for (uint64_t i = 0; i < t->what->warmup && status == EP_OK; i++) {
        status = run_once(t, session);
    }
    for (size_t i = 0; i < runs && status == EP_OK; i++) {
        uint64_t before = system_now_ns();
        status = run_once(t, session);
        t->run_ns[i] = system_now_ns() - before;
        for (size_t step = 0; t->what->profile && step < steps; step++) {
            t->samples[step * runs + i] = t->profile[step];
        }
    }
    return status;
}

/* One variant's runs of one turn, in a session of their own: its threads start awake, whoever ran before. */
static ep_status take_turn(turns *t, side *s, size_t turn) {
    ep_options options = options_of(t);
    ep_session *session = NULL;
    size_t runs = (size_t)t->what->runs;
    ep_status status = ep_session_create(&s->model, &options, &session);
    if (status == EP_OK) {
        status = measure_runs(t, s, session);
    }
    ep_session_destroy(session);
    s->turn_ns[turn] = loader_median(t->run_ns, runs);
    for (size_t step = 0; s->step_ns != NULL && step < steps_of(s); step++) {
        s->step_ns[turn * steps_of(s) + step] = loader_median(t->samples + step * runs, runs);
    }
    return status;
}

/* There and back: nobody is always the first one, or behind the same one. */
static ep_status measure(turns *t) {
    ep_status status = EP_OK;
    uint64_t end = system_now_ns() + t->what->seconds * UINT64_C(1000000000);
    for (size_t turn = 0; turn < t->what->turns && status == EP_OK; turn++) {
        if (turn >= LEAST_TURNS && t->what->seconds != 0 && system_now_ns() >= end) {
            break;
        }
        for (size_t i = 0; i < t->count && status == EP_OK; i++) {
            status = take_turn(t, &t->sides[turn % 2 == 0 ? i : t->count - 1 - i], turn);
        }
        t->done = turn + 1;
    }
    return status;
}

static void print_side(json *out, const side *s, size_t count) {
    json_open(out, NULL, '{');
    json_text(out, "name", s->model.descriptor->variant);
    json_open(out, "runs_ms", '[');
    for (size_t turn = 0; turn < count; turn++) {
        json_real(out, NULL, (double)s->turn_ns[turn] / 1e6);
    }
    json_close(out, ']');
    if (s->step_ns != NULL) {
        json_open(out, "steps_us", '[');
        for (size_t turn = 0; turn < count; turn++) {
            json_open(out, NULL, '[');
            for (size_t step = 0; step < steps_of(s); step++) {
                json_real(out, NULL, (double)s->step_ns[turn * steps_of(s) + step] / 1e3);
            }
            json_close(out, ']');
        }
        json_close(out, ']');
    }
    json_close(out, '}');
}

static void print(const turns *t) {
    uint32_t threads = t->what->threads;
    json out = {stdout, 0};
    json_open(&out, NULL, '{');
    json_text(&out, "status", "ok");
    json_u64(&out, "threads", threads != 0 ? threads : t->what->model->default_threads);
    json_open(&out, "variants", '[');
    for (size_t i = 0; i < t->count; i++) {
        print_side(&out, &t->sides[i], t->done);
    }
    json_close(&out, ']');
    json_close(&out, '}');
    fputc('\n', stdout);
}

static int prepare(turns *t) {
    const command *what = t->what;
    t->sides = calloc(t->count, sizeof *t->sides);
    if (t->sides == NULL || tensors_make(&t->data, what->model, 0) != 0) {
        return report_status(EP_E_NO_MEMORY);
    }
    if (what->folder == NULL) {
        tensors_fill(&t->data);
    } else if (tensors_load(t->data.inputs, what->model->input_count, what->folder, "input") != LOADER_OK) {
        return LOADER_ERROR;
    }
    ep_status status = open_sides(t);
    if (status == EP_OK && make_room(t) != 0) {
        status = EP_E_NO_MEMORY;
    }
    return status == EP_OK ? LOADER_OK : report_status(status);
}

int command_turns(const command *what) {
    static const turns empty;
    turns t = empty;
    t.what = what;
    t.count = (size_t)what->beside_count + 1;
    int result = prepare(&t);
    if (result == LOADER_OK) {
        ep_status status = measure(&t);
        result = status == EP_OK ? LOADER_OK : report_status(status);
    }
    if (result == LOADER_OK) {
        print(&t);
    }
    for (size_t i = 0; t.sides != NULL && i < t.count; i++) {
        ep_model_close(&t.sides[i].model);
        free(t.sides[i].turn_ns);
        free(t.sides[i].step_ns);
    }
    tensors_free(&t.data);
    free(t.sides);
    free(t.memory);
    free(t.run_ns);
    free(t.profile);
    free(t.samples);
    return result;
}
