/* Options of a session, and how its one block of memory is divided.
 * SPDX-License-Identifier: Apache-2.0 */

/* Byte offsets within a session's memory, from a 64-byte aligned start. */
typedef struct ep_layout {
    uint64_t workers;
    uint64_t shares;
    uint64_t pointers;
#if defined(EP_HAVE_GPU)
    uint64_t gpu;
    uint64_t memories;
#endif
    uint64_t arena;
    uint64_t scratch;
    uint64_t scratch_bytes; /* of one thread; 0 if it is part of the arena */
    size_t total;           /* with room to align the start */
} ep_layout;

/* What EP_SESSION_BYTES leaves for the state, a share, a worker and three roundings is enough. */
#if defined(EP_HAVE_THREADS)
#define EP_WORKER_BYTES (sizeof(ep_worker) + EP_ALIGNMENT)
#else
#define EP_WORKER_BYTES 0
#endif
typedef char ep_session_bytes_suffice[sizeof(ep_session_impl) + sizeof(ep_share) + EP_WORKER_BYTES +
                                                  3 * EP_ALIGNMENT <=
                                              EP_SESSION_BYTES(0, 0)
                                          ? 1
                                          : -1];

static uint64_t ep_round_up(uint64_t nbytes) {
    return (nbytes + (EP_ALIGNMENT - 1u)) & ~(uint64_t)(EP_ALIGNMENT - 1u);
}

/* Takes what the caller's struct has, which begins with its size: one of an older header is `older` bytes
 * long, one of a newer header may be longer, if what we do not know is zero. Whether it is one of these. */
static int ep_struct_read(void *to, size_t known, size_t older, const void *from) {
    size_t nbytes;
    ep_copy(&nbytes, from, sizeof nbytes);
    if ((nbytes < known && nbytes != older) || nbytes > 4096) {
        return 0;
    }
    for (size_t i = known; i < nbytes; i++) {
        if (((const unsigned char *)from)[i] != 0) {
            return 0;
        }
    }
    ep_copy(to, from, nbytes < known ? nbytes : known);
    return 1;
}

static ep_status ep_options_read(const ep_descriptor *descriptor, const ep_options *from,
                                 ep_options *options) {
    ep_options defaults = EP_OPTIONS_INIT;
    *options = defaults;
    if (from != NULL && !ep_struct_read(options, sizeof *options, offsetof(ep_options, gpu_queue), from)) {
        return EP_E_OPTION;
    }
#if defined(EP_HAVE_GPU)
    if (descriptor->gpu != NULL && options->threads <= EP_MAX_THREADS) {
        if (options->caller_threads == 1 && options->threads > 1) {
            return EP_E_THREADS;
        }
        options->threads = 1; /* what a variant for a GPU has on the CPU, one thread does */
    }
#endif
    if (options->threads == 0) {
        options->threads = descriptor->default_threads;
    }
    if (options->schedule == EP_SCHEDULE_DEFAULT) {
        options->schedule = descriptor->flags & EP_FLAG_HETEROGENEOUS ? (uint32_t)EP_SCHEDULE_DYNAMIC
                                                                      : (uint32_t)EP_SCHEDULE_STATIC;
    }
    if (options->schedule > EP_SCHEDULE_DYNAMIC || options->caller_threads > 1 || options->reserved != 0 ||
        options->gpu_memory > 1 || options->asynchronous > 1 || options->reserved2 != 0) {
        return EP_E_OPTION;
    }
    if (options->gpu_queue != NULL && descriptor->gpu == NULL) {
        return EP_E_GPU_CONTEXT;
    }
#if defined(EP_HAVE_ATOMICS)
    return options->threads <= EP_MAX_THREADS ? EP_OK : EP_E_THREADS;
#else
    return options->threads == 1 ? EP_OK : EP_E_THREADS;
#endif
}

static ep_status ep_layout_make(const ep_descriptor *descriptor, const ep_options *options,
                                ep_layout *layout) {
    uint64_t total = ep_round_up(sizeof(ep_session_impl));
    uint32_t threads = options->threads;
    layout->workers = total;
#if defined(EP_HAVE_THREADS)
    total = ep_round_up(total + (uint64_t)threads * sizeof(ep_worker));
#endif
    layout->shares = total;
    total += (uint64_t)threads * sizeof(ep_share);
    layout->pointers = total;
    total += ((uint64_t)descriptor->input_count + descriptor->output_count) * sizeof(void *);
#if defined(EP_HAVE_GPU)
    layout->gpu = ep_round_up(total);
    total = descriptor->gpu != NULL ? layout->gpu + ep_gpu_session_bytes(descriptor) : total;
    layout->memories = ep_round_up(total);
    total = options->gpu_memory ? layout->memories + ep_memories_bytes(descriptor) : total;
#endif
    layout->arena = descriptor->arena_bytes < EP_LARGE ? ep_round_up(total)
                                                       : (total + (EP_PAGE - 1u)) & ~(uint64_t)(EP_PAGE - 1u);
    layout->scratch = layout->arena + ep_round_up(descriptor->arena_bytes);
    layout->scratch_bytes =
        threads > descriptor->scratch_threads ? ep_round_up(descriptor->scratch_bytes) : 0;
    total = layout->scratch + layout->scratch_bytes * threads + EP_ALIGNMENT;
    if (total > SIZE_MAX) {
        return EP_E_NO_MEMORY;
    }
    layout->total = (size_t)total;
    return EP_OK;
}
