/* What the runtime asks of a back end, the code for one kind of driver.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_DEVICE_H
#define EDGEPACK_DEVICE_H

struct ep_gpu_backend;

/* An opened model's part on the GPU; a back end's own fields follow. Sessions share it and change nothing. */
typedef struct ep_gpu_model {
    const struct ep_gpu_backend *backend;
    const ep_descriptor *descriptor;
    size_t nbytes;     /* of this block */
    uint32_t process;  /* in which it was opened: a driver does not survive fork() */
    uint32_t alone;    /* there is no other variant to take: a device that is no GPU will do */
    uint32_t mapped;   /* the params are a mapped file, which stays as long as the model */
    uint32_t borrowed; /* the context is the caller's */
    char device[128];  /* its name */
} ep_gpu_model;

/* An input or output of a run. */
typedef struct ep_gpu_memory {
    void *object;    /* on the GPU: what the caller gave; null: in the process */
    uint64_t offset; /* of its first byte in that */
    void *whole; /* the memory that the object is, or is a part of; null: the process's, or all the GPU's */
    uint64_t start; /* of its first byte in that */
    uint64_t nbytes;
    unsigned char *staging; /* a copy in the process for the CPU's steps; null: they do not use it */
} ep_gpu_memory;

/* A session's part; a back end's own fields follow. */
typedef struct ep_gpu_session {
    const ep_gpu_model *model;
    uint32_t pending; /* something was given to the GPU that has not been waited for */
    ep_status status; /* of the last run */
    uint32_t timed;   /* each step of this run is waited for */
    uint32_t asynchronous;
    uint32_t limit_ms;       /* 0: none */
    uint32_t late;           /* what is pending was waited for in vain */
    void *queue;             /* the caller's; null: the back end makes one */
    ep_gpu_memory *memories; /* of inputs, then outputs; null: all are in the process */
} ep_gpu_session;

/* Blocks are zero when they are handed over, and after a failure what was made is given back by `close`. */
typedef struct ep_gpu_backend {
    const char *name;
    uint32_t api; /* EP_GPU_... */
    uint32_t reserved;
    /* Bytes of a model's block; and of a session's, at most EP_GPU_SESSION_BYTES. */
    size_t (*model_bytes)(const ep_gpu_program *program);
    size_t (*session_bytes)(const ep_descriptor *descriptor);
    /* Finds driver and device, or takes the caller's, compiles the kernels, copies the constants. */
    ep_status (*model_open)(ep_gpu_model *model, const ep_open_options *options, const unsigned char *params);
    void (*model_close)(ep_gpu_model *model);
    /* Takes memory and makes all objects that a run needs. */
    ep_status (*session_open)(ep_gpu_session *session);
    void (*session_close)(ep_gpu_session *session);
    /* These three may return before the GPU has begun. What is given to it is done in this order. */
    ep_status (*upload)(ep_gpu_session *session, const ep_gpu_step *step, const void *host);
    ep_status (*download)(ep_gpu_session *session, const ep_gpu_step *step, void *host);
    ep_status (*launch)(ep_gpu_session *session, uint32_t step);
    /* Waits until the GPU has done all of it. */
    ep_status (*finish)(ep_gpu_session *session);
    /* Whether `memory` is one that `copy` can use, where `whole` and `start` are; object, offset and nbytes
     * are set, staging is where the CPU has a copy. */
    ep_status (*check)(ep_gpu_session *session, ep_gpu_memory *memory);
    /* Copies between the caller's memory, `at` bytes behind its start, and the place of a copy's step, or
     * with no step `host`. */
    ep_status (*copy)(ep_gpu_session *session, const ep_gpu_memory *memory, uint64_t at,
                      const ep_gpu_step *step, void *host, int to_memory);
    /* Sees to it that the GPU begins with what it was given, without waiting. */
    ep_status (*submit)(ep_gpu_session *session);
    /* Whether it has done all that was submitted: EP_E_GPU_TIME if not yet. */
    ep_status (*poll)(ep_gpu_session *session);
} ep_gpu_backend;

#endif
