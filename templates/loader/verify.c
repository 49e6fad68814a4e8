/* verify: runs the model on recorded inputs and compares its outputs with the recorded ones. Twice, with
 * memory and outputs full of other garbage each time: a result that depends on it does not repeat.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader/loader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct verification {
    ep_model model;
    tensors data;      /* inputs, and the outputs of the first run */
    tensors again;     /* outputs of the second run */
    tensors reference; /* recorded outputs */
    tolerance *tolerances;
    comparison *results;
    unsigned char *memory; /* of the session */
    size_t memory_bytes;
    ep_options options;
} verification;

static int load_tolerances(const char *folder, tolerance *to, size_t count) {
    char path[LOADER_PATH];
    size_t nbytes = 0;
    int length = snprintf(path, sizeof path, "%s/tolerances.txt", folder);
    char *text = length > 0 && (size_t)length < sizeof path ? file_read(path, &nbytes) : NULL;
    if (text == NULL) {
        return report_error("FILE", "The file cannot be read", path);
    }
    size_t wrong = tolerances_parse(text, nbytes, to, count);
    free(text);
    if (wrong != 0) {
        char line[32];
        snprintf(line, sizeof line, "line %u", (unsigned)wrong);
        return report_error("TOLERANCES", "tolerances.txt must have a line \"atol rtol\" for each output",
                            line);
    }
    return LOADER_OK;
}

static int prepare(verification *v, const command *what) {
    const ep_descriptor *model = what->model;
    ep_options options = EP_OPTIONS_INIT;
    if (tensors_make(&v->data, model, 1) || tensors_make(&v->again, model, 1) ||
        tensors_make(&v->reference, model, 0)) {
        return report_status(EP_E_NO_MEMORY);
    }
    v->tolerances = calloc((size_t)model->output_count + 1, sizeof *v->tolerances);
    v->results = calloc((size_t)model->output_count + 1, sizeof *v->results);
    if (v->tolerances == NULL || v->results == NULL) {
        return report_status(EP_E_NO_MEMORY);
    }
    if (load_tolerances(what->folder, v->tolerances, model->output_count) != LOADER_OK ||
        tensors_load(v->data.inputs, model->input_count, what->folder, "input") != LOADER_OK ||
        tensors_load(v->reference.outputs, model->output_count, what->folder, "output") != LOADER_OK) {
        return LOADER_ERROR;
    }
    ep_status status = ep_model_open(model, what->params, &v->model);
    options.threads = what->threads;
    options.schedule = what->schedule;
    if (status == EP_OK) {
        status = ep_session_bytes(&v->model, &options, &v->memory_bytes);
    }
    if (status == EP_OK) {
        v->memory = malloc(v->memory_bytes);
        status = v->memory == NULL ? EP_E_NO_MEMORY : EP_OK;
    }
    options.memory = v->memory;
    options.memory_bytes = v->memory_bytes;
    v->options = options;
    return status == EP_OK ? LOADER_OK : report_status(status);
}

static ep_status run_poisoned(verification *v, const tensors *outputs, int garbage) {
    const ep_descriptor *model = v->model.descriptor;
    ep_session *session = NULL;
    memset(v->memory, garbage, v->memory_bytes);
    for (size_t i = 0; i < model->output_count; i++) {
        memset(outputs->outputs[i].data, garbage, outputs->outputs[i].nbytes);
    }
    ep_status status = ep_session_create(&v->model, &v->options, &session);
    if (status == EP_OK) {
        status = ep_session_run(session, v->data.run_inputs, model->input_count, outputs->outputs,
                                model->output_count);
    }
    ep_session_destroy(session);
    return status;
}

static int repeats(const verification *v) {
    for (size_t i = 0; i < v->model.descriptor->output_count; i++) {
        if (memcmp(v->data.outputs[i].data, v->again.outputs[i].data, v->data.outputs[i].nbytes) != 0) {
            return 0;
        }
    }
    return 1;
}

static void print_outputs(const verification *v, json *out) {
    json_open(out, "outputs", '[');
    for (size_t i = 0; i < v->model.descriptor->output_count; i++) {
        const comparison *result = &v->results[i];
        json_open(out, NULL, '{');
        json_text(out, "name", v->model.descriptor->outputs[i].name);
        json_real(out, "max_abs_err", result->max_abs_err);
        json_real(out, "max_abs_ref", result->max_abs_ref);
        json_real(out, "sum_sq_err", result->sum_sq_err);
        json_real(out, "sum_sq_ref", result->sum_sq_ref);
        json_real(out, "atol", v->tolerances[i].absolute);
        json_real(out, "rtol", v->tolerances[i].relative);
        json_u64(out, "elements", result->elements);
        json_u64(out, "mismatches", result->mismatches);
        json_close(out, '}');
    }
    json_close(out, ']');
}

static void print_json(const verification *v, const char *status, int repeatable, int intact,
                       uint32_t threads) {
    json out = {stdout, 0};
    json_open(&out, NULL, '{');
    json_text(&out, "status", status);
    print_outputs(v, &out);
    json_bool(&out, "repeatable", repeatable);
    json_bool(&out, "within_buffers", intact);
    report_variant(&out, &v->model);
    json_u64(&out, "threads", threads);
    json_close(&out, '}');
    fputc('\n', stdout);
}

/* For a person: a line, and one more for each output that is wrong. */
static void print_in_words(const verification *v, const char *status, uint32_t threads) {
    static const char *const meanings[][2] = {
        {"ok", "the outputs are as recorded"},
        {"mismatch", "outputs differ from the recorded ones"},
        {"unrepeatable", "a second run gave other outputs"},
        {"overrun", "it wrote beside its buffers"},
    };
    const ep_descriptor *model = v->model.descriptor;
    char backend[512];
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++) {
        if (strcmp(status, meanings[i][0]) == 0) {
            printf("%s: ", i == 0 ? "ok" : "FAILED");
            print_words(model->name);
            printf(": %s", meanings[i][1]);
        }
    }
    printf("; %u thread%s", (unsigned)threads, threads == 1 ? "" : "s");
    if (ep_model_backend(&v->model, backend, sizeof backend) == EP_OK) {
        printf(", ");
        print_words(backend);
    }
    putchar('\n');
    for (size_t i = 0; i < model->output_count; i++) {
        const comparison *result = &v->results[i];
        if (result->mismatches != 0) {
            printf("  ");
            print_words(model->outputs[i].name);
            printf(": %" PRIu64 " of %" PRIu64
                   " elements are off, by %.3g at most; %.3g + %.3g of the value is allowed\n",
                   result->mismatches, result->elements, result->max_abs_err, v->tolerances[i].absolute,
                   v->tolerances[i].relative);
        }
    }
}

static int verify(verification *v, const command *what) {
    uint64_t mismatches = 0;
    int result = prepare(v, what);
    if (result != LOADER_OK) {
        return result;
    }
    ep_status status = run_poisoned(v, &v->data, 0xff);
    if (status == EP_OK) {
        status = run_poisoned(v, &v->again, 0x55);
    }
    if (status != EP_OK) {
        return report_status(status);
    }
    for (size_t i = 0; i < what->model->output_count; i++) {
        v->results[i] = compare(&what->model->outputs[i], v->data.outputs[i].data,
                                v->reference.outputs[i].data, v->tolerances[i]);
        mismatches += v->results[i].mismatches;
    }
    int repeatable = repeats(v);
    int intact = tensors_guards_intact(&v->data) && tensors_guards_intact(&v->again);
    int good = mismatches == 0 && repeatable && intact;
    const char *status_text = good ? "ok" : !intact ? "overrun" : !repeatable ? "unrepeatable" : "mismatch";
    uint32_t threads = what->threads != 0 ? what->threads : v->model.descriptor->default_threads;
    if (what->words) {
        print_in_words(v, status_text, threads);
    } else {
        print_json(v, status_text, repeatable, intact, threads);
    }
    return good ? LOADER_OK : LOADER_FAILED;
}

int command_verify(const command *what) {
    static const verification empty;
    verification v = empty;
    if (what->folder == NULL) {
        return report_error("USAGE", "verify needs the folder of the recorded data", "verify DIR");
    }
    int result = verify(&v, what);
    tensors_free(&v.data);
    tensors_free(&v.again);
    tensors_free(&v.reference);
    free(v.tolerances);
    free(v.results);
    free(v.memory);
    ep_model_close(&v.model);
    return result;
}
