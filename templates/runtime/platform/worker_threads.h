/* Threads of a WebAssembly module whose memory is shared. WebAssembly cannot start any: JavaScript makes
 * workers, each with an instance of the module and a stack of its own, which call ep_serve and do from then
 * on what ep_thread_start posts. A page's own thread must not sleep: it spins for the few instructions that
 * another thread holds a lock, or needs to end. SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_WORKER_THREADS_H
#define EDGEPACK_WORKER_THREADS_H

#define EP_HAVE_THREADS 1
#define EP_WAIT_SPINS   1500 /* 20 us */

/* In the memory of a session. */
typedef struct ep_thread {
    void (*entry)(void *);
    void *argument;
    uint32_t ended;
} ep_thread;

/* What waits for a worker; and a number that changes when there is more of it. */
static ep_thread *ep_posted[EP_MAX_THREADS];
static uint32_t ep_posts;
/* Set by a worker that a trap ended: what it had begun is never done. */
static uint32_t ep_worker_trapped;

/* Whether this thread may sleep: a page's own must not. */
static __thread int ep_sleeps;

static void ep_sleep(uint32_t *place, uint32_t value, int64_t most_ns) {
    __builtin_wasm_memory_atomic_wait32((int *)(void *)place, (int)value, most_ns);
}

static void ep_wake(uint32_t *place) {
    __atomic_fetch_add(place, 1u, __ATOMIC_SEQ_CST);
    __builtin_wasm_memory_atomic_notify((int *)(void *)place, UINT32_MAX);
}

static int ep_thread_start(ep_thread *thread, void (*entry)(void *), void *argument) {
    thread->entry = entry;
    thread->argument = argument;
    thread->ended = 0;
    for (unsigned i = 0; i < EP_MAX_THREADS; i++) {
        ep_thread *none = NULL;
        if (__atomic_compare_exchange_n(&ep_posted[i], &none, thread, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            ep_wake(&ep_posts);
            return 0;
        }
    }
    return 1;
}

/* There is no way to let another thread run but to sleep for the least time that there is, 60 us. */
static void ep_platform_yield(void) {
    if (EP_LOAD_RELAXED(&ep_worker_trapped) != 0) {
        __builtin_trap(); /* rather than wait for ever */
    }
    if (ep_sleeps) {
        ep_sleep(&ep_worker_trapped, 0, 1000);
    }
}

/* A thread that no worker has begun need not end. */
static void ep_thread_join(ep_thread *thread) {
    for (unsigned i = 0; i < EP_MAX_THREADS; i++) {
        ep_thread *mine = thread;
        if (__atomic_compare_exchange_n(&ep_posted[i], &mine, NULL, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            return;
        }
    }
    while (EP_LOAD(&thread->ended) == 0) {
        ep_platform_yield();
    }
}

/* What a worker does until it is terminated. */
static void ep_serve_threads(void) {
    ep_sleeps = 1;
    for (;;) {
        uint32_t seen = __atomic_load_n(&ep_posts, __ATOMIC_SEQ_CST);
        for (unsigned i = 0; i < EP_MAX_THREADS; i++) {
            ep_thread *thread = __atomic_exchange_n(&ep_posted[i], NULL, __ATOMIC_SEQ_CST);
            if (thread != NULL) {
                thread->entry(thread->argument);
                EP_STORE(&thread->ended, 1u); /* the last that is done with it */
            }
        }
        ep_sleep(&ep_posts, seen, -1);
    }
}

static uint32_t ep_platform_process(void) {
    return 0;
}

typedef struct ep_monitor {
    uint32_t locked;
    uint32_t wakes;
} ep_monitor;

static int ep_monitor_init(ep_monitor *monitor) {
    monitor->locked = 0;
    monitor->wakes = 0;
    return 0;
}

static void ep_monitor_destroy(ep_monitor *monitor) {
    (void)monitor;
}

static void ep_monitor_lock(ep_monitor *monitor) {
    while (!ep_claim(&monitor->locked, 0, 1)) {
        ep_platform_yield();
    }
}

static void ep_monitor_unlock(ep_monitor *monitor) {
    EP_STORE(&monitor->locked, 0u);
}

static void ep_monitor_wait(ep_monitor *monitor) {
    uint32_t seen = EP_LOAD(&monitor->wakes);
    ep_monitor_unlock(monitor);
    ep_sleep(&monitor->wakes, seen, -1);
    ep_monitor_lock(monitor);
}

static void ep_monitor_wake_all(ep_monitor *monitor) {
    ep_wake(&monitor->wakes);
}

#endif
