/* A driver of OpenCL that a test can ask to fail, in the place of libOpenCL.so.1. Its kernels, those of
 * gpu_model.h, are C. It is as strict as a driver may be: what is enqueued is done when it is waited for, new
 * memory holds no numbers, and whoever breaks a rule of the specification is told so by abort(). */
#include "fake_opencl.h"
#include "fake_opencl_api.h"

enum { SUCCESS = 0, NOT_FOUND = -1, OUT_OF_RESOURCES = -5, INVALID_VALUE = -30, NO_PLATFORM = -1001 };
enum { CONTEXT = 0x1c0, QUEUE, PROGRAM, KERNEL, BUFFER, EVENT };

/* What gpu_model.h needs, and not a byte more. */
#define DEVICE(id) \
    {.name = id, \
     .gpu = 1, \
     .available = 1, \
     .compiler = 1, \
     .little_endian = 1, \
     .align_bits = 4096, \
     .local_bytes = 128, \
     .most_bytes = 13888, \
     .total_bytes = 20000, \
     .group = 64, \
     .kernel_group = {32, 32, 64}, \
     .items = {64, 4, 1}}

__attribute__((visibility("default"))) extern fake_cl_control fake_cl;
fake_cl_control fake_cl = {
    .version = "1", .driver = "1", .platforms = 1, .devices = 1, .device = {DEVICE("fake"), DEVICE("other")}};

static int fails(const char *function) {
    return fake_fails(&fake_cl.f, function + 2) ||
           (fake_cl.f.lost && (strstr(function, "Enqueue") != NULL || strstr(function, "Finish") != NULL));
}

#define FAIL(code) \
    do { \
        if (fails(__func__)) { \
            return code; \
        } \
    } while (0)

static object *make(int kind, object *parent, int32_t *error, const char *function) {
    object *made = NULL;
    *error = OUT_OF_RESOURCES;
    if (!fails(function)) {
        made = calloc(1, sizeof *made);
        RULE(made != NULL);
        made->kind = kind;
        made->references = 1;
        made->parent = parent;
        *error = SUCCESS;
        fake_cl.f.live++;
        if (parent != NULL) {
            parent->children++;
        }
    }
    return made;
}

static int32_t retain(object *one, int kind, const char *function) {
    RULE(one != NULL && one->kind == kind && one->references > 0);
    if (fails(function)) {
        return OUT_OF_RESOURCES;
    }
    one->references++;
    fake_cl.f.live++;
    return SUCCESS;
}

static int32_t discard(object *old, int kind) {
    fake_cl.f.entered++;
    RULE(old != NULL && old->kind == kind && old->references > 0);
    if (--old->references > 0) {
        fake_cl.f.live--;
        return SUCCESS;
    }
    RULE(old->children == 0 && old->count == 0);
    if (old->parent != NULL) {
        old->parent->children--;
    }
    if (kind == BUFFER && old->parent->kind != BUFFER) {
        free(old->data);
    }
    old->kind = 0;
    free(old);
    fake_cl.f.live--;
    return SUCCESS;
}

/* ---- Kernels ---- */

static const float *numbers(const object *buffer, size_t count) {
    RULE(buffer->nbytes >= count * sizeof(float));
    return (const float *)(const void *)buffer->data;
}

static float *results(const object *buffer, size_t count) {
    RULE(!buffer->read_only && buffer->nbytes >= count * sizeof(float));
    return (float *)(void *)buffer->data;
}

static void scale(object *const *arguments, const size_t *size) {
    RULE(size[0] == 16 && size[1] == 100 && size[2] == 1 && arguments[3] == NULL && arguments[1]->read_only);
    fake_scale(numbers(arguments[0], 1600), numbers(arguments[1], 16), numbers(arguments[2], 16),
               results(arguments[4], 1600));
}

static void total(object *const *arguments, const size_t *size) {
    RULE(size[0] == 32 && size[1] == 1 && size[2] == 1);
    fake_total(numbers(arguments[0], 1600), results(arguments[1], 1));
}

static void add_total(object *const *arguments, const size_t *size) {
    RULE(size[0] == 1600 && size[1] == 1 && size[2] == 1);
    fake_add_total(numbers(arguments[0], 1600), numbers(arguments[1], 1), results(arguments[2], 1600));
}

static const struct {
    const char *name;
    uint32_t arguments;
    void (*run)(object *const *arguments, const size_t *size);
} kernels[] = {{"scale", 5, scale}, {"total", 2, total}, {"add_total", 3, add_total}};

static void do_all(object *queue) {
    for (size_t i = 0; i < queue->count; i++) {
        const struct command *command = &queue->commands[i];
        if (command->object->kind == KERNEL) {
            size_t size[3];
            for (int d = 0; d < 3; d++) {
                size[d] = command->groups[d] * command->threads[d];
            }
            kernels[command->object->which].run(command->arguments, size);
        } else if (command->source != NULL) {
            memcpy(command->object->data + command->offset, command->source->data + command->source_offset,
                   command->nbytes);
        } else if (command->from != NULL) {
            memcpy(command->object->data + command->offset, command->from, command->nbytes);
        } else {
            memcpy(command->to, command->object->data + command->offset, command->nbytes);
        }
    }
    fake_cl.f.waiting -= (int)queue->count;
    queue->count = 0;
}

static struct command *enqueue(object *queue, object *what, int kind) {
    static const struct command none;
    RULE(queue->kind == QUEUE && what != NULL && what->kind == kind && queue->count < MOST_COMMANDS);
    queue->commands[queue->count] = none;
    fake_cl.f.waiting++;
    queue->commands[queue->count].object = what;
    return &queue->commands[queue->count++];
}

/* ---- The interface ---- */

static char platform_ids[4];

API clGetPlatformIDs(uint32_t count, void **platforms, uint32_t *found) {
    FAIL(NO_PLATFORM);
    *found = fake_cl.platforms;
    for (uint32_t i = 0; i < fake_cl.platforms && i < count; i++) {
        platforms[i] = &platform_ids[i];
    }
    return fake_cl.platforms != 0 ? SUCCESS : NO_PLATFORM;
}

static int32_t tell(const void *from, size_t size, void *value, size_t nbytes) {
    if (nbytes < size) {
        return INVALID_VALUE;
    }
    memcpy(value, from, size);
    return SUCCESS;
}

API clGetPlatformInfo(const void *platform, uint32_t what, size_t nbytes, void *value, size_t *needed) {
    FAIL(OUT_OF_RESOURCES);
    RULE(platform == &platform_ids[0] && what == 0x0901 && needed == NULL);
    return tell(fake_cl.version, strlen(fake_cl.version) + 1, value, nbytes);
}

API clGetDeviceIDs(void *platform, uint64_t type, uint32_t count, fake_device **devices, uint32_t *found) {
    FAIL(OUT_OF_RESOURCES);
    *found = 0;
    RULE(type == 0xffffffff);
    for (uint32_t i = 0; i < fake_cl.devices; i++) {
        if (platform == &platform_ids[fake_cl.device[i].platform]) {
            RULE(*found < count);
            devices[(*found)++] = &fake_cl.device[i];
        }
    }
    return *found != 0 ? SUCCESS : NOT_FOUND;
}

API clGetDeviceInfo(const fake_device *device, uint32_t what, size_t nbytes, void *value, size_t *needed) {
    uint64_t type = device->gpu ? 4 : 2;
    FAIL(OUT_OF_RESOURCES);
    RULE(needed == NULL);
#define TELL(number, from) \
    case number: \
        return tell(&(from), sizeof(from), value, nbytes)
    switch (what) {
        TELL(0x1000, type);
        TELL(0x1004, device->group);
        TELL(0x1005, device->items);
        TELL(0x1010, device->most_bytes);
        TELL(0x1019, device->align_bits);
        TELL(0x101f, device->total_bytes);
        TELL(0x1023, device->local_bytes);
        TELL(0x1026, device->little_endian);
        TELL(0x1027, device->available);
        TELL(0x1028, device->compiler);
    case 0x102b:
        return tell(device->name, strlen(device->name) + 1, value, nbytes);
    case 0x102c:
        return tell("vendor", 7, value, nbytes);
    case 0x102d:
        return tell(fake_cl.driver, strlen(fake_cl.driver) + 1, value, nbytes);
    case 0x102f:
        return tell("OpenCL 1.2", 11, value, nbytes);
    case 0x1031: {
        const void *platform = &platform_ids[device->platform];
        return tell(&platform, sizeof platform, value, nbytes);
    }
    default:
        RULE(what == 0);
    }
    return INVALID_VALUE;
}

NEW clCreateContext(const intptr_t *properties, uint32_t count, fake_device *const *devices, void *callback,
                    void *user, int32_t *error) {
    RULE(properties == NULL && count == 1 && devices[0] != NULL && callback == NULL && user == NULL);
    object *made = make(CONTEXT, NULL, error, __func__);
    if (made != NULL) {
        made->device = devices[0];
    }
    return made;
}

API clGetContextInfo(const object *context, uint32_t what, size_t nbytes, void *value, size_t *needed) {
    FAIL(OUT_OF_RESOURCES);
    RULE(what == 0x1081 && nbytes >= sizeof context->device && needed != NULL);
    if (context->kind != CONTEXT) {
        return INVALID_VALUE;
    }
    *needed = sizeof context->device;
    return tell(&context->device, sizeof context->device, value, nbytes);
}

API clRetainContext(object *context) {
    return retain(context, CONTEXT, __func__);
}

API clReleaseContext(object *context) {
    return discard(context, CONTEXT);
}

NEW clCreateCommandQueue(object *context, fake_device *device, uint64_t properties, int32_t *error) {
    RULE(context->kind == CONTEXT && device != NULL && properties <= 1);
    object *made = make(QUEUE, context, error, __func__);
    if (made != NULL) {
        made->device = device;
        made->properties = properties;
    }
    return made;
}

API clGetCommandQueueInfo(const object *queue, uint32_t what, size_t nbytes, void *value, size_t *needed) {
    FAIL(OUT_OF_RESOURCES);
    RULE(needed == NULL);
    if (queue->kind != QUEUE) {
        return INVALID_VALUE;
    }
    switch (what) {
    case 0x1090:
        return tell(&queue->parent, sizeof queue->parent, value, nbytes);
    case 0x1091:
        return tell(&queue->device, sizeof queue->device, value, nbytes);
    default:
        RULE(what == 0x1093);
    }
    return tell(&queue->properties, sizeof queue->properties, value, nbytes);
}

API clRetainCommandQueue(object *queue) {
    return retain(queue, QUEUE, __func__);
}

API clReleaseCommandQueue(object *queue) {
    return discard(queue, QUEUE);
}

NEW clCreateProgramWithSource(object *context, uint32_t count, const char **pieces, const size_t *lengths,
                              int32_t *error) {
    size_t total_bytes = 0;
    RULE(context->kind == CONTEXT && lengths == NULL && count > 0);
    for (uint32_t i = 0; i < count; i++) {
        total_bytes += strlen(pieces[i]);
    }
    RULE(total_bytes > 100);
    fake_cl.compiled++;
    return make(PROGRAM, context, error, __func__);
}

/* A driver crashes on what is no binary of its own. */
static const unsigned char binary[] = "what the driver compiled";

NEW clCreateProgramWithBinary(object *context, uint32_t count, fake_device *const *devices,
                              const size_t *lengths, const unsigned char *const *binaries, int32_t *statuses,
                              int32_t *error) {
    RULE(context->kind == CONTEXT && count == 1 && devices[0] == context->device);
    RULE(lengths[0] == sizeof binary && memcmp(binaries[0], binary, sizeof binary) == 0);
    object *made = make(PROGRAM, context, error, __func__);
    if (made != NULL) {
        made->from_binary = 1;
        statuses[0] = fake_cl.refuses ? -42 : SUCCESS;
    }
    return made;
}

API clGetProgramInfo(const object *program, uint32_t what, size_t nbytes, void *value, size_t *needed) {
    const size_t size = sizeof binary;
    unsigned char *to;
    FAIL(OUT_OF_RESOURCES);
    RULE(program->kind == PROGRAM && program->built && needed == NULL);
    if (what == 0x1163) {
        return tell(&program->parent->device, sizeof program->parent->device, value, nbytes);
    }
    if (what == 0x1165) {
        return tell(&size, sizeof size, value, nbytes);
    }
    RULE(what == 0x1166 && nbytes >= sizeof to);
    memcpy(&to, value, sizeof to);
    memcpy(to, binary, sizeof binary);
    return SUCCESS;
}

API clBuildProgram(object *program, uint32_t count, fake_device *const *devices, const char *options,
                   void *callback, void *user) {
    RULE(program->kind == PROGRAM && !program->built && count == 1 && devices[0] != NULL && options != NULL);
    RULE(callback == NULL && user == NULL);
    FAIL(OUT_OF_RESOURCES);
    program->built = 1;
    return SUCCESS;
}

API clReleaseProgram(object *program) {
    return discard(program, PROGRAM);
}

NEW clCreateKernel(object *program, const char *name, int32_t *error) {
    RULE(program->kind == PROGRAM && program->built);
    for (int i = 0; i < (int)(sizeof kernels / sizeof kernels[0]); i++) {
        if (strcmp(kernels[i].name, name) == 0) {
            object *made = make(KERNEL, program, error, __func__);
            if (made != NULL) {
                made->which = i;
            }
            return made;
        }
    }
    fake_cl.f.entered++;
    *error = INVALID_VALUE;
    return NULL;
}

API clGetKernelWorkGroupInfo(object *kernel, fake_device *device, uint32_t what, size_t nbytes, void *value,
                             size_t *needed) {
    FAIL(OUT_OF_RESOURCES);
    RULE(kernel->kind == KERNEL && what == 0x11b0 && needed == NULL);
    return tell(&device->kernel_group[kernel->which], sizeof(size_t), value, nbytes);
}

API clSetKernelArg(object *kernel, uint32_t index, size_t nbytes, const void *value) {
    FAIL(OUT_OF_RESOURCES);
    RULE(kernel->kind == KERNEL && index < kernels[kernel->which].arguments && nbytes == sizeof(object *));
    memcpy(&kernel->arguments[index], value, nbytes);
    RULE(kernel->arguments[index] == NULL || kernel->arguments[index]->kind == BUFFER);
    kernel->set |= 1u << index;
    return SUCCESS;
}

API clReleaseKernel(object *kernel) {
    return discard(kernel, KERNEL);
}

NEW clCreateBuffer(object *context, uint64_t flags, size_t nbytes, void *host, int32_t *error) {
    RULE(context->kind == CONTEXT && (flags == 1 || flags == 4) && nbytes > 0 && host == NULL);
    RULE(nbytes <= fake_cl.device[0].most_bytes);
    object *made = make(BUFFER, context, error, __func__);
    if (made != NULL) {
        made->data = malloc(nbytes);
        RULE(made->data != NULL);
        memset(made->data, 0xff, nbytes);
        made->nbytes = nbytes;
        made->read_only = flags == 4;
    }
    return made;
}

NEW clCreateSubBuffer(object *buffer, uint64_t flags, uint32_t type, const size_t *region, int32_t *error) {
    RULE(buffer->kind == BUFFER && buffer->parent->kind == CONTEXT && flags == 1 && type == 0x1220);
    RULE(region[1] > 0 && region[0] + region[1] <= buffer->nbytes);
    RULE(region[0] * 8 % fake_cl.device[0].align_bits == 0);
    object *made = make(BUFFER, buffer, error, __func__);
    if (made != NULL) {
        made->data = buffer->data + region[0];
        made->nbytes = region[1];
    }
    return made;
}

API clGetMemObjectInfo(const object *memory, uint32_t what, size_t nbytes, void *value, size_t *needed) {
    const uint32_t type = 0x10f0;
    FAIL(OUT_OF_RESOURCES);
    RULE(needed == NULL);
    if (memory->kind != BUFFER) {
        return INVALID_VALUE;
    }
    const object *whole = memory->parent->kind == BUFFER ? memory->parent : NULL;
    const object *context = whole != NULL ? whole->parent : memory->parent;
    const size_t start = whole != NULL ? (size_t)(memory->data - whole->data) : 0;
    switch (what) {
        TELL(0x1100, type);
        TELL(0x1102, memory->nbytes);
        TELL(0x1106, context);
        TELL(0x1107, whole);
        TELL(0x1108, start);
    default:
        RULE(what == 0);
    }
    return INVALID_VALUE;
}

API clReleaseMemObject(object *memory) {
    return discard(memory, BUFFER);
}

static int32_t copy(object *queue, object *memory, uint32_t blocking, size_t offset, size_t nbytes,
                    const void *from, void *to) {
    RULE(nbytes > 0 && offset + nbytes <= memory->nbytes && (from != NULL || to != NULL));
    struct command *command = enqueue(queue, memory, BUFFER);
    command->offset = offset;
    command->nbytes = nbytes;
    command->from = from;
    command->to = to;
    if (blocking) {
        do_all(queue);
    }
    return SUCCESS;
}

API clEnqueueWriteBuffer(object *queue, object *memory, uint32_t blocking, size_t offset, size_t nbytes,
                         const void *host, uint32_t count, const void *after, void *event) {
    FAIL(OUT_OF_RESOURCES);
    RULE(count == 0 && after == NULL && event == NULL);
    return copy(queue, memory, blocking, offset, nbytes, host, NULL);
}

API clEnqueueReadBuffer(object *queue, object *memory, uint32_t blocking, size_t offset, size_t nbytes,
                        void *host, uint32_t count, const void *after, void *event) {
    FAIL(OUT_OF_RESOURCES);
    RULE(count == 0 && after == NULL && event == NULL);
    return copy(queue, memory, blocking, offset, nbytes, NULL, host);
}

API clEnqueueNDRangeKernel(object *queue, object *kernel, uint32_t dimensions, const size_t *offset,
                           const size_t *global, const size_t *local, uint32_t count, const void *after,
                           void *event) {
    size_t threads = 1;
    FAIL(OUT_OF_RESOURCES);
    RULE(dimensions == 3 && offset == NULL && count == 0 && after == NULL && event == NULL);
    RULE(kernel->kind == KERNEL && kernel->set == (1u << kernels[kernel->which].arguments) - 1u);
    struct command *command = enqueue(queue, kernel, KERNEL);
    for (int d = 0; d < 3; d++) {
        RULE(local[d] > 0 && global[d] > 0 && global[d] % local[d] == 0);
        RULE(local[d] <= fake_cl.device[0].items[d]);
        threads *= local[d];
        command->threads[d] = local[d];
        command->groups[d] = global[d] / local[d];
    }
    RULE(threads <= fake_cl.device[0].kernel_group[kernel->which]);
    memcpy(command->arguments, kernel->arguments, sizeof kernel->arguments);
    return SUCCESS;
}

API clEnqueueCopyBuffer(object *queue, object *from, object *to, size_t from_offset, size_t to_offset,
                        size_t nbytes, uint32_t count, const void *after, void *event) {
    FAIL(OUT_OF_RESOURCES);
    RULE(count == 0 && after == NULL && event == NULL && nbytes > 0);
    RULE(from->kind == BUFFER && from_offset + nbytes <= from->nbytes && to_offset + nbytes <= to->nbytes);
    struct command *command = enqueue(queue, to, BUFFER);
    command->source = from;
    command->source_offset = from_offset;
    command->offset = to_offset;
    command->nbytes = nbytes;
    return SUCCESS;
}

API clEnqueueMarker(object *queue, object **event) {
    int32_t error;
    RULE(queue->kind == QUEUE);
    *event = make(EVENT, queue, &error, __func__);
    return error;
}

API clGetEventInfo(const object *event, uint32_t what, size_t nbytes, void *value, size_t *needed) {
    int32_t status = fake_late(&fake_cl.f); /* 1: it runs */
    FAIL(OUT_OF_RESOURCES);
    RULE(event->kind == EVENT && what == 0x11d3 && needed == NULL);
    if (!status) {
        do_all(event->parent);
    }
    return tell(&status, sizeof status, value, nbytes);
}

API clReleaseEvent(object *event) {
    return discard(event, EVENT);
}

/* What is given to a queue need not be begun before it is flushed. */
API clFlush(object *queue) {
    FAIL(OUT_OF_RESOURCES);
    RULE(queue->kind == QUEUE);
    fake_cl.flushes++;
    return SUCCESS;
}

#if !defined(FAKE_WITHOUT_FINISH)
/* A queue that fails has done what it was given, or some of it. */
API clFinish(object *queue) {
    int failed = fails(__func__);
    RULE(queue->kind == QUEUE);
    do_all(queue);
    return failed ? OUT_OF_RESOURCES : SUCCESS;
}
#endif
