/* Metal: the frameworks, the device, the kernels and constants of a model.
 *
 * Objective-C without its compiler: every message is a call of objc_msgSend as a function of the message's
 * type. GPUs of Apple's share the CPU's memory: a mapped params file is a buffer as it is.
 * What a session has is in metal_session.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

enum { EP_MTL_ALIGNMENT = 256 };

typedef struct ep_metal_model {
    ep_gpu_model head;
    void *libraries[4]; /* Objective-C's runtime, Metal, CoreGraphics, the system's */
    ep_mtl_id device;
    ep_mtl_id queue;
    ep_mtl_id library;
    ep_mtl_id constants;
    ep_mtl_id *pipelines; /* one for each kernel */
    size_t before; /* bytes in the buffer before the params; SIZE_MAX: constants lie one behind the other */
    ep_mtl_id (*create_device)(void);
#define X(type, name, parameters) type(*name) parameters;
    EP_MTL_RUNTIME_FUNCTIONS(X)
#undef X
#define X(type, name, text, parameters) \
    struct { \
        type(*send) parameters; \
        ep_mtl_selector selector; \
    } name;
    EP_MTL_MESSAGES(X)
#undef X
} ep_metal_model;

static ep_status ep_metal_load_runtime(ep_metal_model *mt) {
    mt->libraries[0] = ep_platform_library_open("/usr/lib/libobjc.A.dylib");
    if (mt->libraries[0] == NULL) {
        return EP_E_GPU_DRIVER;
    }
#define X(type, name, parameters) \
    mt->name = (type(*) parameters)ep_platform_library_symbol(mt->libraries[0], #name); \
    if (mt->name == NULL) { \
        return EP_E_GPU_DRIVER; \
    }
    EP_MTL_RUNTIME_FUNCTIONS(X)
#undef X
    void (*send)(void) = ep_platform_library_symbol(mt->libraries[0], "objc_msgSend");
    if (send == NULL) {
        return EP_E_GPU_DRIVER;
    }
#define X(type, name, text, parameters) \
    mt->name.send = (type(*) parameters)send; \
    mt->name.selector = mt->sel_registerName(text);
    EP_MTL_MESSAGES(X)
#undef X
    return EP_OK;
}

/* On macOS a program that does not link to CoreGraphics may have no default device before it is loaded. */
static ep_status ep_metal_load(ep_metal_model *mt) {
    ep_status status = ep_metal_load_runtime(mt);
    if (status != EP_OK) {
        return status;
    }
    mt->libraries[1] = ep_platform_library_open("/System/Library/Frameworks/Metal.framework/Metal");
    if (mt->libraries[1] == NULL) {
        return EP_E_GPU_DRIVER;
    }
    mt->libraries[2] =
        ep_platform_library_open("/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics");
    mt->create_device =
        (ep_mtl_id (*)(void))ep_platform_library_symbol(mt->libraries[1], "MTLCreateSystemDefaultDevice");
    return mt->create_device != NULL ? EP_OK : EP_E_GPU_DRIVER;
}

static void ep_metal_release(const ep_metal_model *mt, ep_mtl_id object) {
    if (object != NULL) {
        EP_MTL(mt, release, object);
    }
}

/* Bytes of a constant and of what is left free behind it; 0 for what is in the arena. */
static uint64_t ep_metal_constant_bytes(const ep_gpu_place *place) {
    return place->memory != EP_GPU_PARAMS
               ? 0
               : (place->nbytes + EP_MTL_ALIGNMENT - 1) & ~(uint64_t)(EP_MTL_ALIGNMENT - 1);
}

static uint64_t ep_metal_constants_bytes(const ep_gpu_program *program) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < program->place_count; i++) {
        total += ep_metal_constant_bytes(&program->places[i]);
    }
    return total;
}

/* Systems before iOS 16 do not tell how much a process can have. */
static int ep_metal_fits(const ep_metal_model *mt) {
    const ep_descriptor *descriptor = mt->head.descriptor;
    const ep_gpu_program *program = descriptor->gpu;
    uint64_t constants = ep_metal_constants_bytes(program);
    uint64_t largest = constants < program->arena_bytes ? program->arena_bytes : constants;
    for (uint32_t i = 0; i < descriptor->step_count; i++) {
        if (program->steps[i].kind == EP_STEP_LAUNCH && program->steps[i].count > EP_MTL_BUFFERS) {
            return 0;
        }
    }
    if (program->family != 0 &&
        !EP_MTL_WITH(mt, supports_family, mt->device, EP_MTL_FAMILY_APPLE + (ep_mtl_number)program->family)) {
        return 0;
    }
    if (EP_MTL_WITH(mt, responds, mt->device, mt->working_set.selector) &&
        EP_MTL(mt, working_set, mt->device) < constants + program->arena_bytes) {
        return 0;
    }
    return EP_MTL(mt, most_shared, mt->device) >= program->local_bytes &&
           EP_MTL(mt, most_buffer, mt->device) >= largest;
}

/* The caller's device, or the system's. */
static ep_status ep_metal_find(ep_metal_model *mt, ep_mtl_id device) {
    mt->device = device != NULL ? EP_MTL(mt, retain, device) : mt->create_device();
    if (mt->device == NULL || !ep_metal_fits(mt)) {
        return EP_E_GPU_DEVICE;
    }
    ep_mtl_id name = EP_MTL(mt, name, mt->device);
    const char *text = name != NULL ? EP_MTL(mt, utf8, name) : NULL;
    for (size_t i = 0; text != NULL && text[i] != 0 && i + 1 < sizeof mt->head.device; i++) {
        mt->head.device[i] = text[i];
    }
    return EP_OK;
}

/* The text of all kernels; null where there is no memory for it. */
static ep_mtl_id ep_metal_source(const ep_metal_model *mt) {
    const ep_gpu_program *program = mt->head.descriptor->gpu;
    ep_mtl_id source = EP_MTL_WITH(mt, string, mt->objc_getClass("NSMutableString"), "");
    for (uint32_t i = 0; i < program->source_count && source != NULL; i++) {
        ep_mtl_id piece = EP_MTL_WITH(mt, string, mt->objc_getClass("NSString"), program->source[i]);
        if (piece == NULL) {
            return NULL;
        }
        EP_MTL_WITH(mt, append, source, piece);
    }
    return source;
}

/* The library that Apple's compiler made when the model was packed; null without one, or where the system
 * does not take it. */
static ep_mtl_id ep_metal_compiled(ep_metal_model *mt) {
    const ep_gpu_program *program = mt->head.descriptor->gpu;
    ep_mtl_id error = NULL;
    if (program->image_count == 0) {
        return NULL;
    }
    mt->libraries[3] = ep_platform_library_open("/usr/lib/libSystem.B.dylib");
    if (mt->libraries[3] == NULL) {
        return NULL;
    }
    ep_mtl_id (*create)(const void *, size_t, void *, void *) =
        (ep_mtl_id (*)(const void *, size_t, void *, void *))ep_platform_library_symbol(
            mt->libraries[3], "dispatch_data_create");
    void (*give_back)(ep_mtl_id) =
        (void (*)(ep_mtl_id))ep_platform_library_symbol(mt->libraries[3], "dispatch_release");
    ep_mtl_id data = create != NULL && give_back != NULL
                         ? create(program->images[0].data, (size_t)program->images[0].nbytes, NULL, NULL)
                         : NULL;
    if (data == NULL) {
        return NULL;
    }
    ep_mtl_id library = EP_MTL_WITH(mt, new_library_of, mt->device, data, &error);
    give_back(data);
    return library;
}

static ep_status ep_metal_compile(ep_metal_model *mt) {
    ep_mtl_id options = EP_MTL(mt, alloc, mt->objc_getClass("MTLCompileOptions"));
    options = options != NULL ? EP_MTL(mt, init, options) : NULL;
    ep_mtl_id source = ep_metal_source(mt);
    ep_mtl_id error = NULL;
    if (options != NULL && source != NULL) {
        EP_MTL_WITH(mt, set_fast_math, options, 0);
        EP_MTL_WITH(mt, set_language, options, EP_MTL_LANGUAGE_2_3);
        mt->library = EP_MTL_WITH(mt, new_library, mt->device, source, options, &error);
    }
    ep_metal_release(mt, options);
    return mt->library != NULL ? EP_OK : EP_E_GPU_BUILD;
}

/* The pipeline of a kernel, and whether it can have the threads that its launches give it: with the registers
 * that it needs, a device may have fewer than it says. */
static ep_status ep_metal_make_pipeline(ep_metal_model *mt, uint32_t index) {
    const ep_descriptor *descriptor = mt->head.descriptor;
    ep_mtl_id error = NULL;
    ep_mtl_id name = EP_MTL_WITH(mt, string, mt->objc_getClass("NSString"), descriptor->gpu->kernels[index]);
    ep_mtl_id function = name != NULL ? EP_MTL_WITH(mt, new_function, mt->library, name) : NULL;
    if (function == NULL) {
        return EP_E_GPU_BUILD;
    }
    mt->pipelines[index] = EP_MTL_WITH(mt, new_pipeline, mt->device, function, &error);
    EP_MTL(mt, release, function);
    if (mt->pipelines[index] == NULL) {
        return EP_E_GPU_BUILD;
    }
    uint64_t most = EP_MTL(mt, most_threads, mt->pipelines[index]);
    for (uint32_t i = 0; i < descriptor->step_count; i++) {
        const ep_gpu_step *step = &descriptor->gpu->steps[i];
        if (step->kind == EP_STEP_LAUNCH && step->kernel == index &&
            (uint64_t)step->threads[0] * step->threads[1] * step->threads[2] > most) {
            return EP_E_GPU_DEVICE;
        }
    }
    return EP_OK;
}

static ep_status ep_metal_build(ep_metal_model *mt) {
    mt->library = ep_metal_compiled(mt);
    ep_status status = mt->library != NULL ? EP_OK : ep_metal_compile(mt);
    for (uint32_t i = 0; i < mt->head.descriptor->gpu->kernel_count && status == EP_OK; i++) {
        status = ep_metal_make_pipeline(mt, i);
    }
    if (status == EP_OK) {
        mt->queue = EP_MTL(mt, new_queue, mt->device);
        status = mt->queue != NULL ? EP_OK : EP_E_GPU_MEMORY;
    }
    return status;
}

/* The pages of the mapped file that hold constants, as a buffer. Whole pages: those at its ends are mapped
 * too, for a mapping begins and ends with one. */
static void ep_metal_wrap_constants(ep_metal_model *mt, const unsigned char *params) {
    const ep_gpu_program *program = mt->head.descriptor->gpu;
    uintptr_t page = ep_platform_page();
    uint64_t first = UINT64_MAX;
    uint64_t end = 0;
    for (uint32_t i = 0; i < program->place_count; i++) {
        const ep_gpu_place *place = &program->places[i];
        if (place->memory == EP_GPU_PARAMS && place->nbytes != 0) {
            first = place->offset < first ? place->offset : first;
            end = place->offset + place->nbytes > end ? place->offset + place->nbytes : end;
        }
    }
    if (page == 0 || end == 0) {
        return;
    }
    uintptr_t from = ((uintptr_t)params + (uintptr_t)first) & ~(page - 1);
    uintptr_t to = ((uintptr_t)params + (uintptr_t)end + page - 1) & ~(page - 1);
    mt->constants =
        EP_MTL_WITH(mt, new_buffer_around, mt->device, (void *)from, to - from, EP_MTL_STORAGE_SHARED, NULL);
    mt->before = (uintptr_t)params - from;
}

static ep_status ep_metal_copy_constants(ep_metal_model *mt, const unsigned char *params) {
    const ep_gpu_program *program = mt->head.descriptor->gpu;
    size_t nbytes = (size_t)ep_metal_constants_bytes(program);
    mt->before = SIZE_MAX;
    if (nbytes == 0) {
        return EP_OK;
    }
    mt->constants = EP_MTL_WITH(mt, new_buffer, mt->device, nbytes, EP_MTL_STORAGE_SHARED);
    unsigned char *to = mt->constants != NULL ? EP_MTL(mt, contents, mt->constants) : NULL;
    if (to == NULL) {
        return EP_E_GPU_MEMORY;
    }
    for (uint32_t i = 0; i < program->place_count; i++) {
        const ep_gpu_place *place = &program->places[i];
        if (place->memory == EP_GPU_PARAMS && place->nbytes != 0) {
            memcpy(to, params + (size_t)place->offset, (size_t)place->nbytes);
        }
        to += (size_t)ep_metal_constant_bytes(place);
    }
    return EP_OK;
}

static ep_status ep_metal_take_constants(ep_metal_model *mt, const unsigned char *params) {
    if (mt->head.mapped) {
        ep_metal_wrap_constants(mt, params);
    }
    return mt->constants != NULL ? EP_OK : ep_metal_copy_constants(mt, params);
}

static size_t ep_metal_model_bytes(const ep_gpu_program *program) {
    return sizeof(ep_metal_model) + (size_t)program->kernel_count * sizeof(ep_mtl_id);
}

static ep_status ep_metal_model_open(ep_gpu_model *head, const ep_open_options *options,
                                     const unsigned char *params) {
    ep_metal_model *mt = (ep_metal_model *)(void *)head;
    mt->pipelines = (ep_mtl_id *)(void *)(mt + 1);
    ep_status status = ep_metal_load(mt);
    if (status != EP_OK) {
        return status;
    }
    void *pool = mt->objc_autoreleasePoolPush();
    status = ep_metal_find(mt, options->gpu_context);
    status = status == EP_OK ? ep_metal_build(mt) : status;
    status = status == EP_OK ? ep_metal_take_constants(mt, params) : status;
    mt->objc_autoreleasePoolPop(pool);
    return status;
}

static void ep_metal_model_close(ep_gpu_model *head) {
    ep_metal_model *mt = (ep_metal_model *)(void *)head;
    if (mt->device != NULL) {
        void *pool = mt->objc_autoreleasePoolPush();
        ep_metal_release(mt, mt->constants);
        ep_metal_release(mt, mt->queue);
        for (uint32_t i = 0; i < head->descriptor->gpu->kernel_count; i++) {
            ep_metal_release(mt, mt->pipelines[i]);
        }
        ep_metal_release(mt, mt->library);
        ep_metal_release(mt, mt->device);
        mt->objc_autoreleasePoolPop(pool);
    }
    for (int i = 3; i >= 0; i--) {
        if (mt->libraries[i] != NULL) {
            ep_platform_library_close(mt->libraries[i]);
        }
    }
}
