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

static const fake_driver cuda = {.name = "cuda",
                                 .api = EP_GPU_CUDA,
                                 .library = "libcuda.so.1",
                                 .control = "fake_cu",
                                 .prepare = cuda_prepare,
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
