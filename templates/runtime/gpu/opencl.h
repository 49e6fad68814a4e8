/* What is used of OpenCL 1.1, declared as its specification has it: no header of a vendor is needed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_OPENCL_H
#define EDGEPACK_OPENCL_H

#if defined(_WIN32)
#define EP_CL_CALL __stdcall
#else
#define EP_CL_CALL
#endif

typedef struct ep_cl_platform_ *ep_cl_platform;
typedef struct ep_cl_device_ *ep_cl_device;
typedef struct ep_cl_context_ *ep_cl_context;
typedef struct ep_cl_queue_ *ep_cl_queue;
typedef struct ep_cl_mem_ *ep_cl_mem;
typedef struct ep_cl_program_ *ep_cl_program;
typedef struct ep_cl_kernel_ *ep_cl_kernel;
typedef struct ep_cl_event_ *ep_cl_event;

/* cl_buffer_region */
typedef struct ep_cl_region {
    size_t origin;
    size_t size;
} ep_cl_region;

enum {
    EP_CL_SUCCESS = 0,
    EP_CL_FALSE = 0,
    EP_CL_TRUE = 1,
    EP_CL_MEM_READ_WRITE = 1,
    EP_CL_MEM_READ_ONLY = 4,
    EP_CL_BUFFER_CREATE_TYPE_REGION = 0x1220,
    EP_CL_DEVICE_TYPE = 0x1000,
    EP_CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    EP_CL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005,
    EP_CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    EP_CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019, /* in bits */
    EP_CL_DEVICE_GLOBAL_MEM_SIZE = 0x101f,
    EP_CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    EP_CL_DEVICE_ENDIAN_LITTLE = 0x1026,
    EP_CL_DEVICE_AVAILABLE = 0x1027,
    EP_CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
    EP_CL_PLATFORM_VERSION = 0x0901,
    EP_CL_DEVICE_NAME = 0x102b,
    EP_CL_DEVICE_VENDOR = 0x102c,
    EP_CL_DRIVER_VERSION = 0x102d,
    EP_CL_DEVICE_VERSION = 0x102f,
    EP_CL_DEVICE_PLATFORM = 0x1031,
    EP_CL_PROGRAM_DEVICES = 0x1163,
    EP_CL_PROGRAM_BINARY_SIZES = 0x1165,
    EP_CL_PROGRAM_BINARIES = 0x1166,
    EP_CL_CONTEXT_DEVICES = 0x1081,
    EP_CL_QUEUE_CONTEXT = 0x1090,
    EP_CL_QUEUE_DEVICE = 0x1091,
    EP_CL_QUEUE_PROPERTIES = 0x1093,
    EP_CL_MEM_TYPE = 0x1100,
    EP_CL_MEM_SIZE = 0x1102,
    EP_CL_MEM_CONTEXT = 0x1106,
    EP_CL_MEM_ASSOCIATED_MEMOBJECT = 0x1107,
    EP_CL_MEM_OFFSET = 0x1108,
    EP_CL_MEM_OBJECT_BUFFER = 0x10f0,
    EP_CL_KERNEL_WORK_GROUP_SIZE = 0x11b0,
    EP_CL_EVENT_STATUS = 0x11d3,
    EP_CL_COMPLETE = 0
};

#define EP_CL_QUEUE_OUT_OF_ORDER UINT64_C(1)
#define EP_CL_DEVICE_TYPE_GPU    UINT64_C(4)
#define EP_CL_DEVICE_TYPE_ALL    UINT64_C(0xffffffff)

/* X(what it returns, name without "cl", parameters). Callbacks and lists of events are not used: null. */
#define EP_CL_FUNCTIONS(X) \
    X(int32_t, GetPlatformIDs, (uint32_t count, ep_cl_platform *platforms, uint32_t *found)) \
    X(int32_t, GetPlatformInfo, \
      (ep_cl_platform platform, uint32_t what, size_t nbytes, void *value, size_t *needed)) \
    X(int32_t, GetDeviceIDs, \
      (ep_cl_platform platform, uint64_t type, uint32_t count, ep_cl_device *devices, uint32_t *found)) \
    X(int32_t, GetDeviceInfo, \
      (ep_cl_device device, uint32_t what, size_t nbytes, void *value, size_t *needed)) \
    X(ep_cl_context, CreateContext, \
      (const intptr_t *properties, uint32_t count, const ep_cl_device *devices, void (*callback)(void), \
       void *user, int32_t *error)) \
    X(int32_t, GetContextInfo, \
      (ep_cl_context context, uint32_t what, size_t nbytes, void *value, size_t *needed)) \
    X(int32_t, RetainContext, (ep_cl_context context)) \
    X(int32_t, ReleaseContext, (ep_cl_context context)) \
    X(ep_cl_queue, CreateCommandQueue, \
      (ep_cl_context context, ep_cl_device device, uint64_t properties, int32_t *error)) \
    X(int32_t, GetCommandQueueInfo, \
      (ep_cl_queue queue, uint32_t what, size_t nbytes, void *value, size_t *needed)) \
    X(int32_t, RetainCommandQueue, (ep_cl_queue queue)) \
    X(int32_t, ReleaseCommandQueue, (ep_cl_queue queue)) \
    X(ep_cl_program, CreateProgramWithSource, \
      (ep_cl_context context, uint32_t count, const char *const *pieces, const size_t *lengths, \
       int32_t *error)) \
    X(ep_cl_program, CreateProgramWithBinary, \
      (ep_cl_context context, uint32_t count, const ep_cl_device *devices, const size_t *lengths, \
       const unsigned char *const *binaries, int32_t *statuses, int32_t *error)) \
    X(int32_t, GetProgramInfo, \
      (ep_cl_program program, uint32_t what, size_t nbytes, void *value, size_t *needed)) \
    X(int32_t, BuildProgram, \
      (ep_cl_program program, uint32_t count, const ep_cl_device *devices, const char *options, \
       void (*callback)(void), void *user)) \
    X(int32_t, ReleaseProgram, (ep_cl_program program)) \
    X(ep_cl_kernel, CreateKernel, (ep_cl_program program, const char *name, int32_t *error)) \
    X(int32_t, GetKernelWorkGroupInfo, \
      (ep_cl_kernel kernel, ep_cl_device device, uint32_t what, size_t nbytes, void *value, size_t *needed)) \
    X(int32_t, SetKernelArg, (ep_cl_kernel kernel, uint32_t index, size_t nbytes, const void *value)) \
    X(int32_t, ReleaseKernel, (ep_cl_kernel kernel)) \
    X(ep_cl_mem, CreateBuffer, \
      (ep_cl_context context, uint64_t flags, size_t nbytes, void *host, int32_t *error)) \
    X(ep_cl_mem, CreateSubBuffer, \
      (ep_cl_mem buffer, uint64_t flags, uint32_t type, const void *region, int32_t *error)) \
    X(int32_t, GetMemObjectInfo, \
      (ep_cl_mem memory, uint32_t what, size_t nbytes, void *value, size_t *needed)) \
    X(int32_t, ReleaseMemObject, (ep_cl_mem memory)) \
    X(int32_t, EnqueueWriteBuffer, \
      (ep_cl_queue queue, ep_cl_mem memory, uint32_t blocking, size_t offset, size_t nbytes, \
       const void *host, uint32_t count, const ep_cl_event *after, ep_cl_event *event)) \
    X(int32_t, EnqueueReadBuffer, \
      (ep_cl_queue queue, ep_cl_mem memory, uint32_t blocking, size_t offset, size_t nbytes, void *host, \
       uint32_t count, const ep_cl_event *after, ep_cl_event *event)) \
    X(int32_t, EnqueueCopyBuffer, \
      (ep_cl_queue queue, ep_cl_mem from, ep_cl_mem to, size_t from_offset, size_t to_offset, size_t nbytes, \
       uint32_t count, const ep_cl_event *after, ep_cl_event *event)) \
    X(int32_t, EnqueueNDRangeKernel, \
      (ep_cl_queue queue, ep_cl_kernel kernel, uint32_t dimensions, const size_t *offset, \
       const size_t *global, const size_t *local, uint32_t count, const ep_cl_event *after, \
       ep_cl_event *event)) \
    X(int32_t, EnqueueMarker, (ep_cl_queue queue, ep_cl_event * event)) \
    X(int32_t, GetEventInfo, (ep_cl_event event, uint32_t what, size_t nbytes, void *value, size_t *needed)) \
    X(int32_t, ReleaseEvent, (ep_cl_event event)) \
    X(int32_t, Flush, (ep_cl_queue queue)) \
    X(int32_t, Finish, (ep_cl_queue queue))

#endif
