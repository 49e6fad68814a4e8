/* The GPU variant of the mini model on the fake Metal: every failure, and what is left after it. */
#include "gpu_model.h"

#include <dlfcn.h>

#include "fake_metal.h"

static ep_model model;
static data d;
static char text[256];
static int there = 1; /* the driver's libraries */

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);

/* All of Apple's libraries are one. */
void *__wrap_dlopen(const char *name, int flags) {
    if (strncmp(name, "/System/", 8) == 0 || strncmp(name, "/usr/lib/lib", 12) == 0) {
        return there && strstr(name, "CoreGraphics") == NULL ? __real_dlopen("libmetal.so", flags) : NULL;
    }
    return __real_dlopen(name, flags);
}

static fake_control *setup(const char *root) {
    gpu_make_library();
    gpu_program.api = EP_GPU_METAL;
    data_init(&d, root);
    void *library = __real_dlopen("libmetal.so", RTLD_NOW);
    void *symbol = library != NULL ? dlsym(library, "fake_mtl") : NULL;
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

/* One command buffer for what lies between two kernels of the CPU; while steps are timed, one for each
 * launch. */
static void numbers(const char *root) {
    fake_control *driver = setup(root);
    ep_session *session = NULL;
    uint64_t ns[STEPS];
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK(strcmp(backend(), "metal: fake") == 0 && model.descriptor == &gpu_variant);
    CHECK(driver->borrowed == 1); /* the params are not copied */
    CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
    CHECK(driver->launches == 0);
    run_twice(session);
    CHECK(driver->launches == 6 && driver->waits == 4);
    CHECK_STATUS(ep_session_profile(session, ns, STEPS), EP_OK);
    run_twice(session);
    CHECK(driver->launches == 12 && driver->waits == 10);
    ep_session_destroy(session);
    ep_model_close(&model);
    CHECK(driver->live() == 0);
}

/* Params in memory that is no mapped file are copied. */
static void params_in_memory(const char *root) {
    fake_control *driver = setup(root);
    size_t nbytes;
    unsigned char *image = read_all(root, "params/mini.params", &nbytes);
    CHECK_STATUS(ep_model_open_memory(&gpu_alone, image, nbytes, &model), EP_OK);
    CHECK(driver->borrowed == 0);
    run_session();
    ep_model_close(&model);
    CHECK(driver->live() == 0);
    driver->gpu.buffer_bytes--;
    CHECK_STATUS(ep_model_open_memory(&gpu_alone, image, nbytes, &model), EP_E_GPU_DEVICE);
    free(image);
}

static int is_one_of(const char *name, const char *names) {
    const char *found = strstr(names, name);
    return found != NULL && found[strlen(name)] == ' ';
}

static ep_status expected_of_open(const char *function) {
    if (is_one_of(function, "MTLCreateSystemDefaultDevice maxThreadgroupMemoryLength maxBufferLength "
                            "recommendedMaxWorkingSetSize maxTotalThreadsPerThreadgroup ")) {
        return EP_E_GPU_DEVICE;
    }
    return is_one_of(function, "newCommandQueue newBufferWithLength:options: contents ") ? EP_E_GPU_MEMORY
                                                                                         : EP_E_GPU_BUILD;
}

/* Opens a model with call number `call` of the driver failing; whether it has that many. */
static int open_failing(fake_control *driver, int call, const ep_descriptor *descriptor, const char *root,
                        ep_status *status) {
    driver->calls = 0;
    driver->fail_at = call;
    driver->failed[0] = 0;
    *status = open_model(descriptor, root);
    driver->fail_at = 0;
    return driver->failed[0] != 0;
}

/* Each call of the driver in turn fails while a model is opened: alone it cannot be, with a variant for the
 * CPU that is taken, and says why. */
static void open_failures(const char *root) {
    fake_control *driver = setup(root);
    ep_status status;
    int failures = 0;
    for (int call = 1; open_failing(driver, call, &gpu_alone, root, &status); call++) {
        char expected[256];
        if (status == EP_OK) { /* without its name, what there is in all, or with a copy of the params */
            CHECK(is_one_of(driver->failed, "name UTF8String respondsToSelector: "
                                            "newBufferWithBytesNoCopy:length:options:deallocator: "));
            run_session();
            ep_model_close(&model);
            CHECK(driver->live() == 0);
            continue;
        }
        CHECK_STATUS(status, expected_of_open(driver->failed));
        CHECK(model.descriptor == NULL && model.reserved[0] == 0 && driver->live() == 0);
        failures++;
        snprintf(expected, sizeof expected, "cpu (metal: %s: %s)", ep_status_name(status),
                 ep_status_string(status));
        CHECK(open_failing(driver, call, &gpu_library, root, &status));
        CHECK_STATUS(status, EP_OK);
        CHECK(strcmp(backend(), expected) == 0);
        CHECK(model.descriptor == &cpu_variant && driver->live() == 0);
        ep_model_close(&model);
    }
    CHECK_STATUS(status, EP_OK);
    ep_model_close(&model);
    CHECK(failures > 15 && driver->live() == 0);
}

/* A compiled library is taken before the text, and the text where the system does not take that. */
static void compiled_library(const char *root) {
    static const ep_gpu_image image = {(const unsigned char *)"MTLB...", 7, 0, 0};
    fake_control *driver = setup(root);
    ep_status status;
    int call = 1;
    gpu_program.images = &image;
    gpu_program.image_count = 1;
    driver->takes_compiled = 1;
    driver->no_source = 1;
    CHECK_STATUS(open_model(&gpu_alone, root), EP_OK);
    run_session();
    ep_model_close(&model);
    CHECK(driver->live() == 0);
    driver->no_source = 0;
    for (int refused = 0; refused < 2; call++) {
        CHECK(open_failing(driver, call, &gpu_alone, root, &status));
        if (is_one_of(driver->failed, "dispatch_data_create newLibraryWithData:error: ")) {
            CHECK_STATUS(status, EP_OK);
            run_session();
            refused++;
        }
        ep_model_close(&model);
        CHECK(driver->live() == 0);
    }
    driver->takes_compiled = 0;
    CHECK_STATUS(open_model(&gpu_alone, root), EP_OK);
    ep_model_close(&model);
    driver->no_source = 1;
    CHECK_STATUS(open_model(&gpu_alone, root), EP_E_GPU_BUILD);
    CHECK(driver->live() == 0);
}

/* The same while a session is made and runs. */
static void session_failures(const char *root) {
    fake_control *driver = setup(root);
    ep_session *session = NULL;
    int failures = 0;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    int live = driver->live();
    for (int call = 1; session == NULL; call++) {
        driver->calls = 0;
        driver->fail_at = call;
        driver->failed[0] = 0;
        ep_status status = ep_session_create(&model, NULL, &session);
        CHECK((status == EP_OK) == (driver->failed[0] == 0));
        if (session == NULL) {
            CHECK_STATUS(status, EP_E_GPU_MEMORY);
            CHECK(driver->live() == live);
            failures++;
        }
    }
    CHECK(failures == 2);
    live = driver->live();
    for (int call = 1;; call++) {
        driver->calls = 0;
        driver->fail_at = call;
        driver->failed[0] = 0;
        ep_status status = data_run(&d, session);
        if (driver->failed[0] == 0) {
            CHECK_STATUS(status, EP_OK);
            CHECK(call > 6);
            break;
        }
        CHECK_STATUS(status, EP_E_GPU_RUN);
        CHECK(driver->live() == live);
        driver->fail_at = 0;
        CHECK_STATUS(data_run(&d, session), EP_OK);
        data_check(&d);
    }
    ep_session_destroy(session);
    ep_model_close(&model);
    CHECK(driver->live() == 0);
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
    driver->lost = 0;
    run_twice(session[1]);
    ep_session_destroy(session[0]);
    ep_session_destroy(session[1]);
    ep_model_close(&model);
    CHECK(driver->live() == 0);
}

/* Opens the GPU's variant on a machine as it is described, and says what is wrong, or which device it is. */
static void check_open(fake_control *driver, const char *root, const char *expected) {
    ep_status status = open_model(&gpu_alone, root);
    const char *found = status == EP_OK ? backend() : ep_status_name(status);
    if (strcmp(found, expected) != 0) {
        fprintf(stderr, "%s is not %s\n", found, expected);
        exit(1);
    }
    ep_model_close(&model);
    CHECK(driver->live() == 0);
}

#define WITH(change, expected) \
    change; \
    check_open(driver, root, expected); \
    *driver = before

static void devices(const char *root) {
    static ep_gpu_step steps[STEPS];
    fake_control *driver = setup(root);
    const fake_control before = *driver;
    WITH(driver->gpu.missing = 1, "EP_E_GPU_DEVICE");
    WITH(driver->gpu.shared_bytes--, "EP_E_GPU_DEVICE");
    WITH(driver->gpu.buffer_bytes--, "EP_E_GPU_DEVICE");
    WITH(driver->gpu.total_bytes--, "EP_E_GPU_DEVICE");
    WITH(driver->gpu.total_bytes--; driver->gpu.old = 1, "metal: fake");
    WITH(driver->threads[0]--, "EP_E_GPU_DEVICE");
    WITH(driver->threads[2]--, "EP_E_GPU_DEVICE");
    WITH(driver->no_source = 1, "EP_E_GPU_BUILD");
    WITH(driver->gpu.name = "", "metal: ");
    memcpy(steps, gpu_steps, sizeof steps);
    steps[3].count = 32; /* more buffers than Metal has */
    gpu_program.steps = steps;
    check_open(driver, root, "EP_E_GPU_DEVICE");
}

/* How often the GPU is waited for in a run of these steps. */
static int waits_of(fake_control *driver, const char *root, const ep_gpu_step *steps) {
    gpu_program.steps = steps;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    driver->waits = 0;
    run_session();
    ep_model_close(&model);
    CHECK(driver->live() == 0);
    return driver->waits / 2;
}

/* What a launch reads, and what a copy back reads, is not written over before; all else need not wait. */
static void order_of_copies(const char *root) {
    static ep_gpu_step steps[STEPS];
    const ep_gpu_step *before = gpu_steps;
    fake_control *driver = setup(root);
    ep_gpu_step garbage = {EP_STEP_UPLOAD, 0, {0, 0, 0}, {0, 0, 0}, 0, 1, EP_HOST_OUTPUT, 0, 0, ROW_BYTES};
    memcpy(steps, before, sizeof steps);
    memcpy(&steps[0], &before[1], 3 * sizeof steps[0]);
    steps[3] = garbage; /* into the data, which the launch before it reads */
    steps[4] = before[4];
    CHECK(waits_of(driver, root, steps) == 2);
    steps[3] = before[4];
    steps[4] = garbage;
    steps[4].first = 6; /* into the products, which are copied back before */
    CHECK(waits_of(driver, root, steps) == 2);
    memcpy(steps, before, sizeof steps);
    steps[9] = garbage;
    steps[9].first = 1; /* into what neither launch around it uses */
    steps[9].nbytes = 64;
    steps[10] = before[9];
    steps[12] = before[10];
    CHECK(waits_of(driver, root, steps) == 2);
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
    CHECK(driver->live() == 0);
}

static void no_driver(const char *root) {
    setup(root);
    there = 0;
    CHECK_STATUS(open_model(&gpu_alone, root), EP_E_GPU_DRIVER);
}

TEST_MAIN({"numbers", numbers}, {"params_in_memory", params_in_memory}, {"open_failures", open_failures},
          {"session_failures", session_failures}, {"lost_device", lost_device}, {"devices", devices},
          {"order_of_copies", order_of_copies}, {"compiled_library", compiled_library}, {"memory", memory},
          {"no_driver", no_driver})
