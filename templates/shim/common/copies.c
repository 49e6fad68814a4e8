/* Asynchronous copies to shared memory (CUDA's cp.async): what a thread has begun arrives when it waits for
 * the group that the copy is of. Until then the bytes are no number, and nobody may read or write them;
 * afterwards they count as written by that thread, since the last barrier. The source is read at the wait, as
 * late as a GPU may read it. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "shim.h"

enum { COPY_BYTES = 16, MOST_COPIES = 256 };

typedef struct copy {
    unsigned char *to;
    const unsigned char *from; /* null: zeros */
    uint32_t group;
} copy;

/* Of a thread, those on their way, the oldest first, and how many groups it has ended. */
typedef struct copies {
    copy waiting[MOST_COPIES];
    uint32_t count;
    uint32_t groups;
} copies;

static copies of_thread[SHIM_MAX_THREADS];

void shim_copy_begin(void *to, const void *from, int inside) {
    copies *own = &of_thread[shim_thread_number()];
    if (own->count == MOST_COPIES) {
        shim_fail("it has more than %d copies on their way", MOST_COPIES);
    }
    if (inside) {
        shim_access(from, COPY_BYTES, 0);
    }
    shim_access(to, COPY_BYTES, 1);
    shim_mark_pending(to, COPY_BYTES, 1);
    memset(to, 0xff, COPY_BYTES);
    copy *made = &own->waiting[own->count++];
    made->to = to;
    made->from = inside ? from : NULL;
    made->group = own->groups;
}

void shim_copy_group(void) {
    of_thread[shim_thread_number()].groups++;
}

void shim_copy_wait(uint32_t but) {
    copies *own = &of_thread[shim_thread_number()];
    uint32_t done = 0;
    while (done < own->count && own->waiting[done].group + but < own->groups) {
        const copy *one = &own->waiting[done++];
        shim_mark_pending(one->to, COPY_BYTES, 0);
        shim_access(one->to, COPY_BYTES, 1);
        if (one->from != NULL) {
            shim_access(one->from, COPY_BYTES, 0);
            memcpy(one->to, one->from, COPY_BYTES);
        } else {
            memset(one->to, 0, COPY_BYTES);
        }
    }
    own->count -= done;
    memmove(own->waiting, own->waiting + done, own->count * sizeof *own->waiting);
}

void shim_copy_end(void) {
    copies *own = &of_thread[shim_thread_number()];
    if (own->count != 0) {
        shim_fail("it ends with %u copies that it has not waited for", (unsigned)own->count);
    }
    own->groups = 0;
}
