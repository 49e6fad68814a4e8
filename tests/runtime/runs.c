/* Runs of the mini model: right numbers in every way of running it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "check.h"

static void open_mini(const char *root, ep_model *model) {
    CHECK_STATUS(mini_open(path_in(root, "params/mini.params"), model), EP_OK);
}

static ep_session *session_of(const ep_model *model, uint32_t threads, uint32_t schedule) {
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    options.threads = threads;
    options.schedule = schedule;
    CHECK_STATUS(ep_session_create(model, &options, &session), EP_OK);
    return session;
}

static void numbers(const char *root) {
    ep_model model;
    data d;
    open_mini(root, &model);
    data_init(&d, root);
    for (uint32_t threads = 1; threads <= 4; threads++) {
        for (uint32_t schedule = EP_SCHEDULE_STATIC; schedule <= EP_SCHEDULE_DYNAMIC; schedule++) {
            ep_session *session = session_of(&model, threads, schedule);
            for (int i = 0; i < 50; i++) {
                CHECK_STATUS(data_run(&d, session), EP_OK);
                data_check(&d);
            }
            ep_session_destroy(session);
        }
    }
    ep_model_close(&model);
}

/* The pool has gone to sleep between two runs, and a session is destroyed while it sleeps or has never run.
 */
static void sleeping_pool(const char *root) {
    struct timespec pause = {0, 20000000};
    ep_model model;
    data d;
    open_mini(root, &model);
    data_init(&d, root);
    for (int i = 0; i < 5; i++) {
        ep_session *session = session_of(&model, 3, EP_SCHEDULE_STATIC);
        nanosleep(&pause, NULL);
        for (int j = 0; j < i; j++) {
            CHECK_STATUS(data_run(&d, session), EP_OK);
            data_check(&d);
            nanosleep(&pause, NULL);
        }
        ep_session_destroy(session);
    }
    ep_model_close(&model);
}

/* How many of the process's threads may run neither where `a` says nor where `b` does. */
static int strays(const cpu_set_t *a, const cpu_set_t *b) {
    int found = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (const struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
        cpu_set_t mask;
        if (task->d_name[0] != '.') {
            CHECK(sched_getaffinity((pid_t)atol(task->d_name), sizeof mask, &mask) == 0);
            found += !CPU_EQUAL(&mask, a) && !CPU_EQUAL(&mask, b);
        }
    }
    closedir(tasks);
    return found;
}

/* Once they have begun, the workers may run wherever their maker may. */
static void affinity(const char *root) {
    struct timespec pause = {0, 1000000};
    cpu_set_t before;
    cpu_set_t one;
    ep_model model;
    data d;
    open_mini(root, &model);
    data_init(&d, root);
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    one = before;
    for (int pinned = 0; pinned < 2; pinned++) {
        if (pinned) {
            CPU_ZERO(&one);
            CPU_SET((size_t)sched_getcpu(), &one);
            CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
        }
        ep_session *session = session_of(&model, 4, EP_SCHEDULE_STATIC);
        CHECK_STATUS(data_run(&d, session), EP_OK);
        data_check(&d);
        for (int i = 0; strays(&one, &before) != 0; i++) { /* a sanitizer's thread is not pinned */
            CHECK(i < 5000);
            nanosleep(&pause, NULL);
        }
        ep_session_destroy(session);
    }
    ep_model_close(&model);
}

static void typed_header(const char *root) {
    ep_model model;
    ep_session *session = NULL;
    data d;
    open_mini(root, &model);
    data_init(&d, root);
    CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
    CHECK_STATUS(mini_run(session, d.x, d.small, d.y, d.halves, d.flags, d.longs), EP_OK);
    data_check(&d);
    CHECK_STATUS(mini_run(NULL, d.x, d.small, d.y, d.halves, d.flags, d.longs), EP_E_NULL);
    CHECK_STATUS(mini_run(session, NULL, d.small, d.y, d.halves, d.flags, d.longs), EP_E_NULL);
    ep_session_destroy(session);
    ep_model_close(&model);
}

static void descriptor(const char *root) {
    static const int64_t shape[] = MINI_INPUT_DATA_SHAPE;
    const ep_descriptor *d = &edgepack_model_mini;
    (void)root;
    CHECK_STATUS(ep_descriptor_check(d), EP_OK);
    CHECK(strcmp(d->name, MINI_NAME) == 0);
    CHECK(d->input_count == 2 && d->output_count == 4 && d->step_count == 7);
    CHECK(d->inputs[0].dtype == EP_FLOAT32 && d->inputs[0].rank == 2 && d->inputs[0].nbytes == 6400);
    CHECK(memcmp(d->inputs[0].shape, shape, sizeof shape) == 0);
    CHECK(strcmp(d->inputs[1].name, "small.numbers") == 0 && d->inputs[1].dtype == EP_INT8);
    CHECK(d->inputs[1].reserved == NULL && d->outputs[3].reserved == NULL);
    CHECK(strcmp(d->outputs[3].name, "\xc2\xb5*/\"") == 0 && d->outputs[3].dtype == EP_INT64);
    CHECK(d->step_tasks[0] == 8 && d->step_tasks[1] == 100 && d->step_tasks[3] == 1);
    CHECK(d->default_threads == 2 && d->alignment == 64);
    CHECK(d->arena_bytes == MINI_ARENA_BYTES && d->scratch_bytes == 128 && d->scratch_threads == 2 &&
          d->params_bytes == 128);
}

static void kernel_failure(const char *root) {
    ep_model model;
    data d;
    open_mini(root, &model);
    data_init(&d, root);
    for (uint32_t threads = 1; threads <= 4; threads++) {
        for (uint32_t schedule = EP_SCHEDULE_STATIC; schedule <= EP_SCHEDULE_DYNAMIC; schedule++) {
            ep_session *session = session_of(&model, threads, schedule);
            for (size_t i = 0; i < 8; i++) {
                int8_t before = d.small[i];
                d.small[i] = -1;
                CHECK_STATUS(data_run(&d, session), EP_E_KERNEL);
                d.small[i] = before;
                CHECK_STATUS(data_run(&d, session), EP_OK);
                data_check(&d);
            }
            ep_session_destroy(session);
        }
    }
    ep_model_close(&model);
}

static void profile(const char *root) {
    ep_model model;
    data d;
    uint64_t ns[7];
    open_mini(root, &model);
    data_init(&d, root);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        ep_session *session = session_of(&model, threads, EP_SCHEDULE_DEFAULT);
        CHECK_STATUS(ep_session_profile(session, ns, 6), EP_E_COUNT);
        CHECK_STATUS(ep_session_profile(session, NULL, 7), EP_E_NULL);
        CHECK_STATUS(ep_session_profile(session, ns, 7), EP_OK);
        memset(ns, 0xff, sizeof ns);
        CHECK_STATUS(data_run(&d, session), EP_OK);
        data_check(&d);
        for (size_t i = 0; i < 7; i++) {
            CHECK(ns[i] < UINT64_C(100000000000));
        }
        CHECK_STATUS(ep_session_profile(session, NULL, 0), EP_OK);
        memset(ns, 0xff, sizeof ns);
        CHECK_STATUS(data_run(&d, session), EP_OK);
        CHECK(ns[0] == UINT64_MAX);
        ep_session_destroy(session);
    }
    ep_model_close(&model);
}

typedef struct job {
    const ep_model *model;
    const data *from;
    uint32_t threads;
    ep_session *session;
} job;

static void *run_job(void *argument) {
    const job *mine = argument;
    data *d = malloc(sizeof *d);
    CHECK(d != NULL);
    *d = *mine->from; /* whose buffers are not its own yet */
    d->inputs[0].data = d->x;
    d->inputs[1].data = d->small;
    d->outputs[0].data = d->y;
    d->outputs[1].data = d->halves;
    d->outputs[2].data = d->flags;
    d->outputs[3].data = d->longs;
    for (int round = 0; round < 3; round++) {
        ep_session *session = session_of(mine->model, mine->threads, 1u + (uint32_t)round % 2u);
        for (int i = 0; i < 20; i++) {
            CHECK_STATUS(data_run(d, session), EP_OK);
            data_check(d);
        }
        ep_session_destroy(session);
    }
    free(d);
    return NULL;
}

/* One model, many threads, each with sessions of its own, some of them with pools. */
static void many_sessions(const char *root) {
    enum { JOBS = 6 };
    pthread_t threads[JOBS];
    job jobs[JOBS];
    ep_model model;
    data d;
    open_mini(root, &model);
    data_init(&d, root);
    for (uint32_t i = 0; i < JOBS; i++) {
        jobs[i].model = &model;
        jobs[i].from = &d;
        jobs[i].threads = 1 + i % 3;
        CHECK(pthread_create(&threads[i], NULL, run_job, &jobs[i]) == 0);
    }
    for (size_t i = 0; i < JOBS; i++) {
        pthread_join(threads[i], NULL);
    }
    ep_model_close(&model);
}

static void *run_shared(void *argument) {
    const job *mine = argument;
    data d = *mine->from;
    d.outputs[0].data = d.y;
    d.outputs[1].data = d.halves;
    d.outputs[2].data = d.flags;
    d.outputs[3].data = d.longs;
    for (int done = 0; done < 20;) {
        ep_status status = data_run(&d, mine->session);
        CHECK(status == EP_OK || status == EP_E_BUSY);
        if (status == EP_OK) {
            data_check(&d);
            done++;
        } else {
            sched_yield();
        }
    }
    return NULL;
}

/* Several threads run one session: who comes second is told so, and harms nobody. */
static void shared_session(const char *root) {
    ep_model model;
    data d;
    open_mini(root, &model);
    data_init(&d, root);
    for (uint32_t threads = 1; threads <= 2; threads++) {
        job mine = {&model, &d, threads, session_of(&model, threads, EP_SCHEDULE_DEFAULT)};
        pthread_t others[3];
        for (size_t i = 0; i < 3; i++) {
            CHECK(pthread_create(&others[i], NULL, run_shared, &mine) == 0);
        }
        for (size_t i = 0; i < 3; i++) {
            pthread_join(others[i], NULL);
        }
        ep_session_destroy(mine.session);
    }
    ep_model_close(&model);
}

typedef struct worker {
    ep_session *session;
    pthread_barrier_t *barrier;
    uint32_t index;
} worker;

enum { ROUNDS = 30, WORKERS = 3 };

static void *run_worker(void *argument) {
    const worker *mine = argument;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(mine->barrier); /* begin was called */
        CHECK_STATUS(ep_session_work(mine->session, mine->index), i % 3 == 2 ? EP_E_KERNEL : EP_OK);
        pthread_barrier_wait(mine->barrier); /* all have returned */
    }
    return NULL;
}

static void caller_threads_with(const char *root, uint32_t schedule) {
    pthread_t threads[WORKERS];
    worker workers[WORKERS];
    pthread_barrier_t barrier;
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    ep_model model;
    data d;
    open_mini(root, &model);
    data_init(&d, root);
    options.threads = WORKERS;
    options.caller_threads = 1;
    options.schedule = schedule;
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
    CHECK_STATUS(ep_session_work(session, 0), EP_E_STATE);
    CHECK_STATUS(ep_session_work(session, WORKERS), EP_E_THREADS);
    CHECK_STATUS(data_run(&d, session), EP_E_STATE);
    pthread_barrier_init(&barrier, NULL, WORKERS + 1);
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i].session = session;
        workers[i].barrier = &barrier;
        workers[i].index = i;
        CHECK(pthread_create(&threads[i], NULL, run_worker, &workers[i]) == 0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        int8_t before = d.small[5];
        d.small[5] = i % 3 == 2 ? -1 : before;
        data_reset(&d);
        CHECK_STATUS(ep_session_begin(session, d.inputs, MINI_INPUTS, d.outputs, MINI_OUTPUTS), EP_OK);
        CHECK_STATUS(ep_session_begin(session, d.inputs, MINI_INPUTS, d.outputs, MINI_OUTPUTS), EP_E_BUSY);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        d.small[5] = before;
        if (i % 3 != 2) {
            data_check(&d);
        }
    }
    for (size_t i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&barrier);
    ep_session_destroy(session);
    ep_model_close(&model);
}

static void caller_threads(const char *root) {
    caller_threads_with(root, EP_SCHEDULE_STATIC);
    caller_threads_with(root, EP_SCHEDULE_DYNAMIC);
}

/* A run is over when its tasks are done: whichever thread comes first can do them all, and the others find
 * nothing left, in this run or a later one. */
static void absent_threads(const char *root) {
    ep_model model;
    data d;
    open_mini(root, &model);
    data_init(&d, root);
    for (uint32_t schedule = EP_SCHEDULE_STATIC; schedule <= EP_SCHEDULE_DYNAMIC; schedule++) {
        ep_options options = EP_OPTIONS_INIT;
        ep_session *session = NULL;
        options.threads = 5;
        options.caller_threads = 1;
        options.schedule = schedule;
        CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
        for (uint32_t round = 0; round < 20; round++) {
            data_reset(&d);
            CHECK_STATUS(ep_session_begin(session, d.inputs, MINI_INPUTS, d.outputs, MINI_OUTPUTS), EP_OK);
            for (uint32_t i = 0; i < 5; i++) {
                CHECK_STATUS(ep_session_work(session, (round + i) % 5), EP_OK);
                data_check(&d);
            }
            CHECK_STATUS(ep_session_work(session, 0), EP_E_STATE);
        }
        ep_session_destroy(session);
    }
    ep_model_close(&model);
}

/* With `memory` or, where it is null, what the platform allocates. */
static void embedded_with(const char *root, uint32_t threads, void *memory, size_t memory_bytes) {
    ep_options options = EP_OPTIONS_INIT;
    ep_model model;
    ep_session *session = NULL;
    data d;
    data_init(&d, root);
    options.threads = threads;
    options.memory = memory;
    options.memory_bytes = memory_bytes;
    CHECK(MINI_PARAMS_EMBEDDED == 1 && (uintptr_t)edgepack_model_mini.embedded_params % 64 == 0);
    CHECK_STATUS(mini_open(NULL, &model), EP_OK);
    CHECK_STATUS(ep_model_check_params(&model), EP_OK);
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
    CHECK_STATUS(data_run(&d, session), EP_OK);
    data_check(&d);
    ep_session_destroy(session);
    ep_model_close(&model);
}

static void embedded(const char *root) {
    embedded_with(root, 3, NULL, 0);
}

/* As firmware does it: the memory is an array whose size is known when it is compiled. */
static void embedded_one_thread(const char *root) {
    static unsigned char memory[MINI_SESSION_BYTES];
    embedded_with(root, 1, memory, sizeof memory);
}

#if defined(WITH_CLOCK)
uint64_t edgepack_now_ns(void) {
    static uint64_t now = 1;
    return now += 1000;
}
#endif

/* Without an operating system there is nothing to allocate from, and no clock unless the firmware brings one.
 */
static void bare(const char *root) {
    static unsigned char memory[MINI_SESSION_BYTES];
    ep_options options = EP_OPTIONS_INIT;
    ep_model model;
    ep_session *session = NULL;
    uint64_t ns[7];
    data d;
    data_init(&d, root);
    options.threads = 1;
    CHECK_STATUS(mini_open(NULL, &model), EP_OK);
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_E_NO_MEMORY);
    options.memory = memory;
    options.memory_bytes = sizeof memory;
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
#if defined(WITH_CLOCK)
    CHECK_STATUS(ep_session_profile(session, ns, 7), EP_OK);
    CHECK_STATUS(data_run(&d, session), EP_OK);
    data_check(&d);
    CHECK(ns[0] == 1000 && ns[6] == 1000);
#else
    CHECK_STATUS(ep_session_profile(session, ns, 7), EP_E_UNSUPPORTED);
#endif
    ep_session_destroy(session);
    ep_model_close(&model);
}

static void caller_params(const char *root) {
    ep_model model;
    ep_session *session = NULL;
    size_t nbytes;
    data d;
    unsigned char *image = read_all(root, "params/mini.params", &nbytes);
    data_init(&d, root);
    CHECK_STATUS(mini_open_memory(image, nbytes, &model), EP_OK);
    CHECK_STATUS(ep_model_check_params(&model), EP_OK);
    CHECK_STATUS(ep_session_create(&model, NULL, &session), EP_OK);
    CHECK_STATUS(data_run(&d, session), EP_OK);
    data_check(&d);
    ep_session_destroy(session);
    ep_model_close(&model);
    free(image);
}

/* Whether this thread computes with denormal numbers, as C programs do. */
static int has_denormals(void) {
    volatile float tiny = 1e-40f;
    volatile float sum = tiny + tiny;
    return sum != 0;
}

/* Runs on denormal numbers only: whether the results are such numbers too, in all of them. */
static int results_are_denormals(const char *root, uint32_t threads, int caller_threads) {
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    ep_model model;
    data d;
    size_t zeros = 0;
    open_mini(root, &model);
    data_init(&d, root);
    for (size_t i = 0; i < MINI_INPUT_DATA_ELEMENTS; i++) {
        d.x[i] = 1e-40f;
    }
    options.threads = threads;
    options.caller_threads = (uint32_t)caller_threads;
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
    if (caller_threads) {
        CHECK_STATUS(ep_session_begin(session, d.inputs, MINI_INPUTS, d.outputs, MINI_OUTPUTS), EP_OK);
        for (uint32_t i = 0; i < threads; i++) {
            CHECK_STATUS(ep_session_work(session, i), EP_OK);
        }
    } else {
        for (int i = 0; i < 20; i++) {
            CHECK_STATUS(data_run(&d, session), EP_OK);
        }
    }
    for (size_t i = 0; i < MINI_OUTPUT_DATA_ELEMENTS; i++) {
        union {
            float value;
            uint32_t bits;
        } y = {d.y[i]};
        zeros += y.bits == 0;
    }
    CHECK(zeros == 0 || zeros == MINI_OUTPUT_DATA_ELEMENTS);
    ep_session_destroy(session);
    ep_model_close(&model);
    return zeros == 0;
}

/* While kernels run, on each thread, and never after it. */
static void denormals_are(const char *root, int expected) {
#if !defined(__SSE2__) && !defined(__aarch64__)
    expected = 1;
#endif
    CHECK(has_denormals());
    for (uint32_t threads = 1; threads <= 4; threads++) {
        for (int caller_threads = 0; caller_threads < 2; caller_threads++) {
            CHECK(results_are_denormals(root, threads, caller_threads) == expected);
            CHECK(has_denormals());
        }
    }
}

static void denormals_flushed(const char *root) {
    denormals_are(root, 0);
}

static void denormals_kept(const char *root) {
    denormals_are(root, 1);
}

TEST_MAIN({"numbers", numbers}, {"sleeping_pool", sleeping_pool}, {"affinity", affinity},
          {"typed_header", typed_header}, {"descriptor", descriptor}, {"kernel_failure", kernel_failure},
          {"profile", profile}, {"many_sessions", many_sessions}, {"shared_session", shared_session},
          {"caller_threads", caller_threads}, {"absent_threads", absent_threads}, {"embedded", embedded},
          {"embedded_one_thread", embedded_one_thread}, {"bare", bare}, {"caller_params", caller_params},
          {"denormals_flushed", denormals_flushed}, {"denormals_kept", denormals_kept})
