/* What the runtime asks of a back end, the code for one kind of driver.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_DEVICE_H
#define EDGEPACK_DEVICE_H

struct ep_gpu_backend;

/* An opened model's part on the GPU; a back end's own fields follow. Sessions share it and change nothing. */
typedef struct ep_gpu_model {
    const struct ep_gpu_backend *backend;
    const ep_descriptor *descriptor;
    size_t nbytes;    /* of this block */
    uint32_t process; /* in which it was opened: a driver does not survive fork() */
    uint32_t alone;   /* there is no other variant to take: a device that is no GPU will do */
    uint32_t mapped;  /* the params are a mapped file, which stays as long as the model */
    uint32_t reserved;
    char device[128]; /* its name */
} ep_gpu_model;

/* A session's part; a back end's own fields follow. */
typedef struct ep_gpu_session {
    const ep_gpu_model *model;
    uint32_t pending; /* something was given to the GPU that has not been waited for */
    ep_status status; /* of the last run */
    uint32_t timed;   /* each step of this run is waited for */
    uint32_t reserved;
} ep_gpu_session;

/* Blocks are zero when they are handed over, and after a failure what was made is given back by `close`. */
typedef struct ep_gpu_backend {
    const char *name;
    uint32_t api; /* EP_GPU_... */
    uint32_t reserved;
    /* Bytes of a model's block; and of a session's, at most EP_GPU_SESSION_BYTES. */
    size_t (*model_bytes)(const ep_gpu_program *program);
    size_t (*session_bytes)(const ep_descriptor *descriptor);
    /* Finds driver and device, compiles the kernels, copies the constants. */
    ep_status (*model_open)(ep_gpu_model *model, const unsigned char *params);
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
} ep_gpu_backend;

#endif
