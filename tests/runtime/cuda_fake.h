/* The GPU variant of the mini model on the fake driver of CUDA. */
#include "fake_cuda.h"

#define IMAGE(text, capability, ptx) {(const unsigned char *)(text), sizeof(text), capability, ptx}

static ep_gpu_image images[] = {
    IMAGE("cubin 75", 75, 0), IMAGE("cubin 80", 80, 0), IMAGE("cubin 86", 86, 0),
    IMAGE("cubin 90", 90, 0), IMAGE("ptx 50", 50, 1),   IMAGE("ptx 90", 90, 1),
};

static ep_status cuda_of_open(const char *function) {
    if (strcmp(function, "Init") == 0) {
        return EP_E_GPU_DRIVER;
    }
    if (is_one_of(function, "DeviceGet DeviceGetCount DeviceGetAttribute DeviceTotalMem_v2 "
                            "DevicePrimaryCtxRetain CtxPushCurrent_v2 ")) {
        return EP_E_GPU_DEVICE;
    }
    return is_one_of(function, "ModuleGetFunction FuncGetAttribute ") ? EP_E_GPU_BUILD : EP_E_GPU_MEMORY;
}

static ep_status cuda_of_session(const char *function) {
    (void)function;
    return EP_E_GPU_MEMORY;
}

static void cuda_prepare(void) {
    gpu_program.images = images;
    gpu_program.image_count = sizeof images / sizeof images[0];
}

/* ---- The caller ---- */

static ep_cuda_model cu;

#define CU_OK(call) CHECK((call) == EP_CU_SUCCESS)

static void *cu_buffer(size_t nbytes) {
    ep_cu_address address = 0;
    CU_OK(cu.MemAlloc(&address, nbytes));
    return (void *)address;
}

static void cu_put(void *buffer, size_t offset, const void *from, size_t nbytes) {
    CU_OK(cu.MemcpyHtoDAsync((ep_cu_address)buffer + offset, from, nbytes, ours.queue));
    CU_OK(cu.StreamSynchronize(ours.queue));
}

static void cu_get(void *buffer, size_t offset, void *to, size_t nbytes) {
    CU_OK(cu.MemcpyDtoHAsync(to, (ep_cu_address)buffer + offset, nbytes, ours.queue));
    CU_OK(cu.StreamSynchronize(ours.queue));
}

static void cu_release(void *buffer) {
    CU_OK(cu.MemFree((ep_cu_address)buffer));
}

static void *cu_symbol(const char *name) {
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
    CHECK(found != NULL);
    return found;
}

static void cu_end(void) {
    ep_cu_context left = NULL;
    int (*destroy)(void *);
    *(void **)&destroy = cu_symbol("cuCtxDestroy_v2");
    CU_OK(cu.StreamDestroy(ours.queue));
    CU_OK(cu.CtxPopCurrent(&left));
    CHECK((void *)left == ours.context); /* it is current as it was */
    CU_OK(destroy(ours.context));
}

/* A context that is current all the time. */
static void cu_begin(void) {
    int (*create)(void **, unsigned, int);
    caller made = {NULL, NULL, cu_buffer, cu_put, cu_get, cu_release, cu_end};
    ours = made;
    *(void **)&create = cu_symbol("cuCtxCreate_v2");
    CHECK_STATUS(ep_cuda_load(&cu), EP_OK);
    CU_OK(create(&ours.context, 0, 0));
    CU_OK(cu.StreamCreate((ep_cu_stream *)&ours.queue, EP_CU_STREAM_NON_BLOCKING));
    fake_cu_control *driver = cu_symbol("fake_cu");
    driver->callers = 1;
}

static const fake_driver cuda = {.name = "cuda",
                                 .api = EP_GPU_CUDA,
                                 .library = "libcuda.so.1",
                                 .control = "fake_cu",
                                 .prepare = cuda_prepare,
                                 .begin = cu_begin,
                                 .of_open = cuda_of_open,
                                 .of_session = cuda_of_session,
                                 /* the name, a capability, an image of which there are others */
                                 .not_needed = "DeviceGetName DeviceGetAttribute ModuleLoadData ",
                                 .session_not_needed = "StreamBeginCapture_v2 LaunchKernel StreamEndCapture "
                                                       "GraphInstantiateWithFlags GraphUpload ",
                                 .may_not_wait = "CtxPushCurrent_v2 ",
                                 .lost_session = EP_E_GPU_MEMORY,
                                 .lost_open = "cpu (cuda: EP_E_GPU_BUILD",
                                 .open_failures = 15,
                                 .session_failures = 4,
                                 .run_calls = 10};

TEST_OF(cuda, open_failures)
TEST_OF(cuda, session_failures)
TEST_OF(cuda, lost_device)
TEST_OF(cuda, memory)
TEST_OF(cuda, late)
TEST_OF(cuda, caller)
TEST_OF(cuda, caller_failures)

/* Two launches that follow each other are one graph; while steps are timed, and without graphs, they are not.
 */
static void cuda_numbers(const char *root) {
    fake_cu_control *driver = setup(&cuda, root);
    ep_session *session = NULL;
    uint64_t ns[STEPS];
    int graphs = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGraphLaunch") != NULL;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK(strcmp(backend(), "cuda: fake") == 0 && model.descriptor == &gpu_variant);
    CHECK(strcmp(driver->loaded, "cubin 86") == 0);
    CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
    CHECK(driver->f.launches == 0 && driver->graphs == 0);
    run_twice(session);
    CHECK(driver->f.launches == 6 && driver->graphs == 2 * graphs);
    CHECK_STATUS(ep_session_profile(session, ns, STEPS), EP_OK);
    run_twice(session);
    CHECK(driver->f.launches == 12 && driver->graphs == 2 * graphs);
    CHECK_STATUS(ep_session_profile(session, NULL, 0), EP_OK);
    run_twice(session);
    CHECK(driver->graphs == 4 * graphs && driver->depth == 0);
    ep_session_destroy(session);
    ep_model_close(&model);
    CHECK(driver->f.live == 0 && driver->depth == 0);
}

/* What is CUDA's own: memory of the process, or of another device; runs of a graph whatever their buffers. */
static void cuda_caller_objects(const char *root) {
    fake_cu_control *driver = setup(&cuda, root);
    ep_options asked = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    there t;
    int outside = 0;
    cu_begin();
    ep_open_options options = open_options(root);
    options.gpu_context = &outside; /* no context */
    CHECK_STATUS(ep_model_open_with(&gpu_alone, &options, &model), EP_E_GPU_CONTEXT);
    options.gpu_context = ours.context;
    driver->device[0].threads--;
    CHECK_STATUS(ep_model_open_with(&gpu_alone, &options, &model), EP_E_GPU_DEVICE);
    driver->device[0].threads++;
    CHECK_STATUS(ep_model_open_with(&gpu_alone, &options, &model), EP_OK);
    asked.gpu_queue = ours.queue;
    asked.gpu_memory = 1;
    CHECK_STATUS(ep_session_create(&model, &asked, &session), EP_OK);
    there_init(&t, &d);
    there_set(&t, &d, 63);
    driver->host_memory = 1;
    CHECK_STATUS(there_run(&t, session), EP_E_GPU_BUFFER);
    driver->host_memory = 0;
    driver->other_device = 1;
    CHECK_STATUS(there_run(&t, session), EP_E_GPU_BUFFER);
    driver->other_device = 0;
    t.memories[0].data = &outside;
    CHECK_STATUS(there_run(&t, session), EP_E_GPU_BUFFER);
    int live = driver->f.live;
    for (unsigned mask = 0; mask < 64; mask += 21) {
        int graphs = driver->graphs;
        there_set(&t, &d, mask);
        CHECK_STATUS(there_run(&t, session), EP_OK);
        there_check(&t, &d);
        CHECK(driver->graphs == graphs + 1 && driver->f.live == live);
    }
    ep_session_destroy(session);
    there_release(&t);
    ep_model_close(&model);
    ours.end();
    CHECK(driver->f.live == 0);
}

/* The functions of docs/gpu.md. */
static void cuda_document(const char *root) {
    fake_cu_control *driver = setup(&cuda, root);
    ep_session *session = NULL;
    CUdeviceptr in[MINI_INPUTS];
    CUdeviceptr out[MINI_OUTPUTS];
    there t;
    cu_begin();
    CHECK_STATUS(open_pipeline(&gpu_library, path_in(root, "params/mini.params"), ours.context, ours.queue,
                               &model, &session),
                 EP_OK);
    CHECK(begins(backend(), "cuda: "));
    there_init(&t, &d);
    there_set(&t, &d, 63);
    for (int i = 0; i < BUFFERS; i++) {
        *(i < MINI_INPUTS ? &in[i] : &out[i - MINI_INPUTS]) = (CUdeviceptr)t.buffers[i] + GUARD;
    }
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(give_frame(session, in, out), EP_OK);
        CHECK(driver->f.waiting > 0);
    }
    there_check(&t, &d); /* by commands behind them in the same stream */
    CHECK_STATUS(ep_session_synchronize(session), EP_OK);
    ep_session_destroy(session);
    there_release(&t);
    ep_model_close(&model);
    ours.end();
    CHECK(driver->f.live == 0);
}

#define WITH(change, expected) \
    change; \
    check_open(&driver->f, root, driver->loaded, expected); \
    *driver = before

static void cuda_devices(const char *root) {
    fake_cu_control *driver = setup(&cuda, root);
    const fake_cu_control before = *driver;
    fake_gpu *first = &driver->device[0];
    WITH(driver->devices = 0, "EP_E_GPU_DEVICE");
    WITH(driver->init = 100, "EP_E_GPU_DEVICE");
    WITH(driver->init = 999, "EP_E_GPU_DRIVER");
    WITH(first->threads--, "EP_E_GPU_DEVICE");
    WITH(first->block[0]--, "EP_E_GPU_DEVICE");
    WITH(first->block[1]--, "EP_E_GPU_DEVICE");
    WITH(first->grid[0]--, "EP_E_GPU_DEVICE");
    WITH(first->grid[1]--, "EP_E_GPU_DEVICE");
    WITH(first->shared_bytes--, "EP_E_GPU_DEVICE");
    WITH(first->total_bytes--, "EP_E_GPU_DEVICE");
    WITH(first->kernel_threads[0]--, "EP_E_GPU_DEVICE");
    WITH(first->kernel_threads[2]--, "EP_E_GPU_DEVICE");
    WITH(driver->devices = 2, "cuda: fake, cubin 86");
    WITH(driver->devices = 2; first->threads--, "cuda: other, cubin 86");
    WITH(driver->devices = 2; first->capability = 37, "cuda: other, cubin 86");
    WITH(first->name = "", "cuda: , cubin 86");
}

/* Machine code of the same major and at most the same minor capability, then PTX. */
static void cuda_image_choice(const char *root) {
    fake_cu_control *driver = setup(&cuda, root);
    const fake_cu_control before = *driver;
    fake_gpu *first = &driver->device[0];
    WITH(first->capability = 89, "cuda: fake, cubin 86");
    WITH(first->capability = 80, "cuda: fake, cubin 80");
    WITH(first->capability = 72, "cuda: fake, ptx 50");
    WITH(first->capability = 120, "cuda: fake, ptx 90");
    WITH(first->capability = 50, "cuda: fake, ptx 50");
    WITH(first->capability = 37, "EP_E_GPU_DEVICE");
    WITH(driver->refused_from = 86, "cuda: fake, cubin 80");
    WITH(driver->refused_from = 80, "cuda: fake, ptx 50");
    WITH(driver->refused_cubins = 1, "cuda: fake, ptx 50");
    WITH(driver->refused_from = 1, "EP_E_GPU_BUILD");
    WITH(first->capability = 120; driver->refused_from = 90, "cuda: fake, ptx 50");
    gpu_program.image_count = 4;
    WITH(first->capability = 120, "EP_E_GPU_DEVICE");
    WITH(driver->refused_from = 1, "EP_E_GPU_BUILD");
}

/* A library with variants for both kinds of driver says why neither is taken. */
static void cuda_both_drivers(const char *root) {
    static ep_descriptor second;
    static ep_gpu_program opencl;
    static const ep_descriptor *const three[] = {&gpu_variant, &second, &cpu_variant};
    fake_cu_control *driver = setup(&cuda, root);
    second = gpu_variant;
    opencl = gpu_program;
    opencl.api = EP_GPU_OPENCL;
    second.gpu = &opencl;
    gpu_library.variants = three;
    gpu_library.variant_count = 3;
    driver->devices = 0;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK(strncmp(backend(), "cpu (cuda: EP_E_GPU_DEVICE: ", 28) == 0);
    CHECK(strstr(backend(), "; opencl: EP_E_GPU_DRIVER: ") != NULL);
    run_session();
    ep_model_close(&model);
    driver->devices = 1;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK(strcmp(backend(), "cuda: fake") == 0);
    run_session();
    ep_model_close(&model);
}

#undef WITH

static void cuda_no_driver(const char *root) {
    gpu_make_library();
    gpu_program.api = EP_GPU_CUDA;
    CHECK_STATUS(open_model(&gpu_alone, root), EP_E_GPU_DRIVER);
}
