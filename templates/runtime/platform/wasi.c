/* WebAssembly with WASI: files are read, for nothing can be mapped; one thread.
 * SPDX-License-Identifier: Apache-2.0 */
#include "clock_posix.h"
#include "file_posix.h"
#include "heap.h"
#include "no_libraries.h"
#include "no_threads.h"

/* Reads until `nbytes` are there; nonzero if they are not to be had. */
static int ep_read_all(int file, unsigned char *to, size_t nbytes) {
    while (nbytes != 0) {
        ssize_t got = read(file, to, nbytes);
        if (got <= 0) {
            return 1;
        }
        to += got;
        nbytes -= (size_t)got;
    }
    return 0;
}

static ep_status ep_map_descriptor(int file, const unsigned char **image, size_t *nbytes, void **mapping) {
    void *block = NULL;
    ep_status status = ep_file_bytes(file, SIZE_MAX / 2, nbytes);
    if (status != EP_OK || *nbytes == 0) {
        return status;
    }
    if (posix_memalign(&block, EP_ALIGNMENT, *nbytes) != 0) {
        return EP_E_NO_MEMORY;
    }
    if (ep_read_all(file, block, *nbytes) != 0) {
        free(block);
        return EP_E_IO;
    }
    *image = block;
    *mapping = block;
    return EP_OK;
}

static void ep_platform_unmap(void *mapping, size_t nbytes) {
    (void)nbytes;
    free(mapping);
}
