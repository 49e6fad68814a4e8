/* What holds on each fake driver of a GPU: every failure, and what is left after it. */
#ifndef GPU_FAKES_H
#define GPU_FAKES_H

#include "callers.h"

#include "fake.h"

/* A driver that a test is for. */
typedef struct fake_driver {
    const char *name; /* the back end's */
    uint32_t api;
    const char *library;
    const char *control;   /* its symbol */
    void (*prepare)(void); /* gpu_program, or null */
    void (*begin)(void);   /* makes `ours` */
    /* The status if this function fails while a model is opened, or a session is made. */
    ep_status (*of_open)(const char *function);
    ep_status (*of_session)(const char *function);
    const char *not_needed;         /* functions that may fail, each with a space behind it */
    const char *session_not_needed; /* the same for a session */
    const char *may_not_wait;       /* after which a run that failed cannot wait for what was begun */
    ep_status lost_session;         /* of a new session on a device that is lost */
    const char *lost_open;          /* what a model then says, as far as this goes */
    int open_failures;              /* there are more calls that lead to a failure than this */
    int session_failures;           /* exactly so many */
    int run_calls;                  /* calls in a run, more than this */
} fake_driver;

static ep_model model;
static data d;
static char text[256];

static int allowed = 1; /* else malloc fails */
static int allocated;

void *__real_malloc(size_t nbytes);
void *__wrap_malloc(size_t nbytes);

void *__wrap_malloc(size_t nbytes) {
    allocated++;
    return allowed ? __real_malloc(nbytes) : NULL;
}

/* The driver's control, for a program of the mini model that is for it. */
static void *setup(const fake_driver *driver, const char *root) {
    gpu_make_library();
    gpu_program.api = driver->api;
    if (driver->prepare != NULL) {
        driver->prepare();
    }
    data_init(&d, root);
    void *library = dlopen(driver->library, RTLD_NOW);
    void *symbol = library != NULL ? dlsym(library, driver->control) : NULL;
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

static int begins(const char *whole, const char *start) {
    return strncmp(whole, start, strlen(start)) == 0;
}

/* In an arena that holds no numbers. */
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

static int is_one_of(const char *name, const char *names) {
    const char *found = strstr(names, name);
    return found != NULL && found[strlen(name)] == ' ' && (found == names || found[-1] == ' ');
}

static void fail_at(fake_calls *calls, int call) {
    calls->calls = 0;
    calls->fail_at = call;
    calls->failed[0] = 0;
}

/* Opens a model while call number `call` fails; whether it came to that. */
static int open_failing(fake_calls *calls, int call, const ep_descriptor *descriptor, const char *root,
                        ep_status *status) {
    fail_at(calls, call);
    *status = open_model(descriptor, root);
    calls->fail_at = 0;
    return calls->failed[0] != 0;
}

/* Each call of the driver in turn fails while a model is opened: alone it cannot be, with a variant for the
 * CPU that is taken, and says why. */
static void check_open_failures(const fake_driver *driver, const char *root) {
    fake_calls *calls = setup(driver, root);
    ep_status status;
    int failures = 0;
    for (int call = 1; open_failing(calls, call, &gpu_alone, root, &status); call++) {
        char expected[256];
        if (status == EP_OK) {
            CHECK(is_one_of(calls->failed, driver->not_needed));
            run_session();
            ep_model_close(&model);
            CHECK(calls->live == 0);
            continue;
        }
        CHECK_STATUS(status, driver->of_open(calls->failed));
        CHECK(model.descriptor == NULL && model.reserved[0] == 0 && model.mapping == NULL);
        ep_model_close(&model);
        CHECK(calls->live == 0);
        failures++;
        snprintf(expected, sizeof expected, "cpu (%s: %s: %s)", driver->name, ep_status_name(status),
                 ep_status_string(status));
        CHECK(open_failing(calls, call, &gpu_library, root, &status));
        CHECK_STATUS(status, EP_OK);
        CHECK(strcmp(backend(), expected) == 0);
        CHECK(model.descriptor == &cpu_variant && calls->live == 0);
        run_session();
        ep_model_close(&model);
    }
    CHECK_STATUS(status, EP_OK);
    ep_model_close(&model);
    CHECK(failures > driver->open_failures && calls->live == 0);
}

static ep_session *make_failing(const fake_driver *driver, fake_calls *calls) {
    ep_session *session = NULL;
    int live = calls->live;
    int failures = 0;
    for (int call = 1;; call++) {
        fail_at(calls, call);
        ep_status status = ep_session_create(&model, NULL, &session);
        calls->fail_at = 0;
        if (calls->failed[0] == 0) {
            CHECK_STATUS(status, EP_OK);
            CHECK(failures == driver->session_failures);
            return session;
        }
        if (status == EP_OK) {
            CHECK(is_one_of(calls->failed, driver->session_not_needed));
            run_twice(session);
            ep_session_destroy(session);
        } else {
            CHECK_STATUS(status, driver->of_session(calls->failed));
            failures++;
        }
        CHECK(calls->live == live);
    }
}

/* The same while a session is made and runs. */
static void check_session_failures(const fake_driver *driver, const char *root) {
    fake_calls *calls = setup(driver, root);
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    ep_session *session = make_failing(driver, calls);
    int live = calls->live;
    for (int call = 1;; call++) {
        fail_at(calls, call);
        ep_status status = data_run(&d, session);
        calls->fail_at = 0;
        if (calls->failed[0] == 0) {
            CHECK_STATUS(status, EP_OK);
            CHECK(call > driver->run_calls);
            break;
        }
        CHECK_STATUS(status, EP_E_GPU_RUN);
        CHECK(calls->live == live);
        CHECK(calls->waiting == 0 ||
              is_one_of(calls->failed, driver->may_not_wait)); /* buffers are ours again */
        CHECK_STATUS(data_run(&d, session), EP_OK);
        data_check(&d);
    }
    ep_session_destroy(session);
    ep_model_close(&model);
    CHECK(calls->live == 0);
}

static void check_lost_device(const fake_driver *driver, const char *root) {
    fake_calls *calls = setup(driver, root);
    ep_session *session[2] = {NULL, NULL};
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(ep_session_create(&model, NULL, &session[i]), EP_OK);
    }
    CHECK_STATUS(data_run(&d, session[0]), EP_OK);
    calls->lost = 1;
    for (int i = 0; i < 4; i++) {
        CHECK_STATUS(data_run(&d, session[i % 2]), EP_E_GPU_RUN);
    }
    ep_session_destroy(session[0]);
    ep_session_destroy(session[1]);
    CHECK_STATUS(ep_session_create(&model, NULL, &session[0]), driver->lost_session);
    ep_session_destroy(driver->lost_session == EP_OK ? session[0] : NULL);
    ep_model_close(&model);
    CHECK(calls->live == 0);
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK); /* anew */
    CHECK(begins(backend(), driver->lost_open));
    if (begins(backend(), "cpu")) {
        run_session();
    }
    ep_model_close(&model);
    calls->lost = 0; /* it is there again */
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK(begins(backend(), driver->name));
    run_session();
    ep_model_close(&model);
    CHECK(calls->live == 0);
}

/* What the process has: one malloc to open a model, none for a session in the caller's memory. */
static void check_memory(const fake_driver *driver, const char *root) {
    static unsigned char block[1 << 16];
    fake_calls *calls = setup(driver, root);
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    size_t nbytes = 0;
    size_t most = EP_SESSION_BYTES(MINI_ARENA_BYTES, MINI_INPUTS + MINI_OUTPUTS) +
                  EP_GPU_SESSION_BYTES(STEPS, gpu_program.place_count);
    allocated = 0;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
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
    CHECK_STATUS(open_model(&gpu_alone, root), EP_E_NO_MEMORY);
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    CHECK(begins(backend(), "cpu (") && strstr(backend(), ": EP_E_NO_MEMORY") != NULL);
    ep_model_close(&model);
    allowed = 1;
    CHECK(calls->live == 0);
}

/* Opens the GPU's variant on a machine as it is described, and says what is wrong, or which device it is.
 * `more` is something else that the driver tells of it. */
static void check_open(fake_calls *calls, const char *root, const char *more, const char *expected) {
    char found[256];
    ep_status status = open_model(&gpu_alone, root);
    int tells = status == EP_OK && more[0] != 0;
    snprintf(found, sizeof found, "%s%s%s", status == EP_OK ? backend() : ep_status_name(status),
             tells ? ", " : "", tells ? more : "");
    if (strcmp(found, expected) != 0) {
        fprintf(stderr, "%s is not %s\n", found, expected);
        exit(1);
    }
    ep_model_close(&model);
    CHECK(calls->live == 0);
}

/* Opening with options that make no sense, and a model on the CPU, which can have all of it but the GPU. */
static void check_open_options(const char *root, data *d) {
    ep_model opened;
    there t;
    ep_session *session = NULL;
    ep_options asked = EP_OPTIONS_INIT;
    ep_open_options options = open_options(root);
#define WRONG(change) \
    change; \
    CHECK_STATUS(ep_model_open_with(&gpu_library, &options, &opened), EP_E_OPTION); \
    CHECK(opened.descriptor == NULL); \
    options = open_options(root)
    WRONG(options.struct_size--);
    WRONG(options.reserved = 1);
    WRONG(options.gpu_api = 0);
    WRONG(options.gpu_api = 4);
    WRONG(options.gpu_context = NULL);
    WRONG(options.image = d);
#undef WRONG
    options.gpu_api = options.gpu_api % 3 + 1; /* of another kind of driver */
    CHECK_STATUS(ep_model_open_with(&gpu_alone, &options, &opened), EP_E_GPU_CONTEXT);
    CHECK_STATUS(ep_model_open_with(&gpu_library, &options, &opened), EP_OK);
    CHECK(opened.descriptor == &cpu_variant);
    asked.gpu_queue = ours.queue;
    CHECK_STATUS(ep_session_create(&opened, &asked, &session), EP_E_GPU_CONTEXT);
    asked.gpu_queue = NULL;
    asked.gpu_memory = 1;
    asked.asynchronous = 1;
    CHECK_STATUS(ep_session_create(&opened, &asked, &session), EP_OK);
    there_init(&t, d);
    there_set(&t, d, 0);
    CHECK_STATUS(there_run(&t, session), EP_OK);
    CHECK_STATUS(ep_session_synchronize(session), EP_OK);
    there_check(&t, d);
    there_set(&t, d, 4);
    CHECK_STATUS(there_run(&t, session), EP_E_GPU_BUFFER);
    there_release(&t);
    ep_session_destroy(session);
    ep_model_close(&opened);
    CHECK_STATUS(ep_model_open_with(NULL, &options, &opened), EP_E_NULL);
}

static fake_calls *setup_caller(const fake_driver *driver, const char *root) {
    fake_calls *calls = setup(driver, root);
    driver->begin();
    return calls;
}

static void check_caller(const fake_driver *driver, const char *root) {
    fake_calls *calls = setup_caller(driver, root);
    ep_open_options options = open_options(root);
    int live = calls->live;
    CHECK_STATUS(ep_model_open_with(&gpu_library, &options, &model), EP_OK);
    CHECK(begins(backend(), driver->name));
    check_mixtures(&model, &d);
    check_misuse(&model, &d);
    CHECK(calls->waiting == 0);
    ep_model_close(&model);
    check_open_options(root, &d);
    CHECK(calls->live == live);
    CHECK_STATUS(open_model(&gpu_alone, root), EP_OK); /* in a context of its own, where the queue is not */
    ep_options asked = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    asked.gpu_queue = ours.queue;
    CHECK_STATUS(ep_session_create(&model, &asked, &session), EP_E_GPU_CONTEXT);
    run_session();
    ep_model_close(&model);
    CHECK(calls->live == live);
    ours.end();
    CHECK(calls->live == 0);
}

/* Each call of the driver in turn fails while a model is opened in the caller's context. */
static void fail_opening(fake_calls *calls, const char *root) {
    ep_open_options options = open_options(root);
    int live = calls->live;
    int failures = 0;
    for (int call = 1;; call++) {
        fail_at(calls, call);
        ep_status status = ep_model_open_with(&gpu_alone, &options, &model);
        calls->fail_at = 0;
        failures += status != EP_OK;
        CHECK(status == EP_OK || (status >= EP_E_GPU_DRIVER && status <= EP_E_GPU_CONTEXT));
        if (calls->failed[0] == 0) {
            CHECK(status == EP_OK && failures > 10);
            return;
        }
        ep_model_close(&model);
        CHECK(calls->live == live);
    }
}

/* The same while a session is made in his queue, and runs in his memory. */
static void check_caller_failures(const fake_driver *driver, const char *root) {
    fake_calls *calls = setup_caller(driver, root);
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    there t;
    fail_opening(calls, root);
    options.gpu_queue = ours.queue;
    options.gpu_memory = 1;
    options.asynchronous = 1;
    int live = calls->live;
    for (int call = 1;; call++) {
        fail_at(calls, call);
        ep_status status = ep_session_create(&model, &options, &session);
        calls->fail_at = 0;
        if (calls->failed[0] == 0) {
            CHECK_STATUS(status, EP_OK);
            break;
        }
        ep_session_destroy(status == EP_OK ? session : NULL);
        CHECK(calls->live == live);
    }
    there_init(&t, &d);
    live = calls->live;
    for (int call = 1;; call++) {
        there_set(&t, &d, call % 2 == 0 ? 63 : 63 - 4); /* the GPU's output in the process too */
        fail_at(calls, call);
        ep_status status = there_run(&t, session);
        status = status == EP_OK ? ep_session_synchronize(session) : status;
        calls->fail_at = 0;
        if (calls->failed[0] == 0) {
            CHECK_STATUS(status, EP_OK);
            CHECK(call > driver->run_calls);
            break;
        }
        CHECK(status == EP_E_GPU_RUN || status == EP_E_GPU_BUFFER);
        CHECK(calls->live == live);
        CHECK(calls->waiting == 0 || is_one_of(calls->failed, driver->may_not_wait));
        there_set(&t, &d, 63);
        CHECK_STATUS(there_run(&t, session), EP_OK);
        CHECK_STATUS(ep_session_synchronize(session), EP_OK);
        there_check(&t, &d);
    }
    there_set(&t, &d, 63);
    CHECK_STATUS(there_run(&t, session), EP_OK);
    ep_session_destroy(session); /* waits */
    there_check(&t, &d);
    there_release(&t);
    ep_model_close(&model);
    ours.end();
    CHECK(calls->live == 0 && calls->waiting == 0);
}

/* A GPU that needs longer than the session's limit, and one that is never done. */
static void check_late(const fake_driver *driver, const char *root) {
    static unsigned char memory[1 << 16];
    fake_calls *calls = setup(driver, root);
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    CHECK_STATUS(open_model(&gpu_library, root), EP_OK);
    options.gpu_limit_ms = 1;
    options.memory = memory;
    options.memory_bytes = sizeof memory;
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
    int live = calls->live;
    run_twice(session);
    calls->late = 1; /* for a moment */
    CHECK_STATUS(data_run(&d, session), EP_OK);
    data_check(&d);
    for (int i = 0; i < 2; i++) {
        calls->late = -1;
        CHECK_STATUS(data_run(&d, session), EP_E_GPU_TIME);
        CHECK_STATUS(data_run(&d, session), EP_E_GPU_TIME);
        CHECK_STATUS(ep_session_synchronize(session), EP_E_GPU_TIME);
        calls->late = 0; /* done after all: the next run is right */
        CHECK_STATUS(i == 0 ? ep_session_synchronize(session) : EP_OK, EP_OK);
        run_twice(session);
        CHECK(calls->live == live);
    }
    calls->late = -1;
    CHECK_STATUS(data_run(&d, session), EP_E_GPU_TIME);
    ep_session_destroy(session); /* returns */
    CHECK(calls->live >= live);
    calls->late = 0;
    run_session(); /* another one works */
}

/* A test of one driver as TEST_MAIN wants it. */
#define TEST_OF(driver, check) \
    static void driver##_##check(const char *root) { \
        check_##check(&driver, root); \
    }

#endif
