/* What is used of Metal and of the Objective-C runtime, declared as their references have it: no SDK is
 * needed. SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_METAL_H
#define EDGEPACK_METAL_H

typedef struct ep_mtl_object_ *ep_mtl_id;         /* id */
typedef struct ep_mtl_selector_ *ep_mtl_selector; /* SEL */
typedef size_t ep_mtl_number;                     /* NSUInteger: all of Apple's targets have 64 bits */
typedef unsigned char ep_mtl_bool;                /* BOOL */

/* MTLSize */
typedef struct ep_mtl_size {
    ep_mtl_number width;
    ep_mtl_number height;
    ep_mtl_number depth;
} ep_mtl_size;

enum {
    EP_MTL_LANGUAGE_2_3 = 0x20003,
    EP_MTL_FAMILY_APPLE = 1000, /* MTLGPUFamilyApple1 is 1001 */
    EP_MTL_STORAGE_SHARED = 0,
    EP_MTL_COMMANDS_COMPLETED = 4, /* 5: failed; less: not done */
    EP_MTL_COPY_ALIGNMENT = 4,     /* of places and sizes of copies within the GPU's memory, on macOS */
    EP_MTL_BUFFERS = 31            /* the most that a kernel can have */
};

/* X(what it returns, name, parameters). */
#define EP_MTL_RUNTIME_FUNCTIONS(X) \
    X(ep_mtl_id, objc_getClass, (const char *name)) \
    X(ep_mtl_selector, sel_registerName, (const char *name)) \
    X(void *, objc_autoreleasePoolPush, (void)) \
    X(void, objc_autoreleasePoolPop, (void *pool))

/* Messages: X(what it returns, name, selector, types of the parameters behind receiver and selector). What
 * "new..." and "init" return is the caller's, all else belongs to the innermost pool or to the receiver. */
#define EP_MTL_MESSAGES(X) \
    X(ep_mtl_id, alloc, "alloc", (ep_mtl_id, ep_mtl_selector)) \
    X(ep_mtl_id, init, "init", (ep_mtl_id, ep_mtl_selector)) \
    X(ep_mtl_id, retain, "retain", (ep_mtl_id, ep_mtl_selector)) \
    X(void, release, "release", (ep_mtl_id, ep_mtl_selector)) \
    X(ep_mtl_bool, responds, "respondsToSelector:", (ep_mtl_id, ep_mtl_selector, ep_mtl_selector)) \
    /* NSString, NSMutableString */ \
    X(ep_mtl_id, string, "stringWithUTF8String:", (ep_mtl_id, ep_mtl_selector, const char *)) \
    X(void, append, "appendString:", (ep_mtl_id, ep_mtl_selector, ep_mtl_id)) \
    X(const char *, utf8, "UTF8String", (ep_mtl_id, ep_mtl_selector)) \
    /* MTLDevice */ \
    X(ep_mtl_id, name, "name", (ep_mtl_id, ep_mtl_selector)) \
    X(ep_mtl_number, most_shared, "maxThreadgroupMemoryLength", (ep_mtl_id, ep_mtl_selector)) \
    X(ep_mtl_number, most_buffer, "maxBufferLength", (ep_mtl_id, ep_mtl_selector)) \
    X(ep_mtl_bool, supports_family, "supportsFamily:", (ep_mtl_id, ep_mtl_selector, ep_mtl_number)) \
    X(uint64_t, working_set, "recommendedMaxWorkingSetSize", (ep_mtl_id, ep_mtl_selector)) \
    X(ep_mtl_id, new_queue, "newCommandQueue", (ep_mtl_id, ep_mtl_selector)) \
    X(ep_mtl_id, new_library, "newLibraryWithSource:options:error:", \
      (ep_mtl_id, ep_mtl_selector, ep_mtl_id, ep_mtl_id, ep_mtl_id *)) \
    X(ep_mtl_id, new_library_of, \
      "newLibraryWithData:error:", (ep_mtl_id, ep_mtl_selector, ep_mtl_id, ep_mtl_id *)) \
    X(ep_mtl_id, new_pipeline, \
      "newComputePipelineStateWithFunction:error:", (ep_mtl_id, ep_mtl_selector, ep_mtl_id, ep_mtl_id *)) \
    X(ep_mtl_id, new_buffer, \
      "newBufferWithLength:options:", (ep_mtl_id, ep_mtl_selector, ep_mtl_number, ep_mtl_number)) \
    X(ep_mtl_id, new_buffer_around, "newBufferWithBytesNoCopy:length:options:deallocator:", \
      (ep_mtl_id, ep_mtl_selector, void *, ep_mtl_number, ep_mtl_number, void *)) \
    /* MTLCompileOptions, MTLLibrary, MTLComputePipelineState, MTLBuffer */ \
    X(void, set_fast_math, "setFastMathEnabled:", (ep_mtl_id, ep_mtl_selector, ep_mtl_bool)) \
    X(void, set_language, "setLanguageVersion:", (ep_mtl_id, ep_mtl_selector, ep_mtl_number)) \
    X(ep_mtl_id, new_function, "newFunctionWithName:", (ep_mtl_id, ep_mtl_selector, ep_mtl_id)) \
    X(ep_mtl_number, most_threads, "maxTotalThreadsPerThreadgroup", (ep_mtl_id, ep_mtl_selector)) \
    X(void *, contents, "contents", (ep_mtl_id, ep_mtl_selector)) \
    X(ep_mtl_number, length, "length", (ep_mtl_id, ep_mtl_selector)) \
    X(ep_mtl_id, device_of, "device", (ep_mtl_id, ep_mtl_selector)) \
    /* MTLCommandQueue, MTLCommandBuffer */ \
    X(ep_mtl_id, commands, "commandBufferWithUnretainedReferences", (ep_mtl_id, ep_mtl_selector)) \
    X(ep_mtl_id, encoder, "computeCommandEncoder", (ep_mtl_id, ep_mtl_selector)) \
    X(void, commit, "commit", (ep_mtl_id, ep_mtl_selector)) \
    X(void, wait, "waitUntilCompleted", (ep_mtl_id, ep_mtl_selector)) \
    X(ep_mtl_number, status, "status", (ep_mtl_id, ep_mtl_selector)) \
    /* MTLComputeCommandEncoder */ \
    X(void, set_pipeline, "setComputePipelineState:", (ep_mtl_id, ep_mtl_selector, ep_mtl_id)) \
    X(void, set_buffer, \
      "setBuffer:offset:atIndex:", (ep_mtl_id, ep_mtl_selector, ep_mtl_id, ep_mtl_number, ep_mtl_number)) \
    X(void, dispatch, \
      "dispatchThreadgroups:threadsPerThreadgroup:", (ep_mtl_id, ep_mtl_selector, ep_mtl_size, ep_mtl_size)) \
    X(void, end, "endEncoding", (ep_mtl_id, ep_mtl_selector)) \
    /* MTLBlitCommandEncoder, which ends with the same message */ \
    X(ep_mtl_id, copier, "blitCommandEncoder", (ep_mtl_id, ep_mtl_selector)) \
    X(void, copy, "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", \
      (ep_mtl_id, ep_mtl_selector, ep_mtl_id, ep_mtl_number, ep_mtl_id, ep_mtl_number, ep_mtl_number))

/* Sends a message: without arguments, and with some. */
#define EP_MTL(mt, message, to)           (mt)->message.send(to, (mt)->message.selector)
#define EP_MTL_WITH(mt, message, to, ...) (mt)->message.send(to, (mt)->message.selector, __VA_ARGS__)

#endif
