/* What the shim's Metal (templates/shim/metal) needs to be a driver that a test can ask to fail. Its kernels,
 * those of gpu_model.h, are C. */
#include <stdarg.h>

#include "fake_metal.h"
#include "objc.h"

enum { MOST_BLOCKS = 16 };

/* What gpu_model.h needs, and not a byte more. */
__attribute__((visibility("default"))) extern fake_mtl_control fake_mtl;
fake_mtl_control fake_mtl = {.threads = {32, 32, 64}, .gpu = {"fake", 128, 13888, 13888 + 256, 7, 0, 0}};

const shim_limits *shim_gpu(void) {
    return &fake_mtl.gpu;
}

static struct {
    uint64_t address;
    size_t nbytes;
    int borrowed;
} blocks[MOST_BLOCKS];

void shim_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputs("\n", stderr);
    abort();
}

int objc_fails(const char *name) {
    int waits = strcmp(name, "waitUntilCompleted") == 0;
    fake_mtl.waits += waits;
    return fake_fails(&fake_mtl.f, name) || (fake_mtl.f.lost && waits);
}

int shim_late(void) {
    return fake_late(&fake_mtl.f);
}

void objc_count(int change) {
    fake_mtl.f.live += change;
}

/* ---- Memory ---- */

static int add(uint64_t address, size_t nbytes, int borrowed) {
    for (int i = 0; i < MOST_BLOCKS; i++) {
        if (blocks[i].address == 0) {
            blocks[i].address = address;
            blocks[i].nbytes = nbytes;
            blocks[i].borrowed = borrowed;
            return 1;
        }
    }
    return 0;
}

static int forget(uint64_t address, int borrowed) {
    for (int i = 0; i < MOST_BLOCKS; i++) {
        if (address != 0 && blocks[i].address == address && blocks[i].borrowed == borrowed) {
            blocks[i].address = 0;
            return 1;
        }
    }
    return 0;
}

uint64_t shim_allocate(size_t nbytes) {
    void *memory = NULL;
    RULE(posix_memalign(&memory, 512, nbytes) == 0);
    memset(memory, 0xff, nbytes);
    RULE(add((uint64_t)(uintptr_t)memory, nbytes, 0));
    return (uint64_t)(uintptr_t)memory;
}

int shim_free(uint64_t address) {
    free((void *)(uintptr_t)address);
    return forget(address, 0);
}

int shim_borrow(uint64_t address, size_t nbytes) {
    fake_mtl.borrowed++;
    return add(address, nbytes, 1);
}

void shim_return(uint64_t address) {
    RULE(forget(address, 1));
}

static const float *numbers(uint64_t address, size_t count) {
    for (int i = 0; i < MOST_BLOCKS; i++) {
        uint64_t offset = address - blocks[i].address;
        if (blocks[i].address != 0 && offset < blocks[i].nbytes &&
            count * sizeof(float) <= blocks[i].nbytes - offset) {
            return (const float *)(uintptr_t)address;
        }
    }
    shim_fail("%zu numbers that are in no buffer", count);
}

static float *results(uint64_t address, size_t count) {
    numbers(address, count);
    return (float *)(uintptr_t)address;
}

/* ---- Kernels, as runtime/gpu_model.h launches them ---- */

static void scale(const uint64_t *arguments) {
    RULE(arguments[3] == 0);
    fake_scale(numbers(arguments[0], 1600), numbers(arguments[1], 16), numbers(arguments[2], 16),
               results(arguments[4], 1600));
}

static void total(const uint64_t *arguments) {
    fake_total(numbers(arguments[0], 1600), results(arguments[1], 1));
}

static void add_total(const uint64_t *arguments) {
    fake_add_total(numbers(arguments[0], 1600), numbers(arguments[1], 1), results(arguments[2], 1600));
}

static const shim_kernel kernels[] = {
    {"scale", NULL, 5, {8, 4, 1}}, {"total", NULL, 2, {32, 1, 1}}, {"add_total", NULL, 3, {64, 1, 1}}};
static void (*const functions[])(const uint64_t *arguments) = {scale, total, add_total};
static const uint32_t sizes[][3] = {{2, 25, 1}, {1, 1, 1}, {25, 1, 1}};

const shim_kernel *shim_find(const char *name) {
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (strcmp(kernels[i].name, name) == 0) {
            return &kernels[i];
        }
    }
    return NULL;
}

void shim_run(const shim_launch *launch) {
    size_t which = (size_t)(launch->kernel - kernels);
    RULE(memcmp(launch->grid, sizes[which], sizeof sizes[which]) == 0);
    functions[which](launch->arguments);
    fake_mtl.f.launches++;
}

size_t shim_most_threads(const shim_kernel *kernel) {
    return fake_mtl.threads[kernel - kernels];
}

/* The names of the kernels are all that is asked of it. */
const char *shim_compiled(void) {
    return fake_mtl.takes_compiled ? "void scale(void total(void add_total(" : NULL;
}

/* gpu_model.h has its text in two pieces. */
int shim_has_source(const char *text) {
    size_t length = strlen(text);
    RULE(strncmp(text, "kernel void scale(", 18) == 0 && strstr(text, "    barrier(") != NULL);
    RULE(strcmp(text + length - 12, "total[0];\n}\n") == 0);
    return !fake_mtl.no_source;
}
