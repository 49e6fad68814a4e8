/* Metal: a session's memory on the device, which is the CPU's too, and the command buffer that is being
 * filled. All launches of a run go into one, which the GPU gets when it is waited for.
 *
 * A copy from or to the process is done at once, unless something uses its place that the GPU has not done.
 * Then an upload waits for the GPU; a download is done when the GPU is waited for, which a further launch
 * does. A copy from or to a buffer of the caller's is one of the GPU's, between the launches.
 *
 * An asynchronous run ends with its command buffer given to the GPU; the one before it is then waited for, so
 * that there are never more than two. SPDX-License-Identifier: Apache-2.0 */
typedef struct ep_metal_session {
    ep_gpu_session head;
    ep_mtl_id arena;
    unsigned char *memory; /* of the arena */
    ep_mtl_id queue;
    ep_mtl_id commands; /* null: nothing is being given */
    ep_mtl_id encoder;  /* of launches; null: a copy was the last */
    ep_mtl_id given;    /* commands of an earlier run that were not waited for; null: none */
    uint32_t first;     /* the first step of which something is in `commands` */
    uint32_t downloads; /* how many wait for the GPU */
    size_t *offsets;    /* of each place in its buffer */
    void **hosts;       /* of each step: where a download that waits goes */
} ep_metal_session;

static size_t ep_metal_session_bytes(const ep_descriptor *descriptor) {
    return sizeof(ep_metal_session) + (size_t)descriptor->gpu->place_count * sizeof(size_t) +
           (size_t)descriptor->step_count * sizeof(void *);
}

static const ep_metal_model *ep_metal_of(const ep_metal_session *session) {
    return (const ep_metal_model *)(const void *)session->head.model;
}

static void ep_metal_find_offsets(ep_metal_session *session) {
    const ep_metal_model *mt = ep_metal_of(session);
    const ep_gpu_program *program = mt->head.descriptor->gpu;
    size_t constant = 0;
    for (uint32_t i = 0; i < program->place_count; i++) {
        const ep_gpu_place *place = &program->places[i];
        if (place->memory != EP_GPU_PARAMS) {
            session->offsets[i] = (size_t)place->offset;
        } else {
            session->offsets[i] = mt->before == SIZE_MAX ? constant : mt->before + (size_t)place->offset;
        }
        constant += (size_t)ep_metal_constant_bytes(place);
    }
}

/* The caller's queue, or the model's, which all sessions can share. */
static ep_status ep_metal_take_queue(ep_metal_session *session) {
    const ep_metal_model *mt = ep_metal_of(session);
    ep_mtl_id queue = session->head.queue != NULL ? session->head.queue : mt->queue;
    if (session->head.queue != NULL && EP_MTL(mt, device_of, queue) != mt->device) {
        return EP_E_GPU_CONTEXT;
    }
    session->queue = EP_MTL(mt, retain, queue);
    return EP_OK;
}

static ep_status ep_metal_session_open(ep_gpu_session *head) {
    ep_metal_session *session = (ep_metal_session *)(void *)head;
    const ep_metal_model *mt = ep_metal_of(session);
    const ep_gpu_program *program = mt->head.descriptor->gpu;
    session->offsets = (size_t *)(void *)(session + 1);
    session->hosts = (void **)(void *)(session->offsets + program->place_count);
    ep_metal_find_offsets(session);
    void *pool = mt->objc_autoreleasePoolPush();
    ep_status status = ep_metal_take_queue(session);
    if (status == EP_OK && program->arena_bytes != 0) {
        session->arena =
            EP_MTL_WITH(mt, new_buffer, mt->device, (size_t)program->arena_bytes, EP_MTL_STORAGE_SHARED);
        session->memory = session->arena != NULL ? EP_MTL(mt, contents, session->arena) : NULL;
        status = session->memory != NULL ? EP_OK : EP_E_GPU_MEMORY;
    }
    mt->objc_autoreleasePoolPop(pool);
    return status;
}

static void ep_metal_session_close(ep_gpu_session *head) {
    ep_metal_session *session = (ep_metal_session *)(void *)head;
    const ep_metal_model *mt = ep_metal_of(session);
    void *pool = mt->objc_autoreleasePoolPush();
    ep_metal_release(mt, session->arena);
    ep_metal_release(mt, session->queue);
    mt->objc_autoreleasePoolPop(pool);
}

/* A command buffer for what is given from step `index` on. */
static ep_status ep_metal_begin(ep_metal_session *session, uint32_t index) {
    const ep_metal_model *mt = ep_metal_of(session);
    if (session->commands != NULL) {
        return EP_OK;
    }
    ep_mtl_id commands = EP_MTL(mt, commands, session->queue);
    if (commands == NULL) {
        return EP_E_GPU_RUN;
    }
    session->commands = EP_MTL(mt, retain, commands);
    session->first = index;
    return EP_OK;
}

/* An encoder for launches. */
static ep_status ep_metal_begin_launches(ep_metal_session *session) {
    const ep_metal_model *mt = ep_metal_of(session);
    if (session->encoder != NULL) {
        return EP_OK;
    }
    ep_mtl_id encoder = EP_MTL(mt, encoder, session->commands);
    if (encoder == NULL) {
        return EP_E_GPU_RUN;
    }
    session->encoder = EP_MTL(mt, retain, encoder);
    return EP_OK;
}

static void ep_metal_end_launches(ep_metal_session *session) {
    const ep_metal_model *mt = ep_metal_of(session);
    if (session->encoder != NULL) {
        EP_MTL(mt, end, session->encoder);
        EP_MTL(mt, release, session->encoder);
        session->encoder = NULL;
    }
}

/* Waits for commands that the GPU has. */
static ep_status ep_metal_wait(const ep_metal_session *session, ep_mtl_id commands) {
    const ep_metal_model *mt = ep_metal_of(session);
    if (commands == NULL) {
        return EP_OK;
    }
    EP_MTL(mt, wait, commands);
    ep_mtl_number status = EP_MTL(mt, status, commands);
    EP_MTL(mt, release, commands);
    return status == EP_MTL_COMMANDS_COMPLETED ? EP_OK : EP_E_GPU_RUN;
}

/* Gives the commands to the GPU, and waits for those that it was given before. */
static ep_status ep_metal_give(ep_metal_session *session) {
    const ep_metal_model *mt = ep_metal_of(session);
    ep_mtl_id before = session->given;
    if (session->commands == NULL) {
        return EP_OK;
    }
    ep_metal_end_launches(session);
    EP_MTL(mt, commit, session->commands);
    session->given = session->commands;
    session->commands = NULL;
    return ep_metal_wait(session, before);
}

/* Gives the commands to the GPU and waits for all. */
static ep_status ep_metal_do_commands(ep_metal_session *session) {
    ep_status before = ep_metal_give(session);
    ep_status status = ep_metal_wait(session, session->given);
    session->given = NULL;
    return before == EP_OK ? status : before;
}

/* Where a copy's tensor is in the process. Constants are read only. */
static unsigned char *ep_metal_tensor(const ep_metal_session *session, const ep_gpu_step *step) {
    const ep_metal_model *mt = ep_metal_of(session);
    const ep_gpu_program *program = mt->head.descriptor->gpu;
    uint32_t place = program->arguments[step->first];
    unsigned char *memory = program->places[place].memory == EP_GPU_PARAMS
                                ? (unsigned char *)EP_MTL(mt, contents, mt->constants)
                                : session->memory;
    return memory + session->offsets[place];
}

static ep_status ep_metal_flush(ep_metal_session *session) {
    const ep_metal_model *mt = ep_metal_of(session);
    const ep_descriptor *descriptor = mt->head.descriptor;
    void *pool = mt->objc_autoreleasePoolPush();
    ep_status status = ep_metal_do_commands(session);
    for (uint32_t i = 0; i < descriptor->step_count && session->downloads != 0; i++) {
        const ep_gpu_step *step = &descriptor->gpu->steps[i];
        if (session->hosts[i] == NULL) {
            continue;
        }
        if (status == EP_OK) {
            memcpy(session->hosts[i], ep_metal_tensor(session, step), (size_t)step->nbytes);
        }
        session->hosts[i] = NULL;
        session->downloads--;
    }
    mt->objc_autoreleasePoolPop(pool);
    return status;
}

static int ep_metal_overlap(const ep_gpu_place *a, const ep_gpu_place *b) {
    return a->memory == b->memory && a->offset < b->offset + b->nbytes && b->offset < a->offset + a->nbytes;
}

/* Whether something that the GPU has not done uses the place of the copy that is step `index`: launches, and
 * copies to and from the caller's buffers. */
static int ep_metal_in_use(const ep_metal_session *session, uint32_t index) {
    const ep_gpu_program *program = ep_metal_of(session)->head.descriptor->gpu;
    const ep_gpu_place *place = &program->places[program->arguments[program->steps[index].first]];
    if (session->given != NULL) {
        return 1;
    }
    for (uint32_t i = session->first; i < index && session->commands != NULL; i++) {
        const ep_gpu_step *step = &program->steps[i];
        int there = step->kind == EP_STEP_LAUNCH || ep_gpu_copied_there(&session->head, step) != NULL;
        for (uint32_t j = 0; j < step->count && there; j++) {
            if (ep_metal_overlap(place, &program->places[program->arguments[step->first + j]])) {
                return 1;
            }
        }
    }
    return 0;
}

static ep_status ep_metal_upload(ep_gpu_session *head, const ep_gpu_step *step, const void *host) {
    ep_metal_session *session = (ep_metal_session *)(void *)head;
    uint32_t index = (uint32_t)(step - ep_metal_of(session)->head.descriptor->gpu->steps);
    ep_status status = EP_OK;
    if (ep_metal_in_use(session, index)) {
        status = ep_metal_flush(session);
    }
    if (status == EP_OK) {
        memcpy(ep_metal_tensor(session, step), host, (size_t)step->nbytes);
    }
    return status;
}

static ep_status ep_metal_download(ep_gpu_session *head, const ep_gpu_step *step, void *host) {
    ep_metal_session *session = (ep_metal_session *)(void *)head;
    uint32_t index = (uint32_t)(step - ep_metal_of(session)->head.descriptor->gpu->steps);
    if (!ep_metal_in_use(session, index)) {
        memcpy(host, ep_metal_tensor(session, step), (size_t)step->nbytes);
        return EP_OK;
    }
    session->hosts[index] = host;
    session->downloads++;
    return EP_OK;
}

static void ep_metal_encode(const ep_metal_session *session, const ep_gpu_step *step) {
    const ep_metal_model *mt = ep_metal_of(session);
    const ep_gpu_program *program = mt->head.descriptor->gpu;
    const ep_mtl_size groups = {step->groups[0], step->groups[1], step->groups[2]};
    const ep_mtl_size threads = {step->threads[0], step->threads[1], step->threads[2]};
    EP_MTL_WITH(mt, set_pipeline, session->encoder, mt->pipelines[step->kernel]);
    for (uint32_t i = 0; i < step->count; i++) {
        uint32_t place = program->arguments[step->first + i];
        ep_mtl_id buffer = program->places[place].memory == EP_GPU_PARAMS ? mt->constants : session->arena;
        if (program->places[place].nbytes == 0) { /* a null pointer */
            EP_MTL_WITH(mt, set_buffer, session->encoder, NULL, 0, i);
        } else {
            EP_MTL_WITH(mt, set_buffer, session->encoder, buffer, session->offsets[place], i);
        }
    }
    EP_MTL_WITH(mt, dispatch, session->encoder, groups, threads);
}

/* A launch of no group does nothing; Metal calls it an error. */
static ep_status ep_metal_launch(ep_gpu_session *head, uint32_t index) {
    ep_metal_session *session = (ep_metal_session *)(void *)head;
    const ep_metal_model *mt = ep_metal_of(session);
    const ep_gpu_step *step = &mt->head.descriptor->gpu->steps[index];
    ep_status status = EP_OK;
    if (step->groups[0] == 0 || step->groups[1] == 0 || step->groups[2] == 0) {
        return EP_OK;
    }
    if (session->downloads != 0) {
        status = ep_metal_flush(session);
    }
    void *pool = mt->objc_autoreleasePoolPush();
    status = status == EP_OK ? ep_metal_begin(session, index) : status;
    status = status == EP_OK ? ep_metal_begin_launches(session) : status;
    if (status == EP_OK) {
        ep_metal_encode(session, step);
    }
    mt->objc_autoreleasePoolPop(pool);
    return status;
}

/* What the CPU's steps use must be memory that the CPU can see. */
static ep_status ep_metal_check(ep_gpu_session *head, ep_gpu_memory *memory) {
    const ep_metal_model *mt = ep_metal_of((ep_metal_session *)(void *)head);
    ep_mtl_id object = memory->object;
    void *pool = mt->objc_autoreleasePoolPush();
    uint64_t nbytes = EP_MTL(mt, length, object);
    ep_status status = EP_OK;
    if (EP_MTL(mt, device_of, object) != mt->device || memory->offset > nbytes ||
        memory->nbytes > nbytes - memory->offset ||
        (memory->staging != NULL && EP_MTL(mt, contents, object) == NULL)) {
        status = EP_E_GPU_BUFFER;
    } else if (memory->staging == NULL &&
               (memory->offset % EP_MTL_COPY_ALIGNMENT != 0 || memory->nbytes % EP_MTL_COPY_ALIGNMENT != 0)) {
        status = EP_E_ALIGNMENT;
    }
    mt->objc_autoreleasePoolPop(pool);
    memory->whole = object;
    memory->start = memory->offset;
    return status;
}

/* Between a buffer of the caller's and a place, by the GPU. */
static ep_status ep_metal_copy_there(ep_metal_session *session, const ep_gpu_memory *memory, uint64_t at,
                                     const ep_gpu_step *step, int to_memory) {
    const ep_metal_model *mt = ep_metal_of(session);
    const ep_gpu_program *program = mt->head.descriptor->gpu;
    uint32_t place = program->arguments[step->first];
    ep_mtl_id own = program->places[place].memory == EP_GPU_PARAMS ? mt->constants : session->arena;
    size_t offset = (size_t)(memory->offset + at);
    ep_status status = ep_metal_begin(session, (uint32_t)(step - program->steps));
    if (status != EP_OK) {
        return status;
    }
    ep_metal_end_launches(session);
    ep_mtl_id copier = EP_MTL(mt, copier, session->commands);
    if (copier == NULL) {
        return EP_E_GPU_RUN;
    }
    if (to_memory) {
        EP_MTL_WITH(mt, copy, copier, own, session->offsets[place], memory->object, offset,
                    (size_t)step->nbytes);
    } else {
        EP_MTL_WITH(mt, copy, copier, memory->object, offset, own, session->offsets[place],
                    (size_t)step->nbytes);
    }
    EP_MTL(mt, end, copier);
    return EP_OK;
}

/* With no step, by the CPU, when the GPU has done all that is before it in the queue, the caller's too. */
static ep_status ep_metal_copy(ep_gpu_session *head, const ep_gpu_memory *memory, uint64_t at,
                               const ep_gpu_step *step, void *host, int to_memory) {
    ep_metal_session *session = (ep_metal_session *)(void *)head;
    const ep_metal_model *mt = ep_metal_of(session);
    void *pool = mt->objc_autoreleasePoolPush();
    ep_status status = EP_OK;
    if (session->downloads != 0) {
        status = ep_metal_flush(session);
    }
    if (status == EP_OK && step != NULL) {
        status = ep_metal_copy_there(session, memory, at, step, to_memory);
    } else if (status == EP_OK) {
        status = ep_metal_begin(session, 0);
        status = status == EP_OK ? ep_metal_flush(session) : status;
        unsigned char *there = status == EP_OK ? EP_MTL(mt, contents, memory->object) : NULL;
        if (there != NULL) {
            there += (size_t)(memory->offset + at);
            memcpy(to_memory ? there : host, to_memory ? host : there, (size_t)memory->nbytes);
        } else {
            status = EP_E_GPU_RUN;
        }
    }
    mt->objc_autoreleasePoolPop(pool);
    return status;
}

static ep_status ep_metal_submit(ep_gpu_session *head) {
    ep_metal_session *session = (ep_metal_session *)(void *)head;
    const ep_metal_model *mt = ep_metal_of(session);
    void *pool = mt->objc_autoreleasePoolPush();
    ep_status status = ep_metal_give(session);
    mt->objc_autoreleasePoolPop(pool);
    return status;
}

static ep_status ep_metal_poll(ep_gpu_session *head) {
    const ep_metal_session *session = (ep_metal_session *)(void *)head;
    const ep_metal_model *mt = ep_metal_of(session);
    return session->given == NULL || EP_MTL(mt, status, session->given) >= EP_MTL_COMMANDS_COMPLETED
               ? EP_OK
               : EP_E_GPU_TIME;
}

static ep_status ep_metal_finish(ep_gpu_session *head) {
    return ep_metal_flush((ep_metal_session *)(void *)head);
}

static const ep_gpu_backend ep_metal = {
    "metal",
    EP_GPU_METAL,
    0,
    ep_metal_model_bytes,
    ep_metal_session_bytes,
    ep_metal_model_open,
    ep_metal_model_close,
    ep_metal_session_open,
    ep_metal_session_close,
    ep_metal_upload,
    ep_metal_download,
    ep_metal_launch,
    ep_metal_finish,
    ep_metal_check,
    ep_metal_copy,
    ep_metal_submit,
    ep_metal_poll,
};
