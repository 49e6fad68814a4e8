/* What a session has for buffers in the GPU's memory: the caller's, which commands in the session's queue
 * copy to and from the session's own. What the CPU's steps use of them, they have as a copy in the process.
 * SPDX-License-Identifier: Apache-2.0 */

/* Whether the CPU's steps use an input, or behind them an output. */
static int ep_memory_on_cpu(const ep_descriptor *descriptor, uint32_t index) {
    return descriptor->gpu != NULL && descriptor->gpu->on_cpu[index];
}

static const ep_tensor *ep_memory_tensor(const ep_descriptor *descriptor, uint32_t index) {
    return index < descriptor->input_count ? &descriptor->inputs[index]
                                           : &descriptor->outputs[index - descriptor->input_count];
}

static uint64_t ep_memory_room(uint64_t nbytes) {
    return (nbytes + (EP_ALIGNMENT - 1u)) & ~(uint64_t)(EP_ALIGNMENT - 1u);
}

/* Bytes of a session's memory for all this. */
static uint64_t ep_memories_bytes(const ep_descriptor *descriptor) {
    uint32_t count = descriptor->input_count + descriptor->output_count;
    uint64_t total = ep_memory_room((uint64_t)count * sizeof(ep_gpu_memory));
    for (uint32_t i = 0; i < count; i++) {
        total +=
            ep_memory_on_cpu(descriptor, i) ? ep_memory_room(ep_memory_tensor(descriptor, i)->nbytes) : 0;
    }
    return total;
}

static void ep_memories_place(ep_gpu_memory *memories, const ep_descriptor *descriptor) {
    static const ep_gpu_memory none;
    uint32_t count = descriptor->input_count + descriptor->output_count;
    unsigned char *staging = (unsigned char *)memories;
    staging += (size_t)ep_memory_room((uint64_t)count * sizeof(ep_gpu_memory));
    for (uint32_t i = 0; i < count; i++) {
        memories[i] = none;
        memories[i].nbytes = ep_memory_tensor(descriptor, i)->nbytes;
        if (ep_memory_on_cpu(descriptor, i)) {
            memories[i].staging = staging;
            staging += (size_t)ep_memory_room(memories[i].nbytes);
        }
    }
}

/* All buffers of a run are in the process. */
static void ep_memories_forget(ep_session_impl *session) {
    const ep_descriptor *descriptor = session->head.descriptor;
    for (uint32_t i = 0; session->memories != NULL && i < descriptor->input_count + descriptor->output_count;
         i++) {
        session->memories[i].object = NULL;
    }
}

/* What a copy of an input or output is to or from, on the GPU; null: its CPU's side is in the process. */
static const ep_gpu_memory *ep_gpu_copied_there(const ep_gpu_session *gpu, const ep_gpu_step *step) {
    int copies = step->kind == EP_STEP_UPLOAD || step->kind == EP_STEP_DOWNLOAD;
    if (gpu->memories == NULL || !copies || step->host > EP_HOST_OUTPUT) {
        return NULL;
    }
    int output = step->host == EP_HOST_OUTPUT;
    const ep_gpu_memory *memory =
        &gpu->memories[step->index + (output ? gpu->model->descriptor->input_count : 0)];
    return memory->object != NULL && !(output && memory->staging != NULL) ? memory : NULL;
}
