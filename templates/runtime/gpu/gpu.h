/* A GPU's part of a variant: what the generated model.c says of it, and what a back end (opencl.c) does.
 *
 * A variant for a GPU has a list of steps as any other has, but each is one of four: a launch of a kernel on
 * the GPU, a copy to or from the GPU's memory, or a call of a kernel on the CPU (run_step), for operators
 * that the GPU's kernels do not serve. SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_GPU_H
#define EDGEPACK_GPU_H

/* Offsets of buffers in a GPU's arena are multiples of this: the most that a driver is known to ask of them.
 */
#define EP_GPU_ALIGNMENT 512u

enum { EP_STEP_CALL = 0, EP_STEP_LAUNCH = 1, EP_STEP_UPLOAD = 2, EP_STEP_DOWNLOAD = 3 };

/* Where a tensor is on the GPU: a part of the session's arena there, or one of the model's constants. */
enum { EP_GPU_ARENA = 0, EP_GPU_PARAMS = 1 };

typedef struct ep_gpu_place {
    uint64_t offset; /* in the GPU's arena, a multiple of EP_GPU_ALIGNMENT, or in the params data */
    uint64_t nbytes;
    uint32_t memory; /* EP_GPU_ARENA or EP_GPU_PARAMS */
    uint32_t reserved;
} ep_gpu_place;

/* The CPU's side of a copy. */
enum { EP_HOST_INPUT = 0, EP_HOST_OUTPUT = 1, EP_HOST_ARENA = 2, EP_HOST_PARAMS = 3 };

typedef struct ep_gpu_step {
    uint32_t kind;       /* EP_STEP_... */
    uint32_t kernel;     /* launch: which */
    uint32_t groups[3];  /* launch: work groups (CUDA: blocks) in x, y, z */
    uint32_t threads[3]; /* launch: work items (threads) of each */
    uint32_t first;      /* the first of its places in ep_gpu_program.arguments */
    uint32_t count;      /* launch: how many; copies: 1, the GPU's side */
    uint32_t host;       /* copies: EP_HOST_... */
    uint32_t index;      /* copies: of the input or output */
    uint64_t offset;     /* copies: bytes from the start of that */
    uint64_t nbytes;     /* copies */
} ep_gpu_step;

/* Machine code for NVIDIA's GPUs, or a compiled library for Apple's. */
typedef struct ep_gpu_image {
    const unsigned char *data; /* a cubin; or PTX, a text with its zero; or a metallib */
    uint64_t nbytes;
    uint32_t capability; /* compute capability that it is for, 10 * major + minor; Metal: 0 */
    uint32_t ptx;        /* 1: PTX, which the driver compiles for GPUs of this capability and any later one */
} ep_gpu_image;

typedef struct ep_gpu_program {
    uint32_t api; /* EP_GPU_... of runtime.h */
    uint32_t kernel_count;
    uint32_t place_count;
    uint32_t argument_count;
    const char *const *kernels; /* names */
    const ep_gpu_place *places; /* each different one once */
    const uint32_t *arguments;  /* of all steps: indices into places */
    const ep_gpu_step *steps;   /* as many as the descriptor has */
    const char *const *source;  /* of all kernels, in pieces that follow each other */
    uint32_t source_count;
    uint32_t most_threads;      /* work items in the largest work group of any launch */
    uint64_t local_bytes;       /* the most local (shared) memory of any work group */
    uint64_t arena_bytes;       /* of a session, on the GPU */
    const ep_gpu_image *images; /* CUDA, which has no source; Metal: one or none, tried before the source */
    uint32_t image_count;
    uint32_t family; /* Metal: the least family of Apple's GPUs that has what the kernels use; 0: any */
    const unsigned char *on_cpu; /* of each input, then each output: whether the CPU's steps use it */
} ep_gpu_program;

#endif
