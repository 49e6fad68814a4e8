/* WebAssembly in a page, a worker or node, without WASI: params are handed in, and the clock is the one
 * function that the module imports: `edgepack.now`, which returns milliseconds (performance.now); Emscripten
 * has its own. Where it is compiled for memory that is shared, JavaScript brings that and threads too.
 * SPDX-License-Identifier: Apache-2.0 */
#include "heap.h"
#include "no_files.h"
#include "no_libraries.h"
#if defined(__wasm_atomics__) && !defined(__EMSCRIPTEN__)
#include "worker_threads.h"
#else
#include "no_threads.h"
#endif

#if defined(__EMSCRIPTEN__)
#include <emscripten/emscripten.h>
#define ep_import_now emscripten_get_now
#else
__attribute__((import_module("edgepack"), import_name("now"))) double ep_import_now(void);
#endif

static uint64_t ep_platform_now_ns(void) {
    return (uint64_t)(ep_import_now() * 1e6);
}
