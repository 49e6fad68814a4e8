/* Proves on the device that the model's results are right: the commands of the loader of other devices, with
 * the recorded data inside of the image. measure.c has the measuring one. SPDX-License-Identifier: Apache-2.0
 */
#include "check.h"

#include "firmware.h"
#include "machine.h"
#include "report.h"

enum { GUARD_BYTE = 0x5a, STACK_BYTE = 0xa5, COMMAND_LINE = 512 };

static void fill(unsigned char *to, int value, size_t nbytes) {
    for (size_t i = 0; i < nbytes; i++) {
        to[i] = (unsigned char)value;
    }
}

static int same(const char *a, const char *b) {
    while (*a != 0 && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

/* Reads a whole number up to a million; nonzero if `text` is none. */
static int read_number(const char *text, uint32_t *value) {
    *value = 0;
    for (const char *p = text; *p != 0; p++) {
        if (*p < '0' || *p > '9' || *value > 100000u) {
            return 1;
        }
        *value = *value * 10 + (uint32_t)(*p - '0');
    }
    return text[0] == 0;
}

/* ---- The stack: painted below the caller, then searched for the lowest byte that changed ---- */

static unsigned char *stack_bottom(void) {
    return (unsigned char *)firmware_stack_limit;
}

/* Nothing lies below the stack pointer: there are no interrupts here. */
__attribute__((noinline)) static void paint_stack(void) {
    unsigned char *end = stack_pointer();
    for (volatile unsigned char *p = stack_bottom(); p < end; p++) {
        *p = STACK_BYTE;
    }
}

__attribute__((noinline)) static size_t used_stack(const unsigned char *top) {
    const volatile unsigned char *p = stack_bottom();
    while (p < top && *p == STACK_BYTE) {
        p++;
    }
    return (size_t)(top - (const unsigned char *)p);
}

/* ---- verify ---- */

/* Where an output goes in `room`: behind the guard, aligned to its element and no more. */
static unsigned char *place(const ep_tensor *tensor, unsigned char *room) {
    return room + CHECK_GUARD + ep_dtype_bytes(tensor->dtype);
}

ep_status check_open(const command *what, ep_model *model, ep_session **session) {
    ep_options options = EP_OPTIONS_INIT;
    options.threads = what->threads;
    options.memory = check.memory;
    options.memory_bytes = check.memory_bytes;
    ep_status status = check.open(model);
    return status == EP_OK ? ep_session_create(model, &options, session) : status;
}

ep_status check_run(ep_session *session) {
    return ep_session_run(session, check.inputs, check.model->input_count, check.buffers,
                          check.model->output_count);
}

/* A run with memory and outputs full of garbage, the second one without a session; `stack` is what it needed
 * of it, in bytes. */
static ep_status run_poisoned(const command *what, int second, int garbage, size_t *stack) {
    ep_model model;
    ep_session *session = NULL;
    fill(check.memory, garbage, check.memory_bytes);
    for (uint32_t i = 0; i < check.model->output_count; i++) {
        const ep_tensor *tensor = &check.model->outputs[i];
        unsigned char *room = second ? check.outputs[i].second : check.outputs[i].first;
        fill(room, GUARD_BYTE, 2 * CHECK_GUARD + (size_t)tensor->nbytes + 2 * ep_dtype_bytes(tensor->dtype));
        check.buffers[i].data = place(tensor, room);
        check.buffers[i].nbytes = (size_t)tensor->nbytes;
        fill(check.buffers[i].data, garbage, check.buffers[i].nbytes);
    }
    ep_status status = second ? check.open(&model) : check_open(what, &model, &session);
    if (status == EP_OK) {
        const unsigned char *top = stack_pointer();
        paint_stack();
        status = second ? check.run_direct(&model) : check_run(session);
        *stack = used_stack(top);
    }
    ep_session_destroy(session);
    ep_model_close(&model);
    return status;
}

static int guards_intact(const ep_tensor *tensor, unsigned char *room) {
    const unsigned char *data = place(tensor, room);
    for (size_t i = 0; i < CHECK_GUARD; i++) {
        if (data[-1 - (ptrdiff_t)i] != GUARD_BYTE || data[(size_t)tensor->nbytes + i] != GUARD_BYTE) {
            return 0;
        }
    }
    return 1;
}

static int equal(const unsigned char *a, const unsigned char *b, uint64_t nbytes) {
    for (uint64_t i = 0; i < nbytes; i++) {
        if (a[i] != b[i]) {
            return 0;
        }
    }
    return 1;
}

/* Compares all outputs, prints how far off they are, and says what was found; only once, for the status comes
 * first in the object. */
static const char *judge(int print) {
    uint64_t mismatches = 0;
    int repeatable = 1;
    int intact = 1;
    for (uint32_t i = 0; i < check.model->output_count; i++) {
        const ep_tensor *tensor = &check.model->outputs[i];
        const check_output *output = &check.outputs[i];
        const unsigned char *first = place(tensor, output->first);
        comparison result = compare(tensor, first, output->expected, output->allowed);
        mismatches += result.mismatches;
        repeatable = repeatable && equal(first, place(tensor, output->second), tensor->nbytes);
        intact = intact && guards_intact(tensor, output->first) && guards_intact(tensor, output->second);
        if (print) {
            report_open(NULL, '{');
            report_text("name", tensor->name);
            report_real("max_abs_err", result.max_abs_err);
            report_real("max_abs_ref", result.max_abs_ref);
            report_real("sum_sq_err", result.sum_sq_err);
            report_real("sum_sq_ref", result.sum_sq_ref);
            report_real("atol", output->allowed.absolute);
            report_real("rtol", output->allowed.relative);
            report_number("elements", result.elements);
            report_number("mismatches", result.mismatches);
            report_close('}');
        }
    }
    return !intact ? "overrun" : !repeatable ? "unrepeatable" : mismatches != 0 ? "mismatch" : "ok";
}

static int verify(const command *what) {
    size_t stack = 0;
    ep_status status = run_poisoned(what, 0, 0xff, &stack);
    if (status == EP_OK) {
        status = run_poisoned(what, 1, 0x55, &stack);
    }
    if (status != EP_OK) {
        return report_status(status);
    }
    const char *found = judge(0);
    report_open(NULL, '{');
    report_text("status", found);
    report_open("outputs", '[');
    judge(1);
    report_close(']');
    report_number("stack_bytes", stack);
    report_number("threads", 1);
    report_close('}');
    report_end();
    return same(found, "ok") ? CHECK_DONE : CHECK_FAILED;
}

/* ---- info, check-params ---- */

static int info(const command *what) {
    (void)what;
    report_open(NULL, '{');
    report_text("status", "ok");
    report_text("name", check.model->name);
    report_text("edgepack_version", check.model->edgepack_version);
    report_number("arena_bytes", check.model->arena_bytes);
    report_number("params_bytes", check.model->params_bytes);
    report_hex("params_id", check.model->params_id, sizeof check.model->params_id);
    report_number("steps", check.model->step_count);
    report_close('}');
    report_end();
    return CHECK_DONE;
}

static int check_params(const command *what) {
    ep_model model;
    (void)what;
    ep_status status = check.open(&model);
    if (status == EP_OK) {
        status = ep_model_check_params(&model);
    }
    ep_model_close(&model);
    if (status != EP_OK) {
        report_status(status);
        return CHECK_FAILED;
    }
    report_open(NULL, '{');
    report_text("status", "ok");
    report_hex("params_id", check.model->params_id, sizeof check.model->params_id);
    report_close('}');
    report_end();
    return CHECK_DONE;
}

/* ---- The command line ---- */

static void split(char *text, command *what) {
    int inside = 0;
    what->count = 0;
    for (; *text != 0; text++) {
        if (*text == ' ') {
            *text = 0;
            inside = 0;
        } else if (!inside && what->count < CHECK_WORDS) {
            what->words[what->count++] = text;
            inside = 1;
        }
    }
}

/* The options after the program's name and the command; nonzero if one is wrong. */
static int read_options(command *what) {
    for (size_t i = 2; i < what->count; i++) {
        const char *value = i + 1 < what->count ? what->words[i + 1] : "";
        uint32_t *number = NULL;
        if (same(what->words[i], "--profile")) {
            what->profile = 1;
            continue;
        }
        if (same(what->words[i], "--instructions")) {
            what->instructions = 1;
            continue;
        }
        if (same(what->words[i], "--threads")) {
            number = &what->threads;
        } else if (same(what->words[i], "--warmup")) {
            number = &what->warmup;
        } else if (same(what->words[i], "--runs")) {
            number = &what->runs;
        }
        if (number == NULL || read_number(value, number) != 0) {
            return 1;
        }
        i++;
    }
    return 0;
}

int main(void) {
    static const struct {
        const char *name;
        int (*run)(const command *);
    } commands[] = {
        {"info", info}, {"verify", verify}, {"bench", check_bench}, {"check-params", check_params}};
    static char text[COMMAND_LINE];
    command what = {{NULL}, 0, 0, 3, 20, 0, 0};
    firmware_arguments(text, sizeof text);
    split(text, &what);
    if (read_options(&what) != 0) {
        return report_error("USAGE",
                            "An option or its value is wrong: --threads N, --warmup W, --runs R, --profile, "
                            "--instructions");
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (what.count > 1 && same(what.words[1], commands[i].name)) {
            return commands[i].run(&what);
        }
    }
    return report_error("USAGE", "A command is needed: info, verify, bench or check-params");
}
