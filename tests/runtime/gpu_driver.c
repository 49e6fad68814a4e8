/* The GPU variant of the mini model on a driver of the system. Leaves with 77 and a sentence where there is
 * none. */
#include "cache.h"

#include <pthread.h>

static ep_model model;
static data d;

static void open_gpu(const char *root) {
    gpu_make_library();
    data_init(&d, root);
    ep_status status = ep_model_open(&gpu_alone, path_in(root, "params/mini.params"), &model);
    if (status == EP_E_GPU_DRIVER || status == EP_E_GPU_DEVICE) {
        printf("%s", ep_status_string(status));
        exit(77);
    }
    CHECK_STATUS(status, EP_OK);
}

/* Fills what a session has on the GPU, and in the process, with what is no number. */
static void poison(ep_session *head) {
    static unsigned char block[1 << 14];
    ep_session_impl *session = (ep_session_impl *)head;
    ep_opencl_session *opencl = (ep_opencl_session *)(void *)session->gpu;
    size_t nbytes = (size_t)gpu_program.arena_bytes;
    CHECK(nbytes <= sizeof block);
    memset(block, 0xff, sizeof block);
    memset(session->context.arena, 0xff, (size_t)gpu_variant.arena_bytes);
    CHECK(ep_opencl_of(opencl)->EnqueueWriteBuffer(opencl->queue, opencl->arena, EP_CL_TRUE, 0, nbytes, block,
                                                   0, NULL, NULL) == EP_CL_SUCCESS);
}

static void numbers(const char *root) {
    char text[256];
    ep_session *session = NULL;
    open_gpu(root);
    CHECK_STATUS(ep_model_backend(&model, text, sizeof text), EP_OK);
    CHECK(strncmp(text, "opencl: ", 8) == 0 && text[8] != 0);
    CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
    for (int i = 0; i < 5; i++) {
        poison(session);
        CHECK_STATUS(data_run(&d, session), EP_OK);
        data_check(&d);
        d.small[3] = -1;
        CHECK_STATUS(data_run(&d, session), EP_E_KERNEL);
        d.small[3] = (int8_t)d.expected_longs[3];
    }
    ep_session_destroy(session);
    ep_model_close(&model);
}

static void *runs(void *of) {
    data *mine = of;
    ep_session *session = NULL;
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
        for (int j = 0; j < 5; j++) {
            CHECK_STATUS(data_run(mine, session), EP_OK);
            data_check(mine);
        }
        ep_session_destroy(session);
    }
    return NULL;
}

/* Sessions of one model in several threads at once. */
static void sessions(const char *root) {
    static data each[3];
    pthread_t threads[3];
    open_gpu(root);
    for (int i = 0; i < 3; i++) {
        data_init(&each[i], root);
    }
    for (int i = 0; i < 3; i++) {
        CHECK(pthread_create(&threads[i], NULL, runs, &each[i]) == 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    ep_model_close(&model);
    open_gpu(root); /* the driver can be opened again */
    ep_model_close(&model);
}

/* In a context, a queue and memory of the caller's. */
static void caller_memory(const char *root) {
    open_gpu(root); /* leaves where there is no driver */
    ep_model_close(&model);
    cl_begin();
    ep_open_options options = open_options(root);
    CHECK_STATUS(ep_model_open_with(&gpu_alone, &options, &model), EP_OK);
    check_mixtures(&model, &d);
    check_misuse(&model, &d);
    ep_options limited = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    limited.gpu_limit_ms = 120000;
    CHECK_STATUS(ep_session_create(&model, &limited, &session), EP_OK);
    CHECK_STATUS(data_run(&d, session), EP_OK);
    data_check(&d);
    ep_session_destroy(session);
    ep_model_close(&model);
    ours.end();
}

/* What the driver compiled is what it gets when the model is opened again: a program without a text. */
static void cache(const char *root) {
    char source[8] = {0};
    open_gpu(root);
    ep_model_close(&model);
    check_cache(root, &d);
    CHECK(!compiles(root, &model));
    const ep_opencl_model *opencl = (const ep_opencl_model *)model.reserved[0];
    CHECK(opencl->GetProgramInfo(opencl->program, 0x1164, sizeof source, source, NULL) == EP_CL_SUCCESS);
    CHECK(source[0] == 0);
    ep_model_close(&model);
}

TEST_MAIN({"cache", cache}, {"caller_memory", caller_memory}, {"numbers", numbers}, {"sessions", sessions})
