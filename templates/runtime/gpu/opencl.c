/* OpenCL: the driver's library, and the device that a model gets.
 * SPDX-License-Identifier: Apache-2.0 */
enum { EP_CL_PLATFORMS = 16, EP_CL_DEVICES = 32, EP_CL_DIMENSIONS = 16 };

typedef struct ep_opencl_model {
    ep_gpu_model head;
    void *library;
    ep_cl_device device;
    ep_cl_context context;
    ep_cl_program program;
    ep_cl_mem *constants; /* one for each place; null for those of the arena */
#define X(type, name, parameters) type(EP_CL_CALL *name) parameters;
    EP_CL_FUNCTIONS(X)
#undef X
} ep_opencl_model;

static ep_status ep_opencl_load(ep_opencl_model *cl) {
    /* clang-format off */
    static const char *const names[] = {
#if defined(_WIN32)
        "OpenCL.dll",
#elif defined(__APPLE__)
        "/System/Library/Frameworks/OpenCL.framework/OpenCL",
#else
        "libOpenCL.so.1", "libOpenCL.so",
#if defined(__ANDROID__) && defined(__LP64__)
        "/vendor/lib64/libOpenCL.so", "/system/vendor/lib64/libOpenCL.so",
#elif defined(__ANDROID__)
        "/vendor/lib/libOpenCL.so", "/system/vendor/lib/libOpenCL.so",
#endif
#endif
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof names / sizeof names[0] && cl->library == NULL; i++) {
        cl->library = ep_platform_library_open(names[i]);
    }
    if (cl->library == NULL) {
        return EP_E_GPU_DRIVER;
    }
#define X(type, name, parameters) \
    cl->name = (type(EP_CL_CALL *) parameters)ep_platform_library_symbol(cl->library, "cl" #name); \
    if (cl->name == NULL) { \
        return EP_E_GPU_DRIVER; \
    }
    EP_CL_FUNCTIONS(X)
#undef X
    return EP_OK;
}

/* One of a device's numbers, whose type in OpenCL has `nbytes`; 0 if it does not tell. */
static uint64_t ep_opencl_number(const ep_opencl_model *cl, ep_cl_device device, uint32_t what,
                                 size_t nbytes) {
    uint64_t value = 0; /* all targets are little-endian */
    return cl->GetDeviceInfo(device, what, nbytes, &value, NULL) == EP_CL_SUCCESS ? value : 0;
}

/* Whether each launch's work groups are no wider than the device takes them. */
static int ep_opencl_groups_fit(const ep_opencl_model *cl, ep_cl_device device) {
    const ep_descriptor *descriptor = cl->head.descriptor;
    size_t most[EP_CL_DIMENSIONS] = {0};
    if (cl->GetDeviceInfo(device, EP_CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof most, most, NULL) !=
        EP_CL_SUCCESS) {
        return 0;
    }
    for (uint32_t i = 0; i < descriptor->step_count; i++) {
        const ep_gpu_step *step = &descriptor->gpu->steps[i];
        for (int d = 0; d < 3 && step->kind == EP_STEP_LAUNCH; d++) {
            if (step->threads[d] > most[d]) {
                return 0;
            }
        }
    }
    return 1;
}

static int ep_opencl_memory_fits(const ep_opencl_model *cl, ep_cl_device device) {
    const ep_gpu_program *program = cl->head.descriptor->gpu;
    uint64_t largest = program->arena_bytes;
    uint64_t total = program->arena_bytes;
    for (uint32_t i = 0; i < program->place_count; i++) {
        if (program->places[i].memory == EP_GPU_PARAMS) {
            largest = largest < program->places[i].nbytes ? program->places[i].nbytes : largest;
            total += program->places[i].nbytes;
        }
    }
    uint64_t align = ep_opencl_number(cl, device, EP_CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(uint32_t));
    return total <= SIZE_MAX && EP_GPU_ALIGNMENT * 8u % (align != 0 ? align : 8u) == 0 &&
           largest <= ep_opencl_number(cl, device, EP_CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(uint64_t)) &&
           total <= ep_opencl_number(cl, device, EP_CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(uint64_t)) &&
           program->local_bytes <=
               ep_opencl_number(cl, device, EP_CL_DEVICE_LOCAL_MEM_SIZE, sizeof(uint64_t));
}

static int ep_opencl_fits(const ep_opencl_model *cl, ep_cl_device device) {
    return ep_opencl_number(cl, device, EP_CL_DEVICE_AVAILABLE, sizeof(uint32_t)) != 0 &&
           ep_opencl_number(cl, device, EP_CL_DEVICE_COMPILER_AVAILABLE, sizeof(uint32_t)) != 0 &&
           ep_opencl_number(cl, device, EP_CL_DEVICE_ENDIAN_LITTLE, sizeof(uint32_t)) != 0 &&
           ep_opencl_number(cl, device, EP_CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t)) >=
               cl->head.descriptor->gpu->most_threads &&
           ep_opencl_groups_fit(cl, device) && ep_opencl_memory_fits(cl, device);
}

/* The first device of a platform that fits: a GPU, or, with `others`, one of another kind. */
static int ep_opencl_find_on(ep_opencl_model *cl, ep_cl_platform platform, int others) {
    ep_cl_device devices[EP_CL_DEVICES];
    uint32_t count = 0;
    if (cl->GetDeviceIDs(platform, EP_CL_DEVICE_TYPE_ALL, EP_CL_DEVICES, devices, &count) != EP_CL_SUCCESS) {
        return 0;
    }
    for (uint32_t i = 0; i < count && i < EP_CL_DEVICES; i++) {
        uint64_t type = ep_opencl_number(cl, devices[i], EP_CL_DEVICE_TYPE, sizeof(uint64_t));
        if (((type & EP_CL_DEVICE_TYPE_GPU) == 0) == others && ep_opencl_fits(cl, devices[i])) {
            cl->device = devices[i];
            return 1;
        }
    }
    return 0;
}

/* The caller's context, and one of its devices: the one that the caller names, or the first that fits. */
static ep_status ep_opencl_take(ep_opencl_model *cl, const ep_open_options *options) {
    ep_cl_device devices[EP_CL_DEVICES];
    size_t nbytes = 0;
    ep_cl_context context = options->gpu_context;
    if (cl->GetContextInfo(context, EP_CL_CONTEXT_DEVICES, sizeof devices, devices, &nbytes) !=
            EP_CL_SUCCESS ||
        cl->RetainContext(context) != EP_CL_SUCCESS) {
        return EP_E_GPU_CONTEXT;
    }
    cl->context = context;
    ep_status status = options->gpu_device != NULL ? EP_E_GPU_CONTEXT : EP_E_GPU_DEVICE;
    for (size_t i = 0; i < nbytes / sizeof devices[0]; i++) {
        if (options->gpu_device != NULL && options->gpu_device != (void *)devices[i]) {
            continue;
        }
        status = EP_E_GPU_DEVICE;
        if (ep_opencl_fits(cl, devices[i])) {
            cl->device = devices[i];
            return EP_OK;
        }
    }
    return status;
}

/* What a driver offers beside GPUs is as a rule the CPU, for which the variant behind this one is faster. */
static ep_status ep_opencl_find(ep_opencl_model *cl) {
    ep_cl_platform platforms[EP_CL_PLATFORMS];
    uint32_t count = 0;
    if (cl->GetPlatformIDs(EP_CL_PLATFORMS, platforms, &count) != EP_CL_SUCCESS || count == 0) {
        return EP_E_GPU_DRIVER;
    }
    for (int others = 0; others <= (cl->head.alone != 0); others++) {
        for (uint32_t i = 0; i < count && i < EP_CL_PLATFORMS; i++) {
            if (ep_opencl_find_on(cl, platforms[i], others)) {
                return EP_OK;
            }
        }
    }
    return EP_E_GPU_DEVICE;
}
