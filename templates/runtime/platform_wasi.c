/* WebAssembly with WASI: files are read, for nothing can be mapped; one thread.
 * SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

static ep_status ep_read_file(int file, const unsigned char **image, size_t *nbytes, void **mapping) {
    struct stat info;
    void *block = NULL;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 0 ||
        (uint64_t)info.st_size > SIZE_MAX / 2) {
        return EP_E_IO;
    }
    *nbytes = (size_t)info.st_size;
    if (*nbytes == 0) {
        return EP_OK;
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

static ep_status ep_platform_map(const char *path, const unsigned char **image, size_t *nbytes,
                                 void **mapping) {
    int file = open(path, O_RDONLY);
    if (file < 0) {
        return EP_E_IO;
    }
    ep_status status = ep_read_file(file, image, nbytes, mapping);
    close(file);
    return status;
}

static void ep_platform_unmap(void *mapping, size_t nbytes) {
    (void)nbytes;
    free(mapping);
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
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) {
        return 0;
    }
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void ep_platform_yield(void) {}
