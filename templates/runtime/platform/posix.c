/* Linux, Android, macOS, iOS, the BSDs.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#if defined(EP_NEEDS_HWCAP) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(EP_NEEDS_HWCAP) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#if defined(EP_NEEDS_TILES)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "clock_posix.h"
#include "file_posix.h"
#include "library_posix.h"

#define EP_HAVE_THREADS 1

static ep_status ep_map_descriptor(int file, const unsigned char **image, size_t *nbytes, void **mapping) {
    ep_status status = ep_file_bytes(file, SIZE_MAX, nbytes);
    if (status != EP_OK || *nbytes == 0) {
        return status;
    }
    void *base = mmap(NULL, *nbytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (base == MAP_FAILED) {
        return EP_E_IO;
    }
    *image = base;
    *mapping = base;
    return EP_OK;
}

static void ep_platform_unmap(void *mapping, size_t nbytes) {
    munmap(mapping, nbytes);
}

#if defined(__linux__) && defined(MADV_HUGEPAGE)
#define EP_HAVE_HUGE_PAGES 1

/* A large block in huge pages, if the system has some: a hundredth of the page faults in the first run. */
static void *ep_allocate_huge(size_t nbytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, EP_LARGE, nbytes) != 0) {
        return NULL;
    }
    madvise(memory, nbytes, MADV_HUGEPAGE);
    return memory;
}
#endif

#include "heap.h"

static void ep_platform_yield(void) {
    sched_yield();
}

#if defined(EP_NEEDS_HWCAP) && defined(__linux__)
static uint64_t ep_platform_hwcap(unsigned word) {
    return getauxval(word);
}
#elif defined(EP_NEEDS_HWCAP) && defined(__APPLE__)
/* `bits` if the CPU has the feature of this name. */
static uint64_t ep_darwin_feature(const char *name, uint64_t bits) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value != 0 ? bits : 0;
}

static uint64_t ep_platform_hwcap(unsigned word) {
    if (word == EP_AT_HWCAP) {
        return (uint64_t)(EP_A64_FP | EP_A64_ASIMD) |
               ep_darwin_feature("hw.optional.arm.FEAT_FP16", EP_A64_FPHP | EP_A64_ASIMDHP) |
               ep_darwin_feature("hw.optional.arm.FEAT_DotProd", EP_A64_ASIMDDP);
    }
    return ep_darwin_feature("hw.optional.arm.FEAT_I8MM", EP_A64_I8MM) |
           ep_darwin_feature("hw.optional.arm.FEAT_BF16", EP_A64_BF16);
}
#elif defined(EP_NEEDS_HWCAP)
static uint64_t ep_platform_hwcap(unsigned word) {
    (void)word;
    return 0;
}
#endif

#if defined(EP_NEEDS_TILES)
/* Linux's asm/prctl.h and Documentation/arch/x86/xstate.rst. */
enum { EP_ARCH_REQ_XCOMP_PERM = 0x1023, EP_XFEATURE_XTILEDATA = 18 };

static int ep_platform_permits_tiles(void) {
    return syscall(SYS_arch_prctl, (long)EP_ARCH_REQ_XCOMP_PERM, (long)EP_XFEATURE_XTILEDATA) == 0;
}
#endif

typedef struct ep_thread {
    pthread_t id;
    void (*entry)(void *);
    void *argument;
} ep_thread;

static void *ep_thread_main(void *argument) {
    ep_thread *thread = argument;
    thread->entry(thread->argument);
    return NULL;
}

/* Signals stay with the application's threads: the new thread starts with all of them blocked. */
static int ep_thread_start(ep_thread *thread, void (*entry)(void *), void *argument) {
    sigset_t all;
    sigset_t before;
    thread->entry = entry;
    thread->argument = argument;
    sigfillset(&all);
    int masked = pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread->id, NULL, ep_thread_main, thread);
    if (masked == 0) {
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return failed;
}

static void ep_thread_join(ep_thread *thread) {
    pthread_join(thread->id, NULL);
}

static uint32_t ep_platform_process(void) {
    return (uint32_t)getpid();
}

#if defined(__linux__)
#define EP_HAVE_CORES 1

typedef cpu_set_t ep_cores;

static uint32_t ep_platform_core(void) {
    int core = sched_getcpu();
    return core < 0 ? 0u : (uint32_t)core + 1u;
}

static void ep_cores_clear(ep_cores *cores) {
    CPU_ZERO(cores);
}

static void ep_cores_add(ep_cores *cores, uint32_t core) {
    if (core != 0 && core <= CPU_SETSIZE) {
        CPU_SET(core - 1, cores);
    }
}

/* By a mask that holds for a moment: it moves the thread at once. */
static int ep_platform_avoid(const ep_cores *cores) {
    ep_cores allowed;
    ep_cores wanted;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return 1;
    }
    CPU_OR(&wanted, &allowed, cores);
    CPU_XOR(&wanted, &wanted, cores);
    if (sched_setaffinity(0, sizeof wanted, &wanted) != 0) { /* none is left */
        return 1;
    }
    return sched_setaffinity(0, sizeof allowed, &allowed);
}
#endif

typedef struct ep_monitor {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
} ep_monitor;

static int ep_monitor_init(ep_monitor *monitor) {
    if (pthread_mutex_init(&monitor->mutex, NULL) != 0) {
        return 1;
    }
    if (pthread_cond_init(&monitor->condition, NULL) != 0) {
        pthread_mutex_destroy(&monitor->mutex);
        return 1;
    }
    return 0;
}

static void ep_monitor_destroy(ep_monitor *monitor) {
    pthread_cond_destroy(&monitor->condition);
    pthread_mutex_destroy(&monitor->mutex);
}

static void ep_monitor_lock(ep_monitor *monitor) {
    pthread_mutex_lock(&monitor->mutex);
}

static void ep_monitor_unlock(ep_monitor *monitor) {
    pthread_mutex_unlock(&monitor->mutex);
}

static void ep_monitor_wait(ep_monitor *monitor) {
    pthread_cond_wait(&monitor->condition, &monitor->mutex);
}

static void ep_monitor_wake_all(ep_monitor *monitor) {
    pthread_cond_broadcast(&monitor->condition);
}
