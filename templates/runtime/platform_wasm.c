/* WebAssembly in a page, a worker or node, without WASI: params are handed in, one thread, and the clock is
 * the one thing that the module imports: `edgepack.now`, a function that returns milliseconds
 * (performance.now); Emscripten has its own. SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#if defined(__EMSCRIPTEN__)
#include <emscripten/emscripten.h>
#define ep_import_now emscripten_get_now
#else
__attribute__((import_module("edgepack"), import_name("now"))) double ep_import_now(void);
#endif

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
    return (uint64_t)(ep_import_now() * 1e6);
}

static void ep_platform_yield(void) {}
