/* The default allocator where there is malloc. A platform that has huge pages defines EP_HAVE_HUGE_PAGES and
 * ep_allocate_huge before it includes this. SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_HEAP_H
#define EDGEPACK_HEAP_H

#include <stdlib.h>

static void *ep_platform_allocate(void *user, size_t nbytes) {
    (void)user;
#if defined(EP_HAVE_HUGE_PAGES)
    if (nbytes >= EP_LARGE) {
        return ep_allocate_huge(nbytes);
    }
#endif
    return malloc(nbytes);
}

static void ep_platform_release(void *user, void *memory, size_t nbytes) {
    (void)user;
    (void)nbytes;
    free(memory);
}

#endif
