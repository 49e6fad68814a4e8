/* The GPU variant of the mini model on the fake driver of OpenCL. */
#include "fake_opencl.h"

static ep_status opencl_of_open(const char *function) {
    if (is_one_of(function, "GetPlatformIDs ")) {
        return EP_E_GPU_DRIVER;
    }
    if (is_one_of(function, "GetDeviceIDs GetDeviceInfo CreateContext ")) {
        return EP_E_GPU_DEVICE;
    }
    return is_one_of(function, "CreateCommandQueue CreateBuffer EnqueueWriteBuffer ") ? EP_E_GPU_MEMORY
                                                                                      : EP_E_GPU_BUILD;
}

static ep_status opencl_of_session(const char *function) {
    return strcmp(function, "SetKernelArg") == 0 ? EP_E_GPU_BUILD : EP_E_GPU_MEMORY;
}

static const fake_driver opencl = {.name = "opencl",
                                   .api = EP_GPU_OPENCL,
                                   .library = "libOpenCL.so.1",
                                   .control = "fake_cl",
                                   .prepare = NULL,
                                   .of_open = opencl_of_open,
                                   .of_session = opencl_of_session,
                                   .not_needed = "GetDeviceInfo ", /* the name, or whether it is a GPU */
                                   .session_not_needed = "",
                                   .may_not_wait = "",
                                   .lost_session = EP_E_GPU_MEMORY,
                                   .lost_open = "cpu (opencl: EP_E_GPU_MEMORY",
                                   .open_failures = 15,
                                   .session_failures = 24,
                                   .run_calls = 10};

TEST_OF(opencl, open_failures)
TEST_OF(opencl, session_failures)
TEST_OF(opencl, lost_device)
TEST_OF(opencl, memory)

static void opencl_numbers(const char *root) {
    fake_cl_control *driver = setup(&opencl, root);
    char cut[8];
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK(strcmp(backend(), "opencl: fake") == 0);
    CHECK(model.descriptor == &gpu_variant);
    CHECK_STATUS(ep_model_backend(&model, cut, sizeof cut), EP_OK);
    CHECK(strcmp(cut, "opencl:") == 0);
    CHECK_STATUS(ep_model_backend(&model, NULL, 8), EP_E_NULL);
    CHECK_STATUS(ep_model_backend(NULL, cut, 8), EP_E_NULL);
    run_session();
    ep_model_close(&model);
    CHECK(driver->f.live == 0 && driver->f.calls > 0);
    int calls = driver->f.calls;
    CHECK_STATUS(open_model(&cpu_variant, root), EP_OK); /* one that is opened itself is that one */
    CHECK(strcmp(backend(), "cpu") == 0 && driver->f.calls == calls);
    run_session();
    ep_model_close(&model);
}

static void opencl_devices(const char *root) {
    fake_cl_control *driver = setup(&opencl, root);
    const fake_cl_control before = *driver;
    fake_device *first = &driver->device[0];
#define WITH(change, expected) \
    change; \
    check_open(&driver->f, root, "", expected); \
    *driver = before
    WITH(driver->platforms = 0, "EP_E_GPU_DRIVER");
    WITH(driver->devices = 0, "EP_E_GPU_DEVICE");
    WITH(first->available = 0, "EP_E_GPU_DEVICE");
    WITH(first->compiler = 0, "EP_E_GPU_DEVICE");
    WITH(first->little_endian = 0, "EP_E_GPU_DEVICE");
    WITH(first->group--, "EP_E_GPU_DEVICE");
    WITH(first->kernel_group[0]--, "EP_E_GPU_DEVICE");
    WITH(first->kernel_group[2]--, "EP_E_GPU_DEVICE");
    WITH(first->items[0]--, "EP_E_GPU_DEVICE");
    WITH(first->local_bytes--, "EP_E_GPU_DEVICE");
    WITH(first->most_bytes--, "EP_E_GPU_DEVICE");
    WITH(first->align_bits = 8192, "EP_E_GPU_DEVICE");
    WITH(first->total_bytes = 13888 + 64, "opencl: fake");
    WITH(first->total_bytes = 13888 + 63, "EP_E_GPU_DEVICE");
    WITH(first->gpu = 0, "opencl: fake"); /* one of another kind, if there is no GPU */
    driver->devices = 2;
    driver->platforms = 2;
    driver->device[1].platform = 1;
    const fake_cl_control two = *driver;
#undef WITH
#define WITH(change, expected) \
    change; \
    check_open(&driver->f, root, "", expected); \
    *driver = two
    WITH(first->platform = 0, "opencl: fake");
    WITH(first->gpu = 0, "opencl: other");
    WITH(first->group--, "opencl: other");
    WITH(first->platform = 1, "opencl: fake");
    WITH(first->gpu = 0; driver->device[1].group--, "opencl: fake");
    WITH(first->name = "a name that is longer than there is room for in a model: 0123456789 0123456789 "
                       "0123456789 0123456789 0123456789 0123456789 0123456789",
         "opencl: ");
#undef WITH
    /* With a variant for the CPU behind it, what is no GPU is not taken. */
    first->gpu = driver->device[1].gpu = 0;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK(strncmp(backend(), "cpu (opencl: EP_E_GPU_DEVICE: ", 30) == 0);
    ep_model_close(&model);
    CHECK(driver->f.live == 0);
}

static void opencl_options(const char *root) {
    ep_options two = EP_OPTIONS_INIT;
    ep_options mine = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    uint64_t ns[STEPS];
    fake_cl_control *driver = setup(&opencl, root);
    CHECK(gpu_variant.default_threads == 2);
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    two.threads = 2;
    CHECK_STATUS(ep_session_create(&model, &two, &session), EP_OK);
    data_reset(&d);
    CHECK_STATUS(data_run(&d, session), EP_OK);
    data_check(&d);
    ep_session_destroy(session);
    two.threads = EP_MAX_THREADS + 1;
    CHECK_STATUS(ep_session_create(&model, &two, &session), EP_E_THREADS);
    two.threads = 2;
    two.caller_threads = 1;
    CHECK_STATUS(ep_session_create(&model, &two, &session), EP_E_THREADS);
    mine.caller_threads = 1;
    CHECK_STATUS(ep_session_create(&model, &mine, &session), EP_OK);
    data_reset(&d);
    CHECK_STATUS(ep_session_begin(session, d.inputs, MINI_INPUTS, d.outputs, MINI_OUTPUTS), EP_OK);
    CHECK_STATUS(data_run(&d, session), EP_E_BUSY);
    CHECK_STATUS(ep_session_work(session, 1), EP_E_THREADS);
    CHECK_STATUS(ep_session_work(session, 0), EP_OK);
    data_check(&d);
    CHECK_STATUS(ep_session_profile(session, ns, STEPS - 1), EP_E_COUNT);
    CHECK_STATUS(ep_session_profile(session, ns, STEPS), EP_OK);
    memset(ns, 0xff, sizeof ns);
    CHECK_STATUS(data_run(&d, session), EP_OK);
    data_check(&d);
    for (int i = 0; i < STEPS; i++) {
        CHECK(ns[i] < UINT64_C(10000000000));
    }
    d.small[7] = -1;
    CHECK_STATUS(data_run(&d, session), EP_E_KERNEL);
    d.small[7] = (int8_t)d.expected_longs[7];
    CHECK_STATUS(data_run(&d, session), EP_OK);
    data_check(&d);
    ep_session_destroy(session);
    ep_model_close(&model);
    CHECK(driver->f.live == 0);
}

/* A child of fork() has the session and the model, but not the driver. */
static void opencl_forked(const char *root) {
    fake_cl_control *driver = setup(&opencl, root);
    ep_session *session = NULL;
    ep_session *another = NULL;
    int result = -1;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
    pid_t child = fork();
    if (child == 0) {
        driver->f.entered = 0;
        CHECK_STATUS(data_run(&d, session), EP_E_GPU_RUN);
        CHECK_STATUS(ep_session_create(&model, NULL, &another), EP_E_GPU_RUN);
        ep_session_destroy(session);
        ep_model_close(&model);
        CHECK(driver->f.entered == 0);
        _exit(0);
    }
    CHECK(waitpid(child, &result, 0) == child && result == 0);
    CHECK_STATUS(data_run(&d, session), EP_OK);
    data_check(&d);
    ep_session_destroy(session);
    ep_model_close(&model);
    CHECK(driver->f.live == 0);
}

/* The driver's library is not there, or not one. */
static void opencl_no_driver(const char *root) {
    gpu_make_library();
    data_init(&d, root);
    CHECK_STATUS(open_model(&gpu_alone, root), EP_E_GPU_DRIVER);
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK(strcmp(backend(),
                 "cpu (opencl: EP_E_GPU_DRIVER: There is no driver for the GPU; install the one of "
                 "the GPU's vendor.)") == 0);
    run_session();
    ep_model_close(&model);
    gpu_program.api = 99; /* of a kind of driver that this library has no code for */
    CHECK_STATUS(open_model(&gpu_alone, root), EP_E_UNSUPPORTED);
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK(strncmp(backend(), "cpu (gpu: EP_E_UNSUPPORTED: ", 28) == 0);
    ep_model_close(&model);
}

/* What has nothing to do with a GPU is what it was. */
static void opencl_params(const char *root) {
    fake_cl_control *driver = setup(&opencl, root);
    size_t nbytes;
    unsigned char *image = read_all(root, "params/mini.params", &nbytes);
    CHECK_STATUS(ep_model_open_memory(&gpu_library, image, nbytes, &model), EP_OK);
    run_session();
    ep_model_close(&model);
    CHECK_STATUS(ep_model_open_memory(&gpu_library, NULL, 0, &model), EP_E_NULL);
    CHECK_STATUS(ep_model_open_memory(&gpu_library, image, nbytes - 1, &model), EP_E_PARAMS_TRUNCATED);
    CHECK_STATUS(ep_model_open(&gpu_library, NULL, &model), EP_E_NO_PARAMS);
    CHECK_STATUS(ep_model_open(&gpu_library, path_in(root, "none"), &model), EP_E_IO);
    gpu_variant.cpu_features |= UINT64_C(1) << 63; /* of the kernels that the CPU does in between */
    CHECK_STATUS(ep_model_open_memory(&gpu_library, image, nbytes, &model), EP_OK);
    CHECK(strcmp(backend(), "cpu") == 0);
    ep_model_close(&model);
    cpu_variant.cpu_features |= UINT64_C(1) << 63;
    gpu_library.cpu_features |= UINT64_C(1) << 63;
    CHECK_STATUS(ep_model_open_memory(&gpu_library, image, nbytes, &model), EP_E_CPU);
    gpu_variant.cpu_features = 0; /* a CPU that only the GPU's variant can use */
    driver->devices = 0;
    CHECK_STATUS(ep_model_open_memory(&gpu_library, image, nbytes, &model), EP_E_GPU_DEVICE);
    driver->devices = 1;
    CHECK_STATUS(ep_model_open_memory(&gpu_library, image, nbytes, &model), EP_OK);
    CHECK(strcmp(backend(), "opencl: fake") == 0);
    ep_model_close(&model);
    CHECK(driver->f.live == 0);
    free(image);
}
