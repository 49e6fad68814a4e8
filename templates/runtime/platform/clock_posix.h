/* The clock of POSIX. SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_CLOCK_POSIX_H
#define EDGEPACK_CLOCK_POSIX_H

#include <time.h>

static uint64_t ep_platform_now_ns(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) {
        return 0;
    }
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

#endif
