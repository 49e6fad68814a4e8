/* What a session consists of.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_STATE_H
#define EDGEPACK_STATE_H

enum { EP_IDLE = 0, EP_PREPARING = 1, EP_RUNNING = 2 };

struct ep_session_impl;

#if defined(EP_HAVE_THREADS)
typedef struct ep_worker {
    ep_thread thread;
    struct ep_session_impl *session;
    uint32_t index;
    uint32_t core; /* where it began to work, from 1; 0: not yet, or not known */
} ep_worker;
#endif

/* Written by several threads; what changes at different times is on cache lines of its own. */
typedef struct ep_sync {
    uint32_t phase __attribute__((aligned(EP_ALIGNMENT)));  /* changes with the step; see executor.c */
    uint32_t steps[2];                                      /* which step a phase is, by phase % 2 */
    uint32_t done __attribute__((aligned(EP_ALIGNMENT)));   /* how many of its tasks are */
    uint32_t failed __attribute__((aligned(EP_ALIGNMENT))); /* a status, if a step of this run failed */
    uint32_t state;                                         /* EP_IDLE, ... */
    uint32_t leaving;                                       /* caller threads that finished this run */
    uint32_t run __attribute__((aligned(EP_ALIGNMENT)));    /* changes when the pool has something to do */
    uint32_t stop;
    uint32_t sleepers;
} ep_sync;

/* A thread's share of a step's tasks; on a cache line of its own. */
typedef struct ep_share {
    uint32_t next __attribute__((aligned(EP_ALIGNMENT))); /* phase * EP_PIECES + its first free piece */
} ep_share;

typedef struct ep_session_impl {
    ep_session head; /* first: what the public header knows */
    struct ep_context context;
    uint32_t threads;
    uint32_t caller_threads;
    uint32_t dynamic;
    uint32_t pool; /* workers that run */
    uint64_t *step_ns;
    uint64_t run_ns;  /* how long the last run took, in a session with a pool; 0: not known */
    uint64_t last_ns; /* when the last step ended, if step_ns is set */
    ep_share *shares; /* one for each thread */
    unsigned char *scratch;
    size_t scratch_bytes; /* of one thread; 0: it is in the arena, where the descriptor says */
    ep_allocator allocator;
    void *block; /* null if the memory is the caller's */
    size_t block_bytes;
#if defined(EP_HAVE_THREADS)
    ep_worker *workers;
    uint32_t caller_core; /* of the thread that made the session, or last woke the pool */
    uint32_t process;     /* in which the pool is */
    ep_monitor monitor;
#endif
#if defined(EP_HAVE_GPU)
    ep_gpu_session *gpu;     /* null: this variant is for the CPU */
    ep_gpu_memory *memories; /* of inputs, then outputs; null without the option gpu_memory */
#endif
    ep_sync sync;
} ep_session_impl;

#endif
