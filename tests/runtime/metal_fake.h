/* The GPU variant of the mini model on the fake Metal. */
#include "fake_metal.h"

static int installed = 1; /* the driver's libraries */

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);

/* All of Apple's libraries are one. */
void *__wrap_dlopen(const char *name, int flags) {
    if (strncmp(name, "/System/", 8) == 0 || strncmp(name, "/usr/lib/lib", 12) == 0) {
        return installed && strstr(name, "CoreGraphics") == NULL ? __real_dlopen("libmetal.so", flags) : NULL;
    }
    return __real_dlopen(name, flags);
}

/* ---- The caller ---- */

static ep_metal_model mt;
static void *mt_pool;

static void *mt_buffer(size_t nbytes) {
    void *made = EP_MTL_WITH(&mt, new_buffer, mt.device, nbytes, EP_MTL_STORAGE_SHARED);
    CHECK(made != NULL);
    return made;
}

static unsigned char *mt_bytes(void *buffer) {
    unsigned char *bytes = EP_MTL(&mt, contents, buffer);
    CHECK(bytes != NULL);
    return bytes;
}

static void mt_put(void *buffer, size_t offset, const void *from, size_t nbytes) {
    memcpy(mt_bytes(buffer) + offset, from, nbytes);
}

static void mt_get(void *buffer, size_t offset, void *to, size_t nbytes) {
    memcpy(to, mt_bytes(buffer) + offset, nbytes);
}

static void mt_release(void *buffer) {
    EP_MTL(&mt, release, (ep_mtl_id)buffer);
}

static void mt_end(void) {
    EP_MTL(&mt, release, (ep_mtl_id)ours.queue);
    EP_MTL(&mt, release, mt.device);
    mt.objc_autoreleasePoolPop(mt_pool);
}

static void mt_begin(void) {
    CHECK_STATUS(ep_metal_load(&mt), EP_OK);
    mt_pool = mt.objc_autoreleasePoolPush();
    mt.device = mt.create_device();
    CHECK(mt.device != NULL);
    caller made = {mt.device, NULL, mt_buffer, mt_put, mt_get, mt_release, mt_end};
    ours = made;
    ours.queue = EP_MTL(&mt, new_queue, mt.device);
    CHECK(ours.queue != NULL);
}

static ep_status metal_of_open(const char *function) {
    if (is_one_of(function, "MTLCreateSystemDefaultDevice maxThreadgroupMemoryLength maxBufferLength "
                            "recommendedMaxWorkingSetSize maxTotalThreadsPerThreadgroup ")) {
        return EP_E_GPU_DEVICE;
    }
    return is_one_of(function, "newCommandQueue newBufferWithLength:options: contents ") ? EP_E_GPU_MEMORY
                                                                                         : EP_E_GPU_BUILD;
}

static ep_status metal_of_session(const char *function) {
    (void)function;
    return EP_E_GPU_MEMORY;
}

static const fake_driver metal = {
    .name = "metal",
    .api = EP_GPU_METAL,
    .library = "libmetal.so",
    .control = "fake_mtl",
    .prepare = NULL,
    .begin = mt_begin,
    .of_open = metal_of_open,
    .of_session = metal_of_session,
    /* the name, how much memory there is in all, the params as they lie there */
    .not_needed = "name UTF8String respondsToSelector: newBufferWithBytesNoCopy:length:options:deallocator: ",
    .session_not_needed = "",
    .may_not_wait = "",
    .lost_session = EP_OK,
    .lost_open = "metal: fake",
    .open_failures = 15,
    .session_failures = 2,
    .run_calls = 6};

TEST_OF(metal, open_failures)
TEST_OF(metal, session_failures)
TEST_OF(metal, lost_device)
TEST_OF(metal, memory)
TEST_OF(metal, late)
TEST_OF(metal, caller)
TEST_OF(metal, caller_failures)

/* One command buffer for what lies between two kernels of the CPU; while steps are timed, one for each
 * launch. */
static void metal_numbers(const char *root) {
    fake_mtl_control *driver = setup(&metal, root);
    ep_session *session = NULL;
    uint64_t ns[STEPS];
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK(strcmp(backend(), "metal: fake") == 0 && model.descriptor == &gpu_variant);
    CHECK(driver->borrowed == 1); /* the params are not copied */
    CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
    CHECK(driver->f.launches == 0);
    run_twice(session);
    CHECK(driver->f.launches == 6 && driver->waits == 4);
    CHECK_STATUS(ep_session_profile(session, ns, STEPS), EP_OK);
    run_twice(session);
    CHECK(driver->f.launches == 12 && driver->waits == 10);
    ep_session_destroy(session);
    ep_model_close(&model);
    CHECK(driver->f.live == 0);
}

/* Params in memory that is no mapped file are copied. */
static void metal_params_in_memory(const char *root) {
    fake_mtl_control *driver = setup(&metal, root);
    size_t nbytes;
    unsigned char *image = read_all(root, "params/mini.params", &nbytes);
    CHECK_STATUS(ep_model_open_memory(&gpu_alone, image, nbytes, &model), EP_OK);
    CHECK(driver->borrowed == 0);
    run_session();
    ep_model_close(&model);
    CHECK(driver->f.live == 0);
    driver->gpu.buffer_bytes--;
    CHECK_STATUS(ep_model_open_memory(&gpu_alone, image, nbytes, &model), EP_E_GPU_DEVICE);
    free(image);
}

/* A compiled library is taken before the text, and the text where the system does not take that. */
static void metal_compiled_library(const char *root) {
    static const ep_gpu_image image = {(const unsigned char *)"MTLB...", 7, 0, 0};
    fake_mtl_control *driver = setup(&metal, root);
    ep_status status;
    int call = 1;
    gpu_program.images = &image;
    gpu_program.image_count = 1;
    driver->takes_compiled = 1;
    driver->no_source = 1;
    CHECK_STATUS(open_model(&gpu_alone, root), EP_OK);
    run_session();
    ep_model_close(&model);
    CHECK(driver->f.live == 0);
    driver->no_source = 0;
    for (int refused = 0; refused < 2; call++) {
        CHECK(open_failing(&driver->f, call, &gpu_alone, root, &status));
        if (is_one_of(driver->f.failed, "dispatch_data_create newLibraryWithData:error: ")) {
            CHECK_STATUS(status, EP_OK);
            run_session();
            refused++;
        }
        ep_model_close(&model);
        CHECK(driver->f.live == 0);
    }
    driver->takes_compiled = 0;
    CHECK_STATUS(open_model(&gpu_alone, root), EP_OK);
    ep_model_close(&model);
    driver->no_source = 1;
    CHECK_STATUS(open_model(&gpu_alone, root), EP_E_GPU_BUILD);
    CHECK(driver->f.live == 0);
}

#define WITH(change, expected) \
    change; \
    check_open(&driver->f, root, "", expected); \
    *driver = before

static void metal_devices(const char *root) {
    static ep_gpu_step steps[STEPS];
    fake_mtl_control *driver = setup(&metal, root);
    const fake_mtl_control before = *driver;
    WITH(driver->gpu.missing = 1, "EP_E_GPU_DEVICE");
    WITH(driver->gpu.shared_bytes--, "EP_E_GPU_DEVICE");
    WITH(driver->gpu.buffer_bytes--, "EP_E_GPU_DEVICE");
    WITH(driver->gpu.total_bytes--, "EP_E_GPU_DEVICE");
    WITH(driver->gpu.total_bytes--; driver->gpu.old = 1, "metal: fake");
    WITH(driver->threads[0]--, "EP_E_GPU_DEVICE");
    WITH(driver->threads[2]--, "EP_E_GPU_DEVICE");
    WITH(driver->no_source = 1, "EP_E_GPU_BUILD");
    WITH(driver->gpu.name = "", "metal: ");
    gpu_program.family = 7;
    WITH(driver->gpu.family = 6, "EP_E_GPU_DEVICE");
    WITH(driver->gpu.family = 9, "metal: fake");
    gpu_program.family = 0;
    WITH(driver->gpu.family = 1, "metal: fake");
    memcpy(steps, gpu_steps, sizeof steps);
    steps[3].count = 32; /* more buffers than Metal has */
    gpu_program.steps = steps;
    check_open(&driver->f, root, "", "EP_E_GPU_DEVICE");
}

/* How often the GPU is waited for in a run of these steps. */
static int waits_of(fake_mtl_control *driver, const char *root, const ep_gpu_step *steps) {
    gpu_program.steps = steps;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    driver->waits = 0;
    run_session();
    ep_model_close(&model);
    CHECK(driver->f.live == 0);
    return driver->waits / 2;
}

/* What a launch reads, and what a copy back reads, is not written over before; all else need not wait. */
static void metal_order_of_copies(const char *root) {
    static ep_gpu_step steps[STEPS];
    const ep_gpu_step *before = gpu_steps;
    fake_mtl_control *driver = setup(&metal, root);
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

#undef WITH

/* Of two runs that nobody waits for, the second does not write over what the first still reads. */
static void metal_in_flight(const char *root) {
    static ep_gpu_step steps[STEPS];
    static float twice[MINI_INPUT_DATA_ELEMENTS];
    fake_mtl_control *driver = setup(&metal, root);
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    there t;
    memcpy(steps, gpu_steps, sizeof steps);
    steps[0] = steps[11] = steps[12]; /* the CPU's first and last, before which it waits */
    gpu_program.steps = steps;
    mt_begin();
    ep_open_options open = open_options(root);
    CHECK_STATUS(ep_model_open_with(&gpu_alone, &open, &model), EP_OK);
    options.gpu_memory = 1;
    options.asynchronous = 1;
    options.gpu_queue = ours.queue;
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
    there_init(&t, &d);
    there_set(&t, &d, 4);
    CHECK_STATUS(there_run(&t, session), EP_OK);
    for (size_t i = 0; i < MINI_INPUT_DATA_ELEMENTS; i++) {
        twice[i] = 2 * d.x[i];
    }
    void *other = ours.buffer(sizeof d.y);
    t.memories[0].data = twice;
    t.memories[2].data = other;
    t.memories[2].offset = 0;
    CHECK_STATUS(there_run(&t, session), EP_OK);
    CHECK_STATUS(ep_session_synchronize(session), EP_OK);
    ours.get(t.buffers[2], GUARD, d.y, sizeof d.y);
    for (size_t i = 0; i < MINI_OUTPUT_DATA_ELEMENTS; i++) {
        CHECK(d.y[i] - d.expected_y[i] < 1e-4f && d.expected_y[i] - d.y[i] < 1e-4f);
    }
    ours.get(other, 0, d.y, sizeof d.y);
    for (size_t i = 0; i < MINI_OUTPUT_DATA_ELEMENTS; i++) {
        CHECK(d.y[i] - 2 * d.expected_y[i] < 2e-4f && 2 * d.expected_y[i] - d.y[i] < 2e-4f);
    }
    ep_session_destroy(session);
    ours.release(other);
    there_release(&t);
    ep_model_close(&model);
    ours.end();
    CHECK(driver->f.live == 0);
}

static void metal_no_driver(const char *root) {
    setup(&metal, root);
    installed = 0;
    CHECK_STATUS(open_model(&gpu_alone, root), EP_E_GPU_DRIVER);
}
