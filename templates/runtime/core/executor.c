/* A run: which thread does which tasks of which step, in a session of one thread or of several.
 *
 * Each step is a phase, steps of one task that follow each other are one together; phases are numbered
 * through all runs of a session. Each thread has a share of a step's tasks: the same one in each run, so that
 * its weights, and what it wrote in the step before, are in its cache. It claims its own share first (static
 * schedule: in one piece; dynamic: in several), then, after a moment, what others have not begun. A step is
 * over when its tasks are done, not when all threads have come: one that sleeps, or whose core the system has
 * given to somebody else, is waited for only if it holds a piece.
 *
 * Why this is right. `phase` changes only after all of the phase's tasks were counted in `done`, each of them
 * by the thread that did it, after it did it; the release of `phase` and the acquire of whoever reads it
 * order all of a step before the next. A piece is claimed by replacing the value of its share's `next`.
 * Whoever claims has read `next` first and then seen that the phase still goes on: a value that a later phase
 * left would have shown that phase too. So a thread that comes late, however late, leaves or does what there
 * is now; and if the phase ends after it looked, its piece was claimed, `next` has changed, and its claim
 * fails.
 *
 * Which step a phase is, who ends the phase before says, for a branch may go anywhere: in steps[phase % 2],
 * before `phase` changes. Whoever finds another phase's step there reads what was written after that phase
 * had begun, and so sees, when it claims, that its own is over.
 *
 * Numbers wrap around. Values of `next` tell EP_SPAN phases apart, and none is older than half of that: a
 * share that nobody claims from, because no step that is run has tasks for it, is brought up to date by
 * ep_phase_end. So no old value looks like one of this phase. What is left: a thread that stands still
 * between looking and claiming until EP_SPAN / 2 phases or more have gone by, and then finds the very number
 * that it had read.
 * SPDX-License-Identifier: Apache-2.0 */
#if !defined(EP_WAIT_SPINS)
#define EP_WAIT_SPINS 200 /* 1 to 9 us; then yield: on a shared core, spinning starves the one waited for */
#endif

enum {
    EP_GRACE_SPINS = 32, /* 0.3 to 1.5 us; then others' pieces: what these read is in the others' caches */
    EP_DYNAMIC_PIECES = 8,
    EP_PIECES = 16, /* more than any share has */
    EP_SPAN_BITS = 28
};

/* How many phases the values of ep_share.next tell apart. */
#define EP_SPAN (1u << EP_SPAN_BITS)

typedef char ep_span_is_all[(uint64_t)EP_SPAN * EP_PIECES == (uint64_t)UINT32_MAX + 1 ? 1 : -1];

/* Some of a step's tasks. */
typedef struct ep_slice {
    uint32_t first;
    uint32_t count;
} ep_slice;

static void ep_call(ep_session_impl *session, uint32_t step, uint32_t thread, ep_slice tasks) {
    const ep_descriptor *descriptor = session->head.descriptor;
    const uint64_t *place = descriptor->step_scratch + (size_t)step * 2;
    unsigned char *scratch = session->scratch_bytes != 0
                                 ? session->scratch + session->scratch_bytes * thread
                                 : session->context.arena + (size_t)place[0] + (size_t)place[1] * thread;
    if (tasks.count != 0 && EP_LOAD_RELAXED(&session->sync.failed) == 0 &&
        descriptor->run_step(&session->context, step, scratch, (int32_t)tasks.first,
                             (int32_t)(tasks.first + tasks.count)) != 0) {
        EP_STORE_RELAXED(&session->sync.failed, (uint32_t)EP_E_KERNEL);
    }
}

/* Called by the one thread that ends a step, before the next one begins. A loop's steps add up. */
static void ep_step_timed(ep_session_impl *session, uint32_t step) {
    if (session->step_ns != NULL) {
        uint64_t now = ep_platform_now_ns();
        session->step_ns[step] += now - session->last_ns;
        session->last_ns = now;
    }
}

/* A step that is a branch: with which step the run goes on. */
static uint32_t ep_branch(ep_session_impl *session, uint32_t step) {
    const ep_descriptor *descriptor = session->head.descriptor;
    int32_t taken = descriptor->run_step(&session->context, step, NULL, 0, 0);
    if (taken < 0) {
        EP_STORE_RELAXED(&session->sync.failed, (uint32_t)(taken == -1 ? EP_E_TRIPS : EP_E_BRANCH));
    }
    return taken == 0 ? step + 1 : (uint32_t)(-1 - descriptor->step_tasks[step]);
}

/* All of a step by one thread: with which step the run goes on. After a failure that is none, for branches
 * read what kernels wrote. */
static uint32_t ep_do_step(ep_session_impl *session, uint32_t step, uint32_t thread) {
    const ep_descriptor *descriptor = session->head.descriptor;
    uint32_t next = step + 1;
    if (descriptor->step_tasks[step] < 0) {
        next = ep_branch(session, step);
    } else {
        ep_slice all = {0, (uint32_t)descriptor->step_tasks[step]};
        ep_call(session, step, thread, all);
    }
    ep_step_timed(session, step);
    return EP_LOAD_RELAXED(&session->sync.failed) == 0 ? next : descriptor->step_count;
}

/* A run of a session of one thread. */
static void ep_walk_alone(ep_session_impl *session) {
    ep_float_mode before = ep_flush_denormals();
    for (uint32_t step = 0; step < session->head.descriptor->step_count;) {
        step = ep_do_step(session, step, 0);
    }
    ep_float_mode_restore(before);
}

/* Part `part` of `parts` even ones: the first count % parts of them have one more. */
static ep_slice ep_part(uint32_t count, uint32_t parts, uint32_t part) {
    uint32_t extra = count % parts;
    ep_slice slice = {count / parts * part + (part < extra ? part : extra), count / parts};
    slice.count += part < extra ? 1u : 0u;
    return slice;
}

/* Claims the first of a share's `count` pieces that is free: its number, or `count`. */
static uint32_t ep_claim_piece(ep_session_impl *session, uint32_t share, uint32_t phase, uint32_t count) {
    uint32_t *place = &session->shares[share].next;
    uint32_t base = phase * EP_PIECES;
    for (;;) {
        uint32_t next = EP_LOAD(place); /* before the phase: see above */
        uint32_t piece = next - base < EP_PIECES ? next - base : 0;
        if (piece >= count || EP_LOAD_RELAXED(&session->sync.phase) != phase) {
            return count;
        }
        if (ep_claim(place, next, base + piece + 1)) {
            return piece;
        }
    }
}

/* Ends a phase; the next one is of step `next`, or none if that is behind the last. Called by one thread, or
 * before a run. Twice in EP_SPAN phases, shares from which nobody may have claimed for long get a number of
 * today: that of the last piece of this phase, so that nothing of it looks free. */
static void ep_phase_end(ep_session_impl *session, uint32_t phase, uint32_t next) {
    ep_sync *sync = &session->sync;
    if ((phase ^ (phase + 1)) >> (EP_SPAN_BITS - 1) != 0) {
        for (uint32_t i = 0; i < session->threads; i++) {
            EP_STORE(&session->shares[i].next, phase * EP_PIECES + (EP_PIECES - 1));
        }
    }
    EP_STORE(&sync->steps[(phase + 1) % 2], next);
    EP_STORE(&sync->phase, phase + 1);
}

/* Does what is free of share `share` of a step; how many tasks that was. */
static uint32_t ep_do_share(ep_session_impl *session, uint32_t step, uint32_t phase, uint32_t share,
                            uint32_t thread) {
    uint32_t tasks = (uint32_t)session->head.descriptor->step_tasks[step];
    ep_slice whole = ep_part(tasks, session->threads, share);
    uint32_t most = session->dynamic ? EP_DYNAMIC_PIECES : 1;
    uint32_t pieces = whole.count < most ? whole.count : most;
    uint32_t done = 0;
    for (;;) {
        uint32_t piece = ep_claim_piece(session, share, phase, pieces);
        if (piece == pieces) {
            return done;
        }
        ep_slice slice = ep_part(whole.count, pieces, piece);
        slice.first += whole.first;
        ep_call(session, step, thread, slice);
        done += slice.count;
    }
}

/* Does what is free in some shares, those from `first` to `last` - 1 after the thread's own. Who adds the
 * last of the step's tasks ends the phase. */
static void ep_do_shares(ep_session_impl *session, uint32_t step, uint32_t phase, uint32_t thread,
                         uint32_t first, uint32_t last) {
    ep_sync *sync = &session->sync;
    uint32_t tasks = (uint32_t)session->head.descriptor->step_tasks[step];
    uint32_t done = 0;
    for (uint32_t i = first; i < last; i++) {
        done += ep_do_share(session, step, phase, (thread + i) % session->threads, thread);
    }
    if (done != 0 && (done == tasks || EP_FETCH_ADD(&sync->done, done, __ATOMIC_ACQ_REL) + done == tasks)) {
        ep_step_timed(session, step);
        EP_STORE_RELAXED(&sync->done, 0u);
        ep_phase_end(session, phase,
                     EP_LOAD_RELAXED(&sync->failed) == 0 ? step + 1 : session->head.descriptor->step_count);
    }
}

/* Whether one thread does a step alone: it has one task, or is a branch. */
static int ep_is_serial(const ep_descriptor *descriptor, uint32_t step) {
    return descriptor->step_tasks[step] <= 1;
}

/* Does a step of one task and those that follow it, and ends their phase, unless another thread has begun to:
 * together they are one piece, of share 0. */
static void ep_do_serial(ep_session_impl *session, uint32_t step, uint32_t phase, uint32_t thread) {
    const ep_descriptor *descriptor = session->head.descriptor;
    if (ep_claim_piece(session, 0, phase, 1) != 0) {
        return;
    }
    do {
        step = ep_do_step(session, step, thread);
    } while (step < descriptor->step_count && ep_is_serial(descriptor, step));
    ep_phase_end(session, phase, step);
}

/* Does this thread's part of a phase (`own`), or what other threads, which have not come, left of theirs. */
static void ep_do_phase(ep_session_impl *session, uint32_t step, uint32_t phase, uint32_t thread, int own) {
    if (!ep_is_serial(session->head.descriptor, step)) {
        ep_do_shares(session, step, phase, thread, own ? 0 : 1, own ? 1 : session->threads);
    } else if (own == (thread == 0)) {
        ep_do_serial(session, step, phase, thread);
    }
}

/* All that one thread does in a run; nothing if it is over. */
static void ep_walk(ep_session_impl *session, uint32_t thread) {
    ep_sync *sync = &session->sync;
    uint32_t steps = session->head.descriptor->step_count;
    ep_float_mode before = ep_flush_denormals();
    for (;;) {
        uint32_t phase = EP_LOAD(&sync->phase);
        uint32_t step = EP_LOAD(&sync->steps[phase % 2]);
        if (step >= steps) {
            break;
        }
        for (unsigned spins = 0; EP_LOAD(&sync->phase) == phase; spins++) {
            if (spins == 0 || spins == EP_GRACE_SPINS) {
                ep_do_phase(session, step, phase, thread, spins == 0);
            } else if (spins < EP_WAIT_SPINS) {
                ep_pause();
            } else {
                ep_platform_yield();
            }
        }
    }
    ep_float_mode_restore(before);
}
