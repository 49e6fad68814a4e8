/* No operating system: no files, no threads, no allocator. Params are embedded or handed in; a session uses
 * the caller's memory or allocator; more than one thread means the caller's (the tasks of an RTOS).
 * SPDX-License-Identifier: Apache-2.0 */
#include "no_files.h"
#include "no_libraries.h"
#include "no_threads.h"

/* The firmware's clock, if it has one: see edgepack/runtime.h. */
__attribute__((weak)) uint64_t edgepack_now_ns(void);

/* There is nothing to take it from: ep_session_create says EP_E_NO_MEMORY. */
static void *ep_platform_allocate(void *user, size_t nbytes) {
    (void)user;
    (void)nbytes;
    return NULL;
}

static void ep_platform_release(void *user, void *memory, size_t nbytes) {
    (void)user;
    (void)memory;
    (void)nbytes;
}

static uint64_t ep_platform_now_ns(void) {
    return edgepack_now_ns != NULL ? edgepack_now_ns() : 0;
}

#if defined(EP_NEEDS_HWCAP)
/* Nobody to ask: the firmware is built for its chip. */
static uint64_t ep_platform_hwcap(unsigned word) {
    (void)word;
    return ~UINT64_C(0);
}
#endif
