/* The file of the params, where files are POSIX's. The platform defines how the bytes of an open one become
 * readable; what is open is closed here. SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_FILE_POSIX_H
#define EDGEPACK_FILE_POSIX_H

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* As ep_platform_map, of an open file. */
static ep_status ep_map_descriptor(int file, const unsigned char **image, size_t *nbytes, void **mapping);

/* Size of an open file; EP_E_IO if it is no regular one, or larger than `most`. */
static ep_status ep_file_bytes(int file, uint64_t most, size_t *nbytes) {
    struct stat info;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 0 ||
        (uint64_t)info.st_size > most) {
        return EP_E_IO;
    }
    *nbytes = (size_t)info.st_size;
    return EP_OK;
}

static ep_status ep_platform_map(const char *path, const unsigned char **image, size_t *nbytes,
                                 void **mapping) {
    /* Who opens a pipe without a writer would wait; what is no regular file is refused once it is open. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        return EP_E_IO;
    }
    ep_status status = ep_map_descriptor(file, image, nbytes, mapping);
    close(file);
    return status;
}

#endif
