/* For platforms where no library can be loaded: there are no drivers of GPUs.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_NO_LIBRARIES_H
#define EDGEPACK_NO_LIBRARIES_H

#if defined(EP_HAVE_GPU)
static void *ep_platform_library_open(const char *name) {
    (void)name;
    return NULL;
}

static void (*ep_platform_library_symbol(void *library, const char *name))(void) {
    (void)library;
    (void)name;
    return NULL;
}

static void ep_platform_library_close(void *library) {
    (void)library;
}
#endif

#if defined(EP_GPU_API_METAL)
static size_t ep_platform_page(void) {
    return 0;
}
#endif

#endif
