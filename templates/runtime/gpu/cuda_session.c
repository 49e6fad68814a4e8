/* CUDA: a session's memory on the device and its stream. Launches that follow each other are given to the
 * driver as one graph, which is made with the session; a driver without graphs gets them one by one.
 * SPDX-License-Identifier: Apache-2.0 */
typedef struct ep_cuda_session {
    ep_gpu_session head;
    ep_cu_stream stream;
    ep_cu_address arena;
    ep_cu_address *addresses; /* of each place */
    ep_cu_graph_exec *graphs; /* of each step, the same for all that are in one; null for others */
} ep_cuda_session;

static size_t ep_cuda_session_bytes(const ep_descriptor *descriptor) {
    return sizeof(ep_cuda_session) + (size_t)descriptor->gpu->place_count * sizeof(ep_cu_address) +
           (size_t)descriptor->step_count * sizeof(ep_cu_graph_exec);
}

static const ep_cuda_model *ep_cuda_of(const ep_cuda_session *session) {
    return (const ep_cuda_model *)(const void *)session->head.model;
}

static int ep_cuda_empty(const ep_gpu_step *step) {
    return step->groups[0] == 0 || step->groups[1] == 0 || step->groups[2] == 0;
}

/* A launch of no block does nothing; CUDA calls it an error. */
static ep_status ep_cuda_give(ep_cuda_session *session, uint32_t index) {
    const ep_cuda_model *cu = ep_cuda_of(session);
    const ep_gpu_program *program = cu->head.descriptor->gpu;
    const ep_gpu_step *step = &program->steps[index];
    void *arguments[EP_CU_ARGUMENTS];
    if (ep_cuda_empty(step)) {
        return EP_OK;
    }
    for (uint32_t i = 0; i < step->count; i++) {
        arguments[i] = &session->addresses[program->arguments[step->first + i]];
    }
    ep_cu_result result = cu->LaunchKernel(cu->kernels[step->kernel], step->groups[0], step->groups[1],
                                           step->groups[2], step->threads[0], step->threads[1],
                                           step->threads[2], 0, session->stream, arguments, NULL);
    return result == EP_CU_SUCCESS ? EP_OK : EP_E_GPU_RUN;
}

/* The steps from `first` on as a graph; null if the driver cannot make one. All that it reads and writes is
 * the session's own, so that it stays as it is whatever buffers a run has. */
static ep_cu_graph_exec ep_cuda_capture(ep_cuda_session *session, uint32_t first, uint32_t end) {
    const ep_cuda_model *cu = ep_cuda_of(session);
    ep_cu_graph graph = NULL;
    ep_cu_graph_exec made = NULL;
    ep_status status = EP_OK;
    if (cu->StreamBeginCapture(session->stream, EP_CU_CAPTURE_THREAD_LOCAL) != EP_CU_SUCCESS) {
        return NULL;
    }
    for (uint32_t i = first; i < end && status == EP_OK; i++) {
        status = ep_cuda_give(session, i);
    }
    if (cu->StreamEndCapture(session->stream, &graph) != EP_CU_SUCCESS) {
        return NULL;
    }
    if (status == EP_OK && cu->GraphInstantiateWithFlags(&made, graph, 0) != EP_CU_SUCCESS) {
        made = NULL;
    }
    if (graph != NULL) {
        cu->GraphDestroy(graph);
    }
    if (made != NULL && cu->GraphUpload(made, session->stream) != EP_CU_SUCCESS) {
        cu->GraphExecDestroy(made);
        made = NULL;
    }
    return made;
}

static void ep_cuda_make_graphs(ep_cuda_session *session) {
    const ep_cuda_model *cu = ep_cuda_of(session);
    const ep_descriptor *descriptor = cu->head.descriptor;
    const ep_gpu_step *steps = descriptor->gpu->steps;
    uint32_t end = 0;
    for (uint32_t first = 0; first < descriptor->step_count; first = end + 1) {
        uint32_t launches = 0;
        for (end = first; end < descriptor->step_count && steps[end].kind == EP_STEP_LAUNCH; end++) {
            launches += !ep_cuda_empty(&steps[end]);
        }
        ep_cu_graph_exec graph = launches > 1 ? ep_cuda_capture(session, first, end) : NULL;
        for (uint32_t i = first; i < end; i++) {
            session->graphs[i] = graph;
        }
    }
}

/* A tensor of no bytes is a null pointer. */
static void ep_cuda_find_addresses(ep_cuda_session *session) {
    const ep_cuda_model *cu = ep_cuda_of(session);
    const ep_gpu_program *program = cu->head.descriptor->gpu;
    ep_cu_address constant = cu->constants;
    for (uint32_t i = 0; i < program->place_count; i++) {
        const ep_gpu_place *place = &program->places[i];
        if (place->nbytes != 0) {
            session->addresses[i] =
                place->memory == EP_GPU_PARAMS ? constant : session->arena + (size_t)place->offset;
        }
        constant += (size_t)ep_cuda_constant_bytes(place);
    }
}

/* The caller's stream, if it is of the model's context. */
static ep_status ep_cuda_take_stream(ep_cuda_session *session) {
    const ep_cuda_model *cu = ep_cuda_of(session);
    ep_cu_stream stream = session->head.queue;
    ep_cu_context context = NULL;
    if (!cu->has_caller) {
        return EP_E_GPU_DRIVER;
    }
    if (cu->StreamGetCtx(stream, &context) != EP_CU_SUCCESS || context != cu->context) {
        return EP_E_GPU_CONTEXT;
    }
    cu->StreamDestroy(session->stream);
    session->stream = stream;
    return EP_OK;
}

/* Graphs are made on a stream of the session's own: the caller may be using his. */
static ep_status ep_cuda_session_make(ep_cuda_session *session) {
    const ep_cuda_model *cu = ep_cuda_of(session);
    size_t nbytes = (size_t)cu->head.descriptor->gpu->arena_bytes;
    if (cu->StreamCreate(&session->stream, EP_CU_STREAM_NON_BLOCKING) != EP_CU_SUCCESS) {
        session->stream = NULL;
        return EP_E_GPU_MEMORY;
    }
    if (nbytes != 0 && cu->MemAlloc(&session->arena, nbytes) != EP_CU_SUCCESS) {
        session->arena = 0;
        return EP_E_GPU_MEMORY;
    }
    ep_cuda_find_addresses(session);
    if (cu->has_graphs) {
        ep_cuda_make_graphs(session);
    }
    /* Nothing but the graphs was given to it: a device that failed says so here. */
    if (cu->StreamSynchronize(session->stream) != EP_CU_SUCCESS) {
        return EP_E_GPU_MEMORY;
    }
    if (session->head.limit_ms != 0 && !cu->has_caller) {
        return EP_E_GPU_DRIVER;
    }
    return session->head.queue != NULL ? ep_cuda_take_stream(session) : EP_OK;
}

static ep_status ep_cuda_session_open(ep_gpu_session *head) {
    ep_cuda_session *session = (ep_cuda_session *)(void *)head;
    const ep_cuda_model *cu = ep_cuda_of(session);
    session->addresses = (ep_cu_address *)(void *)(session + 1);
    session->graphs =
        (ep_cu_graph_exec *)(void *)(session->addresses + cu->head.descriptor->gpu->place_count);
    ep_status status = ep_cuda_enter(cu, EP_E_GPU_MEMORY);
    if (status == EP_OK) {
        status = ep_cuda_session_make(session);
        ep_cuda_leave(cu);
    }
    return status;
}

/* Whether a step is the first of a graph. */
static int ep_cuda_begins_graph(const ep_cuda_session *session, uint32_t index) {
    return session->graphs[index] != NULL &&
           (index == 0 || session->graphs[index - 1] != session->graphs[index]);
}

static void ep_cuda_session_close(ep_gpu_session *head) {
    ep_cuda_session *session = (ep_cuda_session *)(void *)head;
    const ep_cuda_model *cu = ep_cuda_of(session);
    if (ep_cuda_enter(cu, EP_E_GPU_RUN) != EP_OK) {
        return;
    }
    for (uint32_t i = 0; session->graphs != NULL && i < cu->head.descriptor->step_count; i++) {
        if (ep_cuda_begins_graph(session, i)) {
            cu->GraphExecDestroy(session->graphs[i]);
        }
    }
    if (session->arena != 0) {
        cu->MemFree(session->arena);
    }
    if (session->stream != NULL && (void *)session->stream != head->queue) {
        cu->StreamDestroy(session->stream);
    }
    ep_cuda_leave(cu);
}

static ep_status ep_cuda_upload(ep_gpu_session *head, const ep_gpu_step *step, const void *host) {
    ep_cuda_session *session = (ep_cuda_session *)(void *)head;
    const ep_cuda_model *cu = ep_cuda_of(session);
    ep_cu_address to = session->addresses[cu->head.descriptor->gpu->arguments[step->first]];
    ep_status status = ep_cuda_enter(cu, EP_E_GPU_RUN);
    if (status == EP_OK) {
        ep_cu_result result = cu->MemcpyHtoDAsync(to, host, (size_t)step->nbytes, session->stream);
        status = result == EP_CU_SUCCESS ? EP_OK : EP_E_GPU_RUN;
        ep_cuda_leave(cu);
    }
    return status;
}

static ep_status ep_cuda_download(ep_gpu_session *head, const ep_gpu_step *step, void *host) {
    ep_cuda_session *session = (ep_cuda_session *)(void *)head;
    const ep_cuda_model *cu = ep_cuda_of(session);
    ep_cu_address from = session->addresses[cu->head.descriptor->gpu->arguments[step->first]];
    ep_status status = ep_cuda_enter(cu, EP_E_GPU_RUN);
    if (status == EP_OK) {
        ep_cu_result result = cu->MemcpyDtoHAsync(host, from, (size_t)step->nbytes, session->stream);
        status = result == EP_CU_SUCCESS ? EP_OK : EP_E_GPU_RUN;
        ep_cuda_leave(cu);
    }
    return status;
}

/* The first launch of a graph gives all of it, unless each is timed. */
static ep_status ep_cuda_launch(ep_gpu_session *head, uint32_t index) {
    ep_cuda_session *session = (ep_cuda_session *)(void *)head;
    const ep_cuda_model *cu = ep_cuda_of(session);
    int in_graph = session->graphs[index] != NULL && !head->timed;
    if (in_graph && !ep_cuda_begins_graph(session, index)) {
        return EP_OK;
    }
    ep_status status = ep_cuda_enter(cu, EP_E_GPU_RUN);
    if (status != EP_OK) {
        return status;
    }
    if (!in_graph) {
        status = ep_cuda_give(session, index);
    } else if (cu->GraphLaunch(session->graphs[index], session->stream) != EP_CU_SUCCESS) {
        status = EP_E_GPU_RUN;
    }
    ep_cuda_leave(cu);
    return status;
}

/* Memory that the GPU can read, not that of the process, in one allocation. */
static ep_status ep_cuda_check_entered(const ep_cuda_model *cu, ep_gpu_memory *memory) {
    ep_cu_address address = (ep_cu_address)(uintptr_t)memory->object;
    ep_cu_address start = 0;
    size_t nbytes = 0;
    uint32_t type = EP_CU_MEMORY_TYPE_HOST;
    int32_t device = -1;
    if (memory->offset > SIZE_MAX - address) {
        return EP_E_GPU_BUFFER;
    }
    address += (size_t)memory->offset;
    if (cu->PointerGetAttribute(&type, EP_CU_POINTER_MEMORY_TYPE, address) != EP_CU_SUCCESS ||
        type == EP_CU_MEMORY_TYPE_HOST ||
        cu->PointerGetAttribute(&device, EP_CU_POINTER_DEVICE_ORDINAL, address) != EP_CU_SUCCESS ||
        device != cu->device || cu->MemGetAddressRange(&start, &nbytes, address) != EP_CU_SUCCESS ||
        address - start > nbytes || memory->nbytes > nbytes - (address - start)) {
        return EP_E_GPU_BUFFER;
    }
    memory->whole = NULL;
    memory->start = address;
    return EP_OK;
}

static ep_status ep_cuda_check(ep_gpu_session *head, ep_gpu_memory *memory) {
    const ep_cuda_model *cu = ep_cuda_of((ep_cuda_session *)(void *)head);
    if (!cu->has_caller) {
        return EP_E_GPU_DRIVER;
    }
    ep_status status = ep_cuda_enter(cu, EP_E_GPU_RUN);
    if (status == EP_OK) {
        status = ep_cuda_check_entered(cu, memory);
        ep_cuda_leave(cu);
    }
    return status;
}

static ep_status ep_cuda_copy(ep_gpu_session *head, const ep_gpu_memory *memory, uint64_t at,
                              const ep_gpu_step *step, void *host, int to_memory) {
    ep_cuda_session *session = (ep_cuda_session *)(void *)head;
    const ep_cuda_model *cu = ep_cuda_of(session);
    ep_cu_address there = (ep_cu_address)(memory->start + at);
    ep_cu_result result;
    ep_status status = ep_cuda_enter(cu, EP_E_GPU_RUN);
    if (status != EP_OK) {
        return status;
    }
    if (step != NULL) {
        ep_cu_address place = session->addresses[cu->head.descriptor->gpu->arguments[step->first]];
        result = cu->MemcpyDtoDAsync(to_memory ? there : place, to_memory ? place : there,
                                     (size_t)step->nbytes, session->stream);
    } else if (to_memory) {
        result = cu->MemcpyHtoDAsync(there, host, (size_t)memory->nbytes, session->stream);
    } else {
        result = cu->MemcpyDtoHAsync(host, there, (size_t)memory->nbytes, session->stream);
    }
    ep_cuda_leave(cu);
    return result == EP_CU_SUCCESS ? EP_OK : EP_E_GPU_RUN;
}

/* A stream begins by itself. */
static ep_status ep_cuda_submit(ep_gpu_session *head) {
    (void)head;
    return EP_OK;
}

static ep_status ep_cuda_poll(ep_gpu_session *head) {
    ep_cuda_session *session = (ep_cuda_session *)(void *)head;
    const ep_cuda_model *cu = ep_cuda_of(session);
    ep_status status = ep_cuda_enter(cu, EP_E_GPU_RUN);
    if (status == EP_OK) {
        ep_cu_result result = cu->StreamQuery(session->stream);
        status = result == EP_CU_SUCCESS ? EP_OK : result == EP_CU_NOT_READY ? EP_E_GPU_TIME : EP_E_GPU_RUN;
        ep_cuda_leave(cu);
    }
    return status;
}

static ep_status ep_cuda_finish(ep_gpu_session *head) {
    ep_cuda_session *session = (ep_cuda_session *)(void *)head;
    const ep_cuda_model *cu = ep_cuda_of(session);
    ep_status status = ep_cuda_enter(cu, EP_E_GPU_RUN);
    if (status == EP_OK) {
        status = cu->StreamSynchronize(session->stream) == EP_CU_SUCCESS ? EP_OK : EP_E_GPU_RUN;
        ep_cuda_leave(cu);
    }
    return status;
}

static const ep_gpu_backend ep_cuda = {
    "cuda",
    EP_GPU_CUDA,
    0,
    ep_cuda_model_bytes,
    ep_cuda_session_bytes,
    ep_cuda_model_open,
    ep_cuda_model_close,
    ep_cuda_session_open,
    ep_cuda_session_close,
    ep_cuda_upload,
    ep_cuda_download,
    ep_cuda_launch,
    ep_cuda_finish,
    ep_cuda_check,
    ep_cuda_copy,
    ep_cuda_submit,
    ep_cuda_poll,
};
