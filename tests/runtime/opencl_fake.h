/* The GPU variant of the mini model on the fake driver of OpenCL. */
#include "fake_opencl.h"

#include "cache.h"

#include <sys/stat.h>

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
                                   .begin = cl_begin,
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
TEST_OF(opencl, late)
TEST_OF(opencl, caller)
TEST_OF(opencl, caller_failures)

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

/* Queues that are not of the context, or do not keep the order. */
static void check_queues(fake_cl_control *driver) {
    ep_cl_device other = (ep_cl_device)(void *)&driver->device[1];
    ep_options asked = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    int32_t error;
    for (int i = 0; i < 3; i++) {
        asked.gpu_queue = i == 0
                              ? cl.CreateCommandQueue(cl.context, cl.device, EP_CL_QUEUE_OUT_OF_ORDER, &error)
                          : i == 1 ? cl.CreateCommandQueue(cl.context, other, 0, &error)
                                   : ours.context;
        CHECK_STATUS(ep_session_create(&model, &asked, &session), EP_E_GPU_CONTEXT);
        CHECK(i == 2 || cl.ReleaseCommandQueue(asked.gpu_queue) == 0);
    }
}

/* Memory of another context, and what is no memory. */
static void check_foreign(there *t, ep_session *session) {
    int32_t error;
    ep_cl_context other = cl.CreateContext(NULL, 1, &cl.device, NULL, NULL, &error);
    void *foreign = cl.CreateBuffer(other, EP_CL_MEM_READ_WRITE, ROW_BYTES + GUARD, NULL, &error);
    there_set(t, &d, 63);
    t->memories[2].data = foreign;
    CHECK_STATUS(there_run(t, session), EP_E_GPU_BUFFER);
    t->memories[2].data = ours.queue;
    CHECK_STATUS(there_run(t, session), EP_E_GPU_BUFFER);
    cl_release(foreign);
    CHECK(cl.ReleaseContext(other) == 0);
}

/* Parts of one buffer that have bytes in common, and two that have none. */
static void check_parts(there *t, ep_session *session) {
    const ep_cl_region regions[3] = {{0, 64}, {512, 64}, {0, 512}};
    void *whole = cl_buffer(1024);
    void *parts[3];
    int32_t error;
    for (int i = 0; i < 3; i++) {
        parts[i] = cl.CreateSubBuffer(whole, EP_CL_MEM_READ_WRITE, EP_CL_BUFFER_CREATE_TYPE_REGION,
                                      &regions[i], &error);
        CHECK(parts[i] != NULL);
    }
    there_set(t, &d, 63);
    t->memories[3].data = parts[0];
    t->memories[4].data = parts[2];
    CHECK_STATUS(there_run(t, session), EP_E_OVERLAP);
    t->memories[4].data = whole;
    CHECK_STATUS(there_run(t, session), EP_E_OVERLAP);
    t->memories[4].data = parts[1];
    CHECK_STATUS(there_run(t, session), EP_OK);
    for (int i = 0; i < 3; i++) {
        cl_release(parts[i]);
    }
    cl_release(whole);
}

/* What is OpenCL's own: which device of a context, objects that are not of it, when a queue is flushed. */
static void opencl_caller_objects(const char *root) {
    fake_cl_control *driver = setup(&opencl, root);
    ep_options asked = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    there t;
    cl_begin();
    ep_open_options options = open_options(root);
    options.gpu_device = &driver->device[1]; /* not of this context */
    CHECK_STATUS(ep_model_open_with(&gpu_alone, &options, &model), EP_E_GPU_CONTEXT);
    options.gpu_device = &driver->device[0];
    driver->device[0].group--;
    CHECK_STATUS(ep_model_open_with(&gpu_alone, &options, &model), EP_E_GPU_DEVICE);
    driver->device[0].group++;
    options.gpu_context = ours.queue;
    CHECK_STATUS(ep_model_open_with(&gpu_alone, &options, &model), EP_E_GPU_CONTEXT);
    options.gpu_context = ours.context;
    CHECK_STATUS(ep_model_open_with(&gpu_alone, &options, &model), EP_OK);
    check_queues(driver);
    there_init(&t, &d);
    asked.gpu_queue = ours.queue;
    asked.gpu_memory = 1;
    CHECK_STATUS(ep_session_create(&model, &asked, &session), EP_OK);
    check_foreign(&t, session);
    check_parts(&t, session);
    ep_session_destroy(session);
    CHECK(driver->flushes == 0);
    asked.asynchronous = 1;
    CHECK_STATUS(ep_session_create(&model, &asked, &session), EP_OK);
    there_set(&t, &d, 63);
    CHECK_STATUS(there_run(&t, session), EP_OK);
    CHECK(driver->flushes == 1 && driver->f.waiting > 0); /* begun, and not waited for */
    CHECK_STATUS(ep_session_synchronize(session), EP_OK);
    CHECK(driver->f.waiting == 0);
    ep_session_destroy(session);
    there_release(&t);
    ep_model_close(&model);
    ours.end();
    CHECK(driver->f.live == 0);
}

/* What was compiled, by which device and driver; and each call of the driver fails once. */
static void opencl_cache(const char *root) {
    fake_cl_control *driver = setup(&opencl, root);
    ep_open_options options = EP_OPEN_OPTIONS_INIT;
    check_cache(root, &d);
    int compiled = driver->compiled;
    CHECK(!compiles(root, &model));
    ep_model_close(&model);
    CHECK(driver->compiled == compiled);
    driver->refuses = 1;
    CHECK(compiles(root, &model));
    ep_model_close(&model);
    driver->refuses = 0;
    driver->version = "2";
    CHECK(compiles(root, &model));
    ep_model_close(&model);
    driver->driver = "2";
    CHECK(compiles(root, &model));
    ep_model_close(&model);
    driver->device[0].name = "newer";
    CHECK(compiles(root, &model));
    ep_model_close(&model);
    CHECK(gpu_program.source_count == 3);
    gpu_program.source_count = 4;
    static const char *more[4] = {NULL, NULL, NULL, "\n"}; /* another text */
    memcpy(more, gpu_source, sizeof gpu_source);
    gpu_program.source = more;
    CHECK(compiles(root, &model));
    ep_model_close(&model);
    CHECK(driver->f.live == 0);
    options.path = path_in(root, "params/mini.params");
    options.cache = &kept_cache;
    for (int empty = 0; empty < 2; empty++) {
        for (int call = 1;; call++) {
            kept.nbytes = empty ? 0 : kept.nbytes;
            fail_at(&driver->f, call);
            ep_status status = ep_model_open_with(&gpu_alone, &options, &model);
            driver->f.fail_at = 0;
            CHECK(status == EP_OK || (status >= EP_E_GPU_DRIVER && status <= EP_E_GPU_MEMORY));
            if (status == EP_OK) {
                run_session();
            }
            ep_model_close(&model);
            CHECK(driver->f.live == 0);
            if (driver->f.failed[0] == 0) {
                CHECK_STATUS(status, EP_OK);
                break;
            }
        }
    }
    ep_cache half = {NULL, kept_read, NULL};
    options.cache = &half;
    CHECK_STATUS(ep_model_open_with(&gpu_alone, &options, &model), EP_E_NULL);
}

/* The files of docs/gpu.md. */
static void opencl_document(const char *root) {
    static char folder[4096];
    fake_cl_control *driver = setup(&opencl, root);
    ep_cache cache = {folder, read_kept, write_kept};
    ep_open_options options = EP_OPEN_OPTIONS_INIT;
    strcpy(folder, path_in(root, "kept"));
    options.cache = &cache;
    options.path = path_in(root, "params/mini.params");
    for (int i = 0; i < 3; i++) { /* no folder: nothing is kept */
        CHECK(i != 1 || mkdir(folder, 0700) == 0);
        CHECK_STATUS(ep_model_open_with(&gpu_alone, &options, &model), EP_OK);
        run_session();
        ep_model_close(&model);
        CHECK(driver->compiled == (i == 0 ? 1 : 2));
    }
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
