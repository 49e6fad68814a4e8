/* What the machine can do at most: multiply-adds and bytes read per second, on one or more CPUs.
 *
 * Usage: peak fma SECONDS CPU...          GFLOPS of all CPUs together
 *        peak read SECONDS BYTES CPU...   GB/s of all CPUs together; each reads BYTES of its own
 *
 * Compile with -DLANES=<floats in a vector> and -march=native (or the narrower set that is to be measured).
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef float vector __attribute__((vector_size(LANES * 4)));

/* Enough independent chains for two units of five cycles each; with the two factors they fit 16 registers. */
#define CHAINS 12
#define FMAS_PER_BLOCK 1000
/* Keeps a value in a vector register and its computation where it stands. */
#if defined(__x86_64__)
#define KEEP(x) __asm__ volatile("" : "+v"(x))
#elif defined(__aarch64__) || defined(__arm__)
#define KEEP(x) __asm__ volatile("" : "+w"(x))
#else
#define KEEP(x) __asm__ volatile("" : "+m"(x))
#endif

typedef struct work {
    int cpu;
    double seconds;
    size_t bytes; /* 0: multiply-adds */
    double rate;  /* 1e9 per second */
} work;

static pthread_barrier_t barrier;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Named, not an array, which compilers leave on the stack. */
#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)

static double fma_block(void) {
    vector zero = {0};
    vector scale = zero + 0.999F;
    vector step = zero + 0.001F;
    KEEP(scale);
    KEEP(step);
#define DECLARE(c) vector chain##c = step;
    EACH(DECLARE)
    for (int i = 0; i < FMAS_PER_BLOCK; i++) {
#define MULTIPLY_ADD(c) \
    chain##c = chain##c * scale + step; \
    KEEP(chain##c);
        EACH(MULTIPLY_ADD)
    }
    return 2.0 * LANES * CHAINS * FMAS_PER_BLOCK;
}

static double read_block(const float *data, size_t bytes) {
    size_t vectors = bytes / sizeof(vector);
    for (size_t i = 0; i + 8 <= vectors; i += 8) {
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; j++) {
            vector loaded = *(const vector *)(const void *)(data + (i + j) * LANES);
            KEEP(loaded);
        }
    }
    return (double)(vectors / 8 * 8 * sizeof(vector));
}

static void *worker(void *argument) {
    work *w = argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(w->cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    float *data = NULL;
    if (w->bytes != 0) {
        if (posix_memalign((void **)&data, 2 << 20, w->bytes) != 0) {
            abort();
        }
        memset(data, 1, w->bytes);
    }
    pthread_barrier_wait(&barrier);
    double done = 0;
    double begin = now();
    double end = begin;
    for (int warm = 0; warm < 2; warm++) { /* the first pass brings the clock and the caches up */
        done = 0;
        begin = now();
        do {
            done += w->bytes != 0 ? read_block(data, w->bytes) : fma_block();
            end = now();
        } while (end - begin < w->seconds);
        pthread_barrier_wait(&barrier);
    }
    w->rate = done / (end - begin) / 1e9;
    free(data);
    return NULL;
}

int main(int argc, char **argv) {
    int reading = argc > 1 && strcmp(argv[1], "read") == 0;
    int first = reading ? 4 : 3;
    int count = argc - first;
    if (count < 1 || count > 64) {
        fprintf(stderr, "usage: peak fma SECONDS CPU... | peak read SECONDS BYTES CPU...\n");
        return 2;
    }
    pthread_t threads[64];
    work works[64];
    pthread_barrier_init(&barrier, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        works[i].cpu = atoi(argv[first + i]);
        works[i].seconds = atof(argv[2]);
        works[i].bytes = reading ? strtoull(argv[3], NULL, 10) : 0;
        works[i].rate = 0;
        if (pthread_create(&threads[i], NULL, worker, &works[i]) != 0) {
            return 1;
        }
    }
    double sum = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        sum += works[i].rate;
    }
    printf("%.3f\n", sum);
    return 0;
}
