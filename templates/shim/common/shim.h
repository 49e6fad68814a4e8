/* What the parts of a shim know of each other: a driver that runs the text of a GPU's kernels on the CPU, to
 * check them. SHIM_NAME is what it is called, SHIM_SHARED_BYTES the most memory that a block (a threadgroup)
 * shares. SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_SHIM_H
#define EDGEPACK_SHIM_H

#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct shim_index {
    unsigned x, y, z;
} shim_index;

/* A kernel of the bundle; the kernels' file hands over a list of them when it is loaded. */
typedef struct shim_kernel {
    const char *name;
    void (*call)(void **arguments);
    uint32_t arguments;
    uint32_t threads[3]; /* of a block, as its text says */
} shim_kernel;

typedef struct shim_launch {
    const shim_kernel *kernel;
    uint32_t grid[3];
    uint32_t block[3];
    uint64_t arguments[64];
} shim_launch;

enum { SHIM_ARGUMENTS = 64, SHIM_MAX_THREADS = 1024 };

/* kernels */
/* Of a file of kernels, whose text has this FNV-1a digest. */
void shim_register(const shim_kernel *kernels, size_t count, uint64_t digest);
/* Whether this is the text of such a file. */
int shim_has_text(const char *text);
const shim_kernel *shim_find(const char *name);
shim_index shim_thread(void);
shim_index shim_block(void);
shim_index shim_block_size(void);
shim_index shim_grid_size(void);
void shim_barrier(const char *file, int line);
/* What the 32 threads of a warp do together: each waits until all have come to this line. */
void shim_warp_wait(int line);
unsigned shim_lane(void);
/* 64 bytes of a lane of the thread's own warp, for what they hand to each other. */
void *shim_lane_slot(unsigned lane);

/* Copies of 16 bytes to shared memory that arrive when the thread waits for all of its groups but the last
 * ones; zeros where the source is not inside. At its end a thread has none on their way. */
void shim_copy_begin(void *to, const void *from, int inside);
void shim_copy_group(void);
void shim_copy_wait(uint32_t but);
void shim_copy_end(void);

/* Runs all blocks of a launch, one after the other, each thread as a fiber. */
void shim_run(const shim_launch *launch);
/* What is being run, for messages and the memory's checks. */
const char *shim_kernel_name(void);
unsigned shim_thread_number(void);
/* Whether an address is on the stack of a thread that runs. */
int shim_on_stack(uintptr_t address);

/* memory */
uint64_t shim_allocate(size_t nbytes);
int shim_free(uint64_t address);
/* The same of memory that is another's. */
int shim_borrow(uint64_t address, size_t nbytes);
void shim_return(uint64_t address);
/* Whether all of these bytes are in one allocation. */
int shim_inside(uint64_t address, size_t nbytes);
/* The allocation with an address in it; 0 for none. */
int shim_range(uint64_t address, uint64_t *start, size_t *nbytes);
/* An access of the thread that runs, as if its kernel's text made it. */
void shim_access(const void *at, size_t nbytes, int writes);
/* Whether a copy to these bytes of a multiple of four, which were written before, is on its way. */
void shim_mark_pending(void *at, size_t nbytes, int pending);
int shim_is_shared(const void *at);
void shim_memory_launch(const char *kernel);
void shim_memory_block(void);
void shim_memory_barrier(void);

/* Says what is wrong, and ends the process. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2), noreturn))
#endif
void shim_fail(const char *format, ...);

#if defined(__cplusplus)
}
#endif

#endif
