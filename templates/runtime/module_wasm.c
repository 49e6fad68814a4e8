/* The WebAssembly module that JavaScript loads: the model behind functions of numbers and addresses, for a
 * header of inline functions is of no use there. It exports its memory and these functions, and imports the
 * clock alone (platform/wasm.c); compiled for threads, it imports its memory, which they share. A page writes
 * inputs to and reads outputs from the addresses that it is given; an allocation may move the memory's
 * buffer, so views of it are made anew after each.
 * SPDX-License-Identifier: Apache-2.0 */
#if !defined(__EMSCRIPTEN_PTHREADS__) /* with which it has all that POSIX has */
#define EP_PLATFORM_WASM 1
#endif
#include "model.c"

#include "loader/config.h"

/* A model with its session and buffers for its inputs and outputs. */
typedef struct ep_instance {
    ep_model model;
    ep_session *session;
    ep_const_buffer *inputs;
    ep_buffer *outputs;
    unsigned char *buffers;
} ep_instance;

/* Memory for params or recorded data, aligned to 64 bytes; null if there is none. */
EP_EXPORT void *ep_allocate(size_t nbytes);
EP_EXPORT void ep_release(void *memory);

/* Makes an instance. `params` are the bytes of a params file in memory of ep_allocate, which stay until
 * ep_destroy; null for the embedded ones. `check` hashes them. `threads` compute; 0: as many as the device's
 * profile says. *status says what went wrong if null returns. */
EP_EXPORT ep_instance *ep_create(const void *params, size_t nbytes, int32_t check, ep_status *status,
                                 uint32_t threads);
EP_EXPORT void ep_destroy(ep_instance *instance);

/* Where an input or output lies, and its bytes; null and 0 if there is none of this index. */
EP_EXPORT const void *ep_input(const ep_instance *instance, uint32_t index);
EP_EXPORT size_t ep_input_bytes(const ep_instance *instance, uint32_t index);
EP_EXPORT const void *ep_output(const ep_instance *instance, uint32_t index);
EP_EXPORT size_t ep_output_bytes(const ep_instance *instance, uint32_t index);

/* Runs the model on what lies in its inputs. */
EP_EXPORT ep_status ep_run(ep_instance *instance);

/* From now on each run writes the ns of its steps to `step_ns`, memory for ep_steps() numbers; null: no more.
 */
EP_EXPORT ep_status ep_profile(ep_instance *instance, uint64_t *step_ns);
EP_EXPORT uint32_t ep_steps(void);

/* Bytes of the arena of a session. */
EP_EXPORT size_t ep_arena_bytes(void);

/* "EP_E_NULL", and a sentence: text that ends with a zero byte. */
EP_EXPORT const char *ep_name_of(ep_status status);
EP_EXPORT const char *ep_text_of(ep_status status);

#if defined(EP_HAVE_THREADS) && defined(EP_PLATFORM_WASM)
/* Whether the thread that runs models may sleep while it waits for others: not that of a page. */
EP_EXPORT void ep_may_sleep(int32_t may);

/* For a worker with an instance and a stack of its own, beside the thread that runs models: it computes for
 * their sessions, and never returns. If a trap ends it all the same, ep_trapped tells those that wait. */
EP_EXPORT void ep_serve(void);
EP_EXPORT void ep_trapped(void);

void ep_may_sleep(int32_t may) {
    ep_sleeps = may;
}

void ep_serve(void) {
    ep_serve_threads();
}

void ep_trapped(void) {
    EP_STORE(&ep_worker_trapped, 1u);
}
#endif

void *ep_allocate(size_t nbytes) {
    void *memory = NULL;
    return posix_memalign(&memory, EP_ALIGNMENT, nbytes) == 0 ? memory : NULL;
}

void ep_release(void *memory) {
    free(memory);
}

static size_t ep_padded(uint64_t nbytes) {
    return ((size_t)nbytes + EP_ALIGNMENT - 1) / EP_ALIGNMENT * EP_ALIGNMENT;
}

/* One block for all inputs and outputs. */
static ep_status ep_make_buffers(ep_instance *instance) {
    const ep_descriptor *model = &LOADER_MODEL;
    size_t total = 0;
    for (uint32_t i = 0; i < model->input_count; i++) {
        total += ep_padded(model->inputs[i].nbytes);
    }
    for (uint32_t i = 0; i < model->output_count; i++) {
        total += ep_padded(model->outputs[i].nbytes);
    }
    instance->buffers = ep_allocate(total);
    instance->inputs = calloc((size_t)model->input_count + 1, sizeof *instance->inputs);
    instance->outputs = calloc((size_t)model->output_count + 1, sizeof *instance->outputs);
    if (instance->buffers == NULL || instance->inputs == NULL || instance->outputs == NULL) {
        return EP_E_NO_MEMORY;
    }
    unsigned char *next = instance->buffers;
    for (uint32_t i = 0; i < model->input_count; i++) {
        instance->inputs[i].data = next;
        instance->inputs[i].nbytes = (size_t)model->inputs[i].nbytes;
        next += ep_padded(model->inputs[i].nbytes);
    }
    for (uint32_t i = 0; i < model->output_count; i++) {
        instance->outputs[i].data = next;
        instance->outputs[i].nbytes = (size_t)model->outputs[i].nbytes;
        next += ep_padded(model->outputs[i].nbytes);
    }
    return EP_OK;
}

static ep_status ep_fill_instance(ep_instance *instance, const void *params, size_t nbytes, int32_t check,
                                  uint32_t threads) {
    ep_options options = EP_OPTIONS_INIT;
    options.threads = threads;
    ep_status status = params == NULL ? ep_model_open(&LOADER_MODEL, NULL, &instance->model)
                                      : ep_model_open_memory(&LOADER_MODEL, params, nbytes, &instance->model);
    if (status == EP_OK && check != 0) {
        status = ep_model_check_params(&instance->model);
    }
    if (status == EP_OK) {
        status = ep_make_buffers(instance);
    }
    return status == EP_OK ? ep_session_create(&instance->model, &options, &instance->session) : status;
}

ep_instance *ep_create(const void *params, size_t nbytes, int32_t check, ep_status *status,
                       uint32_t threads) {
    ep_instance *instance = calloc(1, sizeof *instance);
    *status = instance == NULL ? EP_E_NO_MEMORY : ep_fill_instance(instance, params, nbytes, check, threads);
    if (*status != EP_OK) {
        ep_destroy(instance);
        return NULL;
    }
    return instance;
}

void ep_destroy(ep_instance *instance) {
    if (instance == NULL) {
        return;
    }
    ep_session_destroy(instance->session);
    ep_model_close(&instance->model);
    free(instance->outputs);
    free(instance->inputs);
    free(instance->buffers);
    free(instance);
}

const void *ep_input(const ep_instance *instance, uint32_t index) {
    return index < LOADER_MODEL.input_count ? instance->inputs[index].data : NULL;
}

size_t ep_input_bytes(const ep_instance *instance, uint32_t index) {
    return index < LOADER_MODEL.input_count ? instance->inputs[index].nbytes : 0;
}

const void *ep_output(const ep_instance *instance, uint32_t index) {
    return index < LOADER_MODEL.output_count ? instance->outputs[index].data : NULL;
}

size_t ep_output_bytes(const ep_instance *instance, uint32_t index) {
    return index < LOADER_MODEL.output_count ? instance->outputs[index].nbytes : 0;
}

ep_status ep_run(ep_instance *instance) {
    return ep_session_run(instance->session, instance->inputs, LOADER_MODEL.input_count, instance->outputs,
                          LOADER_MODEL.output_count);
}

ep_status ep_profile(ep_instance *instance, uint64_t *step_ns) {
    return ep_session_profile(instance->session, step_ns, step_ns == NULL ? 0 : LOADER_MODEL.step_count);
}

uint32_t ep_steps(void) {
    return LOADER_MODEL.step_count;
}

size_t ep_arena_bytes(void) {
    return (size_t)LOADER_MODEL.arena_bytes;
}

const char *ep_name_of(ep_status status) {
    return ep_status_name(status);
}

const char *ep_text_of(ep_status status) {
    return ep_status_string(status);
}
