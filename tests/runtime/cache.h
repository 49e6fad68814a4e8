/* Where the tests keep what a driver of OpenCL's compiled: one entry, in memory. */
#ifndef CACHE_H
#define CACHE_H

#include "callers.h"

static struct {
    char key[65];
    unsigned char bytes[1 << 20];
    size_t nbytes;
    int writes;
} kept;

static size_t kept_read(void *user, const char *key, void *to, size_t capacity) {
    CHECK(user == &kept && strlen(key) == 64 && strspn(key, "0123456789abcdef") == 64);
    if (strcmp(key, kept.key) != 0) {
        return 0;
    }
    if (to != NULL && kept.nbytes <= capacity) {
        memcpy(to, kept.bytes, kept.nbytes);
    }
    return kept.nbytes;
}

static void kept_write(void *user, const char *key, const void *from, size_t nbytes) {
    CHECK(user == &kept && nbytes <= sizeof kept.bytes);
    strcpy(kept.key, key);
    memcpy(kept.bytes, from, nbytes);
    kept.nbytes = nbytes;
    kept.writes++;
}

static const ep_cache kept_cache = {&kept, kept_read, kept_write};

/* Opens the GPU's variant with the cache; whether the driver had to compile its kernels. */
static int compiles(const char *root, ep_model *opened) {
    ep_open_options options = EP_OPEN_OPTIONS_INIT;
    int before = kept.writes;
    options.path = path_in(root, "params/mini.params");
    options.cache = &kept_cache;
    CHECK_STATUS(ep_model_open_with(&gpu_alone, &options, opened), EP_OK);
    return kept.writes != before;
}

static void run_once(const ep_model *of, data *with) {
    ep_session *session = NULL;
    CHECK_STATUS(ep_session_create(of, NULL, &session), EP_OK);
    CHECK_STATUS(data_run(with, session), EP_OK);
    data_check(with);
    ep_session_destroy(session);
}

/* An entry that is not whole, has a byte changed, or is another's is compiled anew, and written. */
static void check_cache(const char *root, data *with) {
    ep_model opened;
    CHECK(compiles(root, &opened));
    run_once(&opened, with);
    ep_model_close(&opened);
    CHECK(!compiles(root, &opened));
    run_once(&opened, with);
    ep_model_close(&opened);
    const size_t places[] = {0, 7, 8, 39, 40, 71, 72, kept.nbytes / 2, kept.nbytes - 1};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        kept.bytes[places[i]] ^= 0x40;
        CHECK(compiles(root, &opened));
        ep_model_close(&opened);
        kept.nbytes = places[i];
        CHECK(compiles(root, &opened));
        ep_model_close(&opened);
    }
    memset(kept.bytes + kept.nbytes, 0, 8);
    kept.nbytes += 8;
    CHECK(compiles(root, &opened));
    ep_model_close(&opened);
    CHECK(!compiles(root, &opened));
    run_once(&opened, with);
    ep_model_close(&opened);
}

#endif
