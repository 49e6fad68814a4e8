/* OpenCL: what the driver compiled, kept by the caller.
 *
 * An entry is EP_CL_ENTRY, the key, the SHA-256 of what follows, and the driver's binary: drivers crash on
 * binaries that are not whole, so that none gets one that was not written so.
 * SPDX-License-Identifier: Apache-2.0 */
#define EP_CL_ENTRY "EPCLBIN1"

enum {
    EP_CL_DIGEST = 32,
    EP_CL_KEY = 8,
    EP_CL_CHECK = EP_CL_KEY + EP_CL_DIGEST,
    EP_CL_BINARY = EP_CL_CHECK + EP_CL_DIGEST
};

typedef struct ep_opencl_key {
    unsigned char digest[EP_CL_DIGEST];
    char name[2 * EP_CL_DIGEST + 1]; /* the same in hexadecimal */
} ep_opencl_key;

/* Adds a text of the device's, with its zero; whether there is one. */
static int ep_opencl_hash_text(const ep_opencl_model *cl, ep_sha256 *hash, uint32_t what) {
    char text[1024] = {0};
    size_t nbytes = 0;
    ep_cl_platform platform = NULL;
    int32_t error = cl->GetDeviceInfo(cl->device, EP_CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL);
    if (error == EP_CL_SUCCESS) {
        error = what == EP_CL_PLATFORM_VERSION
                    ? cl->GetPlatformInfo(platform, what, sizeof text - 1, text, NULL)
                    : cl->GetDeviceInfo(cl->device, what, sizeof text - 1, text, NULL);
    }
    while (text[nbytes] != 0) {
        nbytes++;
    }
    ep_sha256_update(hash, (const unsigned char *)text, nbytes + 1);
    return error == EP_CL_SUCCESS;
}

/* Of all that the binary depends on; 0 if the driver does not tell it. */
static int ep_opencl_key_make(const ep_opencl_model *cl, ep_opencl_key *key) {
    static const uint32_t texts[] = {EP_CL_PLATFORM_VERSION, EP_CL_DEVICE_NAME, EP_CL_DEVICE_VENDOR,
                                     EP_CL_DRIVER_VERSION, EP_CL_DEVICE_VERSION};
    static const char digits[] = "0123456789abcdef";
    const ep_gpu_program *program = cl->head.descriptor->gpu;
    ep_sha256 hash;
    ep_sha256_init(&hash);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (!ep_opencl_hash_text(cl, &hash, texts[i])) {
            return 0;
        }
    }
    for (uint32_t i = 0; i < program->source_count; i++) {
        size_t nbytes = 0;
        while (program->source[i][nbytes] != 0) {
            nbytes++;
        }
        ep_sha256_update(&hash, (const unsigned char *)program->source[i], nbytes);
    }
    ep_sha256_final(&hash, key->digest);
    for (size_t i = 0; i < EP_CL_DIGEST; i++) {
        key->name[2 * i] = digits[key->digest[i] / 16];
        key->name[2 * i + 1] = digits[key->digest[i] % 16];
    }
    key->name[2 * EP_CL_DIGEST] = 0;
    return 1;
}

static void ep_opencl_cache_check(const unsigned char *entry, size_t nbytes,
                                  unsigned char digest[EP_CL_DIGEST]) {
    ep_sha256 hash;
    ep_sha256_init(&hash);
    ep_sha256_update(&hash, entry + EP_CL_BINARY, nbytes - EP_CL_BINARY);
    ep_sha256_final(&hash, digest);
}

/* A program of the binary that was kept; null: there is none, or not as it was written, or not for this
 * driver. */
static ep_cl_program ep_opencl_cache_read(const ep_opencl_model *cl, const ep_cache *cache,
                                          const ep_opencl_key *key) {
    size_t nbytes = cache->read(cache->user, key->name, NULL, 0);
    unsigned char *entry = nbytes > EP_CL_BINARY ? ep_platform_allocate(NULL, nbytes) : NULL;
    ep_cl_program program = NULL;
    unsigned char digest[EP_CL_DIGEST];
    int32_t status = EP_CL_SUCCESS;
    int32_t error = EP_CL_SUCCESS;
    if (entry == NULL) {
        return NULL;
    }
    if (cache->read(cache->user, key->name, entry, nbytes) == nbytes) {
        const unsigned char *binary = entry + EP_CL_BINARY;
        size_t length = nbytes - EP_CL_BINARY;
        ep_opencl_cache_check(entry, nbytes, digest);
        if (ep_equal(entry, (const unsigned char *)EP_CL_ENTRY, EP_CL_KEY) &&
            ep_equal(entry + EP_CL_KEY, key->digest, EP_CL_DIGEST) &&
            ep_equal(entry + EP_CL_CHECK, digest, EP_CL_DIGEST)) {
            program =
                cl->CreateProgramWithBinary(cl->context, 1, &cl->device, &length, &binary, &status, &error);
        }
    }
    ep_platform_release(NULL, entry, nbytes);
    if (program != NULL && (error != EP_CL_SUCCESS || status != EP_CL_SUCCESS)) {
        cl->ReleaseProgram(program);
        program = NULL;
    }
    return program;
}

/* The binary for the model's device, of a program that others of the context's may share; its bytes, or 0.
 * With `to` null nothing is copied. */
static size_t ep_opencl_binary(const ep_opencl_model *cl, unsigned char *to) {
    ep_cl_device devices[EP_CL_DEVICES] = {NULL};
    size_t sizes[EP_CL_DEVICES] = {0};
    unsigned char *binaries[EP_CL_DEVICES] = {NULL};
    if (cl->GetProgramInfo(cl->program, EP_CL_PROGRAM_DEVICES, sizeof devices, devices, NULL) !=
            EP_CL_SUCCESS ||
        cl->GetProgramInfo(cl->program, EP_CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, NULL) !=
            EP_CL_SUCCESS) {
        return 0;
    }
    for (size_t i = 0; i < EP_CL_DEVICES; i++) {
        if (devices[i] != cl->device) {
            continue;
        }
        binaries[i] = to;
        if (to != NULL && cl->GetProgramInfo(cl->program, EP_CL_PROGRAM_BINARIES, sizeof binaries, binaries,
                                             NULL) != EP_CL_SUCCESS) {
            return 0;
        }
        return sizes[i];
    }
    return 0;
}

/* Without memory for it, nothing is kept. */
static void ep_opencl_cache_write(const ep_opencl_model *cl, const ep_cache *cache,
                                  const ep_opencl_key *key) {
    size_t length = ep_opencl_binary(cl, NULL);
    size_t nbytes = length + EP_CL_BINARY;
    unsigned char *entry = length != 0 && nbytes > length ? ep_platform_allocate(NULL, nbytes) : NULL;
    if (entry == NULL) {
        return;
    }
    if (ep_opencl_binary(cl, entry + EP_CL_BINARY) == length) {
        ep_copy(entry, EP_CL_ENTRY, EP_CL_KEY);
        ep_copy(entry + EP_CL_KEY, key->digest, EP_CL_DIGEST);
        ep_opencl_cache_check(entry, nbytes, entry + EP_CL_CHECK);
        cache->write(cache->user, key->name, entry, nbytes);
    }
    ep_platform_release(NULL, entry, nbytes);
}
