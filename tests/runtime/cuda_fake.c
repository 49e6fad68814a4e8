/* The GPU variant of the mini model on CUDA's fake driver: every failure, and what is left after it. */
#include "gpu_model.h"

#include <dlfcn.h>

#include "fake_cuda.h"

static ep_model model;
static data d;
static char text[256];

#define IMAGE(text, capability, ptx) {(const unsigned char *)(text), sizeof(text), capability, ptx}

static ep_gpu_image images[] = {
    IMAGE("cubin 75", 75, 0), IMAGE("cubin 80", 80, 0), IMAGE("cubin 86", 86, 0),
    IMAGE("cubin 90", 90, 0), IMAGE("ptx 50", 50, 1),   IMAGE("ptx 90", 90, 1),
};

static fake_control *fake(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library != NULL ? dlsym(library, "fake_cu") : NULL;
    CHECK(symbol != NULL);
    return symbol;
}

static fake_control *setup(const char *root) {
    gpu_make_library();
    gpu_program.api = EP_GPU_CUDA;
    gpu_program.images = images;
    gpu_program.image_count = sizeof images / sizeof images[0];
    data_init(&d, root);
    return fake();
}

static ep_status open_model(const ep_descriptor *descriptor, const char *root) {
    return ep_model_open(descriptor, path_in(root, "params/mini.params"), &model);
}

static const char *backend(void) {
    CHECK_STATUS(ep_model_backend(&model, text, sizeof text), EP_OK);
    return text;
}

static void run_twice(ep_session *session) {
    for (int i = 0; i < 2; i++) {
        memset(((ep_session_impl *)session)->context.arena, 0xff, (size_t)gpu_variant.arena_bytes);
        CHECK_STATUS(data_run(&d, session), EP_OK);
        data_check(&d);
    }
}

static void run_session(void) {
    ep_session *session = NULL;
    CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
    run_twice(session);
    ep_session_destroy(session);
}

/* Two launches that follow each other are one graph; while steps are timed, and without graphs, they are not.
 */
static void numbers(const char *root) {
    fake_control *driver = setup(root);
    ep_session *session = NULL;
    uint64_t ns[STEPS];
    int graphs = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGraphLaunch") != NULL;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK(strcmp(backend(), "cuda: fake") == 0 && model.descriptor == &gpu_variant);
    CHECK(strcmp(driver->loaded, "cubin 86") == 0);
    CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
    CHECK(driver->launches == 0 && driver->graphs == 0);
    run_twice(session);
    CHECK(driver->launches == 6 && driver->graphs == 2 * graphs);
    CHECK_STATUS(ep_session_profile(session, ns, STEPS), EP_OK);
    run_twice(session);
    CHECK(driver->launches == 12 && driver->graphs == 2 * graphs);
    CHECK_STATUS(ep_session_profile(session, NULL, 0), EP_OK);
    run_twice(session);
    CHECK(driver->graphs == 4 * graphs && driver->depth == 0);
    ep_session_destroy(session);
    ep_model_close(&model);
    CHECK(driver->live == 0 && driver->depth == 0);
}

static int is_one_of(const char *name, const char *names) {
    const char *found = strstr(names, name);
    return found != NULL && found[strlen(name)] == ' ';
}

static ep_status expected_of_open(const char *function) {
    if (strcmp(function, "Init") == 0) {
        return EP_E_GPU_DRIVER;
    }
    if (is_one_of(function, "DeviceGet DeviceGetCount DeviceGetAttribute DeviceTotalMem_v2 "
                            "DevicePrimaryCtxRetain CtxPushCurrent_v2 ")) {
        return EP_E_GPU_DEVICE;
    }
    return is_one_of(function, "ModuleGetFunction FuncGetAttribute ") ? EP_E_GPU_BUILD : EP_E_GPU_MEMORY;
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
        driver->fail_at = 0;
        if (driver->failed[0] == 0) { /* it came to the end */
            CHECK_STATUS(status, EP_OK);
            ep_model_close(&model);
            break;
        }
        if (status == EP_OK) { /* without its name, or with another image */
            CHECK(is_one_of(driver->failed, "DeviceGetName DeviceGetAttribute ModuleLoadData "));
            CHECK(strcmp(driver->failed, "ModuleLoadData") != 0 || strcmp(driver->loaded, "cubin 80") == 0);
        } else {
            CHECK_STATUS(status, expected_of_open(driver->failed));
            CHECK(model.descriptor == NULL && model.reserved[0] == 0 && model.mapping == NULL);
            failures++;
        }
        ep_model_close(&model);
        CHECK(driver->live == 0 && driver->depth == 0);
        driver->calls = 0;
        driver->fail_at = call;
        CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
        driver->fail_at = 0;
        if (status != EP_OK) {
            char expected[256];
            snprintf(expected, sizeof expected, "cpu (cuda: %s: %s)", ep_status_name(status),
                     ep_status_string(status));
            CHECK(strcmp(backend(), expected) == 0);
            CHECK(model.descriptor == &cpu_variant && driver->live == 0);
        }
        ep_model_close(&model);
        CHECK(driver->live == 0);
    }
    CHECK(failures > 15);
}

/* The same while a session is made, which can do without its graph, and runs. */
static void session_failures(const char *root) {
    fake_control *driver = setup(root);
    ep_session *session = NULL;
    int failures = 0;
    int plain = 0;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    int live = driver->live;
    for (int call = 1;; call++) {
        driver->calls = 0;
        driver->fail_at = call;
        driver->failed[0] = 0;
        ep_status status = ep_session_create(&model, NULL, &session);
        CHECK(driver->depth == 0);
        driver->fail_at = 0;
        if (driver->failed[0] == 0) {
            CHECK_STATUS(status, EP_OK);
            break;
        }
        if (status == EP_OK) {
            CHECK(strstr("StreamBeginCapture_v2 LaunchKernel StreamEndCapture GraphInstantiateWithFlags "
                         "GraphUpload",
                         driver->failed) != NULL);
            driver->graphs = 0;
            run_twice(session);
            CHECK(driver->graphs == 0);
            ep_session_destroy(session);
            plain++;
        } else {
            CHECK_STATUS(status, EP_E_GPU_MEMORY);
            failures++;
        }
        CHECK(driver->live == live);
    }
    CHECK(failures == 4 && plain == 6);
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
        CHECK(driver->depth == 0);
        if (strcmp(driver->failed, "CtxPushCurrent_v2") != 0) {
            CHECK(driver->waiting == 0); /* the buffers are the caller's again */
        }
        driver->fail_at = 0;
        CHECK_STATUS(data_run(&d, session), EP_OK);
        data_check(&d);
    }
    driver->fail_at = 0;
    ep_session_destroy(session);
    ep_model_close(&model);
    CHECK(driver->live == 0);
}

/* A kernel that failed takes the context with it: every later call says so. */
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
    CHECK(driver->live == 0 && driver->depth == 0);
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK); /* anew: the CPU does it */
    CHECK(strncmp(backend(), "cpu (cuda: EP_E_GPU_BUILD", 25) == 0);
    run_session();
    ep_model_close(&model);
    driver->lost = 0; /* a new context works again */
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK(strcmp(backend(), "cuda: fake") == 0);
    run_session();
    ep_model_close(&model);
}

/* Opens the GPU's variant on a machine as it is described, and says what is wrong, or which device and image
 * it is. */
static void check_open(const char *root, const char *expected) {
    char found[256];
    ep_status status = open_model(&gpu_alone, root);
    fake()->loaded[status == EP_OK ? 15 : 0] = 0;
    snprintf(found, sizeof found, "%s%s%s", status == EP_OK ? backend() : ep_status_name(status),
             status == EP_OK ? ", " : "", fake()->loaded);
    if (strcmp(found, expected) != 0) {
        fprintf(stderr, "%s is not %s\n", found, expected);
        exit(1);
    }
    ep_model_close(&model);
    CHECK(fake()->live == 0 && fake()->depth == 0);
}

#define WITH(change, expected) \
    change; \
    check_open(root, expected); \
    *driver = before

static void devices(const char *root) {
    fake_control *driver = setup(root);
    const fake_control before = *driver;
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
static void image_choice(const char *root) {
    fake_control *driver = setup(root);
    const fake_control before = *driver;
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
static void both_drivers(const char *root) {
    static ep_descriptor second;
    static ep_gpu_program opencl;
    static const ep_descriptor *const three[] = {&gpu_variant, &second, &cpu_variant};
    fake_control *driver = setup(root);
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

static void memory(const char *root) {
    static unsigned char block[1 << 16];
    fake_control *driver = setup(root);
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    size_t nbytes = 0;
    size_t most = EP_SESSION_BYTES(MINI_ARENA_BYTES, MINI_INPUTS + MINI_OUTPUTS) +
                  EP_GPU_SESSION_BYTES(STEPS, gpu_program.place_count);
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK_STATUS(ep_session_bytes(&model, NULL, &nbytes), EP_OK);
    CHECK(nbytes <= most && nbytes + 64 < sizeof block);
    memset(block, 0xee, sizeof block);
    options.memory = block + 13;
    options.memory_bytes = nbytes;
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
    run_twice(session);
    ep_session_destroy(session);
    for (size_t i = 0; i < sizeof block; i++) {
        CHECK(block[i] == 0xee || (i >= 13 && i < 13 + nbytes));
    }
    ep_model_close(&model);
    CHECK(driver->live == 0);
}

static void no_driver(const char *root) {
    gpu_make_library();
    gpu_program.api = EP_GPU_CUDA;
    CHECK_STATUS(open_model(&gpu_alone, root), EP_E_GPU_DRIVER);
}

TEST_MAIN({"numbers", numbers}, {"open_failures", open_failures}, {"session_failures", session_failures},
          {"lost_device", lost_device}, {"devices", devices}, {"image_choice", image_choice},
          {"both_drivers", both_drivers}, {"memory", memory}, {"no_driver", no_driver})
