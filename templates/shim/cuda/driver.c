/* The interface of CUDA's driver. What is given to a stream is done when it is waited for; a kernel's image
 * must be one that NVIDIA's driver would take and have the kernel, but the bundle's CUDA C is what runs.
 * SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define API __attribute__((visibility("default"))) int

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500
};

/* Attributes of addresses, and a kind of memory. */
enum { MEMORY_TYPE = 2, DEVICE_ORDINAL = 9, DEVICE_MEMORY = 2 };

enum { CUBIN_MACHINE = 190, MOST_CONTEXTS = 64 };

/* A device for each compute capability, so that the first that a bundle can use has machine code in it. */
static const int capabilities[] = {50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 120, 999};

enum { DEVICES = sizeof capabilities / sizeof capabilities[0] };

typedef struct module {
    const unsigned char *image;
    int ptx;
} module;

typedef struct command {
    struct command *next;
    unsigned char *data; /* upload: a copy of the host's */
    void *to;
    const void *from;
    size_t nbytes;
    shim_launch launch;
} command;

typedef struct list {
    command *first;
    command **end;
    void *context; /* of a stream */
    int capturing;
} list;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char contexts[DEVICES];
static __thread void *stack[MOST_CONTEXTS];
static __thread int depth;
static int initialised;

/* Those of the devices that CUDA_VISIBLE_DEVICES names, as NVIDIA's driver does it: up to the first that is
 * none. */
static int visible[DEVICES];
static int device_count;

static int has_context(void) {
    if (depth == 0) {
        fprintf(stderr, SHIM_NAME ": a call without a current context\n");
    }
    return depth > 0;
}

#define NEEDS_CONTEXT \
    do { \
        if (!has_context()) { \
            return INVALID_CONTEXT; \
        } \
    } while (0)

API cuInit(unsigned flags);
API cuInit(unsigned flags) {
    const char *next = getenv("CUDA_VISIBLE_DEVICES");
    device_count = next == NULL ? DEVICES : 0;
    for (int i = 0; i < device_count; i++) {
        visible[i] = i;
    }
    while (next != NULL && *next >= '0' && *next <= '9' && device_count < DEVICES) {
        char *end = NULL;
        long ordinal = strtol(next, &end, 10);
        if (ordinal >= DEVICES) {
            break;
        }
        visible[device_count++] = (int)ordinal;
        next = *end == ',' ? end + 1 : NULL;
    }
    initialised = 1;
    return flags == 0 ? SUCCESS : INVALID_VALUE;
}

API cuDriverGetVersion(int *version);
API cuDriverGetVersion(int *version) {
    *version = 12040;
    return SUCCESS;
}

API cuDeviceGetCount(int *count);
API cuDeviceGetCount(int *count) {
    *count = device_count;
    return initialised ? SUCCESS : 3;
}

API cuDeviceGet(int *device, int ordinal);
API cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal >= 0 && ordinal < device_count ? SUCCESS : INVALID_DEVICE;
}

API cuDeviceGetName(char *name, int nbytes, int device);
API cuDeviceGetName(char *name, int nbytes, int device) {
    snprintf(name, (size_t)nbytes, SHIM_NAME " as compute capability %d.%d",
             capabilities[visible[device]] / 10, capabilities[visible[device]] % 10);
    return SUCCESS;
}

API cuDeviceGetAttribute(int *value, int what, int device);
API cuDeviceGetAttribute(int *value, int what, int device) {
    switch (what) {
    case 16: /* multiprocessors */
        *value = 8;
        return SUCCESS;
    case 1: /* threads of a block */
    case 2: /* and in x, y, z */
    case 3:
        *value = 1024;
        return SUCCESS;
    case 4:
        *value = 64;
        return SUCCESS;
    case 5: /* blocks in x, y, z */
        *value = 2147483647;
        return SUCCESS;
    case 6:
    case 7:
        *value = 65535;
        return SUCCESS;
    case 8:
        *value = SHIM_SHARED_BYTES;
        return SUCCESS;
    case 10:
        *value = 32;
        return SUCCESS;
    case 75:
        *value = capabilities[visible[device]] / 10;
        return SUCCESS;
    case 76:
        *value = capabilities[visible[device]] % 10;
        return SUCCESS;
    default:
        return INVALID_VALUE;
    }
}

API cuDeviceTotalMem_v2(size_t *nbytes, int device);
API cuDeviceTotalMem_v2(size_t *nbytes, int device) {
    (void)device;
    *nbytes = (size_t)8 << 30;
    return SUCCESS;
}

API cuDevicePrimaryCtxRetain(void **context, int device);
API cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &contexts[device];
    return SUCCESS;
}

API cuDevicePrimaryCtxRelease_v2(int device);
API cuDevicePrimaryCtxRelease_v2(int device) {
    return device >= 0 && device < DEVICES ? SUCCESS : INVALID_DEVICE;
}

API cuCtxPushCurrent_v2(void *context);
API cuCtxPushCurrent_v2(void *context) {
    if (depth == MOST_CONTEXTS) {
        shim_fail("contexts are made current and never left");
    }
    stack[depth++] = context;
    return SUCCESS;
}

API cuCtxPopCurrent_v2(void **context);
API cuCtxPopCurrent_v2(void **context) {
    NEEDS_CONTEXT;
    *context = stack[--depth];
    return SUCCESS;
}

API cuCtxGetDevice(int *device);
API cuCtxGetDevice(int *device) {
    NEEDS_CONTEXT;
    *device = (int)((char *)stack[depth - 1] - contexts);
    return SUCCESS;
}

/* What the driver shares with NVIDIA's own libraries, of which NVRTC asks for some: there is nothing. */
API cuGetExportTable(const void **table, const void *id);
API cuGetExportTable(const void **table, const void *id) {
    (void)id;
    *table = NULL;
    return NOT_FOUND;
}

/* ---- Images ---- */

static int is_cubin(const unsigned char *image) {
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    return memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_machine == CUBIN_MACHINE;
}

API cuModuleLoadData(module **made, const void *image);
API cuModuleLoadData(module **made, const void *image) {
    NEEDS_CONTEXT;
    int ptx = strncmp(image, "//", 2) == 0 || strncmp(image, ".version", 8) == 0;
    if (!ptx && !is_cubin(image)) {
        return NO_BINARY_FOR_GPU;
    }
    *made = calloc(1, sizeof **made);
    if (*made == NULL) {
        return OUT_OF_MEMORY;
    }
    (*made)->image = image;
    (*made)->ptx = ptx;
    return SUCCESS;
}

API cuModuleUnload(module *old);
API cuModuleUnload(module *old) {
    NEEDS_CONTEXT;
    free(old);
    return SUCCESS;
}

static int cubin_has(const unsigned char *image, const char *name) {
    Elf64_Ehdr header;
    Elf64_Shdr section;
    Elf64_Shdr names;
    memcpy(&header, image, sizeof header);
    memcpy(&names, image + header.e_shoff + (size_t)header.e_shstrndx * sizeof names, sizeof names);
    for (int i = 0; i < header.e_shnum; i++) {
        memcpy(&section, image + header.e_shoff + (size_t)i * sizeof section, sizeof section);
        const char *own = (const char *)image + names.sh_offset + section.sh_name;
        if (strncmp(own, ".text.", 6) == 0 && strcmp(own + 6, name) == 0) {
            return section.sh_size > 0;
        }
    }
    return 0;
}

static int ptx_has(const char *text, const char *name) {
    size_t length = strlen(name);
    for (const char *at = strstr(text, ".entry "); at != NULL; at = strstr(at + 1, ".entry ")) {
        if (strncmp(at + 7, name, length) == 0 && strchr(" (\n", at[7 + length]) != NULL) {
            return 1;
        }
    }
    return 0;
}

API cuModuleGetFunction(const shim_kernel **function, module *of, const char *name);
API cuModuleGetFunction(const shim_kernel **function, module *of, const char *name) {
    NEEDS_CONTEXT;
    *function = shim_find(name);
    if (!(of->ptx ? ptx_has((const char *)of->image, name) : cubin_has(of->image, name))) {
        fprintf(stderr, SHIM_NAME ": the image has no kernel %s\n", name);
        return NOT_FOUND;
    }
    if (*function == NULL) {
        fprintf(stderr, SHIM_NAME ": the CUDA C has no kernel %s\n", name);
    }
    return *function != NULL ? SUCCESS : NOT_FOUND;
}

API cuFuncGetAttribute(int *value, int what, const shim_kernel *function);
API cuFuncGetAttribute(int *value, int what, const shim_kernel *function) {
    NEEDS_CONTEXT;
    *value = (int)(function->threads[0] * function->threads[1] * function->threads[2]);
    return what == 0 ? SUCCESS : INVALID_VALUE;
}

/* ---- Memory ---- */

API cuMemAlloc_v2(uint64_t *address, size_t nbytes);
API cuMemAlloc_v2(uint64_t *address, size_t nbytes) {
    NEEDS_CONTEXT;
    if (nbytes == 0) {
        return INVALID_VALUE;
    }
    pthread_mutex_lock(&mutex);
    *address = shim_allocate(nbytes);
    pthread_mutex_unlock(&mutex);
    return *address != 0 ? SUCCESS : OUT_OF_MEMORY;
}

API cuMemFree_v2(uint64_t address);
API cuMemFree_v2(uint64_t address) {
    NEEDS_CONTEXT;
    pthread_mutex_lock(&mutex);
    int done = shim_free(address);
    pthread_mutex_unlock(&mutex);
    return done ? SUCCESS : INVALID_VALUE;
}

static command *append(list *to) {
    command *made = calloc(1, sizeof *made);
    if (made == NULL) {
        shim_fail("there is no memory for commands");
    }
    *to->end = made;
    to->end = &made->next;
    return made;
}

static void check_inside(uint64_t address, size_t nbytes) {
    pthread_mutex_lock(&mutex);
    int inside = shim_inside(address, nbytes);
    pthread_mutex_unlock(&mutex);
    if (!inside) {
        shim_fail("a copy of %zu bytes is not within an allocation", nbytes);
    }
}

API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t nbytes, list *stream);
API cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t nbytes, list *stream) {
    NEEDS_CONTEXT;
    check_inside(to, nbytes);
    command *made = append(stream);
    made->data = malloc(nbytes != 0 ? nbytes : 1);
    if (made->data == NULL) {
        shim_fail("there is no memory for commands");
    }
    memcpy(made->data, from, nbytes);
    made->from = made->data;
    made->to = (void *)(uintptr_t)to;
    made->nbytes = nbytes;
    return SUCCESS;
}

API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t nbytes, list *stream);
API cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t nbytes, list *stream) {
    NEEDS_CONTEXT;
    check_inside(from, nbytes);
    command *made = append(stream);
    made->from = (const void *)(uintptr_t)from;
    made->to = to;
    made->nbytes = nbytes;
    return SUCCESS;
}

API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t nbytes, list *stream);
API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t nbytes, list *stream) {
    check_inside(to, nbytes);
    return cuMemcpyDtoHAsync_v2((void *)(uintptr_t)to, from, nbytes, stream);
}

API cuMemGetAddressRange_v2(uint64_t *start, size_t *nbytes, uint64_t address);
API cuMemGetAddressRange_v2(uint64_t *start, size_t *nbytes, uint64_t address) {
    NEEDS_CONTEXT;
    pthread_mutex_lock(&mutex);
    int found = shim_range(address, start, nbytes);
    pthread_mutex_unlock(&mutex);
    return found ? SUCCESS : NOT_FOUND;
}

/* All memory is that of the context's device. */
API cuPointerGetAttribute(void *value, int what, uint64_t address);
API cuPointerGetAttribute(void *value, int what, uint64_t address) {
    uint64_t start = 0;
    size_t nbytes = 0;
    if (cuMemGetAddressRange_v2(&start, &nbytes, address) != SUCCESS) {
        return INVALID_VALUE;
    }
    switch (what) {
    case MEMORY_TYPE:
        *(unsigned *)value = DEVICE_MEMORY;
        return SUCCESS;
    case DEVICE_ORDINAL:
        return cuCtxGetDevice(value);
    default:
        return INVALID_VALUE;
    }
}

/* ---- Streams and graphs: lists of commands ---- */

static void run_all(const list *of) {
    pthread_mutex_lock(&mutex);
    for (const command *next = of->first; next != NULL; next = next->next) {
        if (next->launch.kernel != NULL) {
            shim_run(&next->launch);
        } else {
            memcpy(next->to, next->from, next->nbytes);
        }
    }
    pthread_mutex_unlock(&mutex);
}

static void clear(list *old) {
    for (command *next = old->first; next != NULL;) {
        command *one = next;
        next = one->next;
        free(one->data);
        free(one);
    }
    old->first = NULL;
    old->end = &old->first;
}

static list *make_list(void) {
    list *made = calloc(1, sizeof *made);
    if (made != NULL) {
        made->end = &made->first;
    }
    return made;
}

API cuStreamCreate(list **stream, unsigned flags);
API cuStreamCreate(list **stream, unsigned flags) {
    NEEDS_CONTEXT;
    *stream = make_list();
    if (*stream != NULL) {
        (*stream)->context = stack[depth - 1];
    }
    return *stream == NULL ? OUT_OF_MEMORY : flags <= 1 ? SUCCESS : INVALID_VALUE;
}

API cuStreamGetCtx(const list *stream, void **context);
API cuStreamGetCtx(const list *stream, void **context) {
    *context = stream->context;
    return SUCCESS;
}

API cuStreamDestroy_v2(list *stream);
API cuStreamDestroy_v2(list *stream) {
    NEEDS_CONTEXT;
    run_all(stream);
    clear(stream);
    free(stream);
    return SUCCESS;
}

API cuStreamSynchronize(list *stream);
API cuStreamSynchronize(list *stream) {
    NEEDS_CONTEXT;
    if (stream->capturing) {
        shim_fail("a stream is waited for while a graph is captured");
    }
    run_all(stream);
    clear(stream);
    return SUCCESS;
}

/* What was given to a stream is done when somebody asks. */
API cuStreamQuery(list *stream);
API cuStreamQuery(list *stream) {
    return cuStreamSynchronize(stream);
}

static void check_launch(const shim_launch *launch) {
    const uint32_t *grid = launch->grid;
    const uint32_t *block = launch->block;
    const shim_kernel *kernel = launch->kernel;
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > 2147483647u || grid[1] > 65535 ||
        grid[2] > 65535) {
        shim_fail("%s: a grid of %u x %u x %u blocks cannot be launched", kernel->name, grid[0], grid[1],
                  grid[2]);
    }
    if (memcmp(block, kernel->threads, sizeof kernel->threads) != 0) {
        shim_fail("%s: launched with blocks of %u x %u x %u threads, written for others", kernel->name,
                  block[0], block[1], block[2]);
    }
    if (block[0] == 0 || block[1] == 0 || block[2] == 0 || block[2] > 64 ||
        (uint64_t)block[0] * block[1] * block[2] > SHIM_MAX_THREADS) {
        shim_fail("%s: blocks of %u x %u x %u threads cannot be launched", kernel->name, block[0], block[1],
                  block[2]);
    }
    if (kernel->arguments > SHIM_ARGUMENTS) {
        shim_fail("%s: it has more arguments than the shim can hold", kernel->name);
    }
}

API cuLaunchKernel(const shim_kernel *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, list *stream,
                   void **arguments, void **extra);
API cuLaunchKernel(const shim_kernel *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, list *stream,
                   void **arguments, void **extra) {
    NEEDS_CONTEXT;
    if (shared_bytes != 0 || extra != NULL || stream == NULL) {
        return INVALID_VALUE;
    }
    shim_launch launch = {function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {0}};
    check_launch(&launch);
    for (uint32_t i = 0; i < function->arguments; i++) {
        memcpy(&launch.arguments[i], arguments[i], sizeof launch.arguments[i]);
    }
    append(stream)->launch = launch;
    return SUCCESS;
}

API cuStreamBeginCapture_v2(list *stream, int mode);
API cuStreamBeginCapture_v2(list *stream, int mode) {
    NEEDS_CONTEXT;
    run_all(stream);
    clear(stream);
    stream->capturing = 1;
    return mode >= 0 && mode <= 2 ? SUCCESS : INVALID_VALUE;
}

API cuStreamEndCapture(list *stream, list **graph);
API cuStreamEndCapture(list *stream, list **graph) {
    NEEDS_CONTEXT;
    *graph = make_list();
    if (*graph == NULL || !stream->capturing) {
        return INVALID_VALUE;
    }
    for (const command *next = stream->first; next != NULL; next = next->next) {
        append(*graph)->launch = next->launch;
    }
    clear(stream);
    stream->capturing = 0;
    return SUCCESS;
}

API cuGraphInstantiateWithFlags(list **made, const list *graph, uint64_t flags);
API cuGraphInstantiateWithFlags(list **made, const list *graph, uint64_t flags) {
    NEEDS_CONTEXT;
    *made = make_list();
    if (*made == NULL || flags != 0) {
        return INVALID_VALUE;
    }
    for (const command *next = graph->first; next != NULL; next = next->next) {
        append(*made)->launch = next->launch;
    }
    return SUCCESS;
}

API cuGraphUpload(const list *graph, const list *stream);
API cuGraphUpload(const list *graph, const list *stream) {
    NEEDS_CONTEXT;
    return graph != NULL && stream != NULL ? SUCCESS : INVALID_HANDLE;
}

API cuGraphLaunch(const list *graph, list *stream);
API cuGraphLaunch(const list *graph, list *stream) {
    NEEDS_CONTEXT;
    for (const command *next = graph->first; next != NULL; next = next->next) {
        append(stream)->launch = next->launch;
    }
    return SUCCESS;
}

API cuGraphDestroy(list *graph);
API cuGraphDestroy(list *graph) {
    NEEDS_CONTEXT;
    clear(graph);
    free(graph);
    return SUCCESS;
}

API cuGraphExecDestroy(list *graph);
API cuGraphExecDestroy(list *graph) {
    return cuGraphDestroy(graph);
}
