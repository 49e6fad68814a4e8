/* Times a bundle on a GPU of NVIDIA's from its memory to its memory: inputs and outputs stay there, runs follow each
 * other in a stream. `gpu_time BUNDLE WARMUP RUNS` prints a line of JSON; it is linked with the bundle's static
 * library and opens the driver itself. SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <edgepack/runtime.h>

extern const ep_descriptor MODEL;

enum { REPEATS = 7, EMPTY_LAUNCHES = 1000, MOST = 16, SUCCESS = 0 };
enum { MULTIPROCESSORS = 16, CLOCK = 13, MEMORY_CLOCK = 36, BUS = 37, MAJOR = 75, MINOR = 76 };

typedef unsigned long long address;

static void *driver;

static void fail(const char *what, int status) {
    printf("{\"error\": \"%s\", \"status\": %d}\n", what, status);
    exit(1);
}

static void *symbol(const char *name) {
    void *found = dlsym(driver, name);
    if (found == NULL) {
        fail(name, -1);
    }
    return found;
}

/* Calls a function of the driver, all of whose arguments are numbers or pointers. */
#define CALL(name, types, ...) ((int(*) types)symbol(#name))(__VA_ARGS__)
#define MUST(name, types, ...) \
    do { \
        int status_ = CALL(name, types, __VA_ARGS__); \
        if (status_ != SUCCESS) { \
            fail(#name, status_); \
        } \
    } while (0)

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e6 + (double)at.tv_nsec / 1e3;
}

static int attribute(int what, int device) {
    int value = 0;
    CALL(cuDeviceGetAttribute, (int *, int, int), &value, what, device);
    return value;
}

/* Microseconds from one launch of a graph to the next, of a kernel that does nothing; 0 if that cannot be found. */
static double launch_gap(void *stream) {
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty()\n{\nret;\n}\n";
    void *module = NULL, *function = NULL, *graph = NULL, *ready = NULL;
    if (CALL(cuModuleLoadData, (void **, const void *), &module, ptx) != SUCCESS ||
        CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "empty") != SUCCESS) {
        return 0;
    }
    MUST(cuStreamBeginCapture_v2, (void *, int), stream, 2);
    for (int i = 0; i < EMPTY_LAUNCHES; i++) {
        MUST(cuLaunchKernel,
             (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
             function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
    }
    MUST(cuStreamEndCapture, (void *, void **), stream, &graph);
    MUST(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), &ready, graph, 0);
    double least = 1e30;
    for (int i = 0; i < REPEATS; i++) {
        double start = now();
        MUST(cuGraphLaunch, (void *, void *), ready, stream);
        MUST(cuStreamSynchronize, (void *), stream);
        double took = (now() - start) / EMPTY_LAUNCHES;
        least = took < least ? took : least;
    }
    return least;
}

static ep_memory tensor(const ep_tensor *of, const char *file, void *stream) {
    ep_memory made = {NULL, (size_t)of->nbytes, 0, EP_MEMORY_GPU, 0};
    address at = 0;
    MUST(cuMemAlloc_v2, (address *, size_t), &at, made.nbytes);
    made.data = (void *)(uintptr_t)at;
    FILE *from = file != NULL ? fopen(file, "rb") : NULL;
    void *bytes = calloc(made.nbytes, 1);
    if (bytes == NULL || (from != NULL && fread(bytes, 1, made.nbytes, from) != made.nbytes)) {
        fail("reading an input", 0);
    }
    MUST(cuMemcpyHtoDAsync_v2, (address, const void *, size_t, void *), at, bytes, made.nbytes, stream);
    MUST(cuStreamSynchronize, (void *), stream);
    free(bytes);
    return made;
}

/* The first device on which the model can be opened. */
static int open_model(const char *params, ep_model *model) {
    int devices = 0;
    ep_status status = EP_E_GPU_DRIVER;
    MUST(cuDeviceGetCount, (int *), &devices);
    for (int device = 0; device < devices; device++) {
        ep_open_options options = EP_OPEN_OPTIONS_INIT;
        options.path = params;
        options.gpu_api = EP_GPU_CUDA;
        if (CALL(cuDevicePrimaryCtxRetain, (void **, int), &options.gpu_context, device) != SUCCESS) {
            continue;
        }
        status = ep_model_open_with(&MODEL, &options, model);
        if (status == EP_OK && model->descriptor->gpu != NULL) {
            MUST(cuCtxPushCurrent_v2, (void *), options.gpu_context);
            return device;
        }
        ep_model_close(model); /* the library took the CPU: this is no GPU that it has kernels for */
    }
    fail("ep_model_open_with", (int)status);
    return 0;
}

int main(int argc, char **argv) {
    char text[512], path[2048];
    ep_model model;
    ep_session *session;
    ep_memory inputs[MOST], outputs[MOST];
    void *stream = NULL;
    if (argc != 5) {
        fail("usage: gpu_time BUNDLE PARAMS WARMUP RUNS", argc);
    }
    int warmup = atoi(argv[3]), runs = atoi(argv[4]);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL || CALL(cuInit, (unsigned), 0) != SUCCESS) {
        fail("there is no driver of NVIDIA's", 0);
    }
    int device = open_model(argv[2], &model);
    const ep_descriptor *of = model.descriptor;
    if (of->input_count > MOST || of->output_count > MOST) {
        fail("more tensors than this program holds", 0);
    }
    MUST(cuStreamCreate, (void **, unsigned), &stream, 1);
    for (uint32_t i = 0; i < of->input_count; i++) {
        snprintf(path, sizeof path, "%s/test/input_%u.bin", argv[1], (unsigned)i);
        inputs[i] = tensor(&of->inputs[i], path, stream);
    }
    for (uint32_t i = 0; i < of->output_count; i++) {
        outputs[i] = tensor(&of->outputs[i], NULL, stream);
    }
    ep_options options = EP_OPTIONS_INIT;
    options.gpu_queue = stream;
    options.gpu_memory = 1;
    options.asynchronous = 1;
    ep_status status = ep_session_create(&model, &options, &session);
    if (status != EP_OK) {
        fail("ep_session_create", (int)status);
    }
    double times[REPEATS];
    for (int repeat = -1; repeat < REPEATS; repeat++) {
        int count = repeat < 0 ? warmup : runs;
        double start = now();
        for (int i = 0; i < count && status == EP_OK; i++) {
            status = ep_session_run_memory(session, inputs, of->input_count, outputs, of->output_count);
        }
        if (status == EP_OK) {
            status = ep_session_synchronize(session);
        }
        if (status != EP_OK) {
            fail("ep_session_run_memory", (int)status);
        }
        if (repeat >= 0) {
            times[repeat] = (now() - start) / count;
        }
    }
    ep_model_backend(&model, text, sizeof text);
    printf("{\"backend\": \"%s\", \"capability\": %d, \"multiprocessors\": %d, \"clock_khz\": %d, ", text,
           attribute(MAJOR, device) * 10 + attribute(MINOR, device), attribute(MULTIPROCESSORS, device),
           attribute(CLOCK, device));
    printf("\"memory_khz\": %d, \"bus_bits\": %d, \"gap_us\": %.4f, \"run_us\": [", attribute(MEMORY_CLOCK, device),
           attribute(BUS, device), launch_gap(stream));
    for (int i = 0; i < REPEATS; i++) {
        printf("%s%.3f", i == 0 ? "" : ", ", times[i]);
    }
    printf("]}\n");
    ep_session_destroy(session);
    ep_model_close(&model);
    return 0;
}
