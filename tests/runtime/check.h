/* Helpers of the C tests: a test is a function, its program is called with the test's name and the bundle's
 * folder. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mini.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

#define CHECK_STATUS(call, expected) \
    do { \
        ep_status status_ = (call); \
        if (status_ != (expected)) { \
            fprintf(stderr, "%s:%d: %s is %s, not %s\n", __FILE__, __LINE__, #call, ep_status_name(status_), \
                    ep_status_name(expected)); \
            exit(1); \
        } \
    } while (0)

typedef struct test {
    const char *name;
    void (*run)(const char *root);
} test;

/* Inputs, outputs and the expected outputs of the mini model. */
typedef struct data {
    float x[MINI_INPUT_DATA_ELEMENTS];
    int8_t small[MINI_INPUT_SMALL_NUMBERS_ELEMENTS];
    float y[MINI_OUTPUT_DATA_ELEMENTS];
    uint16_t halves[MINI_OUTPUT_HALVES_ELEMENTS];
    uint8_t flags[MINI_OUTPUT_INT_ELEMENTS];
    int64_t longs[MINI_OUTPUT_X_ELEMENTS];
    float expected_y[MINI_OUTPUT_DATA_ELEMENTS];
    uint16_t expected_halves[MINI_OUTPUT_HALVES_ELEMENTS];
    uint8_t expected_flags[MINI_OUTPUT_INT_ELEMENTS];
    int64_t expected_longs[MINI_OUTPUT_X_ELEMENTS];
    ep_const_buffer inputs[MINI_INPUTS];
    ep_buffer outputs[MINI_OUTPUTS];
} data;

static inline const char *path_in(const char *root, const char *name) {
    static char path[4096];
    CHECK(strlen(root) + strlen(name) + 2 < sizeof path);
    strcpy(path, root);
    strcat(path, "/");
    strcat(path, name);
    return path;
}

static inline void read_into(const char *root, const char *name, void *to, size_t nbytes) {
    FILE *file = fopen(path_in(root, name), "rb");
    CHECK(file != NULL);
    CHECK(fread(to, 1, nbytes, file) == nbytes);
    fclose(file);
}

/* A whole file, 64-byte aligned, in exactly its size, so that a sanitizer sees a byte too far. */
static inline unsigned char *read_all(const char *root, const char *name, size_t *nbytes) {
    FILE *file = fopen(path_in(root, name), "rb");
    void *memory = NULL;
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    *nbytes = (size_t)ftell(file);
    CHECK(posix_memalign(&memory, 64, *nbytes) == 0);
    rewind(file);
    CHECK(fread(memory, 1, *nbytes, file) == *nbytes);
    fclose(file);
    return memory;
}

static inline void data_reset(data *d) {
    memset(d->y, 0xff, sizeof d->y);
    memset(d->halves, 0xff, sizeof d->halves);
    memset(d->flags, 0xff, sizeof d->flags);
    memset(d->longs, 0xff, sizeof d->longs);
}

static inline void data_init(data *d, const char *root) {
    read_into(root, "test/input_0.bin", d->x, sizeof d->x);
    read_into(root, "test/input_1.bin", d->small, sizeof d->small);
    read_into(root, "test/output_0.bin", d->expected_y, sizeof d->expected_y);
    read_into(root, "test/output_1.bin", d->expected_halves, sizeof d->expected_halves);
    read_into(root, "test/output_2.bin", d->expected_flags, sizeof d->expected_flags);
    read_into(root, "test/output_3.bin", d->expected_longs, sizeof d->expected_longs);
    d->inputs[0].data = d->x;
    d->inputs[0].nbytes = sizeof d->x;
    d->inputs[1].data = d->small;
    d->inputs[1].nbytes = sizeof d->small;
    d->outputs[0].data = d->y;
    d->outputs[0].nbytes = sizeof d->y;
    d->outputs[1].data = d->halves;
    d->outputs[1].nbytes = sizeof d->halves;
    d->outputs[2].data = d->flags;
    d->outputs[2].nbytes = sizeof d->flags;
    d->outputs[3].data = d->longs;
    d->outputs[3].nbytes = sizeof d->longs;
    data_reset(d);
}

static inline void data_check(const data *d) {
    for (size_t i = 0; i < MINI_OUTPUT_DATA_ELEMENTS; i++) {
        float error = d->y[i] - d->expected_y[i];
        CHECK(error < 1e-4f && error > -1e-4f);
    }
    CHECK(memcmp(d->halves, d->expected_halves, sizeof d->halves) == 0);
    CHECK(memcmp(d->flags, d->expected_flags, sizeof d->flags) == 0);
    CHECK(memcmp(d->longs, d->expected_longs, sizeof d->longs) == 0);
}

static inline ep_status data_run(data *d, ep_session *session) {
    data_reset(d);
    return ep_session_run(session, d->inputs, MINI_INPUTS, d->outputs, MINI_OUTPUTS);
}

static inline int run_test(const test *tests, size_t count, int argc, char **argv) {
    for (size_t i = 0; i < count && argc == 3; i++) {
        if (strcmp(tests[i].name, argv[1]) == 0) {
            tests[i].run(argv[2]);
            return 0;
        }
    }
    fprintf(stderr, "no such test\n");
    return 2;
}

#define TEST_MAIN(...) \
    int main(int argc, char **argv) { \
        static const test tests[] = {__VA_ARGS__}; \
        return run_test(tests, sizeof tests / sizeof tests[0], argc, argv); \
    }

#endif
