/* Where there are no files: params are embedded or handed in. SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_NO_FILES_H
#define EDGEPACK_NO_FILES_H

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

#endif
