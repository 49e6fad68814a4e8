/* Shared libraries by dlopen.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_LIBRARY_POSIX_H
#define EDGEPACK_LIBRARY_POSIX_H

#if defined(EP_HAVE_GPU)
#include <dlfcn.h>
#include <unistd.h>

/* What has no RTLD_NODELETE is kept by the reference that ep_platform_library_close does not give back. */
static void *ep_platform_library_open(const char *name) {
#if defined(RTLD_NODELETE)
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#else
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
#endif
}

static void (*ep_platform_library_symbol(void *library, const char *name))(void) {
    union {
        void *object;
        void (*function)(void);
    } symbol;
    symbol.object = dlsym(library, name);
    return symbol.function;
}

static void ep_platform_library_close(void *library) {
#if defined(RTLD_NODELETE)
    dlclose(library);
#else
    (void)library;
#endif
}
#endif

#if defined(EP_GPU_API_METAL)
static size_t ep_platform_page(void) {
    long nbytes = sysconf(_SC_PAGESIZE);
    return nbytes > 0 ? (size_t)nbytes : 0;
}
#endif

#endif
