/* The device's memory, and what threads do to it. Each access of a kernel comes here (the calls that clang's
 * -fsanitize=thread makes; its own runtime is not linked), and must lie in one allocation, or in one array of
 * shared memory, at a multiple of its size. For each four bytes it is known who wrote and read them since the
 * last barrier, and in this launch: two threads that no barrier separates must not both come to one byte if
 * one of them writes.
 *
 * New memory, and the shared memory of each block, is full of bytes 0xff: as float, no number.
 * SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shim.h"

enum { MOST_REGIONS = 4096, SEVERAL = 0xffff, RECENT = 8 };

/* Who came to four bytes last. Times are numbers of intervals between barriers, counted over all launches. */
typedef struct cell {
    uint32_t written; /* time of the last write */
    uint32_t read;    /* time of the last read */
    uint32_t shared;  /* the last launch in which a block read it that is not the one that reads it last */
    uint16_t writer;  /* thread */
    uint16_t reader;  /* thread, or SEVERAL */
    uint8_t write_mask;
    uint8_t read_mask;
    uint8_t pending; /* a copy to it is on its way */
} cell;

typedef struct region {
    uintptr_t start;
    size_t nbytes;
    cell *cells;
    const char *name; /* null: global memory */
    int borrowed;
} region;

static region regions[MOST_REGIONS];
static size_t count;
static region *last;           /* that was found */
static region *recent[RECENT]; /* the ones before it */
static unsigned next_recent;

static uint32_t now = 1;
static uint32_t launch_began;
static uint32_t block_began;
static uint32_t launches;

extern unsigned char shared_start[] __asm__("__start_shim_shared")
    __attribute__((weak, visibility("hidden")));
extern unsigned char shared_stop[] __asm__("__stop_shim_shared") __attribute__((weak, visibility("hidden")));
static uintptr_t dirty_start, dirty_stop; /* what blocks have written of the shared memory */
static int has_begun;

static void *map(size_t nbytes) {
    void *memory =
        mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static region *add(uintptr_t start, size_t nbytes, const char *name) {
    if (count == MOST_REGIONS) {
        return NULL;
    }
    cell *cells = map((nbytes / 4 + 2) * sizeof(cell));
    if (cells == NULL) {
        return NULL;
    }
    regions[count].start = start;
    regions[count].nbytes = nbytes;
    regions[count].cells = cells;
    regions[count].name = name;
    regions[count].borrowed = 0;
    return &regions[count++];
}

uint64_t shim_allocate(size_t nbytes) {
    void *memory = aligned_alloc(512, (nbytes + 511) / 512 * 512);
    if (memory == NULL || add((uintptr_t)memory, nbytes, NULL) == NULL) {
        free(memory);
        return 0;
    }
    memset(memory, 0xff, nbytes);
    return (uint64_t)(uintptr_t)memory;
}

int shim_borrow(uint64_t address, size_t nbytes) {
    region *made = add((uintptr_t)address, nbytes, NULL);
    if (made != NULL) {
        made->borrowed = 1;
    }
    return made != NULL;
}

static int forget(uint64_t address, int borrowed) {
    for (size_t i = 0; i < count; i++) {
        if (regions[i].start == address && regions[i].name == NULL && regions[i].borrowed == borrowed) {
            munmap(regions[i].cells, (regions[i].nbytes / 4 + 2) * sizeof(cell));
            if (!borrowed) {
                memset((void *)regions[i].start, 0xff, regions[i].nbytes);
                free((void *)regions[i].start);
            }
            regions[i] = regions[--count];
            last = NULL;
            memset(recent, 0, sizeof recent);
            return 1;
        }
    }
    return 0;
}

int shim_free(uint64_t address) {
    return forget(address, 0);
}

void shim_return(uint64_t address) {
    if (!forget(address, 1)) {
        shim_fail("memory is given back that nobody lent");
    }
}

static region *find(uintptr_t address) {
    for (size_t i = 0; i < count; i++) {
        if (address - regions[i].start < regions[i].nbytes) {
            return &regions[i];
        }
    }
    return NULL;
}

int shim_inside(uint64_t address, size_t nbytes) {
    const region *found = find((uintptr_t)address);
    return found != NULL && found->name == NULL &&
           nbytes <= found->nbytes - ((uintptr_t)address - found->start);
}

int shim_range(uint64_t address, uint64_t *start, size_t *nbytes) {
    const region *found = find((uintptr_t)address);
    if (found == NULL || found->name != NULL) {
        return 0;
    }
    *start = (uint64_t)found->start;
    *nbytes = found->nbytes;
    return 1;
}

/* ---- Shared memory: its arrays are this file's symbols in the section of that name ---- */

static unsigned char *read_file(const char *path, size_t *nbytes) {
    FILE *file = fopen(path, "rb");
    unsigned char *image = NULL;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        long size = ftell(file);
        image = size > 0 ? malloc((size_t)size) : NULL;
        rewind(file);
        if (image != NULL && fread(image, 1, (size_t)size, file) != (size_t)size) {
            free(image);
            image = NULL;
        }
        *nbytes = (size_t)size;
    }
    if (file != NULL) {
        fclose(file);
    }
    return image;
}

/* Symbols of the library that lie in the section; their addresses are as if it began at 0. */
static void add_arrays(const unsigned char *image, uintptr_t base) {
    const Elf64_Ehdr *header = (const void *)image;
    const Elf64_Shdr *sections = (const void *)(image + header->e_shoff);
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) {
            continue;
        }
        const Elf64_Sym *symbols = (const void *)(image + sections[i].sh_offset);
        const char *names = (const char *)(image + sections[sections[i].sh_link].sh_offset);
        for (size_t j = 0; j < sections[i].sh_size / sizeof *symbols; j++) {
            uintptr_t address = base + symbols[j].st_value;
            if (ELF64_ST_TYPE(symbols[j].st_info) == STT_OBJECT && symbols[j].st_size > 0 &&
                address >= (uintptr_t)shared_start && address < (uintptr_t)shared_stop &&
                add(address, symbols[j].st_size, names + symbols[j].st_name) == NULL) {
                shim_fail("there are too many arrays of shared memory");
            }
        }
    }
}

static void find_arrays(void) {
    if (shared_start == shared_stop) {
        return;
    }
    extern const unsigned char image_start[] __asm__("__ehdr_start") __attribute__((visibility("hidden")));
    size_t nbytes = 0;
    const char *path = getenv("EDGEPACK_SHIM_LIBRARY");
    unsigned char *image = path != NULL ? read_file(path, &nbytes) : NULL;
    if (image == NULL) {
        shim_fail("EDGEPACK_SHIM_LIBRARY does not say where this library lies");
    }
    size_t before = count;
    add_arrays(image, (uintptr_t)image_start); /* their names are in the image, which is kept */
    if (count == before) {
        shim_fail("the library has no symbols of its shared memory");
    }
    memset(shared_start, 0xff, (size_t)(shared_stop - shared_start));
}

/* Static arrays of one kernel have its name in theirs: _ZZ5totalE5parts, or, where it is not a function of C,
 * _ZZ5totalPfE5parts. */
static size_t shared_bytes(const char *kernel) {
    char prefix[512];
    size_t total = 0;
    snprintf(prefix, sizeof prefix, "_ZZ%zu%s", strlen(kernel), kernel);
    for (size_t i = 0; i < count; i++) {
        if (regions[i].name != NULL && strncmp(regions[i].name, prefix, strlen(prefix)) == 0) {
            total += regions[i].nbytes;
        }
    }
    return total;
}

/* ---- Time ---- */

void shim_memory_launch(const char *kernel) {
    if (!has_begun) {
        has_begun = 1;
        find_arrays();
    }
    if (shared_bytes(kernel) > SHIM_SHARED_BYTES) {
        shim_fail("it has %zu bytes of shared memory; a block has %d", shared_bytes(kernel),
                  SHIM_SHARED_BYTES);
    }
    launch_began = ++now;
    launches++;
}

void shim_memory_block(void) {
    block_began = ++now;
    if (dirty_stop > dirty_start) {
        uintptr_t end = (uintptr_t)shared_stop < dirty_stop ? (uintptr_t)shared_stop : dirty_stop;
        memset((void *)dirty_start, 0xff, end - dirty_start);
    }
    dirty_start = UINTPTR_MAX;
    dirty_stop = 0;
}

void shim_memory_barrier(void) {
    if (++now == UINT32_MAX) {
        shim_fail("there are more barriers than the shim can count");
    }
}

/* ---- Accesses ---- */

static void race(const region *where, uintptr_t address, const char *what, const char *when) {
    shim_fail("%s byte %zu of %s, without a barrier in between%s", what, (size_t)(address - where->start),
              where->name != NULL ? where->name : "an allocation", when);
}

static void check_write(region *where, cell *found, uintptr_t address, uint8_t mask) {
    uint16_t thread = (uint16_t)shim_thread_number();
    if (found->written == now && found->writer != thread && (found->write_mask & mask) != 0) {
        race(where, address, "it and another thread write", "");
    }
    if (found->read == now && found->reader != thread && (found->read_mask & mask) != 0) {
        race(where, address, "it writes, and another thread reads,", "");
    }
    if (where->name == NULL) {
        int other_write = found->written >= launch_began && found->written < block_began;
        int other_read = found->read >= launch_began && found->read < block_began;
        if (other_write && (found->write_mask & mask) != 0) {
            race(where, address, "it and another block write", ": blocks cannot wait for each other");
        }
        if (found->shared == launches || (other_read && (found->read_mask & mask) != 0)) {
            race(where, address, "it writes, and another block reads,",
                 ": blocks cannot wait for each other");
        }
    } else {
        dirty_start = address < dirty_start ? address : dirty_start;
        dirty_stop = address + 4 > dirty_stop ? address + 4 : dirty_stop;
    }
    if (found->written == now && found->writer == thread) {
        found->write_mask |= mask;
    } else {
        found->written = now;
        found->writer = thread;
        found->write_mask = mask;
    }
}

static void check_read(region *where, cell *found, uintptr_t address, uint8_t mask) {
    uint16_t thread = (uint16_t)shim_thread_number();
    if (found->written == now && found->writer != thread && (found->write_mask & mask) != 0) {
        race(where, address, "it reads, and another thread writes,", "");
    }
    if (where->name == NULL) {
        if (found->written >= launch_began && found->written < block_began &&
            (found->write_mask & mask) != 0) {
            race(where, address, "it reads, and another block writes,",
                 ": blocks cannot wait for each other");
        }
        if (found->read >= launch_began && found->read < block_began) {
            found->shared = launches;
        }
    }
    if (found->read == now) {
        found->reader = found->reader == thread ? thread : SEVERAL;
        found->read_mask |= mask;
    } else {
        found->read = now;
        found->reader = thread;
        found->read_mask = mask;
    }
}

/* A kernel has few arrays, and comes to each many times. */
static region *find_again(uintptr_t address) {
    for (int i = 0; i < RECENT; i++) {
        if (recent[i] != NULL && address - recent[i]->start < recent[i]->nbytes) {
            return recent[i];
        }
    }
    region *found = find(address);
    if (found != NULL) {
        recent[next_recent++ % RECENT] = found;
    }
    return found;
}

static void check(const void *pointer, size_t nbytes, int writes, int aligned) {
    uintptr_t address = (uintptr_t)pointer;
    if (last == NULL || address - last->start >= last->nbytes) {
        region *found = find_again(address);
        if (found == NULL && shim_on_stack(address)) {
            return;
        }
        if (found == NULL) {
            shim_fail("it %s %zu bytes where there is no memory of the device", writes ? "writes" : "reads",
                      nbytes);
        }
        last = found;
    }
    size_t offset = address - last->start;
    if (nbytes > last->nbytes - offset) {
        shim_fail("it %s %zu bytes, behind the end of %s", writes ? "writes" : "reads", nbytes,
                  last->name != NULL ? last->name : "an allocation");
    }
    if (aligned && address % nbytes != 0) {
        shim_fail("it %s %zu bytes at an address that is no multiple of that", writes ? "writes" : "reads",
                  nbytes);
    }
    for (size_t done = 0; done < nbytes;) {
        size_t at = (offset + done) % 4;
        size_t part = 4 - at < nbytes - done ? 4 - at : nbytes - done;
        uint8_t mask = (uint8_t)(((1u << part) - 1u) << at);
        cell *found = &last->cells[(offset + done) / 4];
        if (found->pending) {
            shim_fail("it %s byte %zu of %s before a copy to it was waited for", writes ? "writes" : "reads",
                      offset + done, last->name != NULL ? last->name : "an allocation");
        }
        if (writes) {
            check_write(last, found, address + done, mask);
        } else {
            check_read(last, found, address + done, mask);
        }
        done += part;
    }
}

void shim_access(const void *at, size_t nbytes, int writes) {
    check(at, nbytes, writes, 1);
}

int shim_is_shared(const void *at) {
    const region *found = find_again((uintptr_t)at);
    return found != NULL && found->name != NULL;
}

void shim_mark_pending(void *at, size_t nbytes, int pending) {
    region *found = find_again((uintptr_t)at);
    for (size_t i = 0; found != NULL && i < nbytes; i += 4) {
        found->cells[((uintptr_t)at - found->start + i) / 4].pending = (uint8_t)pending;
    }
}

#define CALLBACKS(size) \
    void __tsan_read##size(void *at); \
    void __tsan_read##size(void *at) { \
        check(at, size, 0, 1); \
    } \
    void __tsan_write##size(void *at); \
    void __tsan_write##size(void *at) { \
        check(at, size, 1, 1); \
    } \
    void __tsan_unaligned_read##size(void *at); \
    void __tsan_unaligned_read##size(void *at) { \
        check(at, size, 0, 1); \
    } \
    void __tsan_unaligned_write##size(void *at); \
    void __tsan_unaligned_write##size(void *at) { \
        check(at, size, 1, 1); \
    } \
    void __tsan_read_write##size(void *at); \
    void __tsan_read_write##size(void *at) { \
        check(at, size, 0, 1); \
        check(at, size, 1, 1); \
    } \
    void __tsan_unaligned_read_write##size(void *at); \
    void __tsan_unaligned_read_write##size(void *at) { \
        check(at, size, 0, 1); \
        check(at, size, 1, 1); \
    }
CALLBACKS(1)
CALLBACKS(2)
CALLBACKS(4)
CALLBACKS(8)
CALLBACKS(16)

void *__tsan_memset(void *to, int value, size_t nbytes);
void *__tsan_memset(void *to, int value, size_t nbytes) {
    if (nbytes != 0) {
        check(to, nbytes, 1, 0);
    }
    return memset(to, value, nbytes);
}

void *__tsan_memcpy(void *to, const void *from, size_t nbytes);
void *__tsan_memcpy(void *to, const void *from, size_t nbytes) {
    if (nbytes != 0) {
        check(from, nbytes, 0, 0);
        check(to, nbytes, 1, 0);
    }
    return memmove(to, from, nbytes);
}

void *__tsan_memmove(void *to, const void *from, size_t nbytes);
void *__tsan_memmove(void *to, const void *from, size_t nbytes) {
    return __tsan_memcpy(to, from, nbytes);
}

void __tsan_init(void);
void __tsan_init(void) {}
