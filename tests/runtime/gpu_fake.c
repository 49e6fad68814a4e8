/* The GPU variant of the mini model on the fake driver: every failure, and what is left after it. */
#include "gpu_model.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_opencl.h"

static int allowed = 1; /* else malloc fails */
static int allocated;

void *__real_malloc(size_t nbytes);
void *__wrap_malloc(size_t nbytes);

void *__wrap_malloc(size_t nbytes) {
    allocated++;
    return allowed ? __real_malloc(nbytes) : NULL;
}

static ep_model model;
static data d;
static char text[256];

/* The driver's controls; null if the library that is found is none of ours. */
static fake_control *fake(void) {
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
    void *symbol = library != NULL ? dlsym(library, "fake_cl") : NULL;
    CHECK(symbol != NULL);
    return symbol;
}

static ep_status open_model(const ep_descriptor *descriptor, const char *root) {
    return ep_model_open(descriptor, path_in(root, "params/mini.params"), &model);
}

static const char *backend(void) {
    CHECK_STATUS(ep_model_backend(&model, text, sizeof text), EP_OK);
    return text;
}

static fake_control *setup(const char *root) {
    gpu_make_library();
    data_init(&d, root);
    return fake();
}

/* A session that runs, twice, in an arena that holds no numbers. */
static void run_session(void) {
    ep_session *session = NULL;
    CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
    for (int i = 0; i < 2; i++) {
        memset(((ep_session_impl *)session)->context.arena, 0xff, (size_t)gpu_variant.arena_bytes);
        CHECK_STATUS(data_run(&d, session), EP_OK);
        data_check(&d);
    }
    ep_session_destroy(session);
}

static void numbers(const char *root) {
    fake_control *driver = setup(root);
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
    CHECK(driver->live == 0 && driver->calls > 0);
    int calls = driver->calls;
    CHECK_STATUS(open_model(&cpu_variant, root), EP_OK); /* one that is opened itself is that one */
    CHECK(strcmp(backend(), "cpu") == 0 && driver->calls == calls);
    run_session();
    ep_model_close(&model);
}

static int is_one_of(const char *name, const char *names) {
    const char *found = strstr(names, name);
    return found != NULL && found[strlen(name)] == ' ';
}

static ep_status expected_of_open(const char *function) {
    if (is_one_of(function, "GetPlatformIDs ")) {
        return EP_E_GPU_DRIVER;
    }
    if (is_one_of(function, "GetDeviceIDs GetDeviceInfo CreateContext ")) {
        return EP_E_GPU_DEVICE;
    }
    return is_one_of(function, "CreateCommandQueue CreateBuffer EnqueueWriteBuffer ") ? EP_E_GPU_MEMORY
                                                                                      : EP_E_GPU_BUILD;
}

/* Each call of the driver in turn fails while a model is opened: alone it cannot be, with a variant for the
 * CPU that is taken, and says why. */
static void open_failures(const char *root) {
    fake_control *driver = setup(root);
    int failures = 0;
    for (int call = 1;; call++) {
        driver->calls = 0;
        driver->fail_at = call;
        driver->failed[0] = 0;
        ep_status status = open_model(&gpu_alone, root);
        if (driver->failed[0] == 0) { /* it came to the end */
            CHECK_STATUS(status, EP_OK);
            ep_model_close(&model);
            break;
        }
        if (status == EP_OK) { /* only the name is missing, or the kind, so that it is taken as another's */
            CHECK(strcmp(driver->failed, "GetDeviceInfo") == 0);
            ep_model_close(&model);
        } else {
            CHECK_STATUS(status, expected_of_open(driver->failed));
            CHECK(model.descriptor == NULL && model.reserved[0] == 0 && model.mapping == NULL);
            failures++;
        }
        ep_model_close(&model);
        CHECK(driver->live == 0);
        driver->calls = 0;
        CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
        if (status != EP_OK) {
            char expected[256];
            snprintf(expected, sizeof expected, "cpu (opencl: %s: %s)", ep_status_name(status),
                     ep_status_string(status));
            CHECK(strcmp(backend(), expected) == 0);
            CHECK(model.descriptor == &cpu_variant && driver->live == 0);
            run_session();
        }
        ep_model_close(&model);
        CHECK(driver->live == 0);
    }
    CHECK(failures > 15);
}

/* The same while a session is made and runs. */
static void session_failures(const char *root) {
    fake_control *driver = setup(root);
    ep_session *session = NULL;
    int failures = 0;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    int live = driver->live;
    for (int call = 1; session == NULL; call++) {
        driver->calls = 0;
        driver->fail_at = call;
        driver->failed[0] = 0;
        ep_status status = ep_session_create(&model, NULL, &session);
        CHECK((status == EP_OK) == (session != NULL) && (status == EP_OK) == (driver->failed[0] == 0));
        if (session == NULL) {
            CHECK_STATUS(status,
                         strcmp(driver->failed, "SetKernelArg") == 0 ? EP_E_GPU_BUILD : EP_E_GPU_MEMORY);
            CHECK(driver->live == live);
            failures++;
        }
    }
    CHECK(failures > 20);
    for (int call = 1;; call++) {
        driver->calls = 0;
        driver->fail_at = call;
        driver->failed[0] = 0;
        ep_status status = data_run(&d, session);
        if (driver->failed[0] == 0) {
            CHECK_STATUS(status, EP_OK);
            CHECK(call > 10);
            break;
        }
        CHECK_STATUS(status, EP_E_GPU_RUN);
        CHECK(driver->waiting == 0); /* the buffers are the caller's again */
        driver->fail_at = 0;
        CHECK_STATUS(data_run(&d, session), EP_OK);
        data_check(&d);
    }
    ep_session_destroy(session);
    ep_model_close(&model);
    CHECK(driver->live == 0);
}

static void lost_device(const char *root) {
    fake_control *driver = setup(root);
    ep_session *session[2] = {NULL, NULL};
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(ep_session_create(&model, NULL, &session[i]), EP_OK);
    }
    CHECK_STATUS(data_run(&d, session[0]), EP_OK);
    driver->lost = 1;
    for (int i = 0; i < 4; i++) {
        CHECK_STATUS(data_run(&d, session[i % 2]), EP_E_GPU_RUN);
    }
    ep_session_destroy(session[0]);
    ep_session_destroy(session[1]);
    CHECK_STATUS(ep_session_create(&model, NULL, &session[0]), EP_E_GPU_MEMORY);
    ep_model_close(&model);
    CHECK(driver->live == 0);
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK); /* anew: the CPU does it */
    CHECK(strncmp(backend(), "cpu (opencl: EP_E_GPU_MEMORY", 28) == 0);
    run_session();
    ep_model_close(&model);
}

/* Opens the GPU's variant on a machine as it is described, and says what is wrong, or which device it is. */
static void check_open(const char *root, const char *expected) {
    ep_status status = open_model(&gpu_alone, root);
    const char *found = status == EP_OK ? backend() : ep_status_name(status);
    if (strcmp(found, expected) != 0) {
        fprintf(stderr, "%s is not %s\n", found, expected);
        exit(1);
    }
    ep_model_close(&model);
    CHECK(fake()->live == 0);
}

static void devices(const char *root) {
    fake_control *driver = setup(root);
    const fake_control before = *driver;
    fake_device *first = &driver->device[0];
#define WITH(change, expected) \
    change; \
    check_open(root, expected); \
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
    const fake_control two = *driver;
#undef WITH
#define WITH(change, expected) \
    change; \
    check_open(root, expected); \
    *driver = two
    WITH(first->platform = 0, "opencl: fake");
    WITH(first->gpu = 0, "opencl: other");
    WITH(first->group--, "opencl: other");
    WITH(first->platform = 1, "opencl: fake");
    WITH(first->gpu = 0; driver->device[1].group--, "opencl: fake");
    WITH(first->name = "a name that is longer than there is room for in a model: 0123456789 0123456789 "
                       "0123456789 0123456789 0123456789 0123456789 0123456789",
         "opencl: ");
    /* With a variant for the CPU behind it, what is no GPU is not taken. */
    first->gpu = driver->device[1].gpu = 0;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK(strncmp(backend(), "cpu (opencl: EP_E_GPU_DEVICE: ", 30) == 0);
    ep_model_close(&model);
    CHECK(driver->live == 0);
}

/* What the process has: one malloc to open a model, none for a session in the caller's memory. */
static void memory(const char *root) {
    static unsigned char block[1 << 16];
    fake_control *driver = setup(root);
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    size_t nbytes = 0;
    size_t tensors = MINI_INPUTS + MINI_OUTPUTS;
    size_t most =
        EP_SESSION_BYTES(MINI_ARENA_BYTES, tensors) + EP_GPU_SESSION_BYTES(STEPS, gpu_program.place_count);
    const char *path = path_in(root, "params/mini.params");
    allocated = 0;
    CHECK_STATUS(ep_model_open(&gpu_library, path, &model), EP_OK);
    CHECK(allocated == 1);
    allowed = 0;
    CHECK_STATUS(ep_session_bytes(&model, NULL, &nbytes), EP_OK);
    CHECK(nbytes <= most && nbytes + 128 < sizeof block);
    for (size_t skew = 0; skew < 64; skew += 13) {
        memset(block, 0xee, sizeof block);
        options.memory = block + skew;
        options.memory_bytes = nbytes - 1;
        CHECK_STATUS(ep_session_create(&model, &options, &session), EP_E_MEMORY_SIZE);
        options.memory_bytes = nbytes;
        CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
        CHECK_STATUS(data_run(&d, session), EP_OK);
        data_check(&d);
        ep_session_destroy(session);
        for (size_t i = 0; i < sizeof block; i++) {
            CHECK(block[i] == 0xee || (i >= skew && i < skew + nbytes));
        }
    }
    options.memory = NULL;
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_E_NO_MEMORY);
    ep_model_close(&model);
    CHECK_STATUS(ep_model_open(&gpu_alone, path, &model), EP_E_NO_MEMORY);
    CHECK_STATUS(ep_model_open(&gpu_library, path, &model), EP_OK);
    CHECK(strncmp(backend(), "cpu (opencl: EP_E_NO_MEMORY", 27) == 0);
    ep_model_close(&model);
    allowed = 1;
    CHECK(driver->live == 0);
}

static void options(const char *root) {
    ep_options two = EP_OPTIONS_INIT;
    ep_options mine = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    uint64_t ns[STEPS];
    fake_control *driver = setup(root);
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
    CHECK(driver->live == 0);
}

/* A child of fork() has the session and the model, but not the driver. */
static void forked(const char *root) {
    fake_control *driver = setup(root);
    ep_session *session = NULL;
    ep_session *another = NULL;
    int result = -1;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
    pid_t child = fork();
    if (child == 0) {
        driver->entered = 0;
        CHECK_STATUS(data_run(&d, session), EP_E_GPU_RUN);
        CHECK_STATUS(ep_session_create(&model, NULL, &another), EP_E_GPU_RUN);
        ep_session_destroy(session);
        ep_model_close(&model);
        CHECK(driver->entered == 0);
        _exit(0);
    }
    CHECK(waitpid(child, &result, 0) == child && result == 0);
    CHECK_STATUS(data_run(&d, session), EP_OK);
    data_check(&d);
    ep_session_destroy(session);
    ep_model_close(&model);
    CHECK(driver->live == 0);
}

/* The driver's library is not there, or not one. */
static void no_driver(const char *root) {
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
static void params(const char *root) {
    fake_control *driver = setup(root);
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
    CHECK(driver->live == 0);
    free(image);
}

TEST_MAIN({"numbers", numbers}, {"open_failures", open_failures}, {"session_failures", session_failures},
          {"lost_device", lost_device}, {"devices", devices}, {"memory", memory}, {"options", options},
          {"forked", forked}, {"no_driver", no_driver}, {"params", params})
