/* WebAssembly in a page, a worker or node, without WASI: params are handed in, one thread, and the clock is
 * the one thing that the module imports: `edgepack.now`, a function that returns milliseconds
 * (performance.now); Emscripten has its own. SPDX-License-Identifier: Apache-2.0 */
#include "heap.h"
#include "no_files.h"
#include "no_libraries.h"
#include "no_threads.h"

#if defined(__EMSCRIPTEN__)
#include <emscripten/emscripten.h>
#define ep_import_now emscripten_get_now
#else
__attribute__((import_module("edgepack"), import_name("now"))) double ep_import_now(void);
#endif

static uint64_t ep_platform_now_ns(void) {
    return (uint64_t)(ep_import_now() * 1e6);
}
