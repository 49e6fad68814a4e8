/* Sessions: the one block of memory, the checks of a run.
 * SPDX-License-Identifier: Apache-2.0 */
static ep_status ep_session_bytes_impl(const ep_model *model, const ep_options *from, size_t *nbytes) {
    ep_options options;
    ep_layout layout;
    if (nbytes == NULL) {
        return EP_E_NULL;
    }
    *nbytes = 0;
    ep_status status = ep_options_read(model->descriptor, from, &options);
    if (status == EP_OK) {
        status = ep_layout_make(model->descriptor, &options, &layout);
    }
    if (status == EP_OK) {
        *nbytes = layout.total;
    }
    return status;
}

/* Puts a session at the start of `memory`. Arena and scratch stay as they are: no kernel reads what none
 * wrote. */
static ep_session_impl *ep_session_place(const ep_model *model, const ep_options *options,
                                         const ep_layout *layout, void *memory) {
    static const ep_session_impl empty;
    unsigned char *base = memory;
    base += (EP_ALIGNMENT - (uintptr_t)base % EP_ALIGNMENT) % EP_ALIGNMENT;
    ep_session_impl *session = (ep_session_impl *)(void *)base;
    const unsigned char **pointers = (const unsigned char **)(void *)(base + (size_t)layout->pointers);
    *session = empty;
    session->head.descriptor = model->descriptor;
    session->sync.steps[0] = session->sync.steps[1] = model->descriptor->step_count; /* no run yet */
    session->context.params = model->params;
    session->context.arena = base + (size_t)layout->arena;
    session->context.inputs = pointers;
    session->context.outputs = (unsigned char **)(void *)(pointers + model->descriptor->input_count);
    session->threads = options->threads;
    session->caller_threads = options->caller_threads;
    session->dynamic = options->threads > 1 && options->schedule == EP_SCHEDULE_DYNAMIC;
    session->shares = (ep_share *)(void *)(base + (size_t)layout->shares);
    for (uint32_t i = 0; i < options->threads; i++) {
        session->shares[i].next = 0;
    }
    session->scratch = base + (size_t)layout->scratch;
    session->scratch_bytes = (size_t)layout->scratch_bytes;
#if defined(EP_HAVE_THREADS)
    session->workers = (ep_worker *)(void *)(base + (size_t)layout->workers);
#endif
#if defined(EP_HAVE_GPU)
    session->gpu = (ep_gpu_session *)(void *)(base + (size_t)layout->gpu);
    if (options->gpu_memory) {
        session->memories = (ep_gpu_memory *)(void *)(base + (size_t)layout->memories);
        ep_memories_place(session->memories, model->descriptor);
    }
#endif
    return session;
}

/* The pool, or what the session has on a GPU. */
static ep_status ep_session_start(ep_session_impl *session, const ep_model *model,
                                  const ep_options *options) {
#if defined(EP_HAVE_GPU)
    ep_status status = ep_gpu_session_start(session, model, options);
    if (status != EP_OK || session->gpu != NULL) {
        return status;
    }
#else
    (void)model;
    (void)options;
#endif
    return ep_pool_start(session);
}

static ep_status ep_session_create_impl(const ep_model *model, const ep_options *from, ep_session **result) {
    ep_options options;
    ep_layout layout;
    if (result == NULL || model->params == NULL) {
        return EP_E_NULL;
    }
    ep_status status = ep_options_read(model->descriptor, from, &options);
    if (status == EP_OK) {
        status = ep_layout_make(model->descriptor, &options, &layout);
    }
    if (status != EP_OK) {
        return status;
    }
    ep_allocator allocator = {NULL, ep_platform_allocate, ep_platform_release};
    if (options.allocator != NULL) {
        allocator = *options.allocator;
    }
    if (options.memory == NULL && (allocator.allocate == NULL || allocator.release == NULL)) {
        return EP_E_NULL;
    }
    if (options.memory != NULL && options.memory_bytes < layout.total) {
        return EP_E_MEMORY_SIZE;
    }
    void *memory = options.memory != NULL ? options.memory : allocator.allocate(allocator.user, layout.total);
    if (memory == NULL) {
        return EP_E_NO_MEMORY;
    }
    ep_session_impl *session = ep_session_place(model, &options, &layout, memory);
    session->allocator = allocator;
    session->block = options.memory != NULL ? NULL : memory;
    session->block_bytes = layout.total;
    status = ep_session_start(session, model, &options);
    if (status != EP_OK) {
        if (session->block != NULL) {
            allocator.release(allocator.user, memory, layout.total);
        }
        return status;
    }
    *result = &session->head;
    return EP_OK;
}

static void ep_session_destroy_impl(ep_session *head) {
    ep_session_impl *session = (ep_session_impl *)head;
    ep_pool_stop(session);
#if defined(EP_HAVE_GPU)
    if (!ep_gpu_session_stop(session)) {
        return;
    }
#endif
    if (session->block != NULL) {
        ep_allocator allocator = session->allocator;
        allocator.release(allocator.user, session->block, session->block_bytes);
    }
}

static ep_status ep_buffer_check(const ep_tensor *tensor, const void *data, size_t nbytes) {
    if (data == NULL && tensor->nbytes != 0) {
        return EP_E_NULL;
    }
    if (nbytes != tensor->nbytes) {
        return EP_E_SIZE;
    }
    return (uintptr_t)data % ep_dtype_bytes(tensor->dtype) == 0 ? EP_OK : EP_E_ALIGNMENT;
}

static int ep_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    uintptr_t p = (uintptr_t)a;
    uintptr_t q = (uintptr_t)b;
    return a_bytes > 0 && b_bytes > 0 && (p <= q ? q - p < a_bytes : p - q < b_bytes);
}

static ep_status ep_overlap_check(const ep_const_buffer *inputs, size_t input_count, const ep_buffer *outputs,
                                  size_t output_count) {
    for (size_t i = 0; i < output_count; i++) {
        const ep_buffer *out = &outputs[i];
        for (size_t j = 0; j < input_count; j++) {
            if (ep_overlap(out->data, out->nbytes, inputs[j].data, inputs[j].nbytes)) {
                return EP_E_OVERLAP;
            }
        }
        for (size_t j = 0; j < i; j++) {
            if (ep_overlap(out->data, out->nbytes, outputs[j].data, outputs[j].nbytes)) {
                return EP_E_OVERLAP;
            }
        }
    }
    return EP_OK;
}

static ep_status ep_buffers_check(const ep_descriptor *descriptor, const ep_const_buffer *inputs,
                                  size_t input_count, const ep_buffer *outputs, size_t output_count) {
    ep_status status = EP_OK;
    if (input_count != descriptor->input_count || output_count != descriptor->output_count) {
        return EP_E_COUNT;
    }
    if ((inputs == NULL && input_count > 0) || (outputs == NULL && output_count > 0)) {
        return EP_E_NULL;
    }
    for (size_t i = 0; i < input_count && status == EP_OK; i++) {
        status = ep_buffer_check(&descriptor->inputs[i], inputs[i].data, inputs[i].nbytes);
    }
    for (size_t i = 0; i < output_count && status == EP_OK; i++) {
        status = ep_buffer_check(&descriptor->outputs[i], outputs[i].data, outputs[i].nbytes);
    }
    return status == EP_OK ? ep_overlap_check(inputs, input_count, outputs, output_count) : status;
}

/* What a run begins with. */
static void ep_session_ready(ep_session_impl *session) {
    EP_STORE_RELAXED(&session->sync.failed, 0u);
    if (session->step_ns != NULL) {
        for (uint32_t i = 0; i < session->head.descriptor->step_count; i++) {
            session->step_ns[i] = 0;
        }
        session->last_ns = ep_platform_now_ns();
    }
    ep_phase_end(session, EP_LOAD_RELAXED(&session->sync.phase), 0);
}

/* Checks the buffers and takes the session; whoever comes second while it runs is told so. */
static ep_status ep_session_arm(ep_session_impl *session, const ep_const_buffer *inputs, size_t input_count,
                                const ep_buffer *outputs, size_t output_count) {
    ep_status status = ep_buffers_check(session->head.descriptor, inputs, input_count, outputs, output_count);
    if (status != EP_OK) {
        return status;
    }
    if (!ep_claim(&session->sync.state, EP_IDLE, EP_PREPARING)) {
        return EP_E_BUSY;
    }
    for (size_t i = 0; i < input_count; i++) {
        session->context.inputs[i] = inputs[i].data;
    }
    for (size_t i = 0; i < output_count; i++) {
        session->context.outputs[i] = outputs[i].data;
    }
#if defined(EP_HAVE_GPU)
    ep_memories_forget(session);
#endif
    ep_session_ready(session);
    return EP_OK;
}

/* A run of a session of one thread. */
static void ep_session_walk(ep_session_impl *session) {
#if defined(EP_HAVE_GPU)
    if (session->gpu != NULL) {
        ep_gpu_walk(session);
        return;
    }
#endif
    ep_walk_alone(session);
}

static ep_status ep_session_status(const ep_session_impl *session) {
#if defined(EP_HAVE_GPU)
    if (session->gpu != NULL) {
        return session->gpu->status;
    }
#endif
    return (ep_status)EP_LOAD_RELAXED(&session->sync.failed);
}

/* The run of a session that is armed. */
static ep_status ep_session_do(ep_session_impl *session) {
    if (session->threads > 1) {
        uint64_t before = ep_platform_now_ns();
        ep_pool_kick(session);
        ep_walk(session, 0);
        session->run_ns = ep_platform_now_ns() - before;
    } else {
        ep_session_walk(session);
    }
    ep_status status = ep_session_status(session);
    EP_STORE(&session->sync.state, (uint32_t)EP_IDLE);
    return status;
}

static ep_status ep_session_run_impl(ep_session *head, const ep_const_buffer *inputs, size_t input_count,
                                     const ep_buffer *outputs, size_t output_count) {
    ep_session_impl *session = (ep_session_impl *)head;
    if (session->caller_threads && session->threads > 1) {
        return EP_E_STATE;
    }
    ep_status status = ep_session_arm(session, inputs, input_count, outputs, output_count);
    return status == EP_OK ? ep_session_do(session) : status;
}

static ep_status ep_session_begin_impl(ep_session *head, const ep_const_buffer *inputs, size_t input_count,
                                       const ep_buffer *outputs, size_t output_count) {
    ep_session_impl *session = (ep_session_impl *)head;
    if (!session->caller_threads) {
        return EP_E_STATE;
    }
    ep_status status = ep_session_arm(session, inputs, input_count, outputs, output_count);
    if (status == EP_OK) {
        EP_STORE_RELAXED(&session->sync.leaving, 0u);
        EP_STORE(&session->sync.state, (uint32_t)EP_RUNNING);
    }
    return status;
}

static ep_status ep_session_work_impl(ep_session *head, uint32_t thread) {
    ep_session_impl *session = (ep_session_impl *)head;
    if (thread >= session->threads) {
        return EP_E_THREADS;
    }
    if (EP_LOAD(&session->sync.state) != EP_RUNNING) {
        return EP_E_STATE;
    }
    if (session->threads > 1) {
        ep_walk(session, thread);
    } else {
        ep_session_walk(session);
    }
    ep_status status = ep_session_status(session);
    if (EP_FETCH_ADD(&session->sync.leaving, 1u, __ATOMIC_ACQ_REL) + 1 == session->threads) {
        EP_STORE(&session->sync.state, (uint32_t)EP_IDLE);
    }
    return status;
}

static ep_status ep_session_profile_impl(ep_session *head, uint64_t *step_ns, size_t count) {
    ep_session_impl *session = (ep_session_impl *)head;
    if (step_ns == NULL && count == 0) {
        session->step_ns = NULL;
        return EP_OK;
    }
    if (step_ns == NULL) {
        return EP_E_NULL;
    }
    if (count != head->descriptor->step_count) {
        return EP_E_COUNT;
    }
    if (ep_platform_now_ns() == 0) {
        return EP_E_UNSUPPORTED;
    }
    session->step_ns = step_ns;
    return EP_OK;
}
