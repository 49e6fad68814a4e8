/* OpenCL: the kernels and constants of a model.
 *
 * One buffer for each constant, for a driver asks more of a part's place in a buffer than the params file
 * gives. What a session has is in opencl_session.c.
 * SPDX-License-Identifier: Apache-2.0 */

/* Whether kernel `index` is there and can have the threads that its launches give it: with the registers that
 * it needs, a device may have fewer than it says. */
static ep_status ep_opencl_check_kernel(const ep_opencl_model *cl, uint32_t index) {
    const ep_descriptor *descriptor = cl->head.descriptor;
    int32_t error = EP_CL_SUCCESS;
    size_t most = 0;
    ep_status status = EP_OK;
    ep_cl_kernel kernel = cl->CreateKernel(cl->program, descriptor->gpu->kernels[index], &error);
    if (kernel == NULL || error != EP_CL_SUCCESS) {
        return EP_E_GPU_BUILD;
    }
    if (cl->GetKernelWorkGroupInfo(kernel, cl->device, EP_CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most,
                                   NULL) != EP_CL_SUCCESS) {
        status = EP_E_GPU_BUILD;
    }
    for (uint32_t i = 0; i < descriptor->step_count && status == EP_OK; i++) {
        const ep_gpu_step *step = &descriptor->gpu->steps[i];
        if (step->kind == EP_STEP_LAUNCH && step->kernel == index &&
            (uint64_t)step->threads[0] * step->threads[1] * step->threads[2] > most) {
            status = EP_E_GPU_DEVICE;
        }
    }
    cl->ReleaseKernel(kernel);
    return status;
}

/* Compiles a program of the context, and looks for its kernels. */
static ep_status ep_opencl_build_program(ep_opencl_model *cl) {
    ep_status status = EP_OK;
    if (cl->BuildProgram(cl->program, 1, &cl->device, "", NULL, NULL) != EP_CL_SUCCESS) {
        return EP_E_GPU_BUILD;
    }
    for (uint32_t i = 0; i < cl->head.descriptor->gpu->kernel_count && status == EP_OK; i++) {
        status = ep_opencl_check_kernel(cl, i);
    }
    return status;
}

/* From what the driver made of the same text before; whether that is there, and works. */
static int ep_opencl_build_cached(ep_opencl_model *cl, const ep_cache *cache, const ep_opencl_key *key) {
    cl->program = ep_opencl_cache_read(cl, cache, key);
    if (cl->program == NULL) {
        return 0;
    }
    if (ep_opencl_build_program(cl) == EP_OK) {
        return 1;
    }
    cl->ReleaseProgram(cl->program);
    cl->program = NULL;
    return 0;
}

static ep_status ep_opencl_build(ep_opencl_model *cl, const ep_cache *cache) {
    const ep_gpu_program *program = cl->head.descriptor->gpu;
    int32_t error = EP_CL_SUCCESS;
    ep_opencl_key key;
    if (!cl->head.borrowed) {
        cl->context = cl->CreateContext(NULL, 1, &cl->device, NULL, NULL, &error);
    }
    if (cl->context == NULL || error != EP_CL_SUCCESS) {
        return EP_E_GPU_DEVICE;
    }
    if (cache != NULL && !ep_opencl_key_make(cl, &key)) {
        cache = NULL;
    }
    if (cache != NULL && ep_opencl_build_cached(cl, cache, &key)) {
        return EP_OK;
    }
    cl->program =
        cl->CreateProgramWithSource(cl->context, program->source_count, program->source, NULL, &error);
    if (cl->program == NULL || error != EP_CL_SUCCESS) {
        return EP_E_GPU_BUILD;
    }
    ep_status status = ep_opencl_build_program(cl);
    if (status == EP_OK && cache != NULL) {
        ep_opencl_cache_write(cl, cache, &key);
    }
    return status;
}

/* Copied now, not when a run first needs them: what the GPU has no memory for is known at once. */
static ep_status ep_opencl_copy_constants(ep_opencl_model *cl, const unsigned char *params) {
    const ep_gpu_program *program = cl->head.descriptor->gpu;
    int32_t error = EP_CL_SUCCESS;
    ep_status status = EP_OK;
    ep_cl_queue queue = cl->CreateCommandQueue(cl->context, cl->device, 0, &error);
    if (queue == NULL || error != EP_CL_SUCCESS) {
        return EP_E_GPU_MEMORY;
    }
    for (uint32_t i = 0; i < program->place_count && status == EP_OK; i++) {
        const ep_gpu_place *place = &program->places[i];
        size_t nbytes = (size_t)place->nbytes;
        if (place->memory != EP_GPU_PARAMS || nbytes == 0) {
            continue;
        }
        cl->constants[i] = cl->CreateBuffer(cl->context, EP_CL_MEM_READ_ONLY, nbytes, NULL, &error);
        if (cl->constants[i] == NULL || error != EP_CL_SUCCESS ||
            cl->EnqueueWriteBuffer(queue, cl->constants[i], EP_CL_TRUE, 0, nbytes,
                                   params + (size_t)place->offset, 0, NULL, NULL) != EP_CL_SUCCESS) {
            status = EP_E_GPU_MEMORY;
        }
    }
    cl->ReleaseCommandQueue(queue);
    return status;
}

static size_t ep_opencl_model_bytes(const ep_gpu_program *program) {
    return sizeof(ep_opencl_model) + (size_t)program->place_count * sizeof(ep_cl_mem);
}

static ep_status ep_opencl_model_open(ep_gpu_model *head, const ep_open_options *options,
                                      const unsigned char *params) {
    ep_opencl_model *cl = (ep_opencl_model *)(void *)head;
    cl->constants = (ep_cl_mem *)(void *)(cl + 1);
    ep_status status = ep_opencl_load(cl);
    if (status == EP_OK) {
        status = head->borrowed ? ep_opencl_take(cl, options) : ep_opencl_find(cl);
    }
    if (status == EP_OK) {
        size_t most = sizeof head->device - 1;
        if (cl->GetDeviceInfo(cl->device, EP_CL_DEVICE_NAME, most, head->device, NULL) != EP_CL_SUCCESS) {
            head->device[0] = 0; /* longer than that */
        }
        status = ep_opencl_build(cl, options->cache);
    }
    return status == EP_OK ? ep_opencl_copy_constants(cl, params) : status;
}

static void ep_opencl_model_close(ep_gpu_model *head) {
    ep_opencl_model *cl = (ep_opencl_model *)(void *)head;
    for (uint32_t i = 0; i < head->descriptor->gpu->place_count; i++) {
        if (cl->constants[i] != NULL) {
            cl->ReleaseMemObject(cl->constants[i]);
        }
    }
    if (cl->program != NULL) {
        cl->ReleaseProgram(cl->program);
    }
    if (cl->context != NULL) {
        cl->ReleaseContext(cl->context);
    }
    if (cl->library != NULL) {
        ep_platform_library_close(cl->library);
    }
}
