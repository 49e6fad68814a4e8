/* The mini model with a variant for a GPU: its steps are copies, launches and calls of the CPU's kernels in
 * between. Takes the place of the bundle's model.c, which it includes. */
#ifndef GPU_MODEL_H
#define GPU_MODEL_H

#define EP_GPU_API_OPENCL 1
#define EP_GPU_API_CUDA   1
#define EP_GPU_API_METAL  1
#include "model.c"

#include "check.h"

enum { ROW_BYTES = 100 * 16 * 4 };

/* Places: data and, when that is no longer needed, what the CPU blurred; products, later sums; the total; the
 * weights, once as the model's constant and once copied by each run; and a tensor of no bytes. */
enum { DATA, PRODUCTS, TOTAL, COPIED, WEIGHTS, NOTHING };

static const ep_gpu_place gpu_places[] = {
    {0, ROW_BYTES, EP_GPU_ARENA, 0}, {6656, ROW_BYTES, EP_GPU_ARENA, 0}, {13312, 4, EP_GPU_ARENA, 0},
    {13824, 64, EP_GPU_ARENA, 0},    {64, 64, EP_GPU_PARAMS, 0},         {13888, 0, EP_GPU_ARENA, 0},
};

static const uint32_t gpu_arguments[] = {
    DATA, COPIED,                               /* uploads */
    DATA, WEIGHTS, COPIED,   NOTHING, PRODUCTS, /* scale */
    DATA, TOTAL,                                /* total */
    DATA, TOTAL,   PRODUCTS,                    /* add_total */
};

static const char *const gpu_kernels[] = {"scale", "total", "add_total"};

static const char *const gpu_source[] = {
    "kernel void scale(global const float *x, constant float *weights, global const float *copied,\n"
    "                  global const float *nothing, global float *y) {\n"
    "    size_t i = get_global_id(1) * 16 + get_global_id(0);\n"
    "    size_t c = get_global_id(0);\n"
    "    y[i] = nothing == 0 && weights[c] == copied[c] ? x[i] * weights[c] : NAN;\n"
    "}\n",
    "kernel __attribute__((reqd_work_group_size(32, 1, 1)))\n"
    "void total(global const float *x, global float *y) {\n"
    "    local float parts[32];\n"
    "    size_t thread = get_local_id(0);\n"
    "    float sum = 0;\n"
    "    for (size_t i = thread; i < 100; i += 32) sum += x[i * 16];\n"
    "    parts[thread] = sum;\n",
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    if (thread == 0) {\n"
    "        for (int i = 1; i < 32; i++) sum += parts[i];\n"
    "        y[0] = sum;\n"
    "    }\n"
    "}\n"
    "kernel void add_total(global const float *x, global const float *total, global float *y) {\n"
    "    y[get_global_id(0)] = x[get_global_id(0)] + total[0];\n"
    "}\n",
};

enum { STEPS = 14, SPOIL = 7 };

/* The CPU's step for each call. */
static const uint32_t gpu_calls[STEPS] = {0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 6, 0, 0};

static const ep_gpu_step gpu_steps[STEPS] = {
    {EP_STEP_CALL, 0, {0, 0, 0}, {0, 0, 0}, 0, 0, 0, 0, 0, 0}, /* fail_if_negative */
    {EP_STEP_UPLOAD, 0, {0, 0, 0}, {0, 0, 0}, 0, 1, EP_HOST_INPUT, 0, 0, ROW_BYTES},
    {EP_STEP_UPLOAD, 0, {0, 0, 0}, {0, 0, 0}, 1, 1, EP_HOST_PARAMS, 0, 64, 64},
    {EP_STEP_LAUNCH, 0, {2, 25, 1}, {8, 4, 1}, 2, 5, 0, 0, 0, 0},
    {EP_STEP_DOWNLOAD, 0, {0, 0, 0}, {0, 0, 0}, 6, 1, EP_HOST_ARENA, 0, 0, ROW_BYTES},
    {EP_STEP_CALL, 0, {0, 0, 0}, {0, 0, 0}, 0, 0, 0, 0, 0, 0}, /* blur */
    {EP_STEP_UPLOAD, 0, {0, 0, 0}, {0, 0, 0}, 0, 1, EP_HOST_ARENA, 0, ROW_BYTES, ROW_BYTES},
    {EP_STEP_CALL, 0, {0, 0, 0}, {0, 0, 0}, 0, 0, 0, 0, 0, 0}, /* spoil */
    {EP_STEP_LAUNCH, 1, {1, 1, 1}, {32, 1, 1}, 7, 2, 0, 0, 0, 0},
    {EP_STEP_LAUNCH, 2, {25, 1, 1}, {64, 1, 1}, 9, 3, 0, 0, 0, 0},
    {EP_STEP_DOWNLOAD, 0, {0, 0, 0}, {0, 0, 0}, 6, 1, EP_HOST_OUTPUT, 0, 0, ROW_BYTES},
    {EP_STEP_CALL, 0, {0, 0, 0}, {0, 0, 0}, 0, 0, 0, 0, 0, 0}, /* convert */
    {EP_STEP_LAUNCH, 2, {0, 1, 1}, {64, 1, 1}, 9, 3, 0, 0, 0, 0},
    {EP_STEP_UPLOAD, 0, {0, 0, 0}, {0, 0, 0}, 5, 1, EP_HOST_INPUT, 0, 0, 0},
};

static const int32_t gpu_tasks[STEPS] = {8, 1, 1, 1, 1, 100, 1, 1, 1, 1, 1, 8, 1, 1};

/* Of blur, the only one that has some. */
static const uint64_t gpu_scratch[2 * STEPS] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12864, 128};

/* The numbers, and what convert makes of them. */
static const unsigned char gpu_on_cpu[MINI_INPUTS + MINI_OUTPUTS] = {0, 1, 0, 1, 1, 1};

static ep_gpu_program gpu_program = {
    EP_GPU_OPENCL,
    sizeof gpu_kernels / sizeof gpu_kernels[0],
    sizeof gpu_places / sizeof gpu_places[0],
    sizeof gpu_arguments / sizeof gpu_arguments[0],
    gpu_kernels,
    gpu_places,
    gpu_arguments,
    gpu_steps,
    gpu_source,
    sizeof gpu_source / sizeof gpu_source[0],
    64,
    128,
    13888,
    NULL,
    0,
    0,
    gpu_on_cpu,
};

static int32_t run_gpu_step(const struct ep_context *context, uint32_t step, unsigned char *scratch,
                            int32_t lo, int32_t hi) {
    if (step == SPOIL) { /* what was just copied to the GPU */
        memset(context->arena, 0xff, (size_t)edgepack_model_mini.arena_bytes);
        return 0;
    }
    return run_step(context, gpu_calls[step], scratch, lo, hi);
}

/* The library: what it exports, which is the CPU's, and both variants; and the GPU's alone. */
static ep_descriptor gpu_library, gpu_variant, cpu_variant, gpu_alone;
static const ep_descriptor *const gpu_variants[] = {&gpu_variant, &cpu_variant};

static void gpu_make_library(void) {
    cpu_variant = edgepack_model_mini;
    cpu_variant.variant = "the CPU";
    cpu_variant.exported = &gpu_library;
    gpu_variant = cpu_variant;
    gpu_variant.variant = "the GPU";
    gpu_variant.step_tasks = gpu_tasks;
    gpu_variant.step_count = STEPS;
    gpu_variant.step_scratch = gpu_scratch;
    gpu_variant.scratch_threads = 1;
    gpu_variant.run_step = run_gpu_step;
    gpu_variant.gpu = &gpu_program;
    gpu_library = cpu_variant;
    gpu_library.variant = NULL;
    gpu_library.variants = gpu_variants;
    gpu_library.variant_count = 2;
    gpu_alone = gpu_variant;
    gpu_alone.exported = &gpu_alone;
}

#endif
