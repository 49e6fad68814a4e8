/* The runtime as one translation unit. The generated model.c includes this file first, so that each library
 * holds its own copy with nothing but static functions: libraries of different releases cannot collide.
 * SPDX-License-Identifier: Apache-2.0 */
#include "platform/platform.h" /* first: it sets the feature macros of the system's headers */

#include <edgepack/runtime.h>

#include "core/internal.h"
#include "core/denormals.h"
#if defined(EP_HAVE_GPU)
#include "gpu/gpu.h"
#include "gpu/device.h"
#endif

#if defined(_WIN32)
#include "platform/windows.c"
#elif defined(EP_PLATFORM_WASM)
#include "platform/wasm.c"
#elif defined(__wasi__)
#include "platform/wasi.c"
#elif defined(EP_PLATFORM_BARE) || !(defined(__unix__) || defined(__APPLE__))
#include "platform/bare.c"
#else
#include "platform/posix.c"
#endif

#include "core/cpu.c"
#include "core/sha256.c"
#if defined(EP_PARAMS_KEY)
#include "signed/ed25519.c"
#endif
#include "core/params.c"
#include "core/state.h"
#include "core/executor.c"
#include "core/pool.c"
#if defined(EP_HAVE_GPU)
#include "gpu/memory.c"
#endif
#if defined(EP_GPU_API_OPENCL)
#include "gpu/opencl.h"
#include "gpu/opencl.c"
#include "gpu/opencl_cache.c"
#include "gpu/opencl_model.c"
#include "gpu/opencl_session.c"
#endif
#if defined(EP_GPU_API_CUDA)
#include "gpu/cuda.h"
#include "gpu/cuda.c"
#include "gpu/cuda_session.c"
#endif
#if defined(EP_GPU_API_METAL)
#include "gpu/metal.h"
#include "gpu/metal.c"
#include "gpu/metal_session.c"
#endif
#if defined(EP_HAVE_GPU)
#include "gpu/session.c"
#endif
#include "core/options.c"
#include "core/session.c"
#if defined(EP_HAVE_GPU)
#include "gpu/run.c"
#include "gpu/model.c"
#endif
#include "core/api.c"
