/* Models of a library with variants for a GPU: which of them is taken, and why the others were not.
 *
 * ep_model.reserved[0] is the GPU's part of the model (an ep_gpu_model), or 0; [1] and [2] are the first two
 * variants that failed, as api << 16 | status.
 * SPDX-License-Identifier: Apache-2.0 */

/* Opens one variant for a GPU of a model whose params are attached. */
static ep_status ep_gpu_open(const ep_descriptor *descriptor, ep_model *model, const ep_open_options *options,
                             uint32_t alone) {
    const ep_gpu_backend *backend = ep_gpu_backend_of(descriptor->gpu);
    if (backend == NULL) {
        return EP_E_UNSUPPORTED;
    }
    if (options->gpu_context != NULL && options->gpu_api != backend->api) {
        return EP_E_GPU_CONTEXT;
    }
    size_t nbytes = backend->model_bytes(descriptor->gpu);
    ep_gpu_model *gpu = ep_platform_allocate(NULL, nbytes);
    if (gpu == NULL) {
        return EP_E_NO_MEMORY;
    }
    ep_clear(gpu, nbytes);
    gpu->backend = backend;
    gpu->descriptor = descriptor;
    gpu->nbytes = nbytes;
    gpu->process = ep_gpu_process();
    gpu->alone = alone;
    gpu->mapped = model->mapping != NULL;
    gpu->borrowed = options->gpu_context != NULL;
    ep_status status = backend->model_open(gpu, options, model->params);
    if (status != EP_OK) {
        backend->model_close(gpu);
        ep_platform_release(NULL, gpu, nbytes);
        return status;
    }
    model->reserved[0] = (uintptr_t)gpu;
    return EP_OK;
}

/* In a child that fork() made, the driver's objects are the parent's. */
static void ep_gpu_close(ep_model *model) {
    ep_gpu_model *gpu = (ep_gpu_model *)model->reserved[0];
    if (gpu != NULL) {
        if (gpu->process == ep_gpu_process()) {
            gpu->backend->model_close(gpu);
        }
        ep_platform_release(NULL, gpu, gpu->nbytes);
    }
}

static void ep_gpu_note(ep_model *model, const ep_gpu_program *program, ep_status status) {
    uintptr_t note = (uintptr_t)program->api << 16 | (uintptr_t)status;
    if (model->reserved[1] == 0) {
        model->reserved[1] = note;
    } else if (model->reserved[2] == 0) {
        model->reserved[2] = note;
    }
}

/* Takes the first variant of `descriptor` that works, for a model whose params are attached. */
static ep_status ep_gpu_choose(const ep_descriptor *descriptor, const ep_open_options *options,
                               ep_model *model) {
    uint32_t count = descriptor->variant_count != 0 ? descriptor->variant_count : 1;
    for (uint32_t i = 0; i < count; i++) {
        const ep_descriptor *variant = descriptor->variant_count != 0 ? descriptor->variants[i] : descriptor;
        if (ep_cpu_missing(variant->cpu_features, NULL, 0) != 0) {
            continue;
        }
        ep_status status = variant->gpu != NULL ? ep_gpu_open(variant, model, options, count == 1) : EP_OK;
        if (status == EP_OK) {
            model->descriptor = variant;
            return EP_OK;
        }
        ep_gpu_note(model, variant->gpu, status);
    }
    return model->reserved[1] != 0 ? (ep_status)(model->reserved[1] & 0xffffu) : EP_E_CPU;
}

/* A text that is cut where there is no more room for it. */
typedef struct ep_text {
    char *to;
    size_t length;
    size_t capacity;
} ep_text;

static void ep_text_add(ep_text *text, const char *piece) {
    for (; *piece != 0 && text->length + 1 < text->capacity; piece++) {
        text->to[text->length++] = *piece;
    }
    text->to[text->length] = 0;
}

static void ep_text_add_note(ep_text *text, const char *before, uintptr_t note) {
    ep_gpu_program program = {0};
    ep_status status = (ep_status)(note & 0xffffu);
    program.api = (uint32_t)(note >> 16);
    const ep_gpu_backend *backend = ep_gpu_backend_of(&program);
    ep_text_add(text, before);
    ep_text_add(text, backend != NULL ? backend->name : "gpu");
    ep_text_add(text, ": ");
    ep_text_add(text, ep_status_name(status));
    ep_text_add(text, ": ");
    ep_text_add(text, ep_status_string(status));
}

static ep_status ep_model_backend_impl(const ep_model *model, char *to, size_t capacity) {
    const ep_gpu_model *gpu = (const ep_gpu_model *)model->reserved[0];
    ep_text text = {to, 0, capacity};
    if (gpu != NULL) {
        ep_text_add(&text, gpu->backend->name);
        ep_text_add(&text, ": ");
        ep_text_add(&text, gpu->device);
    } else {
        ep_text_add(&text, "cpu");
    }
    for (int i = 1; i < 3 && model->reserved[i] != 0; i++) {
        ep_text_add_note(&text, i == 1 ? " (" : "; ", model->reserved[i]);
    }
    if (model->reserved[1] != 0) {
        ep_text_add(&text, ")");
    }
    return EP_OK;
}
