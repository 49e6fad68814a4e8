/* A driver of CUDA that a test can ask to fail, in the place of libcuda.so.1. Its kernels, those of
 * gpu_model.h, are C. It is as strict as a driver may be: what is given to a stream is done when it is waited
 * for, new memory holds no numbers, and whoever breaks a rule of the reference is told so by abort(). With
 * FAKE_OLD it is one of CUDA 10: no graphs, and the first version of cuDevicePrimaryCtxRelease. */
#define _POSIX_C_SOURCE 200112L
#include "fake_cuda.h"

#if defined(_WIN32)
#define CALL __stdcall
#else
#define CALL
#endif

enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE = 100, NO_BINARY = 209, NOT_FOUND = 500, FAILED = 719 };
enum { MODULE = 0x1c0, STREAM, GRAPH, EXEC, MEMORY };
enum { MOST_COMMANDS = 32, MOST_ARGUMENTS = 5, MOST_BLOCKS = 16 };

/* What gpu_model.h needs, and not a byte more. */
#define DEVICE(id) \
    {.name = id, \
     .capability = 86, \
     .threads = 64, \
     .block = {64, 4, 1}, \
     .grid = {25, 25, 1}, \
     .shared_bytes = 128, \
     .kernel_threads = {32, 32, 64}, \
     .total_bytes = 13888 + 256}

__attribute__((visibility("default"))) extern fake_cu_control fake_cu;
fake_cu_control fake_cu = {.devices = 1, .device = {DEVICE("fake"), DEVICE("other")}};

typedef struct object {
    int kind;
    int *context;
    int capturing; /* stream: 1, or -1 if a launch failed */
    size_t count;
    struct command {
        int kernel; /* -1: a copy */
        const void *from;
        void *to;
        size_t nbytes;
        unsigned size[3];
        size_t arguments[MOST_ARGUMENTS];
    } commands[MOST_COMMANDS];
} object;

static struct {
    unsigned char *data;
    size_t nbytes;
} blocks[MOST_BLOCKS];

/* The primary context; and one that was made, if its device is not negative. Objects are of one of them. */
static int primary;
static int retained = -1; /* device */
static int made_context;
static int made_device = -1;
static int *stack[4]; /* fake_cu.depth of them are pushed */

static int *current(void) {
    return fake_cu.depth > 0 ? stack[fake_cu.depth - 1] : NULL;
}

#define SAME(object) ((object)->context == current())

static int fails(const char *function) {
    return fake_fails(&fake_cu.f, function + 2) || (fake_cu.f.lost && fake_cu.depth > 0);
}

#define FAIL(code) \
    do { \
        if (fails(__func__)) { \
            return code; \
        } \
    } while (0)

static object *make(int kind) {
    object *made = calloc(1, sizeof *made);
    RULE(made != NULL && current() != NULL);
    made->kind = kind;
    made->context = current();
    fake_cu.f.live++;
    return made;
}

static int discard(object *old, int kind) {
    fake_cu.f.entered++;
    RULE(old != NULL && old->kind == kind && !old->capturing && current() != NULL);
    if (kind == STREAM) {
        fake_cu.f.waiting -= (int)old->count;
    }
    old->kind = 0;
    free(old);
    fake_cu.f.live--;
    return SUCCESS;
}

/* Whether these bytes are in one piece of the device's memory. */
static int inside(size_t address, size_t nbytes) {
    for (int i = 0; i < MOST_BLOCKS; i++) {
        size_t offset = address - (size_t)blocks[i].data;
        if (blocks[i].data != NULL && offset < blocks[i].nbytes && nbytes <= blocks[i].nbytes - offset) {
            return 1;
        }
    }
    return 0;
}

/* ---- Kernels ---- */

static float *numbers(size_t address, size_t count) {
    RULE(address % 256 == 0 && inside(address, count * sizeof(float)));
    return (float *)address;
}

static void scale(const size_t *arguments, const unsigned *size) {
    RULE(size[0] == 16 && size[1] == 100 && size[2] == 1 && arguments[3] == 0);
    fake_scale(numbers(arguments[0], 1600), numbers(arguments[1], 16), numbers(arguments[2], 16),
               numbers(arguments[4], 1600));
}

static void total(const size_t *arguments, const unsigned *size) {
    RULE(size[0] == 32 && size[1] == 1 && size[2] == 1);
    fake_total(numbers(arguments[0], 1600), numbers(arguments[1], 1));
}

static void add_total(const size_t *arguments, const unsigned *size) {
    RULE(size[0] == 1600 && size[1] == 1 && size[2] == 1);
    fake_add_total(numbers(arguments[0], 1600), numbers(arguments[1], 1), numbers(arguments[2], 1600));
}

static const struct kernel {
    const char *name;
    int arguments;
    void (*run)(const size_t *arguments, const unsigned *size);
} kernels[] = {{"scale", 5, scale}, {"total", 2, total}, {"add_total", 3, add_total}};

static void do_all(object *stream) {
    for (size_t i = 0; i < stream->count; i++) {
        const struct command *command = &stream->commands[i];
        if (command->kernel >= 0) {
            kernels[command->kernel].run(command->arguments, command->size);
            fake_cu.f.launches++;
        } else {
            memcpy(command->to, command->from, command->nbytes);
        }
    }
    fake_cu.f.waiting -= (int)stream->count;
    stream->count = 0;
}

static struct command *append(object *to) {
    RULE(to->count < MOST_COMMANDS);
    if (to->kind == STREAM && !to->capturing) {
        fake_cu.f.waiting++;
    }
    return &to->commands[to->count++];
}

/* ---- The interface ---- */

#define API __attribute__((visibility("default"))) int CALL

API cuCtxCreate_v2(int **made, unsigned flags, int device);
API cuCtxDestroy_v2(int *which);
API cuStreamQuery(object *stream);
API cuCtxGetDevice(int *device);
API cuStreamGetCtx(const object *stream, int **which);
API cuPointerGetAttribute(void *value, int what, size_t address);
API cuMemGetAddressRange_v2(size_t *start, size_t *nbytes, size_t address);
API cuMemcpyDtoDAsync_v2(size_t to, size_t from, size_t nbytes, object *stream);

API cuInit(unsigned flags);
API cuDeviceGetCount(int *count);
API cuDeviceGet(int *device, int ordinal);
API cuDeviceGetName(char *name, int nbytes, int device);
API cuDeviceGetAttribute(int *value, int what, int device);
API cuDeviceTotalMem_v2(size_t *nbytes, int device);
API cuDevicePrimaryCtxRetain(int **made, int device);
API cuDevicePrimaryCtxRelease(int device);
API cuDevicePrimaryCtxRelease_v2(int device);
API cuCtxPushCurrent_v2(int *which);
API cuCtxPopCurrent_v2(int **which);
API cuModuleLoadData(object **made, const char *image);
API cuModuleUnload(object *module);
API cuModuleGetFunction(const struct kernel **function, object *module, const char *name);
API cuFuncGetAttribute(int *value, int what, const struct kernel *function);
API cuMemAlloc_v2(size_t *address, size_t nbytes);
API cuMemFree_v2(size_t address);
API cuMemcpyHtoDAsync_v2(size_t to, const void *from, size_t nbytes, object *stream);
API cuMemcpyDtoHAsync_v2(void *to, size_t from, size_t nbytes, object *stream);
API cuStreamCreate(object **made, unsigned flags);
API cuStreamDestroy_v2(object *stream);
API cuStreamSynchronize(object *stream);
API cuLaunchKernel(const struct kernel *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   object *stream, void **arguments, void **extra);
API cuStreamBeginCapture_v2(object *stream, int mode);
API cuStreamEndCapture(object *stream, object **graph);
API cuGraphInstantiateWithFlags(object **made, const object *graph, uint64_t flags);
API cuGraphUpload(const object *graph, const object *stream);
API cuGraphLaunch(const object *graph, object *stream);
API cuGraphDestroy(object *graph);
API cuGraphExecDestroy(object *graph);

API cuInit(unsigned flags) {
    FAIL(FAILED);
    RULE(flags == 0);
    return fake_cu.init;
}

API cuDeviceGetCount(int *count) {
    FAIL(FAILED);
    *count = fake_cu.devices;
    return SUCCESS;
}

API cuDeviceGet(int *device, int ordinal) {
    FAIL(FAILED);
    RULE(ordinal >= 0 && ordinal < fake_cu.devices);
    *device = ordinal;
    return SUCCESS;
}

API cuDeviceGetName(char *name, int nbytes, int device) {
    FAIL(FAILED);
    snprintf(name, (size_t)nbytes, "%s", fake_cu.device[device].name);
    return SUCCESS;
}

API cuDeviceGetAttribute(int *value, int what, int device) {
    const fake_gpu *gpu = &fake_cu.device[device];
    FAIL(FAILED);
    if (what >= 2 && what <= 4) {
        *value = gpu->block[what - 2];
    } else if (what >= 5 && what <= 7) {
        *value = gpu->grid[what - 5];
    } else {
        RULE(what == 1 || what == 8 || what == 75 || what == 76);
        *value = what == 1    ? gpu->threads
                 : what == 8  ? gpu->shared_bytes
                 : what == 75 ? gpu->capability / 10
                              : gpu->capability % 10;
    }
    return SUCCESS;
}

API cuDeviceTotalMem_v2(size_t *nbytes, int device) {
    FAIL(FAILED);
    *nbytes = fake_cu.device[device].total_bytes;
    return SUCCESS;
}

API cuDevicePrimaryCtxRetain(int **made, int device) {
    FAIL(FAILED);
    RULE(retained < 0);
    *made = &primary;
    retained = device;
    fake_cu.f.live++;
    return SUCCESS;
}

#if defined(FAKE_OLD)
#define RELEASE cuDevicePrimaryCtxRelease
#else
#define RELEASE cuDevicePrimaryCtxRelease_v2
#endif

API RELEASE(int device) {
    fake_cu.f.entered++;
    RULE(device == retained && current() != &primary && fake_cu.f.live == 1 + fake_cu.callers);
    retained = -1;
    fake_cu.f.live--;
    return SUCCESS;
}

API cuCtxPushCurrent_v2(int *which) {
    FAIL(FAILED);
    RULE(fake_cu.depth < 4);
    if (!(which == &primary && retained >= 0) && !(which == &made_context && made_device >= 0)) {
        return 201;
    }
    stack[fake_cu.depth++] = which;
    return SUCCESS;
}

API cuCtxPopCurrent_v2(int **which) {
    fake_cu.f.entered++;
    RULE(current() != NULL);
    *which = stack[--fake_cu.depth];
    return SUCCESS;
}

/* Makes it current too. */
API cuCtxCreate_v2(int **made, unsigned flags, int device) {
    RULE(flags == 0 && made_device < 0 && fake_cu.depth < 4);
    made_device = device;
    *made = &made_context;
    stack[fake_cu.depth++] = &made_context;
    return SUCCESS;
}

API cuCtxDestroy_v2(int *which) {
    RULE(which == &made_context && made_device >= 0 && current() != which);
    made_device = -1;
    return SUCCESS;
}

static int device_of_current(void) {
    RULE(current() != NULL);
    return current() == &primary ? retained : made_device;
}

API cuCtxGetDevice(int *device) {
    FAIL(FAILED);
    *device = device_of_current();
    return SUCCESS;
}

/* Images are texts: "cubin 75", "ptx 50". */
API cuModuleLoadData(object **made, const char *image) {
    FAIL(NO_BINARY);
    int cubin = strncmp(image, "cubin ", 6) == 0;
    int capability = atoi(strchr(image, ' ') + 1);
    int own = fake_cu.device[device_of_current()].capability;
    RULE((cubin || strncmp(image, "ptx ", 4) == 0) && capability <= own);
    RULE(!cubin || capability / 10 == own / 10);
    if ((cubin && fake_cu.refused_cubins) ||
        (fake_cu.refused_from != 0 && capability >= fake_cu.refused_from)) {
        return NO_BINARY;
    }
    snprintf(fake_cu.loaded, sizeof fake_cu.loaded, "%s", image);
    *made = make(MODULE);
    return SUCCESS;
}

API cuModuleUnload(object *module) {
    return discard(module, MODULE);
}

API cuModuleGetFunction(const struct kernel **function, object *module, const char *name) {
    FAIL(NOT_FOUND);
    RULE(module->kind == MODULE && current() != NULL);
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (strcmp(kernels[i].name, name) == 0) {
            *function = &kernels[i];
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

API cuFuncGetAttribute(int *value, int what, const struct kernel *function) {
    FAIL(FAILED);
    RULE(what == 0 && current() != NULL);
    *value = fake_cu.device[device_of_current()].kernel_threads[function - kernels];
    return SUCCESS;
}

API cuMemAlloc_v2(size_t *address, size_t nbytes) {
    FAIL(2);
    RULE(nbytes > 0 && current() != NULL);
    for (int i = 0; i < MOST_BLOCKS; i++) {
        if (blocks[i].data == NULL) {
            void *memory = NULL;
            RULE(posix_memalign(&memory, 512, nbytes) == 0);
            blocks[i].data = memory;
            memset(blocks[i].data, 0xff, nbytes);
            blocks[i].nbytes = nbytes;
            *address = (size_t)blocks[i].data;
            fake_cu.f.live++;
            return SUCCESS;
        }
    }
    return 2;
}

API cuMemFree_v2(size_t address) {
    fake_cu.f.entered++;
    for (int i = 0; i < MOST_BLOCKS; i++) {
        if (address != 0 && (size_t)blocks[i].data == address) {
            free(blocks[i].data);
            blocks[i].data = NULL;
            fake_cu.f.live--;
            return fake_cu.f.lost ? FAILED : SUCCESS;
        }
    }
    RULE(address == 0);
    return INVALID_VALUE;
}

static int block_of(size_t address) {
    for (int i = 0; i < MOST_BLOCKS; i++) {
        size_t offset = address - (size_t)blocks[i].data;
        if (blocks[i].data != NULL && offset < blocks[i].nbytes) {
            return i;
        }
    }
    return -1;
}

API cuPointerGetAttribute(void *value, int what, size_t address) {
    int block = block_of(address);
    FAIL(FAILED);
    RULE(current() != NULL && (what == 2 || what == 9));
    if (block < 0) {
        return INVALID_VALUE;
    }
    int type = fake_cu.host_memory ? 1 : 2;
    int device = fake_cu.other_device ? 1 - device_of_current() : device_of_current();
    memcpy(value, what == 2 ? &type : &device, sizeof type);
    return SUCCESS;
}

API cuMemGetAddressRange_v2(size_t *start, size_t *nbytes, size_t address) {
    int block = block_of(address);
    FAIL(FAILED);
    RULE(current() != NULL);
    if (block < 0) {
        return INVALID_VALUE;
    }
    *start = (size_t)blocks[block].data;
    *nbytes = blocks[block].nbytes;
    return SUCCESS;
}

static int copy(object *stream, void *to, const void *from, size_t nbytes) {
    static const struct command none = {.kernel = -1};
    RULE(stream->kind == STREAM && !stream->capturing && SAME(stream) && nbytes > 0);
    struct command *command = append(stream);
    *command = none;
    command->to = to;
    command->from = from;
    command->nbytes = nbytes;
    return SUCCESS;
}

API cuMemcpyHtoDAsync_v2(size_t to, const void *from, size_t nbytes, object *stream) {
    FAIL(FAILED);
    RULE(inside(to, nbytes));
    return copy(stream, (void *)to, from, nbytes);
}

API cuMemcpyDtoHAsync_v2(void *to, size_t from, size_t nbytes, object *stream) {
    FAIL(FAILED);
    RULE(inside(from, nbytes));
    return copy(stream, to, (const void *)from, nbytes);
}

API cuMemcpyDtoDAsync_v2(size_t to, size_t from, size_t nbytes, object *stream) {
    FAIL(FAILED);
    RULE(inside(to, nbytes) && inside(from, nbytes));
    return copy(stream, (void *)to, (const void *)from, nbytes);
}

API cuStreamGetCtx(const object *stream, int **which) {
    FAIL(FAILED);
    RULE(stream->kind == STREAM && current() != NULL);
    *which = stream->context;
    return SUCCESS;
}

API cuStreamCreate(object **made, unsigned flags) {
    FAIL(2);
    RULE(flags == 1);
    *made = make(STREAM);
    return SUCCESS;
}

API cuStreamDestroy_v2(object *stream) {
    return discard(stream, STREAM);
}

/* A stream that fails has done what it was given, or some of it. */
API cuStreamSynchronize(object *stream) {
    int failed = fails(__func__);
    RULE(stream->kind == STREAM && !stream->capturing && current() != NULL);
    do_all(stream);
    return failed ? FAILED : SUCCESS;
}

API cuStreamQuery(object *stream) {
    FAIL(FAILED);
    RULE(stream->kind == STREAM && !stream->capturing && SAME(stream));
    if (fake_late(&fake_cu.f)) {
        return 600;
    }
    do_all(stream);
    return SUCCESS;
}

API cuLaunchKernel(const struct kernel *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   object *stream, void **arguments, void **extra) {
    static const struct command none;
    const unsigned size[3] = {grid_x * block_x, grid_y * block_y, grid_z * block_z};
    if (fails(__func__)) {
        stream->capturing = stream->capturing ? -1 : 0;
        return FAILED;
    }
    RULE(stream->kind == STREAM && SAME(stream) && shared_bytes == 0 && extra == NULL);
    RULE(size[0] > 0 && size[1] > 0 && size[2] > 0);
    RULE((int)(block_x * block_y * block_z) <=
         fake_cu.device[device_of_current()].kernel_threads[function - kernels]);
    struct command *command = append(stream);
    *command = none;
    command->kernel = (int)(function - kernels);
    memcpy(command->size, size, sizeof size);
    for (int i = 0; i < function->arguments; i++) {
        memcpy(&command->arguments[i], arguments[i], sizeof command->arguments[i]);
    }
    return SUCCESS;
}

#if !defined(FAKE_OLD)
API cuStreamBeginCapture_v2(object *stream, int mode) {
    FAIL(FAILED);
    RULE(stream->kind == STREAM && !stream->capturing && stream->count == 0 && mode == 1);
    stream->capturing = 1;
    return SUCCESS;
}

API cuStreamEndCapture(object *stream, object **graph) {
    int failed = fails(__func__) || stream->capturing < 0;
    RULE(stream->kind == STREAM && stream->capturing);
    *graph = NULL;
    if (!failed) {
        *graph = make(GRAPH);
        memcpy((*graph)->commands, stream->commands, sizeof stream->commands);
        (*graph)->count = stream->count;
    }
    stream->count = 0;
    stream->capturing = 0;
    return failed ? 901 : SUCCESS;
}

API cuGraphInstantiateWithFlags(object **made, const object *graph, uint64_t flags) {
    FAIL(2);
    RULE(graph->kind == GRAPH && flags == 0 && graph->count > 1);
    *made = make(EXEC);
    memcpy((*made)->commands, graph->commands, sizeof graph->commands);
    (*made)->count = graph->count;
    return SUCCESS;
}

API cuGraphUpload(const object *graph, const object *stream) {
    FAIL(2);
    RULE(graph->kind == EXEC && stream->kind == STREAM && SAME(stream));
    return SUCCESS;
}

API cuGraphLaunch(const object *graph, object *stream) {
    FAIL(FAILED);
    RULE(graph->kind == EXEC && stream->kind == STREAM && SAME(stream));
    for (size_t i = 0; i < graph->count; i++) {
        *append(stream) = graph->commands[i];
    }
    fake_cu.graphs++;
    return SUCCESS;
}

API cuGraphDestroy(object *graph) {
    return discard(graph, GRAPH);
}

API cuGraphExecDestroy(object *graph) {
    return discard(graph, EXEC);
}
#endif
