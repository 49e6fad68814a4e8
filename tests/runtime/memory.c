/* Where memory comes from. Linked with --wrap for every function that could bring some, so that each call
 * counts. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#include "check.h"

static int allowed = 1; /* else malloc and its relatives fail */
static int calls;

void *__real_malloc(size_t nbytes);
void *__wrap_malloc(size_t nbytes);
void *__wrap_calloc(size_t count, size_t nbytes);
void *__wrap_realloc(void *memory, size_t nbytes);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t nbytes);
void *__wrap_aligned_alloc(size_t alignment, size_t nbytes);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*entry)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*entry)(void *),
                          void *argument);

void *__wrap_malloc(size_t nbytes) {
    calls++;
    return allowed ? __real_malloc(nbytes) : NULL;
}

void *__wrap_calloc(size_t count, size_t nbytes) {
    (void)count;
    (void)nbytes;
    calls++;
    return NULL;
}

void *__wrap_realloc(void *memory, size_t nbytes) {
    (void)memory;
    (void)nbytes;
    calls++;
    return NULL;
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t nbytes) {
    (void)memory;
    (void)alignment;
    (void)nbytes;
    calls++;
    return 12;
}

void *__wrap_aligned_alloc(size_t alignment, size_t nbytes) {
    (void)alignment;
    (void)nbytes;
    calls++;
    return NULL;
}

static int threads_allowed = 1000;

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*entry)(void *),
                          void *argument) {
    calls++;
    if (threads_allowed-- <= 0) {
        return 11;
    }
    return __real_pthread_create(thread, attributes, entry, argument);
}

/* What a system may refuse: after so many more calls it does. */
static int locks_allowed = 1000;
static int maps_allowed = 1000;
static int clocks_allowed = 1000;
static int masks_allowed = 1000;

int __real_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int __real_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes);
int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes);
void *__real_mmap64(void *at, size_t nbytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap64(void *at, size_t nbytes, int protection, int flags, int file, off_t offset);
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __real_sched_getaffinity(pid_t thread, size_t nbytes, cpu_set_t *mask);
int __wrap_sched_getaffinity(pid_t thread, size_t nbytes, cpu_set_t *mask);
int __real_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes) {
    return locks_allowed-- <= 0 ? 12 : __real_pthread_mutex_init(mutex, attributes);
}

int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes) {
    return locks_allowed-- <= 0 ? 12 : __real_pthread_cond_init(condition, attributes);
}

void *__wrap_mmap64(void *at, size_t nbytes, int protection, int flags, int file, off_t offset) {
    return maps_allowed-- <= 0 ? MAP_FAILED : __real_mmap64(at, nbytes, protection, flags, file, offset);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
    return clocks_allowed-- <= 0 ? -1 : __real_clock_gettime(clock, now);
}

int __wrap_sched_getaffinity(pid_t thread, size_t nbytes, cpu_set_t *mask) {
    return masks_allowed-- <= 0 ? -1 : __real_sched_getaffinity(thread, nbytes, mask);
}

int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old) {
    return masks_allowed-- <= 0 ? 22 : __real_pthread_sigmask(how, set, old);
}

static unsigned char block[1 << 18];
static ep_model model;
static data d;

static void setup(const char *root) {
    data_init(&d, root);
    CHECK_STATUS(mini_open(path_in(root, "params/mini.params"), &model), EP_OK);
}

/* One thread, the caller's memory at any address: from opening to closing, nothing allocates. */
static void callers_memory(const char *root) {
    static const ep_allocator none = {NULL, NULL, NULL};
    const char *path;
    data_init(&d, root);
    path = path_in(root, "params/mini.params");
    for (size_t skew = 0; skew < 64; skew += 13) {
        ep_options options = EP_OPTIONS_INIT;
        ep_session *session = NULL;
        size_t nbytes = 0;
        calls = 0;
        allowed = 0;
        CHECK_STATUS(mini_open(path, &model), EP_OK);
        options.threads = 1;
        CHECK_STATUS(ep_session_bytes(&model, &options, &nbytes), EP_OK);
        CHECK(nbytes >= MINI_ARENA_BYTES && nbytes + skew + 64 < sizeof block);
        memset(block, 0xee, sizeof block);
        options.memory = block + skew;
        options.memory_bytes = nbytes - 1;
        CHECK_STATUS(ep_session_create(&model, &options, &session), EP_E_MEMORY_SIZE);
        options.memory_bytes = nbytes;
        options.allocator = skew % 2 == 0 ? NULL : &none; /* not used with memory */
        CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
        for (int i = 0; i < 3; i++) {
            CHECK_STATUS(data_run(&d, session), EP_OK);
            data_check(&d);
        }
        ep_session_destroy(session);
        ep_model_close(&model);
        CHECK(calls == 0);
        allowed = 1;
        for (size_t i = 0; i < sizeof block; i++) {
            CHECK(block[i] == 0xee || (i >= skew && i < skew + nbytes));
        }
    }
}

static void *work(void *session) {
    CHECK_STATUS(ep_session_work(session, 1), EP_OK);
    return NULL;
}

/* The caller's threads and memory: nothing allocates either. */
static void callers_threads(const char *root) {
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    pthread_t other;
    setup(root);
    calls = 0;
    allowed = 0;
    options.threads = 2;
    options.caller_threads = 1;
    options.memory = block;
    options.memory_bytes = sizeof block;
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
    CHECK_STATUS(ep_session_begin(session, d.inputs, 2, d.outputs, 4), EP_OK);
    CHECK(__real_pthread_create(&other, NULL, work, session) == 0);
    CHECK_STATUS(ep_session_work(session, 0), EP_OK);
    pthread_join(other, NULL);
    ep_session_destroy(session);
    ep_model_close(&model);
    CHECK(calls == 0);
    allowed = 1;
    data_check(&d);
}

/* By default one malloc at creation, and none while it runs. */
static void one_allocation(const char *root) {
    ep_session *session = NULL;
    ep_options options = EP_OPTIONS_INIT;
    setup(root);
    options.threads = 1;
    calls = 0;
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
    CHECK(calls == 1);
    allowed = 0;
    CHECK_STATUS(data_run(&d, session), EP_OK);
    ep_session_destroy(session);
    CHECK(calls == 1);
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_E_NO_MEMORY);
    CHECK(session == NULL);
    ep_model_close(&model);
    allowed = 1;
}

typedef struct account {
    size_t allocated;
    size_t released;
    int fails;
} account;

static void *count_allocate(void *user, size_t nbytes) {
    account *mine = user;
    if (mine->fails) {
        return NULL;
    }
    mine->allocated += nbytes;
    return block + 7;
}

static void count_release(void *user, void *memory, size_t nbytes) {
    CHECK(memory == block + 7);
    ((account *)user)->released += nbytes;
}

static void allocator_hooks(const char *root) {
    account mine = {0, 0, 0};
    ep_allocator hooks = {NULL, count_allocate, count_release};
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    size_t nbytes = 0;
    setup(root);
    hooks.user = &mine;
    options.allocator = &hooks;
    options.threads = 3;
    allowed = 0;
    CHECK_STATUS(ep_session_bytes(&model, &options, &nbytes), EP_OK);
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
    hooks.release = NULL; /* it was copied */
    CHECK(mine.allocated == nbytes && mine.released == 0);
    CHECK_STATUS(data_run(&d, session), EP_OK);
    data_check(&d);
    ep_session_destroy(session);
    CHECK(mine.released == nbytes);
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_E_NULL);
    hooks.release = count_release;
    mine.fails = 1;
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_E_NO_MEMORY);
    ep_model_close(&model);
    allowed = 1;
}

/* The third worker cannot be started: the first two end, the memory is given back. */
static void thread_failure(const char *root) {
    account mine = {0, 0, 0};
    ep_allocator hooks = {NULL, count_allocate, count_release};
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    setup(root);
    hooks.user = &mine;
    options.allocator = &hooks;
    options.threads = 4;
    for (int i = 0; i < 3; i++) {
        threads_allowed = i;
        CHECK_STATUS(ep_session_create(&model, &options, &session), EP_E_THREAD_START);
        CHECK(session == NULL && mine.allocated == mine.released && mine.allocated > 0);
    }
    threads_allowed = 1000;
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
    CHECK_STATUS(data_run(&d, session), EP_OK);
    data_check(&d);
    ep_session_destroy(session);
    ep_model_close(&model);
}

/* Whatever the system refuses is a status, or does without. */
static void refusals(const char *root) {
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    uint64_t ns[7];
    setup(root);
    options.threads = 3;
    for (int i = 0; i < 2; i++) { /* the mutex, its condition */
        locks_allowed = i;
        CHECK_STATUS(ep_session_create(&model, &options, &session), EP_E_THREAD_START);
    }
    locks_allowed = 1000;
    masks_allowed = 0; /* the threads run where the system puts them */
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
    clocks_allowed = 0;
    CHECK_STATUS(ep_session_profile(session, ns, 7), EP_E_UNSUPPORTED);
    CHECK_STATUS(data_run(&d, session), EP_OK);
    data_check(&d);
    clocks_allowed = masks_allowed = 1000;
    ep_session_destroy(session);
    ep_model_close(&model);
    maps_allowed = 0;
    CHECK_STATUS(mini_open(path_in(root, "params/mini.params"), &model), EP_E_IO);
    maps_allowed = 1000;
}

TEST_MAIN({"callers_memory", callers_memory}, {"callers_threads", callers_threads},
          {"one_allocation", one_allocation}, {"allocator_hooks", allocator_hooks},
          {"thread_failure", thread_failure}, {"refusals", refusals})
