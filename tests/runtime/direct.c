/* The function that runs a model without a session: what it gives, and what it refuses. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

static unsigned char memory[MINI_ARENA_BYTES + 16] __attribute__((aligned(64)));
static unsigned char odd[sizeof(float) * (MINI_INPUT_DATA_ELEMENTS + 1)] __attribute__((aligned(8)));

static ep_status run(data *d, void *at, size_t nbytes) {
    data_reset(d);
    return mini_run_direct(at, nbytes, d->x, d->small, d->y, d->halves, d->flags, d->longs);
}

static void numbers(const char *root) {
    data d;
    data_init(&d, root);
    for (int garbage = 0; garbage < 256; garbage += 255) {
        memset(memory, garbage, sizeof memory);
        CHECK_STATUS(run(&d, memory, MINI_ARENA_BYTES), EP_OK);
        data_check(&d);
        for (size_t i = MINI_ARENA_BYTES; i < sizeof memory; i++) {
            CHECK(memory[i] == garbage);
        }
        CHECK_STATUS(run(&d, memory + 16, MINI_ARENA_BYTES), EP_OK); /* not at a multiple of 64 */
        data_check(&d);
    }
}

static void refused(const char *root) {
    data d;
    data_init(&d, root);
    float *x = (float *)(void *)(odd + 1);
    CHECK_STATUS(run(&d, NULL, MINI_ARENA_BYTES), EP_E_NULL);
    CHECK_STATUS(run(&d, memory, MINI_ARENA_BYTES - 1), EP_E_MEMORY_SIZE);
    CHECK_STATUS(run(&d, memory + 8, MINI_ARENA_BYTES), EP_E_ALIGNMENT);
    CHECK_STATUS(mini_run_direct(memory, sizeof memory, x, d.small, d.y, d.halves, d.flags, d.longs),
                 EP_E_ALIGNMENT);
    CHECK_STATUS(mini_run_direct(memory, sizeof memory, NULL, d.small, d.y, d.halves, d.flags, d.longs),
                 EP_E_NULL);
    CHECK_STATUS(mini_run_direct(memory, sizeof memory, d.x, d.small, d.y, d.halves, d.flags, NULL),
                 EP_E_NULL);
    d.small[3] = -1; /* the first kernel fails, and no other one is called */
    CHECK_STATUS(run(&d, memory, sizeof memory), EP_E_KERNEL);
    for (size_t i = 0; i < sizeof d.y; i++) {
        CHECK(((unsigned char *)d.y)[i] == 0xff);
    }
}

/* The params of another model were there when it was linked. */
static void others_params(const char *root) {
    data d;
    data_init(&d, root);
    CHECK_STATUS(run(&d, memory, sizeof memory), EP_E_PARAMS_MODEL);
}

TEST_MAIN({"numbers", numbers}, {"refused", refused}, {"others_params", others_params})
