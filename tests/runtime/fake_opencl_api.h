/* What fake_opencl.c makes, all of one type, and its functions as OpenCL has them. */
#ifndef FAKE_OPENCL_API_H
#define FAKE_OPENCL_API_H

#include "fake_opencl.h"

#if defined(_WIN32)
#define CALL __stdcall
#else
#define CALL
#endif

enum { MOST_COMMANDS = 32, MOST_ARGUMENTS = 5 };

typedef struct object {
    int kind;
    int references;
    int children;
    uint64_t properties; /* queue */
    fake_device *device; /* context, queue */
    struct object *parent;
    unsigned char *data; /* buffer */
    size_t nbytes;
    int read_only;
    int built;       /* program */
    int from_binary; /* program */
    int which;       /* kernel */
    struct object *arguments[MOST_ARGUMENTS];
    unsigned set;
    size_t count; /* queue: commands */
    struct command {
        struct object *object;
        struct object *source; /* of a copy from one buffer to another */
        size_t source_offset;
        size_t offset;
        size_t nbytes;
        const void *from;
        void *to;
        size_t groups[3];
        size_t threads[3];
        struct object *arguments[MOST_ARGUMENTS];
    } commands[MOST_COMMANDS];
} object;

#define API __attribute__((visibility("default"))) int32_t CALL
#define NEW __attribute__((visibility("default"))) object *CALL

API clGetPlatformIDs(uint32_t count, void **platforms, uint32_t *found);
API clGetDeviceIDs(void *platform, uint64_t type, uint32_t count, fake_device **devices, uint32_t *found);
API clGetDeviceInfo(const fake_device *device, uint32_t what, size_t nbytes, void *value, size_t *needed);
NEW clCreateContext(const intptr_t *properties, uint32_t count, fake_device *const *devices, void *callback,
                    void *user, int32_t *error);
API clGetContextInfo(const object *context, uint32_t what, size_t nbytes, void *value, size_t *needed);
API clRetainContext(object *context);
API clReleaseContext(object *context);
NEW clCreateCommandQueue(object *context, fake_device *device, uint64_t properties, int32_t *error);
API clGetCommandQueueInfo(const object *queue, uint32_t what, size_t nbytes, void *value, size_t *needed);
API clRetainCommandQueue(object *queue);
API clReleaseCommandQueue(object *queue);
NEW clCreateProgramWithSource(object *context, uint32_t count, const char **pieces, const size_t *lengths,
                              int32_t *error);
API clBuildProgram(object *program, uint32_t count, fake_device *const *devices, const char *options,
                   void *callback, void *user);
NEW clCreateProgramWithBinary(object *context, uint32_t count, fake_device *const *devices,
                              const size_t *lengths, const unsigned char *const *binaries, int32_t *statuses,
                              int32_t *error);
API clGetProgramInfo(const object *program, uint32_t what, size_t nbytes, void *value, size_t *needed);
API clGetPlatformInfo(const void *platform, uint32_t what, size_t nbytes, void *value, size_t *needed);
API clReleaseProgram(object *program);
NEW clCreateKernel(object *program, const char *name, int32_t *error);
API clGetKernelWorkGroupInfo(object *kernel, fake_device *device, uint32_t what, size_t nbytes, void *value,
                             size_t *needed);
API clSetKernelArg(object *kernel, uint32_t index, size_t nbytes, const void *value);
API clReleaseKernel(object *kernel);
NEW clCreateBuffer(object *context, uint64_t flags, size_t nbytes, void *host, int32_t *error);
NEW clCreateSubBuffer(object *buffer, uint64_t flags, uint32_t type, const size_t *region, int32_t *error);
API clGetMemObjectInfo(const object *memory, uint32_t what, size_t nbytes, void *value, size_t *needed);
API clReleaseMemObject(object *memory);
API clEnqueueWriteBuffer(object *queue, object *memory, uint32_t blocking, size_t offset, size_t nbytes,
                         const void *host, uint32_t count, const void *after, void *event);
API clEnqueueReadBuffer(object *queue, object *memory, uint32_t blocking, size_t offset, size_t nbytes,
                        void *host, uint32_t count, const void *after, void *event);
API clEnqueueNDRangeKernel(object *queue, object *kernel, uint32_t dimensions, const size_t *offset,
                           const size_t *global, const size_t *local, uint32_t count, const void *after,
                           void *event);
API clEnqueueCopyBuffer(object *queue, object *from, object *to, size_t from_offset, size_t to_offset,
                        size_t nbytes, uint32_t count, const void *after, void *event);
API clEnqueueMarker(object *queue, object **event);
API clGetEventInfo(const object *event, uint32_t what, size_t nbytes, void *value, size_t *needed);
API clReleaseEvent(object *event);
API clFlush(object *queue);
API clFinish(object *queue);

#endif
