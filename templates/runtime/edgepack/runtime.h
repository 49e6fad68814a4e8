/* edgepack runtime: the stable C interface of every model library.
 *
 * A model library exports one symbol, a constant `ep_descriptor` named edgepack_model_<name>. All is
 * reached through it. The functions below are inline: they check that the library speaks this header's ABI
 * and call through the library's function table, so that libraries made by different releases of edgepack
 * live in one process, and a library that does not fit is refused before anything of it runs.
 *
 *     ep_model model;
 *     ep_session *session;
 *     ep_status status = ep_model_open(&edgepack_model_net, "net.params", &model);
 *     if (status == EP_OK) status = ep_session_create(&model, NULL, &session);
 *     ep_const_buffer in = {x, sizeof x};
 *     ep_buffer out = {y, sizeof y};
 *     if (status == EP_OK) status = ep_session_run(session, &in, 1, &out, 1);
 *     ep_session_destroy(session);
 *     ep_model_close(&model);
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_RUNTIME_H
#define EDGEPACK_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes only when an older caller could no longer use a newer library. Additions append fields to the
 * structs (which carry their size) and leave it as it is. */
#define EP_ABI_VERSION 1u

/* "EDGEPACK" read as a little-endian number. */
#define EP_DESCRIPTOR_MAGIC UINT64_C(0x4b43415045474445)

/* ---- Status ---- */

typedef int32_t ep_status;

/* One a line, for edgepack/abi/header.py and docs/reference/c-api.md read this list. */
/* clang-format off */
/* X(name, value, what happened and what to do about it). Values never change; new ones come last. */
#define EP_STATUS_LIST(X) \
    X(EP_OK, 0, "Success.") \
    X(EP_E_NULL, 1, "A required pointer is null; pass a valid one.") \
    X(EP_E_LIBRARY, 2, "This is not an edgepack model library; pass its edgepack_model_<name> symbol.") \
    X(EP_E_ABI, 3, "The model library has another ABI version; compile with the runtime.h of its own bundle.") \
    X(EP_E_CPU, 4, "This CPU lacks features that the model was compiled for; pack it for a smaller device.") \
    X(EP_E_OPTION, 5, "A session option has an invalid value; start from EP_OPTIONS_INIT.") \
    X(EP_E_THREADS, 6, "This number of threads is not possible here; ask for 1 to EP_MAX_THREADS.") \
    X(EP_E_UNSUPPORTED, 7, "This platform cannot do that; see the porting notes for what it lacks.") \
    X(EP_E_IO, 8, "The params file cannot be opened or mapped; check its path and permissions.") \
    X(EP_E_PARAMS_MAGIC, 9, "This is not a params file; pass the .params file of the bundle.") \
    X(EP_E_PARAMS_VERSION, 10, "The params file has another format version; use the one packed with the library.") \
    X(EP_E_PARAMS_TRUNCATED, 11, "The params are shorter than their header says; copy the file again.") \
    X(EP_E_PARAMS_CORRUPT, 12, "The params header contradicts itself; copy the file again.") \
    X(EP_E_PARAMS_MODEL, 13, "The params belong to another model or another pack; use the ones of this bundle.") \
    X(EP_E_PARAMS_HASH, 14, "The params do not have the hash that they should have; copy the file again.") \
    X(EP_E_NO_PARAMS, 15, "The library has no embedded params; pass a params file or its bytes.") \
    X(EP_E_ALIGNMENT, 16, "A pointer is not aligned; align buffers to their element, params to 64 bytes.") \
    X(EP_E_COUNT, 17, "The number of inputs or outputs is not the model's; see its descriptor.") \
    X(EP_E_SIZE, 18, "A buffer does not have the tensor's size in bytes; see its descriptor.") \
    X(EP_E_OVERLAP, 19, "An output overlaps an input or another output; give each its own memory.") \
    X(EP_E_MEMORY_SIZE, 20, "The session's memory is too small; ask ep_session_bytes how much it needs.") \
    X(EP_E_NO_MEMORY, 21, "Memory for the session could not be allocated; free some or pass your own.") \
    X(EP_E_THREAD_START, 22, "A worker thread could not be started; use fewer threads.") \
    X(EP_E_BUSY, 23, "The session is already running; give each thread that runs models its own session.") \
    X(EP_E_STATE, 24, "This call does not fit the session's state; see ep_session_begin and ep_session_work.") \
    X(EP_E_KERNEL, 25, "A kernel failed; the outputs are not valid.") \
    X(EP_E_GPU_DRIVER, 26, "There is no driver for the GPU; install the one of the GPU's vendor.") \
    X(EP_E_GPU_DEVICE, 27, "No GPU that the driver offers fits the model; run it on the CPU.") \
    X(EP_E_GPU_BUILD, 28, "The GPU's driver cannot compile the model's kernels; update it, or run on the CPU.") \
    X(EP_E_GPU_MEMORY, 29, "The GPU has not enough free memory; destroy other sessions, or run on the CPU.") \
    X(EP_E_GPU_RUN, 30, "The GPU failed, or this process forked; the outputs are not valid. Open the model anew.") \
    X(EP_E_PARAMS_SIGNATURE, 31, "The params are not signed by the key that the library trusts; get them from its makers.") \
    X(EP_E_GPU_CONTEXT, 32, "The context or queue is not of the GPU that the model runs on; see ep_model_backend.") \
    X(EP_E_GPU_BUFFER, 33, "A buffer is not in the memory of the model's GPU, or has too few bytes behind its offset.") \
    X(EP_E_PARAMS_OLD, 34, "The params have a lower version than the caller asks for; get the present ones.") \
    X(EP_E_GPU_TIME, 35, "The GPU is not done within the session's limit, and goes on; synchronize to wait again.") \
    X(EP_E_TRIPS, 36, "A loop would make more trips than the library was made for.") \
    X(EP_E_BRANCH, 37, "The data choose a branch of the model that does not fit the sizes it was packed for.")
/* clang-format on */

enum {
#define EP_STATUS_ENUM_(name, value, text) name = value,
    EP_STATUS_LIST(EP_STATUS_ENUM_)
#undef EP_STATUS_ENUM_
};

/* One sentence. Never null. */
static inline const char *ep_status_string(ep_status status) {
    switch (status) {
#define EP_STATUS_CASE_(name, value, text) \
    case value: \
        return text;
        EP_STATUS_LIST(EP_STATUS_CASE_)
#undef EP_STATUS_CASE_
    default:
        return "Unknown status.";
    }
}

/* "EP_E_NULL". Never null. */
static inline const char *ep_status_name(ep_status status) {
    switch (status) {
#define EP_STATUS_CASE_(name, value, text) \
    case value: \
        return #name;
        EP_STATUS_LIST(EP_STATUS_CASE_)
#undef EP_STATUS_CASE_
    default:
        return "EP_E_UNKNOWN";
    }
}

/* ---- Tensors ---- */

/* clang-format off */
/* X(name, value, text, bytes of one element). bool is a byte, 0 or 1; float16 and bfloat16 are their bits. */
#define EP_DTYPE_LIST(X) \
    X(EP_BOOL, 1, "bool", 1) \
    X(EP_INT8, 2, "int8", 1) \
    X(EP_UINT8, 3, "uint8", 1) \
    X(EP_INT16, 4, "int16", 2) \
    X(EP_UINT16, 5, "uint16", 2) \
    X(EP_INT32, 6, "int32", 4) \
    X(EP_UINT32, 7, "uint32", 4) \
    X(EP_INT64, 8, "int64", 8) \
    X(EP_UINT64, 9, "uint64", 8) \
    X(EP_FLOAT16, 10, "float16", 2) \
    X(EP_BFLOAT16, 11, "bfloat16", 2) \
    X(EP_FLOAT32, 12, "float32", 4) \
    X(EP_FLOAT64, 13, "float64", 8)
/* clang-format on */

enum {
#define EP_DTYPE_ENUM_(name, value, text, bytes) name = value,
    EP_DTYPE_LIST(EP_DTYPE_ENUM_)
#undef EP_DTYPE_ENUM_
};

/* "float32", or "unknown". */
static inline const char *ep_dtype_name(uint32_t dtype) {
    switch (dtype) {
#define EP_DTYPE_CASE_(name, value, text, bytes) \
    case value: \
        return text;
        EP_DTYPE_LIST(EP_DTYPE_CASE_)
#undef EP_DTYPE_CASE_
    default:
        return "unknown";
    }
}

/* Bytes of one element, and the alignment that a buffer of this dtype needs; 0 for an unknown dtype. */
static inline uint32_t ep_dtype_bytes(uint32_t dtype) {
    switch (dtype) {
#define EP_DTYPE_CASE_(name, value, text, bytes) \
    case value: \
        return bytes;
        EP_DTYPE_LIST(EP_DTYPE_CASE_)
#undef EP_DTYPE_CASE_
    default:
        return 0;
    }
}

/* A dense tensor in row-major (C) order. */
typedef struct ep_tensor {
    const char *name;
    const int64_t *shape; /* rank numbers; null for a scalar */
    const void *reserved; /* null */
    uint64_t nbytes;
    uint32_t dtype;
    uint32_t rank;
} ep_tensor;

typedef struct ep_const_buffer {
    const void *data;
    size_t nbytes;
} ep_const_buffer;

typedef struct ep_buffer {
    void *data;
    size_t nbytes;
} ep_buffer;

/* Where a buffer of ep_session_run_memory is. */
enum {
    EP_MEMORY_HOST = 0, /* in the process */
    EP_MEMORY_GPU = 1   /* in the memory of the model's GPU */
};

typedef struct ep_memory {
    void *data;        /* an address; on the GPU: a CUdeviceptr, a cl_mem, an id<MTLBuffer> */
    size_t nbytes;     /* exactly the tensor's */
    uint64_t offset;   /* bytes from the start of `data` */
    uint32_t kind;     /* EP_MEMORY_... */
    uint32_t reserved; /* 0 */
} ep_memory;

/* ---- Options of a session ---- */

#define EP_MAX_THREADS 256u

/* Where a session's memory comes from, once, when it is created. `allocate` returns null on failure. */
typedef struct ep_allocator {
    void *user;
    void *(*allocate)(void *user, size_t nbytes);
    void (*release)(void *user, void *memory, size_t nbytes);
} ep_allocator;

/* How the tasks of a step are shared among threads. */
enum {
    EP_SCHEDULE_DEFAULT = 0, /* what the model was packed for */
    EP_SCHEDULE_STATIC = 1,  /* even slices: cores of equal speed */
    EP_SCHEDULE_DYNAMIC = 2  /* claimed from a counter: cores of unequal speed */
};

typedef struct ep_options {
    size_t struct_size;      /* sizeof(ep_options), as the caller knows it */
    uint32_t threads;        /* 0: the descriptor's default_threads */
    uint32_t schedule;       /* EP_SCHEDULE_... */
    uint32_t caller_threads; /* 1: no pool; `threads` threads of the caller call ep_session_work */
    uint32_t reserved;       /* 0 */
    void *memory;        /* null: allocate. Else at least ep_session_bytes, any alignment, until destroy */
    size_t memory_bytes; /* bytes of `memory` */
    const ep_allocator *allocator; /* null: malloc and free. Not used with `memory`. Copied */
    /* From here on, what an older library of this ABI does not know. For a model on a GPU. */
    void *gpu_queue;       /* a CUstream, cl_command_queue, id<MTLCommandQueue>; null: the session's own */
    uint32_t gpu_memory;   /* 1: for ep_session_run_memory */
    uint32_t asynchronous; /* 1: runs do not wait for the GPU; ep_session_synchronize does */
    uint32_t gpu_limit_ms; /* a call waits for the GPU no longer: EP_E_GPU_TIME; 0: as long as it takes */
    uint32_t reserved2;    /* 0 */
} ep_options;

#define EP_OPTIONS_INIT {sizeof(ep_options), 0, 0, 0, 0, NULL, 0, NULL, NULL, 0, 0, 0, 0}

/* ---- Options of opening a model ---- */

/* Kinds of drivers. */
enum { EP_GPU_OPENCL = 1, EP_GPU_CUDA = 2, EP_GPU_METAL = 3 };

/* Where what a driver compiled is kept, by whoever opens models: files in a folder, or anything. A key is 64
 * hexadecimal digits and names device, driver and kernels. Called while a model is opened, in that thread.
 * What is read is checked: if it is not what was written, the driver compiles again. */
typedef struct ep_cache {
    void *user;
    /* Copies what was written under this key, if it is no more than `capacity`; its bytes, or 0: nothing. */
    size_t (*read)(void *user, const char *key, void *to, size_t capacity);
    void (*write)(void *user, const char *key, const void *from, size_t nbytes);
} ep_cache;

typedef struct ep_open_options {
    size_t struct_size; /* sizeof(ep_open_options), as the caller knows it */
    const char *path;   /* of the params file; null: `image`, or the embedded params if that is null too */
    const void *image;  /* the bytes of a params file, as for ep_model_open_memory */
    size_t image_bytes;
    uint32_t gpu_api;      /* EP_GPU_...: the kind of `gpu_context` */
    uint32_t reserved;     /* 0 */
    void *gpu_context;     /* a CUcontext, cl_context, id<MTLDevice>; null: the library finds a GPU */
    void *gpu_device;      /* a cl_device_id of that context; null: its first that fits */
    const ep_cache *cache; /* for OpenCL; null: the driver compiles each time. Not used after opening */
    /* From here on, what an older library of this ABI does not know: EP_E_OPTION from it, unless 0. */
    const unsigned char *params_ids; /* ids of 32 bytes, one behind the other, of params to take too: of the
                                      * same layout, as `edgepack update` makes them. All data are hashed */
    size_t params_id_count;
    uint64_t params_version; /* others must have a signed version of at least this; 0: the library's own do */
} ep_open_options;

#define EP_OPEN_OPTIONS_INIT {sizeof(ep_open_options), NULL, NULL, 0, 0, 0, NULL, NULL, NULL, NULL, 0, 0}

/* ---- The descriptor ---- */

typedef struct ep_descriptor ep_descriptor;

/* An opened model: code and params. Immutable; any number of threads and sessions may share it. The caller
 * owns the struct; its fields are private. Close it after the last of its sessions is destroyed. */
typedef struct ep_model {
    const ep_descriptor *descriptor; /* of the variant that was taken */
    const unsigned char *params;     /* first byte of the params data */
    const unsigned char *image;      /* first byte of the params file */
    size_t image_bytes;
    void *mapping; /* null unless the file was mapped */
    uintptr_t reserved[3];
} ep_model;

/* One arena, and the threads that work in it. One run at a time. More fields follow that are private. */
typedef struct ep_session {
    const ep_descriptor *descriptor;
} ep_session;

typedef struct ep_api {
    uint32_t struct_size;
    uint32_t reserved;
    ep_status (*model_open)(const ep_descriptor *descriptor, const char *path, ep_model *model);
    ep_status (*model_open_memory)(const ep_descriptor *descriptor, const void *image, size_t nbytes,
                                   ep_model *model);
    ep_status (*model_check_params)(const ep_model *model);
    void (*model_close)(ep_model *model);
    size_t (*missing_features)(const ep_descriptor *descriptor, char *text, size_t capacity);
    ep_status (*session_bytes)(const ep_model *model, const ep_options *options, size_t *nbytes);
    ep_status (*session_create)(const ep_model *model, const ep_options *options, ep_session **session);
    ep_status (*session_run)(ep_session *session, const ep_const_buffer *inputs, size_t input_count,
                             const ep_buffer *outputs, size_t output_count);
    ep_status (*session_begin)(ep_session *session, const ep_const_buffer *inputs, size_t input_count,
                               const ep_buffer *outputs, size_t output_count);
    ep_status (*session_work)(ep_session *session, uint32_t thread);
    ep_status (*session_profile)(ep_session *session, uint64_t *step_ns, size_t count);
    void (*session_destroy)(ep_session *session);
    /* From here on, what an older library of this ABI does not have. */
    ep_status (*model_backend)(const ep_model *model, char *text, size_t capacity); /* null: the CPU's only */
    ep_status (*model_open_with)(const ep_descriptor *descriptor, const ep_open_options *options,
                                 ep_model *model);
    ep_status (*session_run_memory)(ep_session *session, const ep_memory *inputs, size_t input_count,
                                    const ep_memory *outputs, size_t output_count); /* null: the CPU's only */
    ep_status (*session_synchronize)(ep_session *session);                          /* null: the CPU's only */
} ep_api;

/* What the generated code gets for one run, and what it says of a GPU. Private to the library. */
struct ep_context;
struct ep_gpu_program;

enum {
    EP_FLAG_HETEROGENEOUS = 1u /* packed for cores of unequal speed: EP_SCHEDULE_DEFAULT is dynamic */
};

enum {
    EP_ARCH_OTHER = 0,
    EP_ARCH_X86_64 = 1,
    EP_ARCH_AARCH64 = 2,
    EP_ARCH_ARM = 3,
    EP_ARCH_RISCV64 = 4,
    EP_ARCH_WASM = 5,
    EP_ARCH_RISCV32 = 6
};

struct ep_descriptor {
    /* These three never move, in no ABI version. */
    uint64_t magic;
    uint32_t abi_version;
    uint32_t struct_size;

    const char *name;
    const char *edgepack_version;
    const ep_tensor *inputs;
    const ep_tensor *outputs;
    uint32_t input_count;
    uint32_t output_count;

    uint64_t arena_bytes;
    uint64_t scratch_bytes;      /* of one thread, in a session of more than scratch_threads */
    uint64_t params_bytes;       /* the params data, without the file's header */
    unsigned char params_id[32]; /* SHA-256 of the params data */
    uint32_t alignment;          /* of arena, scratch and params data, in bytes */
    uint32_t flags;              /* EP_FLAG_... */

    uint32_t arch;                 /* EP_ARCH_... */
    uint32_t default_threads;      /* at least 1 */
    uint64_t cpu_features;         /* bits, numbered per architecture; private */
    const char *cpu_feature_names; /* "avx2,fma": LLVM's names of the same */

    const unsigned char *embedded_params; /* image of the params file, or null */
    uint64_t embedded_bytes;

    const int32_t *step_tasks; /* per step, the number of its tasks; of a branch -1 - the step it goes to */
    uint32_t step_count;
    uint32_t scratch_threads;     /* so many threads have their scratch in the arena */
    const uint64_t *step_scratch; /* per step: where in the arena thread 0's is, bytes of each thread's */
    int32_t (*run_step)(const struct ep_context *context, uint32_t step, unsigned char *scratch, int32_t lo,
                        int32_t hi);
    const ep_api *api;

    /* A library may hold the kernels of several kinds of CPU, and of GPUs. The exported descriptor then lists
     * them, in the order in which ep_model_open tries them, and has the most arena and scratch bytes of any
     * of them. Each can be opened itself: then it is that one or none. */
    const ep_descriptor *exported;        /* the library's own, which may be this one */
    const char *variant;                  /* the kind of CPU, a device's name; null if there is one kind */
    const ep_descriptor *const *variants; /* null: none */
    uint32_t variant_count;
    uint32_t reserved;

    /* From here on, what an older library of this ABI does not have. */
    const struct ep_gpu_program *gpu; /* null: a variant for the CPU. Private to the library */
};

/* EP_OK if this header can talk to the library; else EP_E_NULL, EP_E_LIBRARY or EP_E_ABI. */
static inline ep_status ep_descriptor_check(const ep_descriptor *descriptor) {
    if (descriptor == NULL) {
        return EP_E_NULL;
    }
    if (descriptor->magic != EP_DESCRIPTOR_MAGIC) {
        return EP_E_LIBRARY;
    }
    if (descriptor->abi_version != EP_ABI_VERSION || descriptor->struct_size < offsetof(ep_descriptor, gpu)) {
        return EP_E_ABI;
    }
    return EP_OK;
}

/* ---- Models ---- */

/* Opens a model with the params file at `path` (UTF-8), which is mapped, not read: the time does not grow
 * with its size, and the file must stay as it is until ep_model_close. Of a library's variants, the first
 * that this machine can run is taken: model->descriptor. For a GPU, the driver is asked for a device that
 * fits, kernels are compiled, and the params copied to it; if any of it fails, the next variant is tried, and
 * ep_model_backend tells why. A null path means the embedded params. *model is the
 * caller's memory; after a failure it can be closed, and nothing else. */
static inline ep_status ep_model_open(const ep_descriptor *descriptor, const char *path, ep_model *model) {
    ep_status status = ep_descriptor_check(descriptor);
    if (model != NULL) {
        model->descriptor = NULL; /* what closing it looks at */
    }
    return status != EP_OK ? status : descriptor->api->model_open(descriptor, path, model);
}

/* The same with the bytes of a params file in memory (flash, an asset, a network buffer), 64-byte aligned,
 * which stay the caller's and must outlive the model. */
static inline ep_status ep_model_open_memory(const ep_descriptor *descriptor, const void *image,
                                             size_t nbytes, ep_model *model) {
    ep_status status = ep_descriptor_check(descriptor);
    if (model != NULL) {
        model->descriptor = NULL;
    }
    return status != EP_OK ? status : descriptor->api->model_open_memory(descriptor, image, nbytes, model);
}

/* Whether the library's table has all up to and including a function. */
#define EP_API_HAS_(api, function) \
    ((api)->struct_size >= offsetof(ep_api, function) + sizeof(api)->function && (api)->function != NULL)

/* Either of the two, as the options have it, for a GPU in a context of the caller's: kernels and params are
 * put into it, and a library's variants for other kinds of drivers, or for another GPU, are not taken. The
 * context must live until ep_model_close. And with a list of params to take beside the library's own, or the
 * least version that they must have (docs/ship/updates.md). EP_E_ABI from a library that is older than this
 * function. */
static inline ep_status ep_model_open_with(const ep_descriptor *descriptor, const ep_open_options *options,
                                           ep_model *model) {
    ep_status status = ep_descriptor_check(descriptor);
    if (model != NULL) {
        model->descriptor = NULL;
    }
    if (status == EP_OK && !EP_API_HAS_(descriptor->api, model_open_with)) {
        status = EP_E_ABI;
    }
    return status != EP_OK ? status : descriptor->api->model_open_with(descriptor, options, model);
}

/* Hashes the whole params file: the only call whose time grows with it. Finds any changed byte. */
static inline ep_status ep_model_check_params(const ep_model *model) {
    if (model == NULL || model->descriptor == NULL) {
        return EP_E_NULL;
    }
    return model->descriptor->api->model_check_params(model);
}

/* Unmaps the params. Null, a closed model, and one that failed to open are fine. */
static inline void ep_model_close(ep_model *model) {
    if (model != NULL && model->descriptor != NULL) {
        model->descriptor->api->model_close(model);
    }
}

/* How many CPU features the model needs that this CPU, or its system, lacks. Their names are written to
 * `text`, with commas between them, cut at `capacity` bytes and always terminated; text may be null if
 * capacity is 0. */
static inline size_t ep_model_missing_features(const ep_descriptor *descriptor, char *text, size_t capacity) {
    if (capacity > 0 && text != NULL) {
        text[0] = 0;
    }
    return ep_descriptor_check(descriptor) == EP_OK
               ? descriptor->api->missing_features(descriptor, text, capacity)
               : 0;
}

/* What the model runs on: "cpu"; "opencl: " and the name of the GPU; or "cpu (opencl: EP_E_GPU_DRIVER: There
 * is no driver ...)" if the library has a variant for a GPU that could not be taken. Cut at `capacity` bytes
 * and always terminated. */
static inline ep_status ep_model_backend(const ep_model *model, char *text, size_t capacity) {
    const char *cpu = "cpu";
    size_t length = 0;
    if (model == NULL || model->descriptor == NULL || text == NULL || capacity == 0) {
        return EP_E_NULL;
    }
    const ep_api *api = model->descriptor->api;
    if (EP_API_HAS_(api, model_backend)) {
        return api->model_backend(model, text, capacity);
    }
    for (; cpu[length] != 0 && length + 1 < capacity; length++) {
        text[length] = cpu[length];
    }
    text[length] = 0;
    return EP_OK;
}

/* ---- Sessions ---- */

/* Enough memory for a session of one thread, for an array: a model's header has <NAME>_SESSION_BYTES. */
#define EP_SESSION_BYTES(arena_bytes, tensors) \
    ((arena_bytes) + ((arena_bytes) < 2097152 ? 0 : 4096) + 8 * (tensors) + 128 * sizeof(void *) + 320)

/* And how much more it takes to run a variant for a GPU with so many steps and places in its memory. */
#define EP_GPU_SESSION_BYTES(steps, places) (((steps) + (places) + 8) * sizeof(void *) + 128)

/* Bytes of memory that a session with these options needs, all of it: arena, scratch of each thread, state.
 * options: null means EP_OPTIONS_INIT; `memory` and `allocator` are not looked at. */
static inline ep_status ep_session_bytes(const ep_model *model, const ep_options *options, size_t *nbytes) {
    if (model == NULL || model->descriptor == NULL) {
        return EP_E_NULL;
    }
    return model->descriptor->api->session_bytes(model, options, nbytes);
}

/* Makes a session: at most one allocation, and threads - 1 threads unless they are the caller's. After it,
 * nothing allocates. On a GPU it has one thread, and the driver's objects and memory on the GPU beside.
 * *session is null on failure. */
static inline ep_status ep_session_create(const ep_model *model, const ep_options *options,
                                          ep_session **session) {
    if (session != NULL) {
        *session = NULL;
    }
    if (model == NULL || model->descriptor == NULL) {
        return EP_E_NULL;
    }
    return model->descriptor->api->session_create(model, options, session);
}

/* Runs the model once. Buffers are the caller's, in the descriptor's order, of exactly the tensors' sizes,
 * aligned to their elements; no output may overlap an input or another output. Returns when the outputs are
 * written. */
static inline ep_status ep_session_run(ep_session *session, const ep_const_buffer *inputs, size_t input_count,
                                       const ep_buffer *outputs, size_t output_count) {
    if (session == NULL) {
        return EP_E_NULL;
    }
    return session->descriptor->api->session_run(session, inputs, input_count, outputs, output_count);
}

/* The same with buffers that may be in the GPU's memory, each for itself; the session has the option
 * gpu_memory. On the GPU, buffers are read and written by commands in the session's queue. */
static inline ep_status ep_session_run_memory(ep_session *session, const ep_memory *inputs,
                                              size_t input_count, const ep_memory *outputs,
                                              size_t output_count) {
    if (session == NULL) {
        return EP_E_NULL;
    }
    const ep_api *api = session->descriptor->api;
    if (!EP_API_HAS_(api, session_run_memory)) {
        return EP_E_UNSUPPORTED;
    }
    return api->session_run_memory(session, inputs, input_count, outputs, output_count);
}

/* Waits for all runs of a session with the option asynchronous, and says whether they succeeded. */
static inline ep_status ep_session_synchronize(ep_session *session) {
    if (session == NULL) {
        return EP_E_NULL;
    }
    const ep_api *api = session->descriptor->api;
    if (!EP_API_HAS_(api, session_synchronize)) {
        return EP_OK;
    }
    return api->session_synchronize(session);
}

/* A run on the caller's own threads (option caller_threads): one thread calls begin; then each of `threads`
 * threads calls work with its own index, 0 to threads - 1, once. They wait for what another one has begun;
 * who comes when all is done returns at once. Each returns the status of the run. Handing the session over to
 * them (a queue, a lock) is what orders begin before work. The pointed-to buffers, not the two arrays, must
 * live until the last work returns. */
static inline ep_status ep_session_begin(ep_session *session, const ep_const_buffer *inputs,
                                         size_t input_count, const ep_buffer *outputs, size_t output_count) {
    if (session == NULL) {
        return EP_E_NULL;
    }
    return session->descriptor->api->session_begin(session, inputs, input_count, outputs, output_count);
}

static inline ep_status ep_session_work(ep_session *session, uint32_t thread) {
    if (session == NULL) {
        return EP_E_NULL;
    }
    return session->descriptor->api->session_work(session, thread);
}

/* From the next run on, each run writes the nanoseconds that each step took to step_ns[0..count-1], where
 * count is the descriptor's step_count; null and 0 turn it off. Not during a run. */
static inline ep_status ep_session_profile(ep_session *session, uint64_t *step_ns, size_t count) {
    if (session == NULL) {
        return EP_E_NULL;
    }
    return session->descriptor->api->session_profile(session, step_ns, count);
}

/* Without an operating system: a clock in nanoseconds that the firmware may define, for ep_session_profile.
 */
uint64_t edgepack_now_ns(void);

/* Ends the session's threads and gives its memory back. Null is fine. Not during a run. */
static inline void ep_session_destroy(ep_session *session) {
    if (session != NULL) {
        session->descriptor->api->session_destroy(session);
    }
}

#ifdef __cplusplus
}
#endif

#endif
