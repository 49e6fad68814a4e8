/* The runtime as one translation unit. The generated model.c includes this file first, so that each library
 * holds its own copy with nothing but static functions: libraries of different releases cannot collide.
 * SPDX-License-Identifier: Apache-2.0 */
#include "platform.h" /* first: it sets the feature macros of the system's headers */

#include <edgepack/runtime.h>

#include "internal.h"

#if defined(_WIN32)
#include "platform_windows.c"
#elif defined(EP_PLATFORM_WASM)
#include "platform_wasm.c"
#elif defined(__wasi__)
#include "platform_wasi.c"
#elif defined(EP_PLATFORM_BARE) || !(defined(__unix__) || defined(__APPLE__))
#include "platform_bare.c"
#else
#include "platform_posix.c"
#endif

#include "cpu.c"
#include "sha256.c"
#include "params.c"
#include "state.h"
#include "tasks.c"
#include "executor.c"
#include "session.c"
#include "api.c"
