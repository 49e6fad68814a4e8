/* The pool of threads: between runs they spin for a moment, then sleep. What they do in a run: executor.c.
 * SPDX-License-Identifier: Apache-2.0 */
enum {
    EP_IDLE_SPINS = 4000,   /* 40 to 150 us: cheaper than a wake-up if the next run comes at once */
    EP_SETTLE_YIELDS = 100, /* until a new thread, which may be on this core, has found one of its own */
    EP_WAKE_NS = 100000     /* a shorter run wakes nobody: that takes 5 to 10 us, and they come 50 us later */
};

#if defined(EP_HAVE_THREADS)

#if defined(EP_HAVE_CORES)

/* Linux starts and wakes a thread on the core of the one that did so more often than not, and two threads
 * that spin for each other share that core until it balances: 5 to 15 ms, the whole of the first runs. So
 * each worker that starts or wakes leaves a core that it finds taken. Two that do so at the same time may
 * meet again, hence the attempts. */
static void ep_worker_settle(ep_worker *worker) {
    const ep_session_impl *session = worker->session;
    for (unsigned attempt = 0; attempt < 3; attempt++) {
        uint32_t core = ep_platform_core();
        uint32_t caller = EP_LOAD_RELAXED(&session->caller_core);
        int taken = core == caller;
        ep_cores others;
        EP_STORE_RELAXED(&worker->core, core);
        ep_cores_clear(&others);
        ep_cores_add(&others, caller);
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

static void ep_note_caller(ep_session_impl *session) {
    EP_STORE_RELAXED(&session->caller_core, ep_platform_core());
}

#else

static void ep_worker_settle(ep_worker *worker) {
    EP_STORE_RELAXED(&worker->core, 1u);
}

static void ep_note_caller(ep_session_impl *session) {
    (void)session;
}

#endif

/* Returns when there is another run than `seen`, or none any more: its number. A worker that is about to
 * sleep counts itself before it looks a last time, and ep_pool_kick looks at the count after it has published
 * the run: one of them sees the other. Numbers wrap around: one that slept through 2^32 runs, all of them too
 * short to wake it, misses one run, which the others do without it, but not the end. */
static uint32_t ep_pool_wait(ep_worker *worker, uint32_t seen) {
    ep_session_impl *session = worker->session;
    ep_sync *sync = &session->sync;
    for (unsigned spins = 0; spins < EP_IDLE_SPINS; spins++) {
        uint32_t run = EP_LOAD(&sync->run);
        if (run != seen) {
            return run;
        }
        ep_pause();
    }
    ep_monitor_lock(&session->monitor);
    __atomic_fetch_add(&sync->sleepers, 1u, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&sync->run, __ATOMIC_SEQ_CST) == seen && EP_LOAD(&sync->stop) == 0) {
        ep_monitor_wait(&session->monitor);
    }
    __atomic_fetch_sub(&sync->sleepers, 1u, __ATOMIC_SEQ_CST);
    ep_monitor_unlock(&session->monitor);
    ep_worker_settle(worker);
    return EP_LOAD(&sync->run);
}

/* Whether this process is a child that fork() made after the pool was: it has the session, and the monitor
 * as some thread happened to hold it, but no thread of the pool. The caller does what they do not. */
static int ep_pool_is_elsewhere(const ep_session_impl *session) {
    return ep_platform_process() != session->process;
}

static void ep_pool_kick(ep_session_impl *session) {
    ep_sync *sync = &session->sync;
    __atomic_fetch_add(&sync->run, 1u, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&sync->sleepers, __ATOMIC_SEQ_CST) != 0 &&
        (EP_LOAD_RELAXED(&sync->stop) != 0 || session->run_ns == 0 || session->run_ns >= EP_WAKE_NS) &&
        !ep_pool_is_elsewhere(session)) {
        ep_note_caller(session);
        ep_monitor_lock(&session->monitor);
        ep_monitor_wake_all(&session->monitor);
        ep_monitor_unlock(&session->monitor);
        ep_platform_yield(); /* to one that wakes on this core, and leaves it */
    }
}

static void ep_worker_main(void *argument) {
    ep_worker *worker = argument;
    ep_session_impl *session = worker->session;
    ep_worker_settle(worker);
    for (uint32_t seen = 0;;) {
        seen = ep_pool_wait(worker, seen);
        if (EP_LOAD(&session->sync.stop) != 0) {
            return;
        }
        ep_walk(session, worker->index);
    }
}

static void ep_pool_stop(ep_session_impl *session) {
    if (session->pool == 0 || ep_pool_is_elsewhere(session)) {
        return;
    }
    EP_STORE(&session->sync.stop, 1u);
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
    session->process = ep_platform_process();
    ep_note_caller(session);
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
    for (uint32_t i = 0; i < session->pool; i++) {
        for (unsigned yields = 0; yields < EP_SETTLE_YIELDS; yields++) {
            if (EP_LOAD_RELAXED(&session->workers[i].core) != 0) {
                break;
            }
            ep_platform_yield();
        }
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
