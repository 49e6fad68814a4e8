/* Types that the runtime's files and the generated model.c share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_INTERNAL_H
#define EDGEPACK_INTERNAL_H

#define EP_ALIGNMENT 64u        /* a cache line, and the widest vector */
#define EP_PAGE      4096u      /* where a large arena begins: 1 % faster than in the middle of a page */
#define EP_LARGE     (1u << 21) /* bytes of a huge page */

/* What a run needs; the generated run_step turns the plan's arguments into pointers with the macros below. */
struct ep_context {
    const unsigned char *params;
    unsigned char *arena;
    const unsigned char **inputs;
    unsigned char **outputs;
};

/* Kernels take void *, for TVM's functions carry no const; they only read inputs and constants. */
#define EP_INPUT(index, offset)  ((void *)(context->inputs[index] + (offset)))
#define EP_OUTPUT(index, offset) ((void *)(context->outputs[index] + (offset)))
#define EP_CONSTANT(offset)      ((void *)(context->params + (offset)))
#define EP_ARENA(offset)         ((void *)(context->arena + (offset)))
#define EP_SCRATCH(offset)       ((void *)(scratch + (offset)))

/* A static library that said `dllexport` would export the descriptor from each program that it is linked
 * into. */
#if defined(_WIN32)
#if defined(EP_SHARED)
#define EP_EXPORT __declspec(dllexport)
#else
#define EP_EXPORT
#endif
#define EP_HIDDEN
#else
#define EP_EXPORT __attribute__((visibility("default")))
#define EP_HIDDEN __attribute__((visibility("hidden")))
#endif

/* 32-bit atomics, or plain memory on a core that has none (ARMv6-M): there a session has one thread. */
#if defined(__GCC_ATOMIC_INT_LOCK_FREE) && __GCC_ATOMIC_INT_LOCK_FREE == 2
#define EP_HAVE_ATOMICS                     1
#define EP_LOAD(pointer)                    __atomic_load_n(pointer, __ATOMIC_ACQUIRE)
#define EP_STORE(pointer, value)            __atomic_store_n(pointer, value, __ATOMIC_RELEASE)
#define EP_LOAD_RELAXED(pointer)            __atomic_load_n(pointer, __ATOMIC_RELAXED)
#define EP_STORE_RELAXED(pointer, value)    __atomic_store_n(pointer, value, __ATOMIC_RELAXED)
#define EP_FETCH_ADD(pointer, value, order) __atomic_fetch_add(pointer, value, order)
#else
#define EP_LOAD(pointer)                    (*(pointer))
#define EP_STORE(pointer, value)            ((void)(*(pointer) = (value)))
#define EP_LOAD_RELAXED(pointer)            (*(pointer))
#define EP_STORE_RELAXED(pointer, value)    ((void)(*(pointer) = (value)))
#define EP_FETCH_ADD(pointer, value, order) ((*(pointer) += (value)) - (value))
#endif

/* Sets *pointer to `to` if it is `from`; whether it was. */
static inline int ep_claim(uint32_t *pointer, uint32_t from, uint32_t to) {
#if defined(EP_HAVE_ATOMICS)
    return __atomic_compare_exchange_n(pointer, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
#else
    if (*pointer != from) {
        return 0;
    }
    *pointer = to;
    return 1;
#endif
}

/* Tells the core that this is a spin loop. */
static inline void ep_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#elif defined(__arm__) && defined(__ARM_ARCH) && __ARM_ARCH >= 7
    __asm__ volatile("yield");
#elif defined(__wasm_atomics__)
    for (volatile int i = 0; i < 8; i++) { /* it has no instruction for this: 10 ns */
    }
#endif
}

/* memcpy, memset and memcmp for short runs of bytes, so that firmware needs none of them from here. */
static inline void ep_copy(void *to, const void *from, size_t nbytes) {
    for (size_t i = 0; i < nbytes; i++) {
        ((unsigned char *)to)[i] = ((const unsigned char *)from)[i];
    }
}

static inline int ep_equal(const unsigned char *a, const unsigned char *b, size_t nbytes) {
    unsigned different = 0;
    for (size_t i = 0; i < nbytes; i++) {
        different |= (unsigned)(a[i] ^ b[i]);
    }
    return different == 0;
}

#endif
