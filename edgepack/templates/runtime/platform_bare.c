/* No operating system: no files, no threads, no clock. Params are embedded or handed in; a session uses the
 * caller's memory or the C library's malloc; more than one thread means the caller's (the tasks of an RTOS).
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

static ep_status ep_platform_map(const char *path, const unsigned char **image, size_t *nbytes,
                                 void **mapping) {
    (void)path;
    (void)image;
    (void)nbytes;
    (void)mapping;
    return EP_E_UNSUPPORTED;
}

static void ep_platform_unmap(void *mapping, size_t nbytes) {
    (void)mapping;
    (void)nbytes;
}

static void *ep_platform_allocate(void *user, size_t nbytes) {
    (void)user;
    return malloc(nbytes);
}

static void ep_platform_release(void *user, void *memory, size_t nbytes) {
    (void)user;
    (void)nbytes;
    free(memory);
}

static uint64_t ep_platform_now_ns(void) {
    return 0;
}

static void ep_platform_yield(void) {}

#if defined(EP_NEEDS_HWCAP)
/* Nobody to ask: the firmware is built for its chip. */
static uint64_t ep_platform_hwcap(unsigned which) {
    (void)which;
    return ~UINT64_C(0);
}
#endif
