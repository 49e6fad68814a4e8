/* What differs between systems.
 * SPDX-License-Identifier: Apache-2.0 */
#if !defined(_WIN32)
#if defined(__APPLE__)
#define _DARWIN_C_SOURCE 1
#else
#define _GNU_SOURCE 1
#endif
#endif

#include "loader/loader.h"

#include <stdlib.h>
#include <string.h>

/* Cuts `path` after its last separator: what is left is the folder of the file. */
static char *folder_of(char *path) {
    char *end = path + strlen(path);
    while (end > path && end[-1] != '/' && end[-1] != '\\') {
        end--;
    }
    *end = 0;
    return path;
}

#if !defined(_WIN32)

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *system_read(const char *path) {
    struct stat info;
    /* Who opens a pipe without a writer would wait. */
    int number = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *file =
        number >= 0 && fstat(number, &info) == 0 && S_ISREG(info.st_mode) ? fdopen(number, "rb") : NULL;
    if (file == NULL && number >= 0) {
        close(number);
    }
    return file;
}

FILE *system_write(const char *path) {
    return fopen(path, "wb");
}

#endif

#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN 1
#include <windows.h>
/* after windows.h */
#include <io.h>
#include <psapi.h>
#include <shellapi.h>

uint64_t system_now_ns(void) {
    LARGE_INTEGER ticks;
    LARGE_INTEGER per_second;
    QueryPerformanceFrequency(&per_second);
    QueryPerformanceCounter(&ticks);
    uint64_t rate = (uint64_t)per_second.QuadPart;
    uint64_t now = (uint64_t)ticks.QuadPart;
    return now / rate * UINT64_C(1000000000) + now % rate * UINT64_C(1000000000) / rate;
}

uint64_t system_cpu_ns(void) {
    FILETIME created, ended, kernel, user;
    if (!GetProcessTimes(GetCurrentProcess(), &created, &ended, &kernel, &user)) {
        return 0;
    }
    uint64_t ticks = ((uint64_t)kernel.dwHighDateTime << 32 | kernel.dwLowDateTime) +
                     ((uint64_t)user.dwHighDateTime << 32 | user.dwLowDateTime);
    return ticks * 100;
}

uint64_t system_peak_rss(void) {
    PROCESS_MEMORY_COUNTERS counters;
    return GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof counters) ? counters.PeakWorkingSetSize
                                                                                 : 0;
}

static wchar_t *to_wide(const char *text) {
    int length = MultiByteToWideChar(CP_UTF8, 0, text, -1, NULL, 0);
    wchar_t *wide = length > 0 ? malloc((size_t)length * sizeof *wide) : NULL;
    if (wide != NULL) {
        MultiByteToWideChar(CP_UTF8, 0, text, -1, wide, length);
    }
    return wide;
}

static char *to_utf8(const wchar_t *wide) {
    int length = WideCharToMultiByte(CP_UTF8, 0, wide, -1, NULL, 0, NULL, NULL);
    char *text = length > 0 ? malloc((size_t)length) : NULL;
    if (text != NULL) {
        WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, length, NULL, NULL);
    }
    return text;
}

static FILE *open_wide(const char *path, const wchar_t *mode) {
    wchar_t *wide = to_wide(path);
    FILE *file = wide != NULL ? _wfopen(wide, mode) : NULL;
    free(wide);
    return file;
}

FILE *system_read(const char *path) {
    FILE *file = open_wide(path, L"rb");
    if (file != NULL && GetFileType((HANDLE)_get_osfhandle(_fileno(file))) != FILE_TYPE_DISK) {
        fclose(file);
        file = NULL;
    }
    return file;
}

FILE *system_write(const char *path) {
    return open_wide(path, L"wb");
}

int system_terminal(void) {
    return _isatty(_fileno(stdout));
}

char **system_arguments(int argc, char **argv) {
    int count = 0;
    wchar_t **wide = CommandLineToArgvW(GetCommandLineW(), &count);
    char **arguments = calloc((size_t)argc + 1, sizeof *arguments);
    (void)argv;
    if (wide == NULL || arguments == NULL || count != argc) {
        return NULL;
    }
    for (int i = 0; i < argc; i++) {
        arguments[i] = to_utf8(wide[i]);
        if (arguments[i] == NULL) {
            return NULL;
        }
    }
    LocalFree(wide);
    return arguments;
}

char *system_program_folder(const char *argv0, char *path, size_t capacity) {
    wchar_t wide[LOADER_PATH];
    DWORD length = GetModuleFileNameW(NULL, wide, LOADER_PATH);
    (void)argv0;
    path[0] = 0;
    if (length > 0 && length < LOADER_PATH &&
        WideCharToMultiByte(CP_UTF8, 0, wide, -1, path, (int)capacity, NULL, NULL) == 0) {
        path[0] = 0;
    }
    return folder_of(path);
}

#elif defined(__wasi__)

#include <time.h>

uint64_t system_now_ns(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) {
        return 0;
    }
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t system_cpu_ns(void) {
    return 0;
}

/* The module's linear memory, which only grows, in pages of 64 KiB; memory of the engine is not known to it.
 */
uint64_t system_peak_rss(void) {
    return (uint64_t)__builtin_wasm_memory_size(0) << 16;
}

/* Not every host knows. */
int system_terminal(void) {
    return 0;
}

char **system_arguments(int argc, char **argv) {
    (void)argc;
    return argv;
}

/* The runner gives the program's path in a folder that the program may open. */
char *system_program_folder(const char *argv0, char *path, size_t capacity) {
    path[0] = 0;
    if (strlen(argv0) < capacity) {
        strcpy(path, argv0);
    }
    return folder_of(path);
}

#else

#include <sys/resource.h>
#include <time.h>
#if defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) {
        return 0;
    }
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t system_now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t system_cpu_ns(void) {
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

/* Linux: VmHWM of /proc/self/status, in KB; ru_maxrss there begins with what the parent used before exec. */
static uint64_t peak_from_proc(void) {
    char line[128];
    unsigned long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "VmHWM: %lu", &kilobytes) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return (uint64_t)kilobytes * 1024;
}

uint64_t system_peak_rss(void) {
    struct rusage usage;
    uint64_t peak = peak_from_proc();
    if (peak != 0) {
        return peak;
    }
    if (getrusage(RUSAGE_SELF, &usage) != 0) {
        return 0;
    }
#if defined(__APPLE__)
    return (uint64_t)usage.ru_maxrss;
#else
    return (uint64_t)usage.ru_maxrss * 1024;
#endif
}

int system_terminal(void) {
#if defined(__EMSCRIPTEN__) /* it says so of any stream */
    return 0;
#else
    return isatty(STDOUT_FILENO);
#endif
}

char **system_arguments(int argc, char **argv) {
    (void)argc;
    return argv;
}

char *system_program_folder(const char *argv0, char *path, size_t capacity) {
    path[0] = 0;
#if defined(__APPLE__)
    uint32_t size = (uint32_t)capacity;
    if (_NSGetExecutablePath(path, &size) == 0) {
        return folder_of(path);
    }
#elif !defined(__EMSCRIPTEN__) /* there it would be node */
    ssize_t length = readlink("/proc/self/exe", path, capacity - 1);
    if (length > 0) {
        path[length] = 0;
        return folder_of(path);
    }
#endif
    path[0] = 0;
    if (strlen(argv0) < capacity) {
        strcpy(path, argv0);
    }
    return folder_of(path);
}

#endif
