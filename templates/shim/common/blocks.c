/* Blocks and threads: each thread of a block is a fiber with its own stack, which runs until it comes to a
 * barrier or to its end. SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shim.h"

enum { STACK_BYTES = 64 << 10, READY = 0, WAITING = 1, ENDED = 2, IN_WARP = 3, WARP = 32 };

typedef struct fiber {
    void *stack_pointer;
    unsigned char *stack;
    int state;
    const char *file; /* of the barrier that it waits at */
    int line;
} fiber;

/* Saves what a call must leave as it is, and goes on where another fiber stopped. */
void shim_switch(void **save, void *load);
void shim_begin(void);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl shim_switch\n"
        ".hidden shim_switch\n"
        ".type shim_switch,@function\n"
        "shim_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\n"
        "movq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\n"
        "ret\n");
enum { SAVED = 6, RETURN = 6, FRAME = 8 }; /* words */
#elif defined(__aarch64__)
__asm__(
    ".text\n"
    ".globl shim_switch\n"
    ".hidden shim_switch\n"
    ".type shim_switch,%function\n"
    "shim_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
    "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
    "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
    "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\n"
    "ret\n");
enum { RETURN = 11, FRAME = 20 };
#else
#error "the shim has no switch of fibers for this CPU"
#endif

static fiber fibers[SHIM_MAX_THREADS];
static uint64_t slots[SHIM_MAX_THREADS][8];
static unsigned current;
static void *scheduler;
static shim_launch now;
static void *pointers[SHIM_ARGUMENTS];
static shim_index block;

static const shim_kernel *kernel_lists[16];
static size_t kernel_counts[16];
static uint64_t digests[16];
static size_t lists;

void shim_fail(const char *format, ...) {
    va_list arguments;
    fprintf(stderr, SHIM_NAME ": ");
    if (now.kernel != NULL) {
        fprintf(stderr, "kernel %s, block (%u, %u, %u), thread %u: ", now.kernel->name, block.x, block.y,
                block.z, current);
    }
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, ".\n");
    fflush(stderr);
    abort();
}

void shim_register(const shim_kernel *kernels, size_t count, uint64_t digest) {
    if (lists == sizeof kernel_lists / sizeof kernel_lists[0]) {
        shim_fail("there are too many files with kernels");
    }
    kernel_lists[lists] = kernels;
    digests[lists] = digest;
    kernel_counts[lists++] = count;
}

int shim_has_text(const char *text) {
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (; *text != 0; text++) {
        digest = (digest ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    }
    for (size_t list = 0; list < lists; list++) {
        if (digests[list] == digest) {
            return 1;
        }
    }
    return 0;
}

const shim_kernel *shim_find(const char *name) {
    for (size_t list = 0; list < lists; list++) {
        for (size_t i = 0; i < kernel_counts[list]; i++) {
            if (strcmp(kernel_lists[list][i].name, name) == 0) {
                return &kernel_lists[list][i];
            }
        }
    }
    return NULL;
}

static shim_index triple(const uint32_t *from) {
    shim_index index = {from[0], from[1], from[2]};
    return index;
}

shim_index shim_thread(void) {
    shim_index index = {current % now.block[0], current / now.block[0] % now.block[1],
                        current / now.block[0] / now.block[1]};
    return index;
}

shim_index shim_block(void) {
    return block;
}

shim_index shim_block_size(void) {
    return triple(now.block);
}

shim_index shim_grid_size(void) {
    return triple(now.grid);
}

const char *shim_kernel_name(void) {
    return now.kernel->name;
}

unsigned shim_thread_number(void) {
    return current;
}

int shim_on_stack(uintptr_t address) {
    return address - (uintptr_t)fibers[current].stack < STACK_BYTES;
}

static void leave(int state) {
    fibers[current].state = state;
    shim_switch(&fibers[current].stack_pointer, scheduler);
}

void shim_barrier(const char *file, int line) {
    fibers[current].file = file;
    fibers[current].line = line;
    leave(WAITING);
}

void shim_warp_wait(int line) {
    fibers[current].line = line;
    leave(IN_WARP);
}

unsigned shim_lane(void) {
    return current % WARP;
}

void *shim_lane_slot(unsigned lane) {
    return slots[current / WARP * WARP + lane];
}

void shim_begin(void) {
    now.kernel->call(pointers);
    shim_copy_end();
    leave(ENDED);
    abort();
}

/* A stack on which shim_switch returns to shim_begin. Below it there is a page that nobody may touch. */
static void make_fiber(fiber *made) {
    if (made->stack == NULL) {
        unsigned char *memory =
            mmap(NULL, STACK_BYTES + 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, 65536, PROT_NONE) != 0) {
            shim_fail("there is no memory for the stacks of its threads");
        }
        made->stack = memory + 65536;
    }
    void **top = (void **)(void *)(made->stack + STACK_BYTES - 64);
    void **frame = top - FRAME;
    memset(frame, 0, FRAME * sizeof *frame);
    void (*begin)(void) = shim_begin;
    memcpy(&frame[RETURN], &begin, sizeof begin);
    made->stack_pointer = frame;
    made->state = READY;
}

/* Every thread waits at the same barrier, or has come to its end. */
static int check_barrier(unsigned threads) {
    const fiber *first = &fibers[0];
    for (unsigned i = 1; i < threads; i++) {
        if (fibers[i].state != first->state) {
            unsigned waiting = first->state == WAITING ? 0 : i;
            current = waiting;
            shim_fail("it waits at the barrier of line %d, but thread %u came to its end",
                      fibers[waiting].line, waiting == 0 ? i : 0);
        }
        if (first->state == WAITING && (fibers[i].line != first->line || fibers[i].file != first->file)) {
            current = i;
            shim_fail("it waits at the barrier of line %d, but thread 0 at that of line %d", fibers[i].line,
                      first->line);
        }
    }
    return first->state == WAITING;
}

/* The threads of a warp, until each is at a barrier of the block or at its end. */
static void run_warp(unsigned first, unsigned threads, int reverse) {
    unsigned together;
    do {
        together = 0;
        for (unsigned i = 0; i < threads; i++) {
            current = first + (reverse ? threads - 1 - i : i);
            fibers[current].state = READY;
            shim_switch(&scheduler, fibers[current].stack_pointer);
            together += fibers[current].state == IN_WARP;
        }
        for (unsigned i = 0; together != 0 && i < threads; i++) {
            current = first + i;
            if (together != WARP || fibers[current].line != fibers[first].line) {
                shim_fail("the threads of its warp do not come together at line %d, but %u of them",
                          fibers[first].line, together);
            }
        }
    } while (together != 0);
}

static void run_block(unsigned threads, int reverse) {
    for (unsigned i = 0; i < threads; i++) {
        make_fiber(&fibers[i]);
    }
    shim_memory_block();
    do {
        for (unsigned i = 0; i < threads; i += WARP) {
            unsigned first = reverse ? (threads - 1 - i) / WARP * WARP : i;
            run_warp(first, threads - first < WARP ? threads - first : WARP, reverse);
        }
        shim_memory_barrier();
    } while (check_barrier(threads));
}

void shim_run(const shim_launch *launch) {
    const char *order = getenv("EDGEPACK_SHIM_ORDER");
    int reverse = order != NULL && strcmp(order, "reverse") == 0;
    now = *launch;
    for (uint32_t i = 0; i < now.kernel->arguments; i++) {
        pointers[i] = &now.arguments[i];
    }
    shim_memory_launch(now.kernel->name);
    uint64_t blocks = (uint64_t)now.grid[0] * now.grid[1] * now.grid[2];
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t number = reverse ? blocks - 1 - i : i;
        block.x = (unsigned)(number % now.grid[0]);
        block.y = (unsigned)(number / now.grid[0] % now.grid[1]);
        block.z = (unsigned)(number / now.grid[0] / now.grid[1]);
        run_block(now.block[0] * now.block[1] * now.block[2], reverse);
    }
    now.kernel = NULL;
}
