/* What the runtime needs of a platform. To port it, write one <name>.c with these functions and include it
 * from ../runtime.c; bare.c shows the least that does. What several platforms have alike is written once, in
 * headers to choose from: heap.h, clock_posix.h, file_posix.h, library_posix.h, no_files.h, no_libraries.h,
 * no_threads.h.
 *
 * A platform with threads also defines EP_HAVE_THREADS, `ep_thread`, `ep_monitor` and the functions below
 * them. SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_PLATFORM_H
#define EDGEPACK_PLATFORM_H

#if !defined(_WIN32) && !defined(EP_PLATFORM_BARE)
#if defined(__APPLE__)
#define _DARWIN_C_SOURCE 1
#elif !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif
#if !defined(_FILE_OFFSET_BITS)
#define _FILE_OFFSET_BITS 64
#endif
#endif

#include <stddef.h>
#include <stdint.h>

#include "hwcap.h"

/* model.c defines EP_GPU_API_... for each kind of driver that one of its variants is for. */
#if defined(EP_GPU_API_OPENCL) || defined(EP_GPU_API_CUDA) || defined(EP_GPU_API_METAL)
#define EP_HAVE_GPU 1
#endif

/* Makes the bytes of the file at `path` (UTF-8) readable without reading them. An empty file gives EP_OK, 0
 * bytes and no mapping. EP_E_IO if it cannot be opened; EP_E_UNSUPPORTED where there are no files. */
static int32_t ep_platform_map(const char *path, const unsigned char **image, size_t *nbytes, void **mapping);
static void ep_platform_unmap(void *mapping, size_t nbytes);

/* Default allocator; null on failure. */
static void *ep_platform_allocate(void *user, size_t nbytes);
static void ep_platform_release(void *user, void *memory, size_t nbytes);

/* Monotonic clock in ns; 0 where there is none. */
static uint64_t ep_platform_now_ns(void);

/* Lets another thread of this core run. */
static void ep_platform_yield(void);

/* The bits of EP_AT_HWCAP or EP_AT_HWCAP2, composed by the platform where the system answers in another way.
 * Only where the CPU itself cannot be asked. */
#if defined(__aarch64__) || defined(__arm__) || (defined(__riscv) && __riscv_xlen == 64)
#define EP_NEEDS_HWCAP 1
static uint64_t ep_platform_hwcap(unsigned word);
#endif

/* Whether this process may use AMX's tiles: Linux wants to be asked once, before a thread uses them, and then
 * permits it to all of the process's threads. To ask again changes nothing. It refuses where a thread's
 * alternate signal stack is too small for them (sigaltstack), and where a sandbox does. Where nobody is to be
 * asked, no library that needs them is for the system. */
#if defined(__linux__) && defined(__x86_64__) && !defined(EP_PLATFORM_BARE)
#define EP_NEEDS_TILES 1
static int ep_platform_permits_tiles(void);
#endif

/* For the drivers of GPUs: a shared library, loaded for the rest of the process (drivers have threads and
 * handlers of their own), null if there is none of this name; and one of its functions, or null. Where
 * libraries cannot be loaded: no_libraries.h. */
#if defined(EP_HAVE_GPU)
static void *ep_platform_library_open(const char *name);
static void (*ep_platform_library_symbol(void *library, const char *name))(void);
static void ep_platform_library_close(void *library);
#endif

/* Bytes of a page of memory, a power of two; 0 where files are not mapped by pages. */
#if defined(EP_GPU_API_METAL)
static size_t ep_platform_page(void);
#endif

/* With EP_HAVE_THREADS:
 *   int  ep_thread_start(ep_thread *, void (*entry)(void *), void *argument)      0 is success
 *   void ep_thread_join(ep_thread *)
 *   uint32_t ep_platform_process(void)              a number of this process; where none can be forked, any
 *   int  ep_monitor_init(ep_monitor *)                                           0 is success
 *   void ep_monitor_destroy / _lock / _unlock / _wait / _wake_all(ep_monitor *)   a mutex and its condition
 *
 * With EP_HAVE_CORES, where the system starts a thread on the core of the one that made it, and moves it only
 * milliseconds later:
 *   uint32_t ep_platform_core(void)                 the core that this thread runs on, from 1; 0: unknown
 *   void ep_cores_clear(ep_cores *), ep_cores_add(ep_cores *, uint32_t core)      a set of cores
 *   int  ep_platform_avoid(const ep_cores *)        moves this thread to none of these; 0 is success.
 *                                                   The system is free to move it on.
 */

#endif
