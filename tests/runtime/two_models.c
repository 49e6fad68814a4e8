/* Two models in one process, each with its own copy of the runtime; linked statically or loaded with dlopen.
 */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>

#include <other.h>

static void run_both(const char *root, const ep_descriptor *one, const ep_descriptor *two) {
    static data a;
    static data b;
    char other_root[4096];
    ep_model models[2];
    ep_session *sessions[2];
    CHECK(strlen(root) + sizeof "/other" < sizeof other_root);
    strcpy(other_root, root);
    strcat(other_root, "/other");
    data_init(&a, root);
    data_init(&b, other_root);
    CHECK_STATUS(ep_model_open(one, path_in(root, "params/mini.params"), &models[0]), EP_OK);
    CHECK_STATUS(ep_model_open(two, path_in(other_root, "params/other.params"), &models[1]), EP_OK);
    for (size_t i = 0; i < 2; i++) {
        CHECK_STATUS(ep_session_create(&models[i], NULL, &sessions[i]), EP_OK);
    }
    CHECK(memcmp(a.expected_y, b.expected_y, sizeof a.expected_y) != 0);
    for (int i = 0; i < 10; i++) {
        CHECK_STATUS(data_run(&a, sessions[0]), EP_OK);
        CHECK_STATUS(data_run(&b, sessions[1]), EP_OK);
        data_check(&a);
        data_check(&b);
    }
    CHECK_STATUS(ep_model_open(one, path_in(other_root, "params/other.params"), &models[0]),
                 EP_E_PARAMS_MODEL);
    for (size_t i = 0; i < 2; i++) {
        ep_session_destroy(sessions[i]);
        ep_model_close(&models[i]);
    }
}

#if defined(STATIC)

static void both(const char *root) {
    ep_model model;
    ep_session *session = NULL;
    static data d;
    run_both(root, &edgepack_model_mini, &edgepack_model_other);
    data_init(&d, root);
    CHECK_STATUS(mini_open(path_in(root, "params/mini.params"), &model), EP_OK);
    CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
    CHECK_STATUS(other_run(session, d.x, d.small, d.y, d.halves, d.flags, d.longs), EP_E_LIBRARY);
    ep_session_destroy(session);
    ep_model_close(&model);
}

#else

static const ep_descriptor *load(const char *root, const char *library, const char *symbol) {
    void *handle = dlopen(path_in(root, library), RTLD_NOW | RTLD_GLOBAL);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return dlsym(handle, symbol);
}

static void both(const char *root) {
    run_both(root, load(root, "lib/libmini.so", MINI_SYMBOL),
             load(root, "other/lib/libother.so", OTHER_SYMBOL));
}

#endif

TEST_MAIN({"both", both})
