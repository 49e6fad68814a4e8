/* Models, and the table through which the public header calls the library.
 * SPDX-License-Identifier: Apache-2.0 */
/* The first variant that this CPU can run. */
static const ep_descriptor *ep_model_choose(const ep_descriptor *descriptor) {
    for (uint32_t i = 0; i < descriptor->variant_count; i++) {
        if (ep_cpu_missing(descriptor->variants[i]->cpu_features, NULL, 0) == 0) {
            return descriptor->variants[i];
        }
    }
    return descriptor;
}

static ep_status ep_model_begin(const ep_descriptor *descriptor, ep_model *model) {
    static const ep_model empty;
    if (model == NULL) {
        return EP_E_NULL;
    }
    *model = empty;
    return ep_cpu_missing(descriptor->cpu_features, NULL, 0) == 0 ? EP_OK : EP_E_CPU;
}

static const ep_open_options ep_open_defaults = EP_OPEN_OPTIONS_INIT;

static ep_status ep_model_attach(const ep_descriptor *descriptor, const unsigned char *image, size_t nbytes,
                                 const ep_open_options *options, ep_model *model) {
    ep_status status = ep_params_attach(descriptor, image, nbytes, options, model);
    if (status == EP_OK) {
        model->descriptor = descriptor;
    }
    return status;
}

static ep_status ep_model_open_bytes(const ep_descriptor *descriptor, const void *image, size_t nbytes,
                                     const ep_open_options *options, ep_model *model) {
    descriptor = ep_model_choose(descriptor);
    ep_status status = ep_model_begin(descriptor, model);
    if (status == EP_OK && image == NULL) {
        status = EP_E_NULL;
    }
    return status == EP_OK ? ep_model_attach(descriptor, image, nbytes, options, model) : status;
}

static ep_status ep_model_open_file(const ep_descriptor *descriptor, const char *path,
                                    const ep_open_options *options, ep_model *model) {
    descriptor = ep_model_choose(descriptor);
    ep_status status = ep_model_begin(descriptor, model);
    if (status != EP_OK) {
        return status;
    }
    if (path == NULL) {
        if (descriptor->embedded_params == NULL) {
            return EP_E_NO_PARAMS;
        }
        return ep_model_attach(descriptor, descriptor->embedded_params, (size_t)descriptor->embedded_bytes,
                               options, model);
    }
    const unsigned char *image = NULL;
    size_t nbytes = 0;
    void *mapping = NULL;
    status = ep_platform_map(path, &image, &nbytes, &mapping);
    if (status != EP_OK) {
        return status;
    }
    status = ep_model_attach(descriptor, image, nbytes, options, model);
    if (status == EP_OK) {
        model->mapping = mapping;
    } else if (mapping != NULL) {
        ep_platform_unmap(mapping, nbytes);
    }
    return status;
}

static ep_status ep_model_open_impl(const ep_descriptor *descriptor, const char *path, ep_model *model) {
    return ep_model_open_file(descriptor, path, &ep_open_defaults, model);
}

static ep_status ep_model_open_memory_impl(const ep_descriptor *descriptor, const void *image, size_t nbytes,
                                           ep_model *model) {
    return ep_model_open_bytes(descriptor, image, nbytes, &ep_open_defaults, model);
}

/* The id was looked at when the model was opened. */
static ep_status ep_model_check_params_impl(const ep_model *model) {
    return ep_params_check(model->image, model->image_bytes);
}

static void ep_model_close_impl(ep_model *model) {
    static const ep_model empty;
#if defined(EP_HAVE_GPU)
    ep_gpu_close(model);
#endif
    if (model->mapping != NULL) {
        ep_platform_unmap(model->mapping, model->image_bytes);
    }
    *model = empty;
}

#if defined(EP_HAVE_GPU)
/* The params are attached for the first variant that the CPU can run; all variants have the same. */
static ep_status ep_model_choose_gpu(const ep_descriptor *descriptor, ep_status status,
                                     const ep_open_options *options, ep_model *model) {
    if (status == EP_OK) {
        status = ep_gpu_choose(descriptor, options, model);
        if (status != EP_OK) {
            ep_model_close_impl(model);
        }
    }
    return status;
}

static ep_status ep_model_open_gpu(const ep_descriptor *descriptor, const char *path, ep_model *model) {
    ep_status status = ep_model_open_impl(descriptor, path, model);
    return ep_model_choose_gpu(descriptor, status, &ep_open_defaults, model);
}

static ep_status ep_model_open_memory_gpu(const ep_descriptor *descriptor, const void *image, size_t nbytes,
                                          ep_model *model) {
    ep_status status = ep_model_open_memory_impl(descriptor, image, nbytes, model);
    return ep_model_choose_gpu(descriptor, status, &ep_open_defaults, model);
}
#endif

static ep_status ep_open_options_read(const ep_open_options *from, ep_open_options *options) {
    *options = ep_open_defaults;
    if (from != NULL && !ep_struct_read(options, sizeof *options, offsetof(ep_open_options, cache), from) &&
        !ep_struct_read(options, sizeof *options, offsetof(ep_open_options, params_ids), from)) {
        return EP_E_OPTION;
    }
    int context = options->gpu_context != NULL;
    if (options->cache != NULL && (options->cache->read == NULL || options->cache->write == NULL)) {
        return EP_E_NULL;
    }
    int either = options->path == NULL || options->image == NULL;
    int listed = options->params_id_count == 0 || options->params_ids != NULL;
    return either && listed && options->params_id_count <= EP_MOST_PARAMS_IDS && options->reserved == 0 &&
                   context == (options->gpu_api != 0) && options->gpu_api <= EP_GPU_METAL &&
                   (context || options->gpu_device == NULL)
               ? EP_OK
               : EP_E_OPTION;
}

static ep_status ep_model_open_with_impl(const ep_descriptor *descriptor, const ep_open_options *from,
                                         ep_model *model) {
    ep_open_options options;
    ep_status status = ep_open_options_read(from, &options);
    if (status != EP_OK) {
        return status;
    }
    status = options.image != NULL
                 ? ep_model_open_bytes(descriptor, options.image, options.image_bytes, &options, model)
                 : ep_model_open_file(descriptor, options.path, &options, model);
#if defined(EP_HAVE_GPU)
    status = ep_model_choose_gpu(descriptor, status, &options, model);
#endif
    return status;
}

static size_t ep_missing_features_impl(const ep_descriptor *descriptor, char *text, size_t capacity) {
    return ep_cpu_missing(descriptor->cpu_features, text, text == NULL ? 0 : capacity);
}

static const ep_api ep_api_table = {
    sizeof(ep_api),
    0,
#if defined(EP_HAVE_GPU)
    ep_model_open_gpu,
    ep_model_open_memory_gpu,
#else
    ep_model_open_impl,
    ep_model_open_memory_impl,
#endif
    ep_model_check_params_impl,
    ep_model_close_impl,
    ep_missing_features_impl,
    ep_session_bytes_impl,
    ep_session_create_impl,
    ep_session_run_impl,
    ep_session_begin_impl,
    ep_session_work_impl,
    ep_session_profile_impl,
    ep_session_destroy_impl,
#if defined(EP_HAVE_GPU)
    ep_model_backend_impl,
    ep_model_open_with_impl,
    ep_session_run_memory_impl,
    ep_session_synchronize_impl,
#else
    NULL,
    ep_model_open_with_impl,
    NULL,
    NULL,
#endif
};
