/* OpenCL: a session's memory on the device, its queue, and one kernel object for each launch, whose arguments
 * are set once; setting and launching one is the only thing in OpenCL that two threads may not do at once.
 * SPDX-License-Identifier: Apache-2.0 */
typedef struct ep_opencl_session {
    ep_gpu_session head;
    ep_cl_queue queue;
    ep_cl_mem arena;
    ep_cl_event marker;    /* behind what was submitted; null without a limit of time */
    ep_cl_mem *parts;      /* of the arena, one for each place; null for constants */
    ep_cl_kernel *kernels; /* one for each step; null for what is no launch */
} ep_opencl_session;

static size_t ep_opencl_session_bytes(const ep_descriptor *descriptor) {
    return sizeof(ep_opencl_session) + (size_t)descriptor->gpu->place_count * sizeof(ep_cl_mem) +
           (size_t)descriptor->step_count * sizeof(ep_cl_kernel);
}

static const ep_opencl_model *ep_opencl_of(const ep_opencl_session *session) {
    return (const ep_opencl_model *)(const void *)session->head.model;
}

/* Many drivers take memory when it is first written: the last byte is, so that there is enough of it here. */
static ep_status ep_opencl_take_arena(ep_opencl_session *session) {
    const ep_opencl_model *cl = ep_opencl_of(session);
    const ep_gpu_program *program = cl->head.descriptor->gpu;
    static const unsigned char zero = 0;
    int32_t error = EP_CL_SUCCESS;
    size_t nbytes = (size_t)program->arena_bytes;
    if (nbytes == 0) {
        return EP_OK;
    }
    session->arena = cl->CreateBuffer(cl->context, EP_CL_MEM_READ_WRITE, nbytes, NULL, &error);
    if (session->arena == NULL || error != EP_CL_SUCCESS ||
        cl->EnqueueWriteBuffer(session->queue, session->arena, EP_CL_TRUE, nbytes - 1, 1, &zero, 0, NULL,
                               NULL) != EP_CL_SUCCESS) {
        return EP_E_GPU_MEMORY;
    }
    for (uint32_t i = 0; i < program->place_count; i++) {
        ep_cl_region region = {(size_t)program->places[i].offset, (size_t)program->places[i].nbytes};
        if (program->places[i].memory != EP_GPU_ARENA || region.size == 0) {
            continue;
        }
        session->parts[i] = cl->CreateSubBuffer(session->arena, EP_CL_MEM_READ_WRITE,
                                                EP_CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
        if (session->parts[i] == NULL || error != EP_CL_SUCCESS) {
            return EP_E_GPU_MEMORY;
        }
    }
    return EP_OK;
}

/* A tensor of no bytes is a null pointer. */
static ep_status ep_opencl_make_kernel(ep_opencl_session *session, uint32_t index) {
    const ep_opencl_model *cl = ep_opencl_of(session);
    const ep_gpu_program *program = cl->head.descriptor->gpu;
    const ep_gpu_step *step = &program->steps[index];
    int32_t error = EP_CL_SUCCESS;
    if (step->kind != EP_STEP_LAUNCH) {
        return EP_OK;
    }
    session->kernels[index] = cl->CreateKernel(cl->program, program->kernels[step->kernel], &error);
    if (session->kernels[index] == NULL || error != EP_CL_SUCCESS) {
        return EP_E_GPU_MEMORY;
    }
    for (uint32_t i = 0; i < step->count; i++) {
        uint32_t place = program->arguments[step->first + i];
        ep_cl_mem memory =
            program->places[place].memory == EP_GPU_PARAMS ? cl->constants[place] : session->parts[place];
        if (cl->SetKernelArg(session->kernels[index], i, sizeof memory, &memory) != EP_CL_SUCCESS) {
            return EP_E_GPU_BUILD;
        }
    }
    return EP_OK;
}

/* The caller's queue, or a new one: of the model's context and device, and one that does in order what it is
 * given. */
static ep_status ep_opencl_take_queue(ep_opencl_session *session) {
    const ep_opencl_model *cl = ep_opencl_of(session);
    ep_cl_queue queue = session->head.queue;
    int32_t error = EP_CL_SUCCESS;
    if (queue == NULL) {
        session->queue = cl->CreateCommandQueue(cl->context, cl->device, 0, &error);
        return session->queue != NULL && error == EP_CL_SUCCESS ? EP_OK : EP_E_GPU_MEMORY;
    }
    ep_cl_context context = NULL;
    ep_cl_device device = NULL;
    uint64_t properties = 0;
    if (cl->GetCommandQueueInfo(queue, EP_CL_QUEUE_CONTEXT, sizeof context, &context, NULL) !=
            EP_CL_SUCCESS ||
        cl->GetCommandQueueInfo(queue, EP_CL_QUEUE_DEVICE, sizeof device, &device, NULL) != EP_CL_SUCCESS ||
        cl->GetCommandQueueInfo(queue, EP_CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL) !=
            EP_CL_SUCCESS ||
        context != cl->context || device != cl->device || (properties & EP_CL_QUEUE_OUT_OF_ORDER) != 0 ||
        cl->RetainCommandQueue(queue) != EP_CL_SUCCESS) {
        return EP_E_GPU_CONTEXT;
    }
    session->queue = queue;
    return EP_OK;
}

static ep_status ep_opencl_session_open(ep_gpu_session *head) {
    ep_opencl_session *session = (ep_opencl_session *)(void *)head;
    const ep_opencl_model *cl = ep_opencl_of(session);
    const ep_descriptor *descriptor = cl->head.descriptor;
    session->parts = (ep_cl_mem *)(void *)(session + 1);
    session->kernels = (ep_cl_kernel *)(void *)(session->parts + descriptor->gpu->place_count);
    ep_status status = ep_opencl_take_queue(session);
    if (status == EP_OK) {
        status = ep_opencl_take_arena(session);
    }
    for (uint32_t i = 0; i < descriptor->step_count && status == EP_OK; i++) {
        status = ep_opencl_make_kernel(session, i);
    }
    return status;
}

static void ep_opencl_session_close(ep_gpu_session *head) {
    ep_opencl_session *session = (ep_opencl_session *)(void *)head;
    const ep_opencl_model *cl = ep_opencl_of(session);
    const ep_descriptor *descriptor = cl->head.descriptor;
    for (uint32_t i = 0; i < descriptor->step_count && session->kernels != NULL; i++) {
        if (session->kernels[i] != NULL) {
            cl->ReleaseKernel(session->kernels[i]);
        }
    }
    for (uint32_t i = 0; i < descriptor->gpu->place_count && session->parts != NULL; i++) {
        if (session->parts[i] != NULL) {
            cl->ReleaseMemObject(session->parts[i]);
        }
    }
    if (session->arena != NULL) {
        cl->ReleaseMemObject(session->arena);
    }
    if (session->queue != NULL) {
        cl->ReleaseCommandQueue(session->queue);
    }
}

static ep_status ep_opencl_upload(ep_gpu_session *head, const ep_gpu_step *step, const void *host) {
    ep_opencl_session *session = (ep_opencl_session *)(void *)head;
    const ep_opencl_model *cl = ep_opencl_of(session);
    ep_cl_mem to = session->parts[cl->head.descriptor->gpu->arguments[step->first]];
    return cl->EnqueueWriteBuffer(session->queue, to, EP_CL_FALSE, 0, (size_t)step->nbytes, host, 0, NULL,
                                  NULL) == EP_CL_SUCCESS
               ? EP_OK
               : EP_E_GPU_RUN;
}

static ep_status ep_opencl_download(ep_gpu_session *head, const ep_gpu_step *step, void *host) {
    ep_opencl_session *session = (ep_opencl_session *)(void *)head;
    const ep_opencl_model *cl = ep_opencl_of(session);
    uint32_t place = cl->head.descriptor->gpu->arguments[step->first];
    ep_cl_mem from = session->parts[place] != NULL ? session->parts[place] : cl->constants[place];
    return cl->EnqueueReadBuffer(session->queue, from, EP_CL_FALSE, 0, (size_t)step->nbytes, host, 0, NULL,
                                 NULL) == EP_CL_SUCCESS
               ? EP_OK
               : EP_E_GPU_RUN;
}

/* A launch of no work group does nothing; OpenCL calls it an error. */
static ep_status ep_opencl_launch(ep_gpu_session *head, uint32_t index) {
    ep_opencl_session *session = (ep_opencl_session *)(void *)head;
    const ep_opencl_model *cl = ep_opencl_of(session);
    const ep_gpu_step *step = &cl->head.descriptor->gpu->steps[index];
    size_t global[3];
    size_t local[3];
    for (int d = 0; d < 3; d++) {
        local[d] = step->threads[d];
        global[d] = (size_t)step->groups[d] * step->threads[d];
        if (global[d] == 0) {
            return EP_OK;
        }
    }
    return cl->EnqueueNDRangeKernel(session->queue, session->kernels[index], 3, NULL, global, local, 0, NULL,
                                    NULL) == EP_CL_SUCCESS
               ? EP_OK
               : EP_E_GPU_RUN;
}

/* Parts of one buffer may overlap: they are compared as places in that. */
static ep_status ep_opencl_check(ep_gpu_session *head, ep_gpu_memory *memory) {
    const ep_opencl_model *cl = ep_opencl_of((ep_opencl_session *)(void *)head);
    ep_cl_mem object = memory->object;
    ep_cl_context context = NULL;
    ep_cl_mem whole = NULL;
    uint32_t type = 0;
    size_t nbytes = 0;
    size_t start = 0;
    if (cl->GetMemObjectInfo(object, EP_CL_MEM_TYPE, sizeof type, &type, NULL) != EP_CL_SUCCESS ||
        cl->GetMemObjectInfo(object, EP_CL_MEM_SIZE, sizeof nbytes, &nbytes, NULL) != EP_CL_SUCCESS ||
        cl->GetMemObjectInfo(object, EP_CL_MEM_CONTEXT, sizeof context, &context, NULL) != EP_CL_SUCCESS ||
        cl->GetMemObjectInfo(object, EP_CL_MEM_ASSOCIATED_MEMOBJECT, sizeof whole, &whole, NULL) !=
            EP_CL_SUCCESS ||
        cl->GetMemObjectInfo(object, EP_CL_MEM_OFFSET, sizeof start, &start, NULL) != EP_CL_SUCCESS ||
        type != EP_CL_MEM_OBJECT_BUFFER || context != cl->context || memory->offset > nbytes ||
        memory->nbytes > nbytes - memory->offset) {
        return EP_E_GPU_BUFFER;
    }
    memory->whole = whole != NULL ? whole : object;
    memory->start = (whole != NULL ? start : 0) + memory->offset;
    return EP_OK;
}

static ep_status ep_opencl_copy(ep_gpu_session *head, const ep_gpu_memory *memory, uint64_t at,
                                const ep_gpu_step *step, void *host, int to_memory) {
    ep_opencl_session *session = (ep_opencl_session *)(void *)head;
    const ep_opencl_model *cl = ep_opencl_of(session);
    size_t offset = (size_t)(memory->offset + at);
    size_t nbytes = (size_t)(step != NULL ? step->nbytes : memory->nbytes);
    ep_cl_mem object = memory->object;
    int32_t error;
    if (step == NULL) {
        error = to_memory ? cl->EnqueueWriteBuffer(session->queue, object, EP_CL_FALSE, offset, nbytes, host,
                                                   0, NULL, NULL)
                          : cl->EnqueueReadBuffer(session->queue, object, EP_CL_FALSE, offset, nbytes, host,
                                                  0, NULL, NULL);
    } else {
        uint32_t index = cl->head.descriptor->gpu->arguments[step->first];
        ep_cl_mem place = session->parts[index] != NULL ? session->parts[index] : cl->constants[index];
        error = to_memory
                    ? cl->EnqueueCopyBuffer(session->queue, place, object, 0, offset, nbytes, 0, NULL, NULL)
                    : cl->EnqueueCopyBuffer(session->queue, object, place, offset, 0, nbytes, 0, NULL, NULL);
    }
    return error == EP_CL_SUCCESS ? EP_OK : EP_E_GPU_RUN;
}

static void ep_opencl_forget_marker(ep_opencl_session *session) {
    if (session->marker != NULL) {
        ep_opencl_of(session)->ReleaseEvent(session->marker);
        session->marker = NULL;
    }
}

static ep_status ep_opencl_submit(ep_gpu_session *head) {
    ep_opencl_session *session = (ep_opencl_session *)(void *)head;
    const ep_opencl_model *cl = ep_opencl_of(session);
    if (head->limit_ms != 0) {
        ep_opencl_forget_marker(session);
        if (cl->EnqueueMarker(session->queue, &session->marker) != EP_CL_SUCCESS) {
            session->marker = NULL;
            return EP_E_GPU_RUN;
        }
    }
    return cl->Flush(session->queue) == EP_CL_SUCCESS ? EP_OK : EP_E_GPU_RUN;
}

static ep_status ep_opencl_poll(ep_gpu_session *head) {
    const ep_opencl_session *session = (ep_opencl_session *)(void *)head;
    int32_t status = EP_CL_COMPLETE;
    if (ep_opencl_of(session)->GetEventInfo(session->marker, EP_CL_EVENT_STATUS, sizeof status, &status,
                                            NULL) != EP_CL_SUCCESS ||
        status < EP_CL_COMPLETE) {
        return EP_E_GPU_RUN;
    }
    return status == EP_CL_COMPLETE ? EP_OK : EP_E_GPU_TIME;
}

static ep_status ep_opencl_finish(ep_gpu_session *head) {
    ep_opencl_session *session = (ep_opencl_session *)(void *)head;
    ep_opencl_forget_marker(session);
    return ep_opencl_of(session)->Finish(session->queue) == EP_CL_SUCCESS ? EP_OK : EP_E_GPU_RUN;
}

static const ep_gpu_backend ep_opencl = {
    "opencl",
    EP_GPU_OPENCL,
    0,
    ep_opencl_model_bytes,
    ep_opencl_session_bytes,
    ep_opencl_model_open,
    ep_opencl_model_close,
    ep_opencl_session_open,
    ep_opencl_session_close,
    ep_opencl_upload,
    ep_opencl_download,
    ep_opencl_launch,
    ep_opencl_finish,
    ep_opencl_check,
    ep_opencl_copy,
    ep_opencl_submit,
    ep_opencl_poll,
};
