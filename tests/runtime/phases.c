/* Runs of sessions whose numbers wrap around, or whose threads come late: the runtime from within. Two
 * descriptors stand for two ways into one model, one of which has fewer tasks than there are shares. */
#define _GNU_SOURCE
#include "model.c"

#include "check.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 3, THREADS = 4, MOST = 100, SECONDS = 120 };

static uint32_t times[STEPS][MOST]; /* how often each task was done */

static int32_t count_tasks(const struct ep_context *context, uint32_t step, unsigned char *scratch,
                           int32_t lo, int32_t hi) {
    (void)context;
    (void)scratch;
    for (int32_t task = lo; task < hi; task++) {
        EP_FETCH_ADD(&times[step][task], 1u, __ATOMIC_RELAXED);
    }
    return 0;
}

static const int32_t many[STEPS] = {MOST, 1, MOST};
static const int32_t few[STEPS] = {2, 1, 2}; /* nothing for the third share and the fourth */
static const uint64_t no_scratch[2 * STEPS];
static const uint32_t schedules[] = {EP_SCHEDULE_STATIC, EP_SCHEDULE_DYNAMIC};
static ep_descriptor ways[2];
static ep_model model;

static void ways_make(void) {
    const int32_t *tasks[] = {many, few};
    for (int i = 0; i < 2; i++) {
        ways[i] = edgepack_model_mini;
        ways[i].input_count = ways[i].output_count = 0;
        ways[i].step_tasks = tasks[i];
        ways[i].step_count = STEPS;
        ways[i].step_scratch = no_scratch;
        ways[i].run_step = count_tasks;
    }
    model.descriptor = &ways[0];
    model.params = (const unsigned char *)no_scratch;
    alarm(SECONDS); /* what is never claimed is waited for for ever */
}

static ep_session_impl *session_make(uint32_t schedule, uint32_t phase, uint32_t caller_threads) {
    ep_options options = EP_OPTIONS_INIT;
    ep_session *session = NULL;
    options.threads = THREADS;
    options.schedule = schedule;
    options.caller_threads = caller_threads;
    CHECK_STATUS(ep_session_create(&model, &options, &session), EP_OK);
    ep_session_impl *made = (ep_session_impl *)session;
    for (uint32_t i = 0; i < THREADS; i++) {
        made->shares[i].next = phase * EP_PIECES;
    }
    EP_STORE(&made->sync.phase, phase);
    return made;
}

typedef struct call {
    ep_session *session;
    uint32_t thread;
    ep_status expected;
} call;

static void *work(void *argument) {
    const call *mine = argument;
    CHECK_STATUS(ep_session_work(mine->session, mine->thread), mine->expected);
    return NULL;
}

/* A run by threads of our own: when it is over none of them looks at the descriptor any more. */
static void run_threads(ep_session_impl *session, ep_status expected) {
    pthread_t threads[THREADS];
    call calls[THREADS];
    CHECK_STATUS(ep_session_begin(&session->head, NULL, 0, NULL, 0), EP_OK);
    for (uint32_t i = 0; i < THREADS; i++) {
        calls[i].session = &session->head;
        calls[i].thread = i;
        calls[i].expected = expected;
        CHECK(pthread_create(&threads[i], NULL, work, &calls[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static void run_way(ep_session_impl *session, int way) {
    session->head.descriptor = &ways[way];
    memset(times, 0, sizeof times);
    run_threads(session, EP_OK);
    for (int step = 0; step < STEPS; step++) {
        for (int task = 0; task < MOST; task++) {
            CHECK(times[step][task] == (task < ways[way].step_tasks[step]));
        }
    }
}

/* Each number that means something is passed by runs of any length. */
static void around(const char *root) {
    (void)root;
    ways_make();
    for (uint32_t half = 1; half <= 32; half++) {
        ep_session_impl *session = session_make(schedules[half % 2], half * (EP_SPAN / 2) - 10, 1);
        for (int i = 0; i < 10; i++) {
            run_way(session, i % 3 == 0);
        }
        ep_session_destroy(&session->head);
    }
}

/* For `phases` phases nobody claims from two of the shares: runs of the few tasks, of which those are done in
 * which numbers mean something. Then all shares have tasks. */
static void unclaimed_for(uint32_t schedule, uint64_t phases) {
    uint64_t start = 15ull * EP_SPAN + 1000;
    ep_session_impl *session = session_make(schedule, (uint32_t)start, 1);
    run_way(session, 0);
    for (uint64_t half = 15ull * EP_SPAN + EP_SPAN / 2; half < start + phases - 100; half += EP_SPAN / 2) {
        EP_STORE(&session->sync.phase, (uint32_t)(half - 4));
        for (int i = 0; i < 3; i++) {
            run_way(session, 1);
        }
    }
    EP_STORE(&session->sync.phase, (uint32_t)(start + phases));
    run_way(session, 0);
    run_way(session, 0);
    ep_session_destroy(&session->head);
}

static void unclaimed(const char *root) {
    (void)root;
    ways_make();
    for (uint32_t quarter = 1; quarter <= 10; quarter++) {
        for (uint32_t near = 0; near < 7; near++) {
            unclaimed_for(schedules[near % 2], (uint64_t)quarter * (EP_SPAN / 4) + near - 3);
        }
    }
}

/* A thread that was held up for any number of phases finds nothing to do in the step that it was about to do.
 */
static void late(const char *root) {
    (void)root;
    ways_make();
    ep_session_impl *session = session_make(EP_SCHEDULE_STATIC, 0, 1);
    run_way(session, 0);
    memset(times, 0, sizeof times);
    for (uint64_t phases = STEPS; phases < (uint64_t)1 << 32; phases += EP_SPAN / 4 - 1) {
        EP_STORE(&session->sync.steps[0], (uint32_t)STEPS); /* over */
        EP_STORE(&session->sync.steps[1], (uint32_t)STEPS);
        EP_STORE(&session->sync.phase, (uint32_t)phases);
        for (uint32_t share = 0; share < THREADS; share++) {
            EP_STORE(&session->shares[share].next, (uint32_t)phases * EP_PIECES);
            CHECK(ep_do_share(session, 0, 0, share, 1) == 0);
        }
        ep_walk(session, 1);
        CHECK(EP_LOAD(&session->sync.phase) == (uint32_t)phases);
    }
    for (int task = 0; task < MOST; task++) {
        CHECK(times[0][task] == 0);
    }
    run_way(session, 0);
    ep_session_destroy(&session->head);
}

/* Steps 2 and 4 are in a loop, 3 in one inside of it; 6 is skipped by the branch before it. */
enum { BRANCHING = 8, OUTER = 20, INNER = 30 };

static const int32_t branching[BRANCHING] = {MOST, 1, MOST, -1 - 2, 3, -1 - 1, -1 - 7, 1};
static const uint64_t no_scratch_of_any[2 * BRANCHING];
static uint32_t loops[2]; /* trips that are done: of the inner loop, of the outer one */
static uint32_t most_trips;

static int32_t count_branches(const struct ep_context *context, uint32_t step, unsigned char *scratch,
                              int32_t lo, int32_t hi) {
    switch (step) {
    case 1:
        loops[0] = 0;
        break;
    case 3:
        return ++loops[0] < INNER;
    case 5:
        return ++loops[1] < OUTER ? (loops[1] < most_trips ? 1 : -1) : 0;
    case 6:
        return 1;
    default:
        break;
    }
    return step < STEPS ? count_tasks(context, step, scratch, lo, hi) : 0;
}

static void branches(const char *root) {
    (void)root;
    ways_make();
    ways[0].step_tasks = branching;
    ways[0].step_count = BRANCHING;
    ways[0].step_scratch = no_scratch_of_any;
    ways[0].run_step = count_branches;
    for (uint32_t half = 0; half < 8; half++) { /* phases wrap around in the middle of a loop */
        ep_session_impl *session =
            session_make(schedules[half % 2], half * (EP_SPAN / 2) - 100, half % 3 == 0);
        most_trips = half % 4 == 3 ? OUTER / 2 : OUTER;
        for (int run = 0; run < 3; run++) {
            loops[1] = 0;
            memset(times, 0, sizeof times);
            ep_status expected = most_trips < OUTER ? EP_E_TRIPS : EP_OK;
            if (half % 3 == 0) {
                run_threads(session, expected);
            } else {
                CHECK_STATUS(ep_session_run(&session->head, NULL, 0, NULL, 0), expected);
            }
            for (int task = 0; task < MOST; task++) {
                CHECK(times[0][task] == 1);
                CHECK(times[2][task] == most_trips * INNER);
            }
        }
        ep_session_destroy(&session->head);
    }
}

/* The pool slept while the number of runs came round to the one that it had seen. */
static void end(const char *root) {
    struct timespec pause = {0, 20000};
    (void)root;
    ways_make();
    ep_session_impl *session = session_make(EP_SCHEDULE_STATIC, 0, 0);
    CHECK_STATUS(ep_session_run(&session->head, NULL, 0, NULL, 0), EP_OK);
    for (int asleep = 0; !asleep;) { /* and have seen that run */
        nanosleep(&pause, NULL);
        ep_monitor_lock(&session->monitor);
        asleep = __atomic_load_n(&session->sync.sleepers, __ATOMIC_SEQ_CST) == THREADS - 1;
        if (asleep) {
            __atomic_fetch_sub(&session->sync.run, 1u, __ATOMIC_SEQ_CST);
        }
        ep_monitor_unlock(&session->monitor);
    }
    ep_session_destroy(&session->head);
}

TEST_MAIN({"around", around}, {"unclaimed", unclaimed}, {"late", late}, {"branches", branches}, {"end", end})
