/* A caller with a context, a queue and memory of his own, for each kind of driver: fake ones, and OpenCL's of
 * the system. */
#ifndef CALLERS_H
#define CALLERS_H

#include "gpu_model.h"

#include <dlfcn.h>

typedef struct caller {
    void *context;
    void *queue;
    void *(*buffer)(size_t nbytes);
    void (*put)(void *buffer, size_t offset, const void *from, size_t nbytes);
    void (*get)(void *buffer, size_t offset, void *to, size_t nbytes);
    void (*release)(void *buffer);
    void (*end)(void);
} caller;

static caller ours;

static ep_open_options open_options(const char *root) {
    ep_open_options options = EP_OPEN_OPTIONS_INIT;
    options.path = path_in(root, "params/mini.params");
    options.gpu_api = gpu_program.api;
    options.gpu_context = ours.context;
    return options;
}

/* ---- OpenCL ---- */

static ep_opencl_model cl;

static void *cl_buffer(size_t nbytes) {
    int32_t error;
    void *made = cl.CreateBuffer(cl.context, EP_CL_MEM_READ_WRITE, nbytes, NULL, &error);
    CHECK(made != NULL);
    return made;
}

static void cl_put(void *buffer, size_t offset, const void *from, size_t nbytes) {
    CHECK(cl.EnqueueWriteBuffer(ours.queue, buffer, 1, offset, nbytes, from, 0, NULL, NULL) == 0);
}

static void cl_get(void *buffer, size_t offset, void *to, size_t nbytes) {
    CHECK(cl.EnqueueReadBuffer(ours.queue, buffer, 1, offset, nbytes, to, 0, NULL, NULL) == 0);
}

static void cl_release(void *buffer) {
    CHECK(cl.ReleaseMemObject(buffer) == 0);
}

static void cl_end(void) {
    CHECK(cl.ReleaseCommandQueue(ours.queue) == 0);
    CHECK(cl.ReleaseContext(cl.context) == 0);
}

/* The first device that the model's variant fits. */
static void cl_begin(void) {
    int32_t error;
    cl.head.descriptor = &gpu_alone;
    cl.head.alone = 1;
    CHECK_STATUS(ep_opencl_load(&cl), EP_OK);
    CHECK_STATUS(ep_opencl_find(&cl), EP_OK);
    cl.context = cl.CreateContext(NULL, 1, &cl.device, NULL, NULL, &error);
    CHECK(cl.context != NULL);
    caller made = {cl.context, NULL, cl_buffer, cl_put, cl_get, cl_release, cl_end};
    ours = made;
    ours.queue = cl.CreateCommandQueue(cl.context, cl.device, 0, &error);
    CHECK(ours.queue != NULL);
}

/* ---- What holds with each ---- */

enum { BUFFERS = MINI_INPUTS + MINI_OUTPUTS, GUARD = 16 };

/* The mini model's inputs and outputs with room around them, filled with what is no number. */
typedef struct there {
    void *buffers[BUFFERS];
    size_t nbytes[BUFFERS];
    ep_memory memories[BUFFERS];
} there;

static void *host_of(const data *d, int i) {
    return i < MINI_INPUTS ? (void *)(uintptr_t)d->inputs[i].data : d->outputs[i - MINI_INPUTS].data;
}

static void there_init(there *t, const data *d) {
    for (int i = 0; i < BUFFERS; i++) {
        t->nbytes[i] = i < MINI_INPUTS ? d->inputs[i].nbytes : d->outputs[i - MINI_INPUTS].nbytes;
        t->buffers[i] = ours.buffer(t->nbytes[i] + 2 * GUARD);
    }
}

static void there_release(there *t) {
    for (int i = 0; i < BUFFERS; i++) {
        ours.release(t->buffers[i]);
    }
}

/* A run's buffers: those whose bit is set are on the GPU, poisoned or with the input's numbers. */
static void there_set(there *t, data *d, unsigned mask) {
    static unsigned char poison[1 << 14];
    memset(poison, 0xff, sizeof poison);
    for (int i = 0; i < BUFFERS; i++) {
        int gpu = (int)(mask >> i & 1u);
        ep_memory memory = {gpu ? t->buffers[i] : host_of(d, i), t->nbytes[i], gpu ? GUARD : 0,
                            gpu ? EP_MEMORY_GPU : EP_MEMORY_HOST, 0};
        t->memories[i] = memory;
        if (gpu) {
            ours.put(t->buffers[i], 0, poison, t->nbytes[i] + 2 * GUARD);
            if (i < MINI_INPUTS) {
                ours.put(t->buffers[i], GUARD, host_of(d, i), t->nbytes[i]);
            }
        }
    }
    data_reset(d);
}

static ep_status there_run(there *t, ep_session *session) {
    return ep_session_run_memory(session, t->memories, MINI_INPUTS, t->memories + MINI_INPUTS, MINI_OUTPUTS);
}

/* Brings what is on the GPU to the process, and looks whether it is right, with nothing written around it. */
static void there_check(there *t, data *d) {
    unsigned char around[2 * GUARD];
    for (int i = 0; i < BUFFERS; i++) {
        if (t->memories[i].kind != EP_MEMORY_GPU) {
            continue;
        }
        if (i >= MINI_INPUTS) {
            ours.get(t->buffers[i], GUARD, host_of(d, i), t->nbytes[i]);
        }
        ours.get(t->buffers[i], 0, around, GUARD);
        ours.get(t->buffers[i], GUARD + t->nbytes[i], around + GUARD, GUARD);
        for (int j = 0; j < 2 * GUARD; j++) {
            CHECK(around[j] == 0xff);
        }
    }
    data_check(d);
}

/* Every mixture of buffers on the GPU and in the process, waited for and not, in the caller's queue. */
static void check_mixtures(const ep_model *of, data *d) {
    there t;
    there_init(&t, d);
    for (uint32_t asynchronous = 0; asynchronous < 2; asynchronous++) {
        ep_options options = EP_OPTIONS_INIT;
        ep_session *session = NULL;
        options.gpu_queue = ours.queue;
        options.gpu_memory = 1;
        options.asynchronous = asynchronous;
        CHECK_STATUS(ep_session_create(of, &options, &session), EP_OK);
        for (unsigned mask = 0; mask < 1u << BUFFERS; mask++) {
            there_set(&t, d, mask);
            memset(((ep_session_impl *)session)->context.arena, 0xff, (size_t)gpu_variant.arena_bytes);
            CHECK_STATUS(there_run(&t, session), EP_OK);
            CHECK_STATUS(ep_session_synchronize(session), EP_OK);
            there_check(&t, d);
        }
        data_reset(d); /* those of an earlier run are forgotten */
        CHECK_STATUS(data_run(d, session), EP_OK);
        CHECK_STATUS(ep_session_synchronize(session), EP_OK);
        data_check(d);
        ep_session_destroy(session);
    }
    there_release(&t);
}

#define WRONG(change, expected) \
    there_set(&t, d, 63); \
    change; \
    CHECK_STATUS(there_run(&t, session), expected)

/* Buffers that the session cannot take: it says so before it begins. */
static void check_misuse(const ep_model *of, data *d) {
    there t;
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    there_init(&t, d);
    CHECK_STATUS(ep_session_create(of, NULL, &session), EP_OK);
    WRONG((void)0, EP_E_STATE); /* without the option */
    ep_session_destroy(session);
    options.gpu_memory = 2;
    CHECK_STATUS(ep_session_create(of, &options, &session), EP_E_OPTION);
    options.gpu_memory = 1;
    options.gpu_queue = ours.queue;
    CHECK_STATUS(ep_session_create(of, &options, &session), EP_OK);
    for (int i = 0; i < BUFFERS; i++) {
        WRONG(t.memories[i].data = NULL, EP_E_NULL);
        WRONG(t.memories[i].nbytes--, EP_E_SIZE);
        WRONG(t.memories[i].kind = 2, EP_E_OPTION);
        WRONG(t.memories[i].reserved = 1, EP_E_OPTION);
        WRONG(t.memories[i].offset = 2 * GUARD + 4, EP_E_GPU_BUFFER); /* too few bytes behind it */
        WRONG(t.memories[i].offset = UINT64_MAX - 3, EP_E_GPU_BUFFER);
    }
    WRONG(t.memories[2].data = t.memories[0].data, EP_E_OVERLAP);
    there_set(&t, d, 0);
    t.memories[2].offset = UINT64_MAX - 3;
    CHECK_STATUS(there_run(&t, session), EP_E_SIZE);
    t.memories[2].offset = 2;
    CHECK_STATUS(there_run(&t, session), EP_E_ALIGNMENT);
    CHECK_STATUS(ep_session_run_memory(session, t.memories, 1, t.memories, 1), EP_E_COUNT);
    CHECK_STATUS(ep_session_run_memory(session, NULL, MINI_INPUTS, t.memories, MINI_OUTPUTS), EP_E_NULL);
    CHECK_STATUS(ep_session_run_memory(NULL, NULL, 0, NULL, 0), EP_E_NULL);
    CHECK_STATUS(ep_session_synchronize(NULL), EP_E_NULL);
    WRONG((void)0, EP_OK);
    there_check(&t, d);
    ep_session_destroy(session);
    there_release(&t);
}

#undef WRONG

#endif
