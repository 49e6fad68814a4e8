/* Denormal numbers (of float32 those below 1.18e-38) count as zero while kernels run: on many CPUs an
 * operation that reads or makes one takes 100 cycles more than any other. What the CPU does with them is a
 * mode of the thread, which is the caller's again after a run. A model packed with --strict-math runs in
 * the caller's mode (EP_KEEP_DENORMALS), and so do all on CPUs that have no such mode (RISC-V, WebAssembly,
 * cores without an FPU).
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_DENORMALS_H
#define EDGEPACK_DENORMALS_H

#if !defined(EP_KEEP_DENORMALS) && defined(__SSE2__)

/* Intel's manual, volume 1, 10.2.3: MXCSR. */
enum { EP_DENORMALS_ARE_ZEROS = 1 << 6, EP_FLUSH_TO_ZERO = 1 << 15 };

typedef uint32_t ep_float_mode;

static inline ep_float_mode ep_float_mode_get(void) {
    ep_float_mode mode;
    __asm__ volatile("stmxcsr %0" : "=m"(mode));
    return mode;
}

static inline void ep_float_mode_set(ep_float_mode mode) {
    __asm__ volatile("ldmxcsr %0" : : "m"(mode) : "memory");
}

#define EP_FLUSHES (EP_DENORMALS_ARE_ZEROS | EP_FLUSH_TO_ZERO)

#elif !defined(EP_KEEP_DENORMALS) && defined(__aarch64__)

/* Arm's manual of the architecture, C5.2.8: FPCR.FZ, bit 24. Float16 has its own bit, which stays as it is:
 * its denormals begin at 6e-5, and cost nothing. */
typedef uint64_t ep_float_mode;

static inline ep_float_mode ep_float_mode_get(void) {
    ep_float_mode mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}

static inline void ep_float_mode_set(ep_float_mode mode) {
    __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}

#define EP_FLUSHES (UINT64_C(1) << 24)

#elif !defined(EP_KEEP_DENORMALS) && defined(__arm__) && defined(__ARM_FP) && !defined(__SOFTFP__)

/* The same bit of FPSCR. (NEON of ARMv7 always flushes.) */
typedef uint32_t ep_float_mode;

static inline ep_float_mode ep_float_mode_get(void) {
    ep_float_mode mode;
    __asm__ volatile("vmrs %0, fpscr" : "=r"(mode));
    return mode;
}

static inline void ep_float_mode_set(ep_float_mode mode) {
    __asm__ volatile("vmsr fpscr, %0" : : "r"(mode) : "memory");
}

#define EP_FLUSHES (UINT32_C(1) << 24)

#endif

#if defined(EP_FLUSHES)

/* Has this thread flush denormals from here on: the mode that it had. */
static inline ep_float_mode ep_flush_denormals(void) {
    ep_float_mode before = ep_float_mode_get();
    if ((before & EP_FLUSHES) != EP_FLUSHES) {
        ep_float_mode_set(before | EP_FLUSHES);
    }
    return before;
}

static inline void ep_float_mode_restore(ep_float_mode before) {
    ep_float_mode_set(before);
}

#else

typedef int ep_float_mode;

static inline ep_float_mode ep_flush_denormals(void) {
    return 0;
}

static inline void ep_float_mode_restore(ep_float_mode before) {
    (void)before;
}

#endif

#endif
