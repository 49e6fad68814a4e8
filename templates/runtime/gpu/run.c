/* Runs with buffers in the GPU's memory: what the caller gives is checked, and named for the steps.
 * SPDX-License-Identifier: Apache-2.0 */

/* Takes one buffer of the caller's; `host` is what the CPU's steps have of it. */
static ep_status ep_memory_take(ep_session_impl *session, uint32_t index, const ep_memory *from,
                                unsigned char **host) {
    const ep_tensor *tensor = ep_memory_tensor(session->head.descriptor, index);
    ep_gpu_memory *memory = &session->memories[index];
    memory->object = NULL;
    if (from->kind > EP_MEMORY_GPU || from->reserved != 0) {
        return EP_E_OPTION;
    }
    if (from->kind == EP_MEMORY_HOST) {
        if (from->offset > SIZE_MAX - (uintptr_t)from->data) {
            return EP_E_SIZE;
        }
        *host = from->data == NULL ? NULL : (unsigned char *)from->data + (size_t)from->offset;
        memory->whole = NULL;
        memory->start = (uint64_t)(uintptr_t)*host;
        return ep_buffer_check(tensor, *host, from->nbytes);
    }
    if (session->gpu == NULL) {
        return EP_E_GPU_BUFFER;
    }
    if (from->nbytes != tensor->nbytes) {
        return EP_E_SIZE;
    }
    if (from->data == NULL || tensor->nbytes == 0) {
        return tensor->nbytes == 0 ? EP_OK : EP_E_NULL;
    }
    *host = memory->staging;
    memory->object = from->data;
    memory->offset = from->offset;
    return session->gpu->model->backend->check(session->gpu, memory);
}

static int ep_memories_overlap(const ep_gpu_memory *a, const ep_gpu_memory *b) {
    return (a->object != NULL) == (b->object != NULL) && a->whole == b->whole &&
           a->start < b->start + b->nbytes && b->start < a->start + a->nbytes;
}

static ep_status ep_memories_check(const ep_session_impl *session) {
    const ep_descriptor *descriptor = session->head.descriptor;
    uint32_t inputs = descriptor->input_count;
    for (uint32_t i = inputs; i < inputs + descriptor->output_count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (ep_memories_overlap(&session->memories[i], &session->memories[j])) {
                return EP_E_OVERLAP;
            }
        }
    }
    return EP_OK;
}

static ep_status ep_memories_take(ep_session_impl *session, const ep_memory *inputs,
                                  const ep_memory *outputs) {
    const ep_descriptor *descriptor = session->head.descriptor;
    ep_status status = EP_OK;
    for (uint32_t i = 0; i < descriptor->input_count && status == EP_OK; i++) {
        unsigned char *host = NULL;
        status = ep_memory_take(session, i, &inputs[i], &host);
        session->context.inputs[i] = host;
    }
    for (uint32_t i = 0; i < descriptor->output_count && status == EP_OK; i++) {
        status =
            ep_memory_take(session, descriptor->input_count + i, &outputs[i], &session->context.outputs[i]);
    }
    return status == EP_OK ? ep_memories_check(session) : status;
}

static ep_status ep_session_run_memory_impl(ep_session *head, const ep_memory *inputs, size_t input_count,
                                            const ep_memory *outputs, size_t output_count) {
    ep_session_impl *session = (ep_session_impl *)head;
    const ep_descriptor *descriptor = head->descriptor;
    if (session->memories == NULL || (session->caller_threads && session->threads > 1)) {
        return EP_E_STATE;
    }
    if (input_count != descriptor->input_count || output_count != descriptor->output_count) {
        return EP_E_COUNT;
    }
    if ((inputs == NULL && input_count > 0) || (outputs == NULL && output_count > 0)) {
        return EP_E_NULL;
    }
    if (session->gpu != NULL && session->gpu->model->process != ep_gpu_process()) {
        return EP_E_GPU_RUN;
    }
    if (!ep_claim(&session->sync.state, EP_IDLE, EP_PREPARING)) {
        return EP_E_BUSY;
    }
    ep_status status = ep_memories_take(session, inputs, outputs);
    if (status != EP_OK) {
        EP_STORE(&session->sync.state, (uint32_t)EP_IDLE);
        return status;
    }
    ep_session_ready(session);
    return ep_session_do(session);
}
