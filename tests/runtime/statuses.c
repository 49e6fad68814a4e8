/* Every bad input has a status of its own. */
#define _GNU_SOURCE
#include "check.h"

static ep_model model;

static ep_status open_file(const char *root, const char *name) {
    ep_status status = mini_open(path_in(root, name), &model);
    CHECK(status == EP_OK || (model.descriptor == NULL && model.params == NULL));
    ep_model_close(&model);
    return status;
}

static void params_files(const char *root) {
    CHECK_STATUS(open_file(root, "params/mini.params"), EP_OK);
    CHECK_STATUS(open_file(root, "params/none.params"), EP_E_IO);
    CHECK_STATUS(open_file(root, "params"), EP_E_IO);
    CHECK_STATUS(open_file(root, "bad/other_model.params"), EP_E_PARAMS_MODEL);
    CHECK_STATUS(open_file(root, "bad/not_params.params"), EP_E_PARAMS_MAGIC);
    CHECK_STATUS(open_file(root, "bad/empty.params"), EP_E_PARAMS_TRUNCATED);
    CHECK_STATUS(open_file(root, "bad/cut_in_header.params"), EP_E_PARAMS_TRUNCATED);
    CHECK_STATUS(open_file(root, "bad/cut_in_data.params"), EP_E_PARAMS_TRUNCATED);
    CHECK_STATUS(open_file(root, "bad/trailing_byte.params"), EP_E_PARAMS_CORRUPT);
    CHECK_STATUS(open_file(root, "bad/next_version.params"), EP_E_PARAMS_VERSION);
    CHECK_STATUS(open_file(root, "bad/offset_beyond_file.params"), EP_E_PARAMS_CORRUPT);
    CHECK_STATUS(open_file(root, "bad/table_beyond_header.params"), EP_E_PARAMS_CORRUPT);
}

/* Each byte of the file, one after the other: nothing that changed is missed. */
static void flipped_bytes(const char *root) {
    size_t nbytes;
    unsigned char *image = read_all(root, "params/mini.params", &nbytes);
    CHECK_STATUS(mini_open_memory(image, nbytes, &model), EP_OK);
    CHECK_STATUS(ep_model_check_params(&model), EP_OK);
    for (size_t i = 0; i < nbytes; i += i < 512 || i >= 4096 ? 1 : 97) {
        image[i] ^= 0x10;
        CHECK(ep_model_check_params(&model) != EP_OK);
        image[i] ^= 0x10;
    }
    image[4096 + 100] ^= 1;
    CHECK_STATUS(ep_model_check_params(&model), EP_E_PARAMS_HASH);
    image[4096 + 100] ^= 1;
    CHECK_STATUS(ep_model_check_params(&model), EP_OK);
    ep_model_close(&model);
    free(image);
}

static void params_memory(const char *root) {
    size_t nbytes;
    unsigned char *image = read_all(root, "params/mini.params", &nbytes);
    void *moved = NULL;
    CHECK_STATUS(mini_open_memory(NULL, nbytes, &model), EP_E_NULL);
    CHECK_STATUS(mini_open_memory(image, nbytes, NULL), EP_E_NULL);
    for (size_t i = 0; i < nbytes; i++) {
        unsigned char *cut = malloc(i + 1); /* what is beyond i is not ours */
        memcpy(cut, image, i);
        CHECK_STATUS(mini_open_memory(cut, i, &model), EP_E_PARAMS_TRUNCATED);
        free(cut);
    }
    CHECK(posix_memalign(&moved, 64, nbytes + 64) == 0);
    memcpy((char *)moved + 32, image, nbytes);
    CHECK_STATUS(mini_open_memory((char *)moved + 32, nbytes, &model), EP_E_ALIGNMENT);
    free(moved);
    free(image);
}

static void libraries(const char *root) {
    ep_descriptor copy = edgepack_model_mini;
    const char *path = path_in(root, "params/mini.params");
    char missing[64];
    CHECK_STATUS(ep_model_open(NULL, path, &model), EP_E_NULL);
    CHECK_STATUS(ep_model_open(&copy, path, NULL), EP_E_NULL);
    CHECK_STATUS(ep_model_open(&copy, NULL, &model), EP_E_NO_PARAMS);
    copy.magic++;
    memset(&model, 0xff, sizeof model);
    CHECK_STATUS(ep_model_open(&copy, path, &model), EP_E_LIBRARY);
    ep_model_close(&model); /* never touched by the library, and can be closed all the same */
    copy = edgepack_model_mini;
    copy.abi_version++;
    CHECK_STATUS(ep_model_open(&copy, path, &model), EP_E_ABI);
    copy = edgepack_model_mini;
    copy.struct_size = offsetof(ep_descriptor, gpu); /* an older library of the same ABI */
    CHECK_STATUS(ep_model_open(&copy, path, &model), EP_OK);
    ep_model_close(&model);
    copy.struct_size--;
    CHECK_STATUS(ep_model_open(&copy, path, &model), EP_E_ABI);
    copy = edgepack_model_mini;
    copy.struct_size += 8; /* a newer library of the same ABI */
    CHECK_STATUS(ep_model_open(&copy, path, &model), EP_OK);
    CHECK(ep_model_missing_features(&copy, missing, sizeof missing) == 0 && missing[0] == 0);
    ep_model_close(&model);
    copy.cpu_features |= UINT64_C(3) << 62;
    CHECK_STATUS(ep_model_open(&copy, path, &model), EP_E_CPU);
    CHECK_STATUS(ep_model_open_memory(&copy, path, 1, &model), EP_E_CPU);
    CHECK(ep_model_missing_features(&copy, missing, sizeof missing) == 2);
    CHECK(strcmp(missing, "unknown,unknown") == 0);
    CHECK(ep_model_missing_features(&copy, missing, 10) == 2 && strcmp(missing, "unknown,u") == 0);
    CHECK(ep_model_missing_features(&copy, missing, 1) == 2 && missing[0] == 0);
    CHECK(ep_model_missing_features(&copy, NULL, 0) == 2);
    CHECK(ep_model_missing_features(NULL, missing, sizeof missing) == 0);
}

/* Opening with options: as with a path, or with bytes in memory. */
static void opening(const char *root) {
    ep_open_options options = EP_OPEN_OPTIONS_INIT;
    size_t nbytes;
    unsigned char *image = read_all(root, "params/mini.params", &nbytes);
    CHECK_STATUS(ep_model_open_with(&edgepack_model_mini, NULL, &model), EP_E_NO_PARAMS);
    options.image = image;
    options.image_bytes = nbytes - 1;
    CHECK_STATUS(ep_model_open_with(&edgepack_model_mini, &options, &model), EP_E_PARAMS_TRUNCATED);
    options.image_bytes = nbytes;
    CHECK_STATUS(ep_model_open_with(&edgepack_model_mini, &options, &model), EP_OK);
    CHECK(model.image == image);
    ep_model_close(&model);
    options.path = path_in(root, "params/mini.params");
    CHECK_STATUS(ep_model_open_with(&edgepack_model_mini, &options, &model), EP_E_OPTION);
    options.image = NULL;
    options.gpu_api = EP_GPU_CUDA;
    options.gpu_context = &options; /* a library for the CPU looks at neither */
    CHECK_STATUS(ep_model_open_with(&edgepack_model_mini, &options, &model), EP_OK);
    CHECK(model.mapping != NULL);
    ep_model_close(&model);
    CHECK_STATUS(ep_model_open_with(&edgepack_model_mini, &options, NULL), EP_E_NULL);
    options.params_id_count = 1;
    CHECK_STATUS(ep_model_open_with(&edgepack_model_mini, &options, &model), EP_E_OPTION);
    options.params_ids = image;
    CHECK_STATUS(ep_model_open_with(&edgepack_model_mini, &options, &model), EP_OK);
    ep_model_close(&model);
    options.params_id_count = 4097;
    CHECK_STATUS(ep_model_open_with(&edgepack_model_mini, &options, &model), EP_E_OPTION);
    options.params_id_count = 0;
    options.params_version = 1;
    CHECK_STATUS(ep_model_open_with(&edgepack_model_mini, &options, &model), EP_E_PARAMS_OLD);
    for (int older = 0; older < 2; older++) { /* the sizes in older headers */
        options.struct_size =
            older ? offsetof(ep_open_options, cache) : offsetof(ep_open_options, params_ids);
        CHECK_STATUS(ep_model_open_with(&edgepack_model_mini, &options, &model), EP_OK);
        ep_model_close(&model);
    }
    free(image);
}

/* What a library says of a GPU that has none, and one that is older than the question. */
static void backends(const char *root) {
    ep_api api = *edgepack_model_mini.api;
    ep_descriptor copy = edgepack_model_mini;
    char text[8];
    CHECK_STATUS(mini_open(path_in(root, "params/mini.params"), &model), EP_OK);
    CHECK(api.model_backend == NULL);
    for (size_t capacity = 1; capacity <= sizeof text; capacity++) {
        memset(text, 'x', sizeof text);
        CHECK_STATUS(ep_model_backend(&model, text, capacity), EP_OK);
        CHECK(strncmp(text, "cpu", capacity - 1) == 0 && strlen(text) == (capacity < 4 ? capacity - 1 : 3));
    }
    ep_session *session = NULL;
    CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
    CHECK_STATUS(ep_session_run_memory(session, NULL, 0, NULL, 0), EP_E_UNSUPPORTED);
    CHECK_STATUS(ep_session_synchronize(session), EP_OK);
    ep_session_destroy(session);
    api.struct_size = offsetof(ep_api, model_backend);
    memset((void *)&api.model_backend, 0xff, sizeof api.model_backend); /* what lies behind an older table */
    copy.api = &api;
    model.descriptor = &copy;
    CHECK_STATUS(ep_model_backend(&model, text, sizeof text), EP_OK);
    CHECK(strcmp(text, "cpu") == 0);
    ep_model other;
    CHECK_STATUS(ep_model_open_with(&copy, NULL, &other), EP_E_ABI);
    CHECK_STATUS(ep_model_backend(&model, NULL, 1), EP_E_NULL);
    CHECK_STATUS(ep_model_backend(&model, text, 0), EP_E_NULL);
    ep_model_close(&model);
    CHECK_STATUS(ep_model_backend(&model, text, sizeof text), EP_E_NULL);
}

/* A table that does not fit the file, in a header whose hash is right. */
static void params_tables(const char *root) {
    static const char *const bad[] = {"name_beyond",  "names_end_beyond", "unknown_dtype",  "rank_beyond",
                                      "shape_before", "data_beyond",      "data_misaligned"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "bad/%s.params", bad[i]);
        CHECK_STATUS(mini_open(path_in(root, name), &model), EP_OK);
        CHECK_STATUS(ep_model_check_params(&model), EP_E_PARAMS_CORRUPT);
        ep_model_close(&model);
    }
}

/* Each feature that a model may need is there or missing, by its own name. */
static void cpu_features(const char *root) {
    ep_descriptor copy = edgepack_model_mini;
    char all[1024];
    size_t missing = 0;
    const char *path = path_in(root, "params/mini.params");
    for (unsigned bit = 0; bit < 64; bit++) {
        char name[32];
        copy.cpu_features = UINT64_C(1) << bit;
        size_t count = ep_model_missing_features(&copy, name, sizeof name);
        CHECK(count <= 1 && (count == 1) == (name[0] != 0) && strchr(name, ',') == NULL);
        CHECK_STATUS(ep_model_open(&copy, path, &model), count == 1 ? EP_E_CPU : EP_OK);
        ep_model_close(&model);
        missing += count;
    }
    copy.cpu_features = UINT64_MAX;
    CHECK(ep_model_missing_features(&copy, all, sizeof all) == missing && missing > 0 && missing <= 64);
    for (const char *comma = strchr(all, ','); comma != NULL; comma = strchr(comma + 1, ',')) {
        missing--;
    }
    CHECK(missing == 1);
#if defined(__x86_64__) && defined(__SSE3__)
    copy.cpu_features = 1;
    CHECK(ep_model_missing_features(&copy, all, sizeof all) == 0);
#endif
}

/* Of a library's variants, the first that this CPU can run. */
static void variants(const char *root) {
    ep_descriptor none = edgepack_model_mini;
    ep_descriptor second = edgepack_model_mini;
    ep_descriptor exported = edgepack_model_mini;
    const ep_descriptor *const list[] = {&none, &second};
    const char *path = path_in(root, "params/mini.params");
    none.cpu_features = UINT64_C(1) << 63;
    exported.variants = list;
    exported.variant_count = 2;
    CHECK_STATUS(ep_model_open(&exported, path, &model), EP_OK);
    CHECK(model.descriptor == &second);
    ep_model_close(&model);
    exported.variant_count = 1;
    CHECK_STATUS(ep_model_open(&exported, path, &model), EP_OK);
    CHECK(model.descriptor == &exported);
    ep_model_close(&model);
}

static void closed_models(const char *root) {
    ep_model closed;
    ep_session *session = NULL;
    size_t nbytes;
    memset(&closed, 0, sizeof closed);
    (void)root;
    ep_model_close(NULL);
    ep_model_close(&closed);
    ep_session_destroy(NULL);
    CHECK_STATUS(ep_model_check_params(NULL), EP_E_NULL);
    CHECK_STATUS(ep_model_check_params(&closed), EP_E_NULL);
    CHECK_STATUS(ep_session_create(&closed, NULL, &session), EP_E_NULL);
    CHECK_STATUS(ep_session_create(NULL, NULL, &session), EP_E_NULL);
    CHECK_STATUS(ep_session_bytes(&closed, NULL, &nbytes), EP_E_NULL);
    CHECK_STATUS(ep_session_run(NULL, NULL, 0, NULL, 0), EP_E_NULL);
    CHECK_STATUS(ep_session_begin(NULL, NULL, 0, NULL, 0), EP_E_NULL);
    CHECK_STATUS(ep_session_work(NULL, 0), EP_E_NULL);
    CHECK_STATUS(ep_session_profile(NULL, NULL, 0), EP_E_NULL);
}

static ep_status create(const ep_options *options) {
    ep_session *session = NULL;
    ep_status status = ep_session_create(&model, options, &session);
    CHECK((status == EP_OK) == (session != NULL));
    ep_session_destroy(session);
    return status;
}

/* Options of a caller with a newer header: longer, and what we do not know must be zero. */
typedef struct newer_options {
    ep_options known;
    uint64_t unknown;
} newer_options;

static void options(const char *root) {
    static const ep_options good = EP_OPTIONS_INIT;
    newer_options newer = {EP_OPTIONS_INIT, 0};
    ep_options bad = good;
    size_t nbytes;
    CHECK_STATUS(mini_open(path_in(root, "params/mini.params"), &model), EP_OK);
    CHECK_STATUS(create(&good), EP_OK);
    CHECK_STATUS(ep_session_create(&model, &good, NULL), EP_E_NULL);
    CHECK_STATUS(ep_session_bytes(&model, &good, NULL), EP_E_NULL);
    bad.struct_size = 0;
    CHECK_STATUS(create(&bad), EP_E_OPTION);
    CHECK_STATUS(ep_session_bytes(&model, &bad, &nbytes), EP_E_OPTION);
    bad.struct_size = SIZE_MAX;
    CHECK_STATUS(create(&bad), EP_E_OPTION);
    bad.struct_size = offsetof(ep_options, gpu_queue); /* a caller with an older header */
    memset((void *)&bad.gpu_queue, 0xff, sizeof bad - offsetof(ep_options, gpu_queue));
    CHECK_STATUS(create(&bad), EP_OK);
    bad = good;
    bad.gpu_memory = 2;
    CHECK_STATUS(create(&bad), EP_E_OPTION);
    bad = good;
    bad.asynchronous = 2;
    CHECK_STATUS(create(&bad), EP_E_OPTION);
    bad = good;
    bad.reserved2 = 1;
    CHECK_STATUS(create(&bad), EP_E_OPTION);
    bad = good;
    bad.gpu_queue = &model;
    CHECK_STATUS(create(&bad), EP_E_GPU_CONTEXT);
    newer.known.struct_size = sizeof newer;
    CHECK_STATUS(create(&newer.known), EP_OK);
    newer.unknown = 1;
    CHECK_STATUS(create(&newer.known), EP_E_OPTION);
    bad = good;
    bad.schedule = 3;
    CHECK_STATUS(create(&bad), EP_E_OPTION);
    bad = good;
    bad.reserved = 1;
    CHECK_STATUS(create(&bad), EP_E_OPTION);
    bad = good;
    bad.caller_threads = 2;
    CHECK_STATUS(create(&bad), EP_E_OPTION);
    bad = good;
    bad.threads = EP_MAX_THREADS + 1;
    CHECK_STATUS(create(&bad), EP_E_THREADS);
    ep_model_close(&model);
}

static void buffers(const char *root) {
    ep_session *session = NULL;
    data d;
    data_init(&d, root);
    CHECK_STATUS(mini_open(path_in(root, "params/mini.params"), &model), EP_OK);
    CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
    CHECK_STATUS(ep_session_begin(session, d.inputs, 2, d.outputs, 4), EP_E_STATE);
    CHECK_STATUS(ep_session_work(session, 0), EP_E_STATE);
    CHECK_STATUS(ep_session_run(session, d.inputs, 1, d.outputs, 4), EP_E_COUNT);
    CHECK_STATUS(ep_session_run(session, d.inputs, 2, d.outputs, 5), EP_E_COUNT);
    CHECK_STATUS(ep_session_run(session, NULL, 2, d.outputs, 4), EP_E_NULL);
    CHECK_STATUS(ep_session_run(session, d.inputs, 2, NULL, 4), EP_E_NULL);
    d.inputs[1].data = NULL;
    CHECK_STATUS(data_run(&d, session), EP_E_NULL);
    data_init(&d, root);
    d.outputs[2].data = NULL;
    CHECK_STATUS(data_run(&d, session), EP_E_NULL);
    data_init(&d, root);
    d.inputs[0].nbytes--;
    CHECK_STATUS(data_run(&d, session), EP_E_SIZE);
    data_init(&d, root);
    d.outputs[3].nbytes++;
    CHECK_STATUS(data_run(&d, session), EP_E_SIZE);
    data_init(&d, root);
    d.inputs[0].data = (const char *)d.x + 2;
    CHECK_STATUS(data_run(&d, session), EP_E_ALIGNMENT);
    data_init(&d, root);
    d.outputs[1].data = (char *)d.halves + 1;
    CHECK_STATUS(data_run(&d, session), EP_E_ALIGNMENT);
    data_init(&d, root);
    d.outputs[0].data = d.x + MINI_INPUT_DATA_ELEMENTS - 1; /* its first element is the input's last */
    CHECK_STATUS(data_run(&d, session), EP_E_OVERLAP);
    data_init(&d, root);
    d.outputs[2].data = d.halves;
    CHECK_STATUS(data_run(&d, session), EP_E_OVERLAP);
    data_init(&d, root);
    CHECK_STATUS(data_run(&d, session), EP_OK); /* none of it has harmed the session */
    data_check(&d);
    ep_session_destroy(session);
    ep_model_close(&model);
}

static void sentences(const char *root) {
    (void)root;
#define X(name, value, text) \
    CHECK(strcmp(ep_status_name(name), #name) == 0 && strcmp(ep_status_string(name), text) == 0); \
    CHECK(name == (value) && text[strlen(text) - 1] == '.');
    EP_STATUS_LIST(X)
#undef X
    CHECK(strcmp(ep_status_name(-1), "EP_E_UNKNOWN") == 0);
    CHECK(strcmp(ep_status_string(1000), "Unknown status.") == 0);
}

TEST_MAIN({"params_files", params_files}, {"flipped_bytes", flipped_bytes}, {"params_tables", params_tables},
          {"cpu_features", cpu_features}, {"variants", variants}, {"params_memory", params_memory},
          {"libraries", libraries}, {"backends", backends}, {"opening", opening},
          {"closed_models", closed_models}, {"options", options}, {"buffers", buffers},
          {"sentences", sentences})
