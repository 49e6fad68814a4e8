/* What is used of CUDA's driver interface, declared as its reference has it: no header of a vendor is needed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_CUDA_H
#define EDGEPACK_CUDA_H

#if defined(_WIN32)
#define EP_CU_CALL __stdcall
#else
#define EP_CU_CALL
#endif

typedef int32_t ep_cu_result;
typedef int32_t ep_cu_device;
typedef size_t ep_cu_address; /* CUdeviceptr */
typedef struct ep_cu_context_ *ep_cu_context;
typedef struct ep_cu_module_ *ep_cu_module;
typedef struct ep_cu_function_ *ep_cu_function;
typedef struct ep_cu_stream_ *ep_cu_stream;
typedef struct ep_cu_graph_ *ep_cu_graph;
typedef struct ep_cu_graph_node_ *ep_cu_graph_node;
typedef struct ep_cu_graph_exec_ *ep_cu_graph_exec;

enum {
    EP_CU_SUCCESS = 0,
    EP_CU_OUT_OF_MEMORY = 2,
    EP_CU_NO_DEVICE = 100,
    EP_CU_NOT_READY = 600,

    EP_CU_MAX_THREADS_PER_BLOCK = 1,
    EP_CU_MAX_BLOCK_DIM_X = 2, /* y: 3, z: 4 */
    EP_CU_MAX_GRID_DIM_X = 5,  /* y: 6, z: 7 */
    EP_CU_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    EP_CU_CAPABILITY_MAJOR = 75,
    EP_CU_CAPABILITY_MINOR = 76,

    EP_CU_FUNCTION_MAX_THREADS_PER_BLOCK = 0,
    EP_CU_STREAM_NON_BLOCKING = 1,
    EP_CU_POINTER_MEMORY_TYPE = 2,
    EP_CU_POINTER_DEVICE_ORDINAL = 9,
    EP_CU_MEMORY_TYPE_HOST = 1,
    EP_CU_CAPTURE_THREAD_LOCAL = 1
};

/* X(name without "cu" and version, version of its symbol, parameters). */
#define EP_CU_FUNCTIONS(X) \
    X(Init, "", (uint32_t flags)) \
    X(DeviceGetCount, "", (int32_t *count)) \
    X(DeviceGet, "", (ep_cu_device * device, int32_t ordinal)) \
    X(DeviceGetName, "", (char *name, int32_t nbytes, ep_cu_device device)) \
    X(DeviceGetAttribute, "", (int32_t *value, int32_t what, ep_cu_device device)) \
    X(DeviceTotalMem, "_v2", (size_t *nbytes, ep_cu_device device)) \
    X(DevicePrimaryCtxRetain, "", (ep_cu_context * context, ep_cu_device device)) \
    X(CtxPushCurrent, "_v2", (ep_cu_context context)) \
    X(CtxPopCurrent, "_v2", (ep_cu_context * context)) \
    X(ModuleLoadData, "", (ep_cu_module * module, const void *image)) \
    X(ModuleUnload, "", (ep_cu_module module)) \
    X(ModuleGetFunction, "", (ep_cu_function * function, ep_cu_module module, const char *name)) \
    X(FuncGetAttribute, "", (int32_t *value, int32_t what, ep_cu_function function)) \
    X(MemAlloc, "_v2", (ep_cu_address * address, size_t nbytes)) \
    X(MemFree, "_v2", (ep_cu_address address)) \
    X(MemcpyHtoDAsync, "_v2", (ep_cu_address to, const void *from, size_t nbytes, ep_cu_stream stream)) \
    X(MemcpyDtoHAsync, "_v2", (void *to, ep_cu_address from, size_t nbytes, ep_cu_stream stream)) \
    X(StreamCreate, "", (ep_cu_stream * stream, uint32_t flags)) \
    X(StreamDestroy, "_v2", (ep_cu_stream stream)) \
    X(StreamSynchronize, "", (ep_cu_stream stream)) \
    X(LaunchKernel, "", \
      (ep_cu_function function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x, \
       uint32_t block_y, uint32_t block_z, uint32_t shared_bytes, ep_cu_stream stream, void **parameters, \
       void **extra))

/* What a driver older than CUDA 11.4 lacks some of: launches are then given one by one. */
#define EP_CU_GRAPH_FUNCTIONS(X) \
    X(StreamBeginCapture, "_v2", (ep_cu_stream stream, uint32_t mode)) \
    X(StreamEndCapture, "", (ep_cu_stream stream, ep_cu_graph * graph)) \
    X(GraphInstantiateWithFlags, "", (ep_cu_graph_exec * made, ep_cu_graph graph, uint64_t flags)) \
    X(GraphUpload, "", (ep_cu_graph_exec graph, ep_cu_stream stream)) \
    X(GraphLaunch, "", (ep_cu_graph_exec graph, ep_cu_stream stream)) \
    X(GraphExecDestroy, "", (ep_cu_graph_exec graph)) \
    X(GraphDestroy, "", (ep_cu_graph graph))

/* For limits of time, and what is the caller's; a driver older than CUDA 9.2 lacks one of them. */
#define EP_CU_CALLER_FUNCTIONS(X) \
    X(StreamQuery, "", (ep_cu_stream stream)) \
    X(CtxGetDevice, "", (ep_cu_device * device)) \
    X(StreamGetCtx, "", (ep_cu_stream stream, ep_cu_context * context)) \
    X(PointerGetAttribute, "", (void *value, int32_t what, ep_cu_address address)) \
    X(MemGetAddressRange, "_v2", (ep_cu_address * start, size_t *nbytes, ep_cu_address address)) \
    X(MemcpyDtoDAsync, "_v2", (ep_cu_address to, ep_cu_address from, size_t nbytes, ep_cu_stream stream))

#endif
