/* Counts what the threads of a few blocks do to memory: bytes, sectors and banks, by the addresses alone.
 *
 * It stands in the place of the shim's memory.c and is given the same calls, those that clang's
 * -fsanitize=thread makes for each access of a kernel. What the threads of a warp access at one place of the
 * program is one instruction: the n-th time since the last barrier that a thread comes there belongs to the
 * n-th time of the others. SPDX-License-Identifier: Apache-2.0 */
#include "blocks.c"

enum { SECTOR = 32, BANKS = 32, WORD = 4, MOST_ARGUMENTS = 64, LOADS = 0, STORES = 1 };

/* Of global memory [LOADS] and [STORES]; of shared memory both together. */
typedef struct gpu_counts {
    uint64_t requested[2];    /* bytes that all threads ask for */
    uint64_t sectors[2];      /* of 32 bytes, that each instruction of a warp touches */
    uint64_t instructions[2]; /* of warps, on global memory */
    uint64_t shared;          /* instructions of warps on shared memory */
    uint64_t wavefronts;      /* in which the banks serve them */
    uint64_t least;           /* the same without conflicts */
} gpu_counts;

/* An instruction of a warp. */
typedef struct group {
    uintptr_t place;
    uint32_t occurrence;
    uint16_t size;
    uint8_t stores, is_shared;
    uint32_t lanes; /* a bit for each that takes part */
    uint32_t next;  /* of the same place: the one after it */
    uintptr_t address[WARP];
} group;

/* A place of the program, for one warp: where its threads are in the list of its instructions. */
typedef struct place {
    uintptr_t address;
    uint32_t key, first, at[WARP];
} place;

enum { PLACES = 8192, NONE = UINT32_MAX };

typedef struct warp {
    group *groups;
    size_t count, capacity;
    place *places;
} warp;

extern unsigned char shared_start[] __asm__("__start_shim_shared")
    __attribute__((weak, visibility("hidden")));
extern unsigned char shared_stop[] __asm__("__stop_shim_shared") __attribute__((weak, visibility("hidden")));

static warp warps[SHIM_MAX_THREADS / WARP];
static gpu_counts counts;
static uintptr_t starts[MOST_ARGUMENTS], stops[MOST_ARGUMENTS];
static uint32_t areas;

static place *find_place(warp *of, uintptr_t address, uint32_t key) {
    size_t slot = (address * 31 + key) * UINT64_C(0x9e3779b97f4a7c15) >> 51;
    for (size_t tried = 0; tried < PLACES; tried++, slot = (slot + 1) % PLACES) {
        place *found = &of->places[slot];
        if (found->address == 0) {
            found->address = address;
            found->key = key;
            found->first = NONE;
            memset(found->at, 0xff, sizeof found->at);
        }
        if (found->address == address && found->key == key) {
            return found;
        }
    }
    shim_fail("it has too many places that access memory");
}

static uint32_t add_group(warp *of) {
    if (of->count == of->capacity) {
        of->capacity = of->capacity == 0 ? 1024 : 2 * of->capacity;
        of->groups = realloc(of->groups, of->capacity * sizeof *of->groups);
        if (of->groups == NULL || of->capacity >= NONE) {
            shim_fail("there is no memory for its instructions");
        }
    }
    memset(&of->groups[of->count], 0, sizeof *of->groups);
    of->groups[of->count].next = NONE;
    return (uint32_t)of->count++;
}

static int in_global(uintptr_t address, size_t nbytes) {
    for (uint32_t i = 0; i < areas; i++) {
        if (address >= starts[i] && address + nbytes <= stops[i]) {
            return 1;
        }
    }
    return 0;
}

static void note(uintptr_t from, uintptr_t address, uint32_t nbytes, int stores) {
    int is_shared = address >= (uintptr_t)shared_start && address < (uintptr_t)shared_stop;
    if (!is_shared && !in_global(address, nbytes)) {
        if (shim_on_stack(address)) {
            return;
        }
        shim_fail("it comes to %u bytes outside of its tensors", nbytes);
    }
    warp *of = &warps[current / WARP];
    if (of->places == NULL && (of->places = calloc(PLACES, sizeof *of->places)) == NULL) {
        shim_fail("there is no memory for its places");
    }
    place *at = find_place(of, from, nbytes * 2 + (uint32_t)stores);
    uint32_t lane = current % WARP;
    uint32_t next = at->at[lane] == NONE ? at->first : of->groups[at->at[lane]].next;
    if (next == NONE) {
        next = add_group(of);
        if (at->at[lane] == NONE) {
            at->first = next;
        } else {
            of->groups[at->at[lane]].next = next;
        }
        of->groups[next].size = (uint16_t)nbytes;
        of->groups[next].stores = (uint8_t)stores;
        of->groups[next].is_shared = (uint8_t)is_shared;
    }
    at->at[lane] = next;
    of->groups[next].lanes |= 1u << lane;
    of->groups[next].address[lane] = address;
}

static uint64_t different_sectors(const group *all) {
    uintptr_t found[2 * WARP];
    uint32_t count = 0;
    for (uint32_t lane = 0; lane < WARP; lane++) {
        if ((all->lanes >> lane & 1) == 0) {
            continue;
        }
        uintptr_t last = (all->address[lane] + all->size - 1) / SECTOR;
        for (uintptr_t sector = all->address[lane] / SECTOR; sector <= last; sector++) {
            uint32_t i = 0;
            while (i < count && found[i] != sector) {
                i++;
            }
            if (i == count) {
                found[count++] = sector;
            }
        }
    }
    return count;
}

/* How often the banks serve the lanes from `first` on: as often as the bank with most different words. */
static uint32_t wavefronts(const group *all, uint32_t first, uint32_t lanes) {
    uintptr_t words[BANKS][WARP];
    uint32_t of_bank[BANKS] = {0}, most = 0;
    for (uint32_t lane = first; lane < first + lanes; lane++) {
        if ((all->lanes >> lane & 1) == 0) {
            continue;
        }
        uintptr_t last = (all->address[lane] + all->size - 1) / WORD;
        for (uintptr_t word = all->address[lane] / WORD; word <= last; word++) {
            uint32_t bank = (uint32_t)(word % BANKS), i = 0;
            while (i < of_bank[bank] && words[bank][i] != word) {
                i++;
            }
            if (i == of_bank[bank]) {
                words[bank][of_bank[bank]++] = word;
            }
            most = of_bank[bank] > most ? of_bank[bank] : most;
        }
    }
    return most;
}

static void count_group(const group *all) {
    if (!all->is_shared) {
        counts.requested[all->stores] += (uint64_t)__builtin_popcount(all->lanes) * all->size;
        counts.sectors[all->stores] += different_sectors(all);
        counts.instructions[all->stores]++;
        return;
    }
    uint32_t together = all->size <= 4 ? WARP : WARP * 4 / all->size;
    for (uint32_t first = 0; first < WARP; first += together) {
        uint32_t needed = wavefronts(all, first, together);
        counts.wavefronts += needed;
        counts.least += needed != 0;
    }
    counts.shared++;
}

/* ---- What blocks.c asks of the memory ---- */

void shim_memory_launch(const char *kernel) {
    (void)kernel;
}

void shim_memory_block(void) {}

void shim_memory_barrier(void) {
    for (size_t i = 0; i < sizeof warps / sizeof warps[0]; i++) {
        for (size_t j = 0; j < warps[i].count; j++) {
            count_group(&warps[i].groups[j]);
        }
        warps[i].count = 0;
        if (warps[i].places != NULL) {
            memset(warps[i].places, 0, PLACES * sizeof *warps[i].places);
        }
    }
}

/* ---- The kernels' accesses ---- */

#define FROM (uintptr_t)__builtin_return_address(0)
#define CALLBACK(name, size, reads, writes) \
    void __tsan_##name(void *at); \
    void __tsan_##name(void *at) { \
        if (reads) \
            note(FROM, (uintptr_t)at, size, LOADS); \
        if (writes) \
            note(FROM, (uintptr_t)at, size, STORES); \
    }
#define CALLBACKS(size) \
    CALLBACK(read##size, size, 1, 0) \
    CALLBACK(write##size, size, 0, 1) \
    CALLBACK(read_write##size, size, 1, 1) \
    CALLBACK(unaligned_read##size, size, 1, 0) \
    CALLBACK(unaligned_write##size, size, 0, 1) \
    CALLBACK(unaligned_read_write##size, size, 1, 1)
CALLBACKS(1)
CALLBACKS(2)
CALLBACKS(4)
CALLBACKS(8)
CALLBACKS(16)

/* What is copied as a whole is copied 16 bytes at a time, as vectors and structures are. */
static void note_all(uintptr_t from, uintptr_t address, size_t nbytes, int stores) {
    for (size_t done = 0; done < nbytes; done += 16) {
        size_t part = nbytes - done < 16 ? nbytes - done : 16;
        note(from + done, address + done, (uint32_t)part, stores);
    }
}

void *__tsan_memset(void *to, int value, size_t nbytes);
void *__tsan_memset(void *to, int value, size_t nbytes) {
    note_all(FROM, (uintptr_t)to, nbytes, STORES);
    return memset(to, value, nbytes);
}

void *__tsan_memcpy(void *to, const void *from, size_t nbytes);
void *__tsan_memcpy(void *to, const void *from, size_t nbytes) {
    note_all(FROM, (uintptr_t)from, nbytes, LOADS);
    note_all(FROM, (uintptr_t)to, nbytes, STORES);
    return memmove(to, from, nbytes);
}

void *__tsan_memmove(void *to, const void *from, size_t nbytes);
void *__tsan_memmove(void *to, const void *from, size_t nbytes) {
    return __tsan_memcpy(to, from, nbytes);
}

/* What stands for instructions in cuda_c.h: ldmatrix, each matrix as a read by all lanes, and cp.async, whose
 * copies arrive at once. */
void shim_access(const void *at, size_t nbytes, int writes) {
    note_all((uintptr_t)__builtin_return_address(0), (uintptr_t)at, nbytes, writes);
}

int shim_is_shared(const void *at) {
    return (uintptr_t)at - (uintptr_t)shared_start < (uintptr_t)(shared_stop - shared_start);
}

void shim_copy_begin(void *to, const void *from, int inside) {
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    note(caller + 1, (uintptr_t)to, 16, 1);
    if (inside) {
        note(caller, (uintptr_t)from, 16, 0);
        memcpy(to, from, 16);
    } else {
        memset(to, 0, 16);
    }
}

void shim_copy_group(void) {}

void shim_copy_wait(uint32_t but) {
    (void)but;
}

void shim_copy_end(void) {}

void __tsan_init(void);
void __tsan_init(void) {}

/* Adds up what some of a launch's blocks do; 0 if there is no such kernel. Its tensors are full of zeros.
 *
 * sizes: bytes of each tensor. numbers: of the blocks, x running fastest. */
__attribute__((visibility("default"))) int gpu_count(const char *kernel, const uint32_t *grid,
                                                     const uint32_t *threads, const uint64_t *sizes,
                                                     const uint64_t *numbers, uint64_t blocks,
                                                     gpu_counts *found);

int gpu_count(const char *kernel, const uint32_t *grid, const uint32_t *threads, const uint64_t *sizes,
              const uint64_t *numbers, uint64_t blocks, gpu_counts *found) {
    memset(&now, 0, sizeof now);
    memset(&counts, 0, sizeof counts);
    now.kernel = shim_find(kernel);
    if (now.kernel == NULL) {
        return 0;
    }
    memcpy(now.grid, grid, sizeof now.grid);
    memcpy(now.block, threads, sizeof now.block);
    areas = now.kernel->arguments;
    for (uint32_t i = 0; i < areas; i++) {
        void *memory = mmap(NULL, sizes[i] + 1, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            shim_fail("there is no memory for its tensors");
        }
        starts[i] = (uintptr_t)memory;
        stops[i] = starts[i] + sizes[i];
        now.arguments[i] = starts[i];
        pointers[i] = &now.arguments[i];
    }
    for (uint64_t i = 0; i < blocks; i++) {
        block.x = (unsigned)(numbers[i] % grid[0]);
        block.y = (unsigned)(numbers[i] / grid[0] % grid[1]);
        block.z = (unsigned)(numbers[i] / grid[0] / grid[1]);
        run_block(threads[0] * threads[1] * threads[2], 0);
    }
    for (uint32_t i = 0; i < areas; i++) {
        munmap((void *)starts[i], stops[i] - starts[i] + 1);
    }
    now.kernel = NULL;
    *found = counts;
    return 1;
}
