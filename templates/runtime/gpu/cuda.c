/* CUDA: the driver's library, the device, the kernels and constants of a model.
 *
 * The device's primary context is used, which all of a process share, or the caller's; it is never left
 * current in the caller's thread. What a session has is in cuda_session.c. SPDX-License-Identifier:
 * Apache-2.0 */
enum { EP_CU_ALIGNMENT = 256, EP_CU_ARGUMENTS = 512 /* 4096 bytes, the most that a kernel can have */ };

typedef struct ep_cuda_model {
    ep_gpu_model head;
    void *library;
    ep_cu_context context;
    ep_cu_module module;
    ep_cu_address constants; /* all of them, one behind the other */
    ep_cu_function *kernels;
    ep_cu_device device;
    uint32_t capability; /* of the device, 10 * major + minor */
    uint32_t has_graphs;
    uint32_t has_caller; /* the functions for what is the caller's */
#define X(name, version, parameters) ep_cu_result(EP_CU_CALL *name) parameters;
    EP_CU_FUNCTIONS(X)
    X(DevicePrimaryCtxRelease, "", (ep_cu_device device))
    EP_CU_GRAPH_FUNCTIONS(X)
    EP_CU_CALLER_FUNCTIONS(X)
#undef X
} ep_cuda_model;

#define EP_CU_FIND(name, version, parameters) \
    cu->name = \
        (ep_cu_result(EP_CU_CALL *) parameters)ep_platform_library_symbol(cu->library, "cu" #name version);

static ep_status ep_cuda_load(ep_cuda_model *cu) {
#if defined(_WIN32)
    cu->library = ep_platform_library_open("nvcuda.dll");
#else
    cu->library = ep_platform_library_open("libcuda.so.1");
#endif
    if (cu->library == NULL) {
        return EP_E_GPU_DRIVER;
    }
#define X(name, version, parameters) \
    EP_CU_FIND(name, version, parameters) \
    if (cu->name == NULL) { \
        return EP_E_GPU_DRIVER; \
    }
    EP_CU_FUNCTIONS(X)
#undef X
    EP_CU_FIND(DevicePrimaryCtxRelease, "_v2", (ep_cu_device))
    if (cu->DevicePrimaryCtxRelease == NULL) { /* before CUDA 11 */
        EP_CU_FIND(DevicePrimaryCtxRelease, "", (ep_cu_device))
    }
    cu->has_graphs = 1;
#define X(name, version, parameters) \
    EP_CU_FIND(name, version, parameters) \
    cu->has_graphs &= cu->name != NULL;
    EP_CU_GRAPH_FUNCTIONS(X)
#undef X
    cu->has_caller = 1;
#define X(name, version, parameters) \
    EP_CU_FIND(name, version, parameters) \
    cu->has_caller &= cu->name != NULL;
    EP_CU_CALLER_FUNCTIONS(X)
#undef X
    return cu->DevicePrimaryCtxRelease != NULL ? EP_OK : EP_E_GPU_DRIVER;
}

/* What a failure that has to do with memory, or else with something other, is called. */
static ep_status ep_cuda_status(ep_cu_result result, ep_status other) {
    return result == EP_CU_SUCCESS ? EP_OK : result == EP_CU_OUT_OF_MEMORY ? EP_E_GPU_MEMORY : other;
}

/* One of a device's numbers; 0 if it does not tell. */
static uint32_t ep_cuda_number(const ep_cuda_model *cu, ep_cu_device device, int32_t what) {
    int32_t value = 0;
    return cu->DeviceGetAttribute(&value, what, device) == EP_CU_SUCCESS && value > 0 ? (uint32_t)value : 0;
}

static uint32_t ep_cuda_capability(const ep_cuda_model *cu, ep_cu_device device) {
    return 10 * ep_cuda_number(cu, device, EP_CU_CAPABILITY_MAJOR) +
           ep_cuda_number(cu, device, EP_CU_CAPABILITY_MINOR);
}

/* Machine code of the highest capability first, then PTX; 0 for what the device cannot run. */
static uint32_t ep_cuda_rank(const ep_gpu_image *image, uint32_t capability) {
    if (image->capability > capability) {
        return 0;
    }
    if (image->ptx) {
        return image->capability;
    }
    return image->capability / 10 == capability / 10 ? UINT32_C(0x10000) + image->capability : 0;
}

/* The next of the model's images, behind those of `rank`; null if there is none. */
static const ep_gpu_image *ep_cuda_next_image(const ep_gpu_program *program, uint32_t capability,
                                              uint32_t *rank) {
    const ep_gpu_image *found = NULL;
    uint32_t best = 0;
    for (uint32_t i = 0; i < program->image_count; i++) {
        uint32_t own = ep_cuda_rank(&program->images[i], capability);
        if (own > best && own < *rank) {
            best = own;
            found = &program->images[i];
        }
    }
    *rank = best;
    return found;
}

/* Whether the device takes each launch. */
static int ep_cuda_launches_fit(const ep_cuda_model *cu, ep_cu_device device) {
    const ep_descriptor *descriptor = cu->head.descriptor;
    uint32_t block[3];
    uint32_t grid[3];
    for (int32_t d = 0; d < 3; d++) {
        block[d] = ep_cuda_number(cu, device, EP_CU_MAX_BLOCK_DIM_X + d);
        grid[d] = ep_cuda_number(cu, device, EP_CU_MAX_GRID_DIM_X + d);
    }
    for (uint32_t i = 0; i < descriptor->step_count; i++) {
        const ep_gpu_step *step = &descriptor->gpu->steps[i];
        for (int d = 0; d < 3 && step->kind == EP_STEP_LAUNCH; d++) {
            if (step->threads[d] > block[d] || step->groups[d] > grid[d] || step->count > EP_CU_ARGUMENTS) {
                return 0;
            }
        }
    }
    return 1;
}

/* Bytes of a constant and of what is left free behind it; 0 for what is in the arena. */
static uint64_t ep_cuda_constant_bytes(const ep_gpu_place *place) {
    return place->memory != EP_GPU_PARAMS
               ? 0
               : (place->nbytes + EP_CU_ALIGNMENT - 1) & ~(uint64_t)(EP_CU_ALIGNMENT - 1);
}

static uint64_t ep_cuda_constants_bytes(const ep_gpu_program *program) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < program->place_count; i++) {
        total += ep_cuda_constant_bytes(&program->places[i]);
    }
    return total;
}

static int ep_cuda_fits(const ep_cuda_model *cu, ep_cu_device device, uint32_t capability) {
    const ep_gpu_program *program = cu->head.descriptor->gpu;
    uint64_t needed = program->arena_bytes + ep_cuda_constants_bytes(program);
    uint32_t rank = UINT32_MAX;
    size_t total = 0;
    return cu->DeviceTotalMem(&total, device) == EP_CU_SUCCESS && needed <= total &&
           ep_cuda_next_image(program, capability, &rank) != NULL &&
           ep_cuda_number(cu, device, EP_CU_MAX_THREADS_PER_BLOCK) >= program->most_threads &&
           ep_cuda_number(cu, device, EP_CU_MAX_SHARED_MEMORY_PER_BLOCK) >= program->local_bytes &&
           ep_cuda_launches_fit(cu, device);
}

static ep_status ep_cuda_enter(const ep_cuda_model *cu, ep_status otherwise) {
    return ep_cuda_status(cu->CtxPushCurrent(cu->context), otherwise);
}

static void ep_cuda_leave(const ep_cuda_model *cu) {
    ep_cu_context left = NULL;
    cu->CtxPopCurrent(&left);
}

/* The first device that fits. */
static ep_status ep_cuda_find(ep_cuda_model *cu) {
    int32_t count = 0;
    ep_cu_result result = cu->Init(0);
    if (result != EP_CU_SUCCESS) {
        return result == EP_CU_NO_DEVICE ? EP_E_GPU_DEVICE : EP_E_GPU_DRIVER;
    }
    if (cu->DeviceGetCount(&count) != EP_CU_SUCCESS) {
        return EP_E_GPU_DEVICE;
    }
    for (int32_t i = 0; i < count; i++) {
        if (cu->DeviceGet(&cu->device, i) == EP_CU_SUCCESS) {
            cu->capability = ep_cuda_capability(cu, cu->device);
            if (ep_cuda_fits(cu, cu->device, cu->capability)) {
                return EP_OK;
            }
        }
    }
    return EP_E_GPU_DEVICE;
}

/* The caller's context, if its device fits. */
static ep_status ep_cuda_take(ep_cuda_model *cu, ep_cu_context context) {
    if (!cu->has_caller) {
        return EP_E_GPU_DRIVER;
    }
    if (cu->CtxPushCurrent(context) != EP_CU_SUCCESS) {
        return EP_E_GPU_CONTEXT;
    }
    ep_cu_result result = cu->CtxGetDevice(&cu->device);
    ep_cuda_leave(cu);
    if (result != EP_CU_SUCCESS) {
        return EP_E_GPU_CONTEXT;
    }
    cu->capability = ep_cuda_capability(cu, cu->device);
    if (!ep_cuda_fits(cu, cu->device, cu->capability)) {
        return EP_E_GPU_DEVICE;
    }
    cu->context = context;
    return EP_OK;
}

/* Finds each kernel; a driver may give one fewer threads than the device has. */
static ep_status ep_cuda_find_kernels(const ep_cuda_model *cu) {
    const ep_descriptor *descriptor = cu->head.descriptor;
    const ep_gpu_program *program = descriptor->gpu;
    for (uint32_t i = 0; i < program->kernel_count; i++) {
        if (cu->ModuleGetFunction(&cu->kernels[i], cu->module, program->kernels[i]) != EP_CU_SUCCESS) {
            return EP_E_GPU_BUILD;
        }
    }
    for (uint32_t i = 0; i < descriptor->step_count; i++) {
        const ep_gpu_step *step = &program->steps[i];
        int32_t most = 0;
        if (step->kind != EP_STEP_LAUNCH) {
            continue;
        }
        if (cu->FuncGetAttribute(&most, EP_CU_FUNCTION_MAX_THREADS_PER_BLOCK, cu->kernels[step->kernel]) !=
            EP_CU_SUCCESS) {
            return EP_E_GPU_BUILD;
        }
        if (most < 0 || (uint64_t)step->threads[0] * step->threads[1] * step->threads[2] > (uint64_t)most) {
            return EP_E_GPU_DEVICE;
        }
    }
    return EP_OK;
}

/* A driver may refuse an image that fits: of another kind of device, or newer than itself. */
static ep_status ep_cuda_build(ep_cuda_model *cu) {
    uint32_t rank = UINT32_MAX;
    ep_status status = EP_E_GPU_BUILD;
    for (;;) {
        const ep_gpu_image *image = ep_cuda_next_image(cu->head.descriptor->gpu, cu->capability, &rank);
        if (image == NULL) {
            return status;
        }
        status = ep_cuda_status(cu->ModuleLoadData(&cu->module, image->data), EP_E_GPU_BUILD);
        if (status == EP_OK) {
            return ep_cuda_find_kernels(cu);
        }
        cu->module = NULL;
    }
}

static ep_status ep_cuda_upload_constants(const ep_cuda_model *cu, ep_cu_stream stream,
                                          const unsigned char *params) {
    const ep_gpu_program *program = cu->head.descriptor->gpu;
    ep_cu_address to = cu->constants;
    ep_status status = EP_OK;
    for (uint32_t i = 0; i < program->place_count && status == EP_OK; i++) {
        const ep_gpu_place *place = &program->places[i];
        if (place->memory == EP_GPU_PARAMS && place->nbytes != 0 &&
            cu->MemcpyHtoDAsync(to, params + (size_t)place->offset, (size_t)place->nbytes, stream) !=
                EP_CU_SUCCESS) {
            status = EP_E_GPU_MEMORY;
        }
        to += (size_t)ep_cuda_constant_bytes(place);
    }
    return cu->StreamSynchronize(stream) == EP_CU_SUCCESS ? status : EP_E_GPU_MEMORY;
}

static ep_status ep_cuda_copy_constants(ep_cuda_model *cu, const unsigned char *params) {
    size_t nbytes = (size_t)ep_cuda_constants_bytes(cu->head.descriptor->gpu);
    ep_cu_stream stream = NULL;
    if (nbytes == 0) {
        return EP_OK;
    }
    if (cu->MemAlloc(&cu->constants, nbytes) != EP_CU_SUCCESS) {
        cu->constants = 0;
        return EP_E_GPU_MEMORY;
    }
    if (cu->StreamCreate(&stream, EP_CU_STREAM_NON_BLOCKING) != EP_CU_SUCCESS) {
        return EP_E_GPU_MEMORY;
    }
    ep_status status = ep_cuda_upload_constants(cu, stream, params);
    cu->StreamDestroy(stream);
    return status;
}

static size_t ep_cuda_model_bytes(const ep_gpu_program *program) {
    return sizeof(ep_cuda_model) + (size_t)program->kernel_count * sizeof(ep_cu_function);
}

static ep_status ep_cuda_model_open(ep_gpu_model *head, const ep_open_options *options,
                                    const unsigned char *params) {
    ep_cuda_model *cu = (ep_cuda_model *)(void *)head;
    cu->kernels = (ep_cu_function *)(void *)(cu + 1);
    ep_status status = ep_cuda_load(cu);
    if (status == EP_OK) {
        status = head->borrowed ? ep_cuda_take(cu, options->gpu_context) : ep_cuda_find(cu);
    }
    if (status != EP_OK) {
        return status;
    }
    if (cu->DeviceGetName(head->device, (int32_t)sizeof head->device, cu->device) != EP_CU_SUCCESS) {
        head->device[0] = 0;
    }
    head->device[sizeof head->device - 1] = 0;
    if (!head->borrowed) {
        status = ep_cuda_status(cu->DevicePrimaryCtxRetain(&cu->context, cu->device), EP_E_GPU_DEVICE);
    }
    if (status != EP_OK) {
        cu->context = NULL;
        return status;
    }
    status = ep_cuda_enter(cu, EP_E_GPU_DEVICE);
    if (status == EP_OK) {
        status = ep_cuda_build(cu);
        status = status == EP_OK ? ep_cuda_copy_constants(cu, params) : status;
        ep_cuda_leave(cu);
    }
    return status;
}

/* What a context that failed does not give back goes with it. */
static void ep_cuda_model_close(ep_gpu_model *head) {
    ep_cuda_model *cu = (ep_cuda_model *)(void *)head;
    if (cu->context != NULL) {
        if (ep_cuda_enter(cu, EP_E_GPU_RUN) == EP_OK) {
            if (cu->constants != 0) {
                cu->MemFree(cu->constants);
            }
            if (cu->module != NULL) {
                cu->ModuleUnload(cu->module);
            }
            ep_cuda_leave(cu);
        }
        if (!head->borrowed) {
            cu->DevicePrimaryCtxRelease(cu->device);
        }
    }
    if (cu->library != NULL) {
        ep_platform_library_close(cu->library);
    }
}
