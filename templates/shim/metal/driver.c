/* Metal: a device whose command buffers are lists of launches, which are done when they are waited for. It is
 * as strict as a driver may be: new memory holds no numbers, and whoever breaks a rule of the reference is
 * told so. SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"
#include "objc.h"
#include "shim.h"

enum { ENCODING = 0, COMMITTED = 2, COMPLETED = 4, FAILED = 5 };

/* The start of what a device makes. */
typedef struct owned {
    objc_object head;
    objc_object *device;
} owned;

typedef struct buffer {
    owned head;
    uint64_t address;
    size_t nbytes;
    int borrowed;
} buffer;

typedef struct library {
    objc_object head;
    char *text;
} library;

/* An MTLFunction or an MTLComputePipelineState. */
typedef struct function {
    objc_object head;
    const shim_kernel *kernel;
} function;

/* A launch, or without a kernel a copy. */
typedef struct command {
    shim_launch launch;
    uint64_t from;
    uint64_t to;
    size_t nbytes;
} command;

typedef struct commands {
    objc_object head;
    command *list;
    size_t count;
    int status;
    int encoding;          /* an encoder has not ended */
    struct commands *next; /* that was committed behind it */
} commands;

/* Of launches, or of copies. */
typedef struct encoder {
    objc_object head;
    commands *into;
    const shim_kernel *kernel;
    uint64_t arguments[SHIM_ARGUMENTS];
    uint32_t set; /* which of them */
    int ended;
} encoder;

typedef struct size3 {
    size_t width, height, depth;
} size3;

static commands *committed; /* the first that has not been done */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static commands *check_commands(void *object) {
    return objc_check(object, "MTLCommandBuffer");
}

/* ---- The device ---- */

OBJC_API objc_object *MTLCreateSystemDefaultDevice(void);
OBJC_API objc_object *MTLCreateSystemDefaultDevice(void) {
    return shim_gpu()->missing || objc_fails("MTLCreateSystemDefaultDevice")
               ? NULL
               : objc_make("MTLDevice", sizeof(objc_object), NULL);
}

static void end_string(objc_object *old) {
    free(((objc_string *)(void *)old)->text);
}

static void *name(objc_object *on, const objc_message *message) {
    objc_check(on, "MTLDevice");
    if (objc_fails(message->name)) {
        return NULL;
    }
    objc_string *made = objc_make("NSString", sizeof *made, end_string);
    made->text = strdup(shim_gpu()->name);
    return objc_autorelease(made);
}

static size_t number(objc_object *on, const objc_message *message, size_t value) {
    objc_check(on, "MTLDevice");
    return objc_fails(message->name) ? 0 : value;
}

static size_t most_shared(objc_object *on, const objc_message *message) {
    return number(on, message, shim_gpu()->shared_bytes);
}

static size_t most_buffer(objc_object *on, const objc_message *message) {
    return number(on, message, shim_gpu()->buffer_bytes);
}

/* MTLGPUFamilyApple1 is 1001. */
static unsigned char supports_family(objc_object *on, const objc_message *message, size_t family) {
    return number(on, message, family > 1000 && family <= 1000 + shim_gpu()->family) != 0;
}

static uint64_t working_set(objc_object *on, const objc_message *message) {
    if (shim_gpu()->old) {
        shim_fail("%s is sent to a device of an old system", message->name);
    }
    return number(on, message, shim_gpu()->total_bytes);
}

static unsigned char responds(objc_object *on, const objc_message *message, const objc_message *to) {
    (void)on;
    (void)to;
    return !shim_gpu()->old && !objc_fails(message->name);
}

static void *new_queue(objc_object *on, const objc_message *message) {
    objc_check(on, "MTLDevice");
    if (objc_fails(message->name)) {
        return NULL;
    }
    owned *made = objc_make("MTLCommandQueue", sizeof *made, NULL);
    made->device = on;
    return made;
}

/* Of a queue or a buffer. */
static void *device_of(objc_object *on, const objc_message *message) {
    const owned *object =
        objc_check(on, strcmp(on->kind, "MTLBuffer") == 0 ? "MTLBuffer" : "MTLCommandQueue");
    (void)message;
    return object->device;
}

/* ---- Libraries ---- */

static void set_fast_math(objc_object *options, const objc_message *message, unsigned char on) {
    objc_check(options, "MTLCompileOptions");
    if (on) {
        shim_fail("%s: kernels are not written for fast math", message->name);
    }
}

static void set_language(objc_object *options, const objc_message *message, size_t version) {
    objc_check(options, "MTLCompileOptions");
    if (version != 0x20003) {
        shim_fail("%s: %zx is no version of the language that kernels are written in", message->name,
                  version);
    }
}

static void end_library(objc_object *old) {
    free(((library *)(void *)old)->text);
}

static void *new_library(objc_object *on, const objc_message *message, const objc_string *text,
                         objc_object *options, void **error) {
    objc_check(on, "MTLDevice");
    objc_check(options, "MTLCompileOptions");
    *error = NULL;
    if (objc_fails(message->name) || !shim_has_source(text->text)) {
        return NULL;
    }
    library *made = objc_make("MTLLibrary", sizeof *made, end_library);
    made->text = strdup(text->text);
    return made;
}

typedef struct data {
    objc_object head;
    const void *bytes;
    size_t nbytes;
} data;

OBJC_API data *dispatch_data_create(const void *bytes, size_t nbytes, void *queue, void *destructor);
OBJC_API data *dispatch_data_create(const void *bytes, size_t nbytes, void *queue, void *destructor) {
    if (queue != NULL || destructor != NULL) {
        shim_fail("dispatch_data_create: a queue, or a destructor other than the default");
    }
    if (objc_fails("dispatch_data_create")) {
        return NULL;
    }
    data *made = objc_make("dispatch_data", sizeof *made, NULL);
    made->bytes = bytes;
    made->nbytes = nbytes;
    return made;
}

OBJC_API void dispatch_release(objc_object *old);
OBJC_API void dispatch_release(objc_object *old) {
    objc_release(objc_check(old, "dispatch_data"));
}

/* A metallib is not looked into: what it stands for is the text that the shim knows. */
static void *new_library_of(objc_object *on, const objc_message *message, objc_object *from, void **error) {
    const data *image = objc_check(from, "dispatch_data");
    objc_check(on, "MTLDevice");
    *error = NULL;
    if (objc_fails(message->name) || image->nbytes < 4 || memcmp(image->bytes, "MTLB", 4) != 0) {
        return NULL;
    }
    const char *text = shim_compiled();
    if (text == NULL) {
        return NULL;
    }
    library *made = objc_make("MTLLibrary", sizeof *made, end_library);
    made->text = strdup(text);
    return made;
}

/* A kernel of the library's text that was compiled for the CPU. */
static void *new_function(objc_object *on, const objc_message *message, const objc_string *called) {
    const library *from = objc_check(on, "MTLLibrary");
    const shim_kernel *found = shim_find(called->text);
    size_t length = strlen(called->text);
    int there = 0;
    for (const char *at = strstr(from->text, "void "); at != NULL; at = strstr(at + 1, "void ")) {
        there |= strncmp(at + 5, called->text, length) == 0 && at[5 + length] == '(';
    }
    if (!there || found == NULL || objc_fails(message->name)) {
        return NULL;
    }
    function *made = objc_make("MTLFunction", sizeof *made, NULL);
    made->kernel = found;
    return made;
}

static void *new_pipeline(objc_object *on, const objc_message *message, objc_object *of, void **error) {
    objc_check(on, "MTLDevice");
    const function *from = objc_check(of, "MTLFunction");
    *error = NULL;
    if (objc_fails(message->name)) {
        return NULL;
    }
    function *made = objc_make("MTLComputePipelineState", sizeof *made, NULL);
    made->kernel = from->kernel;
    return made;
}

static size_t most_threads(objc_object *on, const objc_message *message) {
    const function *from = objc_check(on, "MTLComputePipelineState");
    return objc_fails(message->name) ? 0 : shim_most_threads(from->kernel);
}

/* ---- Memory ---- */

static void end_buffer(objc_object *old) {
    const buffer *memory = (const buffer *)(const void *)old;
    pthread_mutex_lock(&mutex);
    if (memory->borrowed) {
        shim_return(memory->address);
    } else if (!shim_free(memory->address)) {
        shim_fail("memory is freed that is not there");
    }
    pthread_mutex_unlock(&mutex);
}

static void *make_buffer(objc_object *device, uint64_t address, size_t nbytes, int borrowed) {
    buffer *made = objc_make("MTLBuffer", sizeof *made, end_buffer);
    made->head.device = device;
    made->address = address;
    made->nbytes = nbytes;
    made->borrowed = borrowed;
    return made;
}

static void *new_buffer(objc_object *on, const objc_message *message, size_t nbytes, size_t options) {
    objc_check(on, "MTLDevice");
    if (nbytes == 0 || nbytes > shim_gpu()->buffer_bytes || options != 0) {
        shim_fail("%s: %zu bytes, options %zu", message->name, nbytes, options);
    }
    if (objc_fails(message->name)) {
        return NULL;
    }
    pthread_mutex_lock(&mutex);
    uint64_t address = shim_allocate(nbytes);
    pthread_mutex_unlock(&mutex);
    return address != 0 ? make_buffer(on, address, nbytes, 0) : NULL;
}

static void *new_buffer_around(objc_object *on, const objc_message *message, void *memory, size_t nbytes,
                               size_t options, void *deallocator) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    objc_check(on, "MTLDevice");
    if ((uintptr_t)memory % page != 0 || nbytes == 0 || nbytes % page != 0 || options != 0 ||
        deallocator != NULL) {
        shim_fail("%s: %zu bytes that are no whole pages, or options that make no sense", message->name,
                  nbytes);
    }
    if (objc_fails(message->name)) {
        return NULL;
    }
    pthread_mutex_lock(&mutex);
    int lent = shim_borrow((uint64_t)(uintptr_t)memory, nbytes);
    pthread_mutex_unlock(&mutex);
    return lent ? make_buffer(on, (uint64_t)(uintptr_t)memory, nbytes, 1) : NULL;
}

static void *contents(objc_object *on, const objc_message *message) {
    const buffer *memory = objc_check(on, "MTLBuffer");
    return objc_fails(message->name) ? NULL : (void *)(uintptr_t)memory->address;
}

static size_t length(objc_object *on, const objc_message *message) {
    const buffer *memory = objc_check(on, "MTLBuffer");
    return objc_fails(message->name) ? 0 : memory->nbytes;
}

/* ---- Commands ---- */

static void end_commands(objc_object *old) {
    const commands *list = (const commands *)(const void *)old;
    if (list->encoding || list->status == COMMITTED) {
        shim_fail("a command buffer goes away that %s", list->encoding ? "is being filled" : "runs");
    }
    free(list->list);
}

static void *new_commands(objc_object *on, const objc_message *message) {
    objc_check(on, "MTLCommandQueue");
    return objc_fails(message->name)
               ? NULL
               : objc_autorelease(objc_make("MTLCommandBuffer", sizeof(commands), end_commands));
}

static void end_encoder(objc_object *old) {
    if (!((const encoder *)(const void *)old)->ended) {
        shim_fail("an encoder goes away before its end");
    }
}

static void *new_encoder(objc_object *on, const objc_message *message) {
    commands *into = check_commands(on);
    int copies = strcmp(message->name, "blitCommandEncoder") == 0;
    if (objc_fails(message->name)) {
        return NULL;
    }
    if (into->encoding || into->status != ENCODING) {
        shim_fail("a command buffer has an encoder, or has been committed");
    }
    encoder *made =
        objc_make(copies ? "MTLBlitCommandEncoder" : "MTLComputeCommandEncoder", sizeof *made, end_encoder);
    made->into = into;
    into->encoding = 1;
    return objc_autorelease(made);
}

static encoder *check_encoder(objc_object *object, const char *kind) {
    encoder *found = objc_check(object, kind);
    if (found->ended) {
        shim_fail("an encoder that has ended gets a message");
    }
    return found;
}

static void set_pipeline(objc_object *on, const objc_message *message, objc_object *pipeline) {
    const function *of = objc_check(pipeline, "MTLComputePipelineState");
    (void)message;
    check_encoder(on, "MTLComputeCommandEncoder")->kernel = of->kernel;
}

static void set_buffer(objc_object *on, const objc_message *message, objc_object *memory, size_t offset,
                       size_t index) {
    encoder *to = check_encoder(on, "MTLComputeCommandEncoder");
    const buffer *of = memory != NULL ? objc_check(memory, "MTLBuffer") : NULL;
    if (index > 30 || (of != NULL && offset >= of->nbytes)) {
        shim_fail("%s: index %zu, offset %zu", message->name, index, offset);
    }
    to->arguments[index] = of != NULL ? of->address + offset : 0;
    to->set |= 1u << index;
}

static void check_launch(const shim_launch *launch, size_t threads) {
    const shim_kernel *kernel = launch->kernel;
    if (launch->grid[0] == 0 || launch->grid[1] == 0 || launch->grid[2] == 0) {
        shim_fail("%s: a grid of %u x %u x %u threadgroups cannot be launched", kernel->name, launch->grid[0],
                  launch->grid[1], launch->grid[2]);
    }
    if (memcmp(launch->block, kernel->threads, sizeof kernel->threads) != 0) {
        shim_fail("%s: launched with threadgroups of %u x %u x %u threads, written for others", kernel->name,
                  launch->block[0], launch->block[1], launch->block[2]);
    }
    if (threads == 0 || threads > shim_most_threads(kernel)) {
        shim_fail("%s: threadgroups of %zu threads cannot be launched", kernel->name, threads);
    }
}

static void append_command(commands *into, const command *one) {
    into->list = realloc(into->list, (into->count + 1) * sizeof *one);
    if (into->list == NULL) {
        shim_fail("there is no memory for commands");
    }
    into->list[into->count++] = *one;
}

static uint64_t copied(objc_object *object, size_t offset, size_t nbytes) {
    const buffer *of = objc_check(object, "MTLBuffer");
    if (nbytes == 0 || offset > of->nbytes || nbytes > of->nbytes - offset || offset % 4 != 0 ||
        nbytes % 4 != 0) {
        shim_fail("%zu bytes at %zu of a buffer of %zu cannot be copied", nbytes, offset, of->nbytes);
    }
    return of->address + offset;
}

static void copy(objc_object *on, const objc_message *message, objc_object *from, size_t from_offset,
                 objc_object *to, size_t to_offset, size_t nbytes) {
    static const command none;
    command one = none;
    (void)message;
    one.from = copied(from, from_offset, nbytes);
    one.to = copied(to, to_offset, nbytes);
    one.nbytes = nbytes;
    append_command(check_encoder(on, "MTLBlitCommandEncoder")->into, &one);
}

static void dispatch(objc_object *on, const objc_message *message, size3 groups, size3 threads) {
    encoder *from = check_encoder(on, "MTLComputeCommandEncoder");
    commands *into = from->into;
    (void)message;
    if (from->kernel == NULL) {
        shim_fail("threadgroups are dispatched without a pipeline");
    }
    if (from->kernel->arguments > 31 || (~from->set & ((1u << from->kernel->arguments) - 1u)) != 0) {
        shim_fail("%s: it is dispatched without all of its buffers", from->kernel->name);
    }
    command one = {{from->kernel,
                    {(uint32_t)groups.width, (uint32_t)groups.height, (uint32_t)groups.depth},
                    {(uint32_t)threads.width, (uint32_t)threads.height, (uint32_t)threads.depth},
                    {0}},
                   0,
                   0,
                   0};
    memcpy(one.launch.arguments, from->arguments, sizeof one.launch.arguments);
    check_launch(&one.launch, threads.width * threads.height * threads.depth);
    append_command(into, &one);
}

static void end_encoding(objc_object *on, const objc_message *message) {
    encoder *ended = check_encoder(on, on->kind);
    (void)message;
    ended->ended = 1;
    ended->into->encoding = 0;
}

static void commit(objc_object *on, const objc_message *message) {
    commands *list = check_commands(on);
    (void)message;
    if (list->encoding || list->status != ENCODING) {
        shim_fail("a command buffer is committed twice, or before its encoder has ended");
    }
    list->status = COMMITTED;
    pthread_mutex_lock(&mutex);
    commands **last = &committed;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = list;
    pthread_mutex_unlock(&mutex);
}

static void run_commands(commands *list) {
    for (size_t i = 0; i < list->count; i++) {
        const command *one = &list->list[i];
        if (one->launch.kernel != NULL) {
            shim_run(&one->launch);
        } else {
            memcpy((void *)(uintptr_t)one->to, (const void *)(uintptr_t)one->from, one->nbytes);
        }
    }
    list->status = COMPLETED;
}

/* What was committed before is done before. */
static void run_committed(const commands *list) {
    pthread_mutex_lock(&mutex);
    while (list->status == COMMITTED) {
        commands *first = committed;
        committed = first->next;
        run_commands(first);
    }
    pthread_mutex_unlock(&mutex);
}

/* A command buffer that fails has done what it was given, or some of it. */
static void wait(objc_object *on, const objc_message *message) {
    commands *list = check_commands(on);
    if (list->status < COMMITTED) {
        shim_fail("a command buffer is waited for that was not committed");
    }
    run_committed(list);
    list->status = objc_fails(message->name) ? FAILED : COMPLETED;
}

static size_t status(objc_object *on, const objc_message *message) {
    commands *list = check_commands(on);
    (void)message;
    if (!shim_late()) {
        run_committed(list);
    }
    return (size_t)list->status;
}

#define CALL(function) ((void (*)(void))(function))

const objc_message objc_messages[] = {
    {CALL(name), "name"},
    {CALL(most_shared), "maxThreadgroupMemoryLength"},
    {CALL(most_buffer), "maxBufferLength"},
    {CALL(working_set), "recommendedMaxWorkingSetSize"},
    {CALL(supports_family), "supportsFamily:"},
    {CALL(responds), "respondsToSelector:"},
    {CALL(new_queue), "newCommandQueue"},
    {CALL(set_fast_math), "setFastMathEnabled:"},
    {CALL(set_language), "setLanguageVersion:"},
    {CALL(new_library), "newLibraryWithSource:options:error:"},
    {CALL(new_library_of), "newLibraryWithData:error:"},
    {CALL(new_function), "newFunctionWithName:"},
    {CALL(new_pipeline), "newComputePipelineStateWithFunction:error:"},
    {CALL(most_threads), "maxTotalThreadsPerThreadgroup"},
    {CALL(new_buffer), "newBufferWithLength:options:"},
    {CALL(new_buffer_around), "newBufferWithBytesNoCopy:length:options:deallocator:"},
    {CALL(contents), "contents"},
    {CALL(length), "length"},
    {CALL(device_of), "device"},
    {CALL(new_commands), "commandBufferWithUnretainedReferences"},
    {CALL(new_encoder), "computeCommandEncoder"},
    {CALL(new_encoder), "blitCommandEncoder"},
    {CALL(copy), "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:"},
    {CALL(set_pipeline), "setComputePipelineState:"},
    {CALL(set_buffer), "setBuffer:offset:atIndex:"},
    {CALL(dispatch), "dispatchThreadgroups:threadsPerThreadgroup:"},
    {CALL(end_encoding), "endEncoding"},
    {CALL(commit), "commit"},
    {CALL(wait), "waitUntilCompleted"},
    {CALL(status), "status"},
    {NULL, NULL},
};
