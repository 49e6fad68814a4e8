/* The executor. SPMD: each thread of a session walks the whole list of steps and takes its share of each
 * step's tasks; one barrier between steps. The pool's threads spin for a moment after a run, then sleep.
 * SPDX-License-Identifier: Apache-2.0 */
enum {
    EP_BARRIER_SPINS = 200, /* 1 to 9 us; then yield: on a shared core, spinning starves the one waited for */
    EP_IDLE_SPINS = 4000,   /* 40 to 150 us: cheaper than a wake-up if the next run comes at once */
    EP_CHUNKS = 4           /* dynamic schedule: claims per thread and step */
};

enum { EP_IDLE = 0, EP_PREPARING = 1, EP_RUNNING = 2 };

struct ep_session_impl;

#if defined(EP_HAVE_THREADS)
typedef struct ep_worker {
    ep_thread thread;
    struct ep_session_impl *session;
    uint32_t index;
    uint32_t core; /* where it began to work, from 1; 0: not known (yet) */
} ep_worker;
#endif

/* Written by several threads, each on its own cache line. */
typedef struct ep_shared {
    uint32_t arrived __attribute__((aligned(EP_ALIGNMENT)));    /* threads that wait at the barrier */
    uint32_t generation __attribute__((aligned(EP_ALIGNMENT))); /* of the barrier */
    uint32_t next_task __attribute__((aligned(EP_ALIGNMENT)));  /* dynamic schedule: first unclaimed task */
    uint32_t failed __attribute__((aligned(EP_ALIGNMENT)));     /* a kernel of this run failed */
    uint32_t state;                                             /* EP_IDLE, ... */
    uint32_t leaving;                                           /* caller threads that finished this run */
    uint32_t run __attribute__((aligned(EP_ALIGNMENT)));        /* number of the run that the pool is to do */
    uint32_t stop;
    uint32_t sleepers;
} ep_shared;

typedef struct ep_session_impl {
    ep_session head; /* first: what the public header knows */
    struct ep_context context;
    uint32_t threads;
    uint32_t caller_threads;
    uint32_t dynamic;
    uint32_t pool; /* workers that run */
    uint64_t *step_ns;
    unsigned char *scratch;
    size_t scratch_bytes; /* of one thread; 0: it is in the arena, where the descriptor says */
    ep_allocator allocator;
    void *block; /* null if the memory is the caller's */
    size_t block_bytes;
#if defined(EP_HAVE_THREADS)
    ep_worker *workers;
    uint32_t caller_core; /* of the thread that made the session */
    ep_monitor monitor;
#endif
    ep_shared shared;
} ep_session_impl;

/* The last thread to arrive resets what the next step needs and lets the others go. */
static void ep_barrier(ep_session_impl *session) {
#if defined(EP_HAVE_ATOMICS)
    ep_shared *shared = &session->shared;
    uint32_t generation = EP_LOAD_RELAXED(&shared->generation);
    if (EP_FETCH_ADD(&shared->arrived, 1u, __ATOMIC_ACQ_REL) + 1 == session->threads) {
        EP_STORE_RELAXED(&shared->arrived, 0u);
        EP_STORE_RELAXED(&shared->next_task, 0u);
        EP_STORE(&shared->generation, generation + 1u);
        return;
    }
    for (unsigned spins = 0; EP_LOAD(&shared->generation) == generation; spins++) {
        if (spins < EP_BARRIER_SPINS) {
            ep_pause();
        } else {
            ep_platform_yield();
        }
    }
#else
    (void)session; /* has one thread */
    ep_platform_yield();
#endif
}

static unsigned char *ep_scratch(const ep_session_impl *session, uint32_t step, uint32_t thread) {
    if (session->scratch_bytes != 0) {
        return session->scratch + session->scratch_bytes * thread;
    }
    const uint64_t *place = session->head.descriptor->step_scratch + (size_t)step * 2;
    return session->context.arena + (size_t)place[0] + (size_t)place[1] * thread;
}

static void ep_call(ep_session_impl *session, uint32_t step, unsigned char *scratch, uint32_t lo,
                    uint32_t hi) {
    if (session->head.descriptor->run_step(&session->context, step, scratch, (int32_t)lo, (int32_t)hi) != 0) {
        EP_STORE_RELAXED(&session->shared.failed, 1u);
    }
}

/* Slice `thread` of `threads` even ones: the first tasks % threads slices are one longer. */
static void ep_static_share(ep_session_impl *session, uint32_t step, uint32_t thread,
                            unsigned char *scratch) {
    uint32_t tasks = (uint32_t)session->head.descriptor->step_tasks[step];
    uint32_t share = tasks / session->threads;
    uint32_t extra = tasks % session->threads;
    uint32_t lo = share * thread + (thread < extra ? thread : extra);
    uint32_t hi = lo + share + (thread < extra ? 1u : 0u);
    if (lo < hi) {
        ep_call(session, step, scratch, lo, hi);
    }
}

static void ep_dynamic_share(ep_session_impl *session, uint32_t step, unsigned char *scratch) {
    uint32_t tasks = (uint32_t)session->head.descriptor->step_tasks[step];
    uint32_t chunk = tasks / (session->threads * EP_CHUNKS) + 1u;
    for (;;) {
        uint32_t lo = EP_FETCH_ADD(&session->shared.next_task, chunk, __ATOMIC_RELAXED);
        if (lo >= tasks) {
            return;
        }
        ep_call(session, step, scratch, lo, tasks - lo < chunk ? tasks : lo + chunk);
    }
}

/* None between two steps that thread 0 does alone (see ep_static_share), unless each is to be timed. */
static int ep_barrier_after(const ep_session_impl *session, uint32_t step) {
    const ep_descriptor *descriptor = session->head.descriptor;
    return session->threads > 1 &&
           (session->dynamic || session->step_ns != NULL || step + 1 == descriptor->step_count ||
            descriptor->step_tasks[step] > 1 || descriptor->step_tasks[step + 1] > 1);
}

/* All that one thread does in a run. After a failure every thread still walks on to the end, from barrier to
 * barrier, without calling kernels: nobody waits for somebody who has left. */
static void ep_walk(ep_session_impl *session, uint32_t thread) {
    const ep_descriptor *descriptor = session->head.descriptor;
    uint64_t *step_ns = thread == 0 ? session->step_ns : NULL;
    uint64_t before = step_ns != NULL ? ep_platform_now_ns() : 0;
    for (uint32_t step = 0; step < descriptor->step_count; step++) {
        if (EP_LOAD_RELAXED(&session->shared.failed) == 0) {
            unsigned char *scratch = ep_scratch(session, step, thread);
            if (session->dynamic) {
                ep_dynamic_share(session, step, scratch);
            } else {
                ep_static_share(session, step, thread, scratch);
            }
        }
        if (ep_barrier_after(session, step)) {
            ep_barrier(session);
        }
        if (step_ns != NULL) {
            uint64_t now = ep_platform_now_ns();
            step_ns[step] = now - before;
            before = now;
        }
    }
}

#if defined(EP_HAVE_THREADS)

/* Returns when run number `seen` + 1 has begun. A worker that is about to sleep counts itself before it looks
 * a last time, and ep_pool_kick looks at the count after it has published the run: one of them sees the
 * other. */
static void ep_pool_wait(ep_session_impl *session, uint32_t seen) {
    ep_shared *shared = &session->shared;
    for (unsigned spins = 0; spins < EP_IDLE_SPINS; spins++) {
        if (EP_LOAD(&shared->run) != seen) {
            return;
        }
        ep_pause();
    }
    ep_monitor_lock(&session->monitor);
    __atomic_fetch_add(&shared->sleepers, 1u, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&shared->run, __ATOMIC_SEQ_CST) == seen) {
        ep_monitor_wait(&session->monitor);
    }
    __atomic_fetch_sub(&shared->sleepers, 1u, __ATOMIC_SEQ_CST);
    ep_monitor_unlock(&session->monitor);
}

static void ep_pool_kick(ep_session_impl *session) {
    ep_shared *shared = &session->shared;
    __atomic_fetch_add(&shared->run, 1u, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&shared->sleepers, __ATOMIC_SEQ_CST) != 0) {
        ep_monitor_lock(&session->monitor);
        ep_monitor_wake_all(&session->monitor);
        ep_monitor_unlock(&session->monitor);
    }
}

#if defined(EP_HAVE_CORES)

/* Linux starts a thread on the core of the one that made it more often than not, and two threads that spin
 * for each other share that core until it balances: 5 to 15 ms, the whole of the first runs. So each worker
 * leaves a core that it finds taken. Two that do so at the same time may meet again, hence the attempts. */
static void ep_worker_settle(ep_worker *worker) {
    const ep_session_impl *session = worker->session;
    for (unsigned attempt = 0; attempt < 3; attempt++) {
        uint32_t core = ep_platform_core();
        int taken = core == session->caller_core;
        ep_cores others;
        EP_STORE_RELAXED(&worker->core, core);
        ep_cores_clear(&others);
        ep_cores_add(&others, session->caller_core);
        for (uint32_t i = 0; i < session->threads - 1; i++) {
            uint32_t other = EP_LOAD_RELAXED(&session->workers[i].core);
            taken |= i + 1 < worker->index && other == core;
            ep_cores_add(&others, other);
        }
        if (core == 0 || !taken || ep_platform_avoid(&others) != 0) {
            return;
        }
    }
}

#else

static void ep_worker_settle(ep_worker *worker) {
    (void)worker;
}

#endif

static void ep_worker_main(void *argument) {
    ep_worker *worker = argument;
    ep_session_impl *session = worker->session;
    ep_worker_settle(worker);
    for (uint32_t seen = 0;; seen++) {
        ep_pool_wait(session, seen);
        if (EP_LOAD(&session->shared.stop) != 0) {
            return;
        }
        ep_walk(session, worker->index);
    }
}

static void ep_pool_stop(ep_session_impl *session) {
    if (session->pool == 0) {
        return;
    }
    EP_STORE(&session->shared.stop, 1u);
    ep_pool_kick(session);
    for (uint32_t i = 0; i < session->pool; i++) {
        ep_thread_join(&session->workers[i].thread);
    }
    ep_monitor_destroy(&session->monitor);
    session->pool = 0;
}

/* The caller of ep_session_run is thread 0; the pool holds the others. */
static ep_status ep_pool_start(ep_session_impl *session) {
    if (session->threads == 1 || session->caller_threads) {
        return EP_OK;
    }
    if (ep_monitor_init(&session->monitor) != 0) {
        return EP_E_THREAD_START;
    }
#if defined(EP_HAVE_CORES)
    session->caller_core = ep_platform_core();
#endif
    for (uint32_t i = 0; i < session->threads - 1; i++) {
        ep_worker *worker = &session->workers[i];
        worker->session = session;
        worker->index = i + 1;
        worker->core = 0;
    }
    for (uint32_t i = 0; i < session->threads - 1; i++) {
        ep_worker *worker = &session->workers[i];
        if (ep_thread_start(&worker->thread, ep_worker_main, worker) != 0) {
            if (session->pool == 0) {
                ep_monitor_destroy(&session->monitor);
            }
            ep_pool_stop(session);
            return EP_E_THREAD_START;
        }
        session->pool++;
    }
    return EP_OK;
}

#else

static void ep_pool_kick(ep_session_impl *session) {
    (void)session;
}

static void ep_pool_stop(ep_session_impl *session) {
    (void)session;
}

static ep_status ep_pool_start(ep_session_impl *session) {
    return session->threads == 1 || session->caller_threads ? EP_OK : EP_E_UNSUPPORTED;
}

#endif
