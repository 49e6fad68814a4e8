/* Sessions of a variant for a GPU: one thread of the caller hands each step to the GPU, or does it.
 * SPDX-License-Identifier: Apache-2.0 */
static uint32_t ep_gpu_process(void) {
#if defined(EP_HAVE_THREADS)
    return ep_platform_process();
#else
    return 0;
#endif
}

/* Null: this library has no code for the driver that the variant is for. */
static const ep_gpu_backend *ep_gpu_backend_of(const ep_gpu_program *program) {
    static const ep_gpu_backend *const backends[] = {
#if defined(EP_GPU_API_OPENCL)
        &ep_opencl,
#endif
#if defined(EP_GPU_API_CUDA)
        &ep_cuda,
#endif
#if defined(EP_GPU_API_METAL)
        &ep_metal,
#endif
    };
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        if (backends[i]->api == program->api) {
            return backends[i];
        }
    }
    return NULL;
}

static void ep_clear(void *memory, size_t nbytes) {
    for (size_t i = 0; i < nbytes; i++) {
        ((unsigned char *)memory)[i] = 0;
    }
}

/* Bytes of a session's memory that its back end has; 0 on the CPU. */
static size_t ep_gpu_session_bytes(const ep_descriptor *descriptor) {
    return descriptor->gpu == NULL ? 0 : ep_gpu_backend_of(descriptor->gpu)->session_bytes(descriptor);
}

static ep_status ep_gpu_session_start(ep_session_impl *session, const ep_model *model,
                                      const ep_options *options) {
    const ep_gpu_model *gpu = (const ep_gpu_model *)model->reserved[0];
    if (model->descriptor->gpu == NULL) {
        session->gpu = NULL;
        return EP_OK;
    }
    ep_clear(session->gpu, ep_gpu_session_bytes(model->descriptor));
    session->gpu->model = gpu;
    session->gpu->queue = options->gpu_queue;
    session->gpu->asynchronous = options->asynchronous;
    session->gpu->limit_ms = options->gpu_limit_ms;
    session->gpu->memories = session->memories;
    if (gpu->process != ep_gpu_process()) {
        return EP_E_GPU_RUN;
    }
    ep_status status = gpu->backend->session_open(session->gpu);
    if (status != EP_OK) {
        gpu->backend->session_close(session->gpu);
    }
    return status;
}

/* The CPU's side of a copy from it. */
static const unsigned char *ep_gpu_source(const ep_session_impl *session, const ep_gpu_step *step) {
    const struct ep_context *context = &session->context;
    const unsigned char *base = step->host == EP_HOST_INPUT    ? context->inputs[step->index]
                                : step->host == EP_HOST_OUTPUT ? context->outputs[step->index]
                                : step->host == EP_HOST_PARAMS ? context->params
                                                               : context->arena;
    return base + (size_t)step->offset;
}

/* And of a copy to it: never an input or the params. */
static unsigned char *ep_gpu_destination(const ep_session_impl *session, const ep_gpu_step *step) {
    const struct ep_context *context = &session->context;
    return (step->host == EP_HOST_OUTPUT ? context->outputs[step->index] : context->arena) +
           (size_t)step->offset;
}

/* Asks until the GPU has done all that it was given, or the session's time is over. */
static ep_status ep_gpu_poll(ep_gpu_session *gpu) {
    const ep_gpu_backend *backend = gpu->model->backend;
    uint64_t end = ep_platform_now_ns() + (uint64_t)gpu->limit_ms * 1000000u;
    ep_status status = backend->submit(gpu);
    while (status == EP_OK) {
        status = backend->poll(gpu);
        if (status != EP_E_GPU_TIME || ep_platform_now_ns() > end) {
            return status;
        }
        ep_platform_yield();
        status = EP_OK;
    }
    return status;
}

static ep_status ep_gpu_wait(ep_gpu_session *gpu) {
    if (!gpu->pending) {
        return EP_OK;
    }
    gpu->late = gpu->limit_ms != 0 && ep_gpu_poll(gpu) == EP_E_GPU_TIME;
    if (gpu->late) {
        return EP_E_GPU_TIME;
    }
    gpu->pending = 0;
    return gpu->model->backend->finish(gpu);
}

/* Of a session whose GPU is still not done, the driver keeps what there is: to give it back would be to wait.
 * Whether it was given back. */
static int ep_gpu_session_stop(ep_session_impl *session) {
    if (session->gpu != NULL && session->gpu->model->process == ep_gpu_process()) {
        if (ep_gpu_wait(session->gpu) == EP_E_GPU_TIME) {
            return 0;
        }
        session->gpu->model->backend->session_close(session->gpu);
    }
    return 1;
}

/* A kernel on the CPU reads what was copied to it, and may write over what is being copied from it. */
static ep_status ep_gpu_call(ep_session_impl *session, uint32_t index) {
    ep_slice all = {0, (uint32_t)session->head.descriptor->step_tasks[index]};
    ep_status status = ep_gpu_wait(session->gpu);
    if (status == EP_OK) {
        ep_call(session, index, 0, all);
        status = (ep_status)EP_LOAD_RELAXED(&session->sync.failed);
    }
    return status;
}

/* A branch on the CPU, which reads what was copied to it: with which step the run goes on. */
static ep_status ep_gpu_branch(ep_session_impl *session, uint32_t index, uint32_t *next) {
    ep_status status = ep_gpu_wait(session->gpu);
    if (status == EP_OK) {
        *next = ep_branch(session, index);
        status = (ep_status)EP_LOAD_RELAXED(&session->sync.failed);
    }
    return status;
}

static ep_status ep_gpu_do_step(ep_session_impl *session, uint32_t index) {
    ep_gpu_session *gpu = session->gpu;
    const ep_gpu_step *step = &session->head.descriptor->gpu->steps[index];
    const ep_gpu_backend *backend = gpu->model->backend;
    if (step->kind == EP_STEP_CALL) {
        return ep_gpu_call(session, index);
    }
    if (step->kind != EP_STEP_LAUNCH && step->nbytes == 0) {
        return EP_OK;
    }
    gpu->pending = 1;
    if (ep_gpu_copied_there(gpu, step) != NULL) {
        return backend->copy(gpu, ep_gpu_copied_there(gpu, step), step->offset, step, NULL,
                             step->kind == EP_STEP_DOWNLOAD);
    }
    if (step->kind == EP_STEP_UPLOAD) {
        return backend->upload(gpu, step, ep_gpu_source(session, step));
    }
    if (step->kind == EP_STEP_DOWNLOAD) {
        return backend->download(gpu, step, ep_gpu_destination(session, step));
    }
    return backend->launch(gpu, index);
}

/* Between the GPU's memory and the copies that the CPU's steps use: of inputs before the steps, of outputs
 * behind them. */
static ep_status ep_gpu_stage(ep_gpu_session *gpu, int outputs) {
    const ep_descriptor *descriptor = gpu->model->descriptor;
    uint32_t first = outputs ? descriptor->input_count : 0;
    uint32_t end = descriptor->input_count + (outputs ? descriptor->output_count : 0);
    ep_status status = EP_OK;
    for (uint32_t i = first; gpu->memories != NULL && i < end && status == EP_OK; i++) {
        const ep_gpu_memory *memory = &gpu->memories[i];
        if (memory->object != NULL && memory->staging != NULL && memory->nbytes != 0) {
            gpu->pending = 1;
            status = gpu->model->backend->copy(gpu, memory, 0, NULL, memory->staging, outputs);
        }
    }
    return status;
}

/* A whole run. After a failure nothing more is begun, but what was is waited for: the caller's buffers are
 * the GPU's until then. */
static void ep_gpu_walk(ep_session_impl *session) {
    const ep_descriptor *descriptor = session->head.descriptor;
    ep_gpu_session *gpu = session->gpu;
    int ours = gpu->model->process == ep_gpu_process();
    ep_status status = ours ? EP_OK : EP_E_GPU_RUN;
    if (ours && gpu->pending && gpu->limit_ms != 0) { /* an earlier run's: no longer than this either */
        status = ep_gpu_wait(gpu);
    }
    status = status == EP_OK ? ep_gpu_stage(gpu, 0) : status;
    gpu->timed = session->step_ns != NULL;
    for (uint32_t step = 0, next = 1; step < descriptor->step_count && status == EP_OK; step = next) {
        next = step + 1;
        status = descriptor->step_tasks[step] < 0 ? ep_gpu_branch(session, step, &next)
                                                  : ep_gpu_do_step(session, step);
        if (session->step_ns != NULL && status == EP_OK) {
            status = ep_gpu_wait(gpu);
            ep_step_timed(session, step);
        }
    }
    status = status == EP_OK ? ep_gpu_stage(gpu, 1) : status;
    if (status == EP_OK && gpu->asynchronous) {
        status = gpu->pending ? gpu->model->backend->submit(gpu) : EP_OK;
    }
    if (ours && !gpu->late && (status != EP_OK || !gpu->asynchronous)) {
        ep_status waited = ep_gpu_wait(gpu);
        status = status == EP_OK ? waited : status;
    }
    gpu->status = status;
}

static ep_status ep_session_synchronize_impl(ep_session *head) {
    ep_session_impl *session = (ep_session_impl *)head;
    if (session->gpu == NULL) {
        return EP_OK;
    }
    if (session->gpu->model->process != ep_gpu_process()) {
        return EP_E_GPU_RUN;
    }
    if (!ep_claim(&session->sync.state, EP_IDLE, EP_PREPARING)) {
        return EP_E_BUSY;
    }
    ep_status status = ep_gpu_wait(session->gpu);
    EP_STORE(&session->sync.state, (uint32_t)EP_IDLE);
    return status;
}
