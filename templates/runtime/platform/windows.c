/* Windows 7 and later.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN 1
#endif
#include <windows.h>

#include "heap.h"

#if !defined(PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE)
#define PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE 43 /* of Windows 10 and later */
#endif

#define EP_HAVE_THREADS 1

static ep_status ep_map_handle(HANDLE file, const unsigned char **image, size_t *nbytes, void **mapping) {
    LARGE_INTEGER size;
    if (GetFileType(file) != FILE_TYPE_DISK) { /* a pipe, a console */
        return EP_E_IO;
    }
    if (!GetFileSizeEx(file, &size) || size.QuadPart < 0 || (uint64_t)size.QuadPart > (uint64_t)SIZE_MAX) {
        return EP_E_IO;
    }
    *nbytes = (size_t)size.QuadPart;
    if (*nbytes == 0) {
        return EP_OK;
    }
    HANDLE section = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
    if (section == NULL) {
        return EP_E_IO;
    }
    void *base = MapViewOfFile(section, FILE_MAP_READ, 0, 0, 0);
    CloseHandle(section);
    if (base == NULL) {
        return EP_E_IO;
    }
    *image = base;
    *mapping = base;
    return EP_OK;
}

static ep_status ep_platform_map(const char *path, const unsigned char **image, size_t *nbytes,
                                 void **mapping) {
    int length = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
    if (length <= 0) {
        return EP_E_IO;
    }
    wchar_t *wide = malloc((size_t)length * sizeof *wide);
    if (wide == NULL) {
        return EP_E_NO_MEMORY;
    }
    MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, length);
    /* Anonymous: were it a pipe, who made it could act in this user's name. */
    HANDLE file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING,
                              FILE_ATTRIBUTE_NORMAL | SECURITY_SQOS_PRESENT | SECURITY_ANONYMOUS, NULL);
    free(wide);
    if (file == INVALID_HANDLE_VALUE) {
        return EP_E_IO;
    }
    ep_status status = ep_map_handle(file, image, nbytes, mapping);
    CloseHandle(file);
    return status;
}

static void ep_platform_unmap(void *mapping, size_t nbytes) {
    (void)nbytes;
    UnmapViewOfFile(mapping);
}

static uint64_t ep_platform_now_ns(void) {
    LARGE_INTEGER ticks;
    LARGE_INTEGER per_second;
    if (!QueryPerformanceFrequency(&per_second) || !QueryPerformanceCounter(&ticks)) {
        return 0;
    }
    uint64_t rate = (uint64_t)per_second.QuadPart;
    uint64_t now = (uint64_t)ticks.QuadPart;
    return now / rate * UINT64_C(1000000000) + now % rate * UINT64_C(1000000000) / rate;
}

static void ep_platform_yield(void) {
    SwitchToThread();
}

#if defined(EP_NEEDS_HWCAP)
static uint64_t ep_platform_hwcap(unsigned word) {
    if (word != EP_AT_HWCAP) {
        return 0;
    }
    int dot_product = IsProcessorFeaturePresent(PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE);
    return (uint64_t)(EP_A64_FP | EP_A64_ASIMD) | (dot_product ? (uint64_t)EP_A64_ASIMDDP : 0);
}
#endif

#if defined(EP_HAVE_GPU)
/* Pinned: FreeLibrary then only gives back a reference. Names are ASCII; not looked for where the program was
 * started, but where the system has its own, and where the program lies. */
static void *ep_platform_library_open(const char *name) {
    HMODULE pinned;
    HMODULE library = LoadLibraryExA(name, NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
    if (library != NULL) {
        GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_PIN, name, &pinned);
    }
    return (void *)library;
}

static void (*ep_platform_library_symbol(void *library, const char *name))(void) {
    return (void (*)(void))GetProcAddress((HMODULE)library, name);
}

static void ep_platform_library_close(void *library) {
    FreeLibrary((HMODULE)library);
}
#endif

#if defined(EP_GPU_API_METAL)
static size_t ep_platform_page(void) {
    return 0;
}
#endif

typedef struct ep_thread {
    HANDLE handle;
    void (*entry)(void *);
    void *argument;
} ep_thread;

static DWORD WINAPI ep_thread_main(void *argument) {
    ep_thread *thread = argument;
    thread->entry(thread->argument);
    return 0;
}

static int ep_thread_start(ep_thread *thread, void (*entry)(void *), void *argument) {
    thread->entry = entry;
    thread->argument = argument;
    thread->handle = CreateThread(NULL, 0, ep_thread_main, thread, 0, NULL);
    return thread->handle == NULL;
}

static void ep_thread_join(ep_thread *thread) {
    WaitForSingleObject(thread->handle, INFINITE);
    CloseHandle(thread->handle);
}

static uint32_t ep_platform_process(void) {
    return 0;
}

typedef struct ep_monitor {
    SRWLOCK lock;
    CONDITION_VARIABLE condition;
} ep_monitor;

static int ep_monitor_init(ep_monitor *monitor) {
    InitializeSRWLock(&monitor->lock);
    InitializeConditionVariable(&monitor->condition);
    return 0;
}

static void ep_monitor_destroy(ep_monitor *monitor) {
    (void)monitor;
}

static void ep_monitor_lock(ep_monitor *monitor) {
    AcquireSRWLockExclusive(&monitor->lock);
}

static void ep_monitor_unlock(ep_monitor *monitor) {
    ReleaseSRWLockExclusive(&monitor->lock);
}

static void ep_monitor_wait(ep_monitor *monitor) {
    SleepConditionVariableSRW(&monitor->condition, &monitor->lock, INFINITE, 0);
}

static void ep_monitor_wake_all(ep_monitor *monitor) {
    WakeAllConditionVariable(&monitor->condition);
}
