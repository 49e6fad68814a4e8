/* AMX's tiles for x86-64 CPUs that have none: a handler of SIGILL that decodes the instruction, does what it
 * does on tiles in memory of the thread's own, and goes on behind it. Linux.
 *
 * It knows LDTILECFG, TILERELEASE, TILEZERO, TILELOADD(T1), TILESTORED and the products of bytes (TDPBSSD,
 * TDPBSUD, TDPBUSD, TDPBUUD), as in Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
 * It is stricter than a CPU need be: what is undefined or faults there ends the process with a sentence. Any
 * other instruction is left to the handler that was there before. SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, CONFIG_BYTES = 64 };

/* What a VEX prefix implies instead of the prefixes of old: none, 66, F3, F2. */
enum { NONE, P66, PF3, PF2 };

typedef struct tile {
    uint8_t bytes[ROWS][ROW_BYTES];
} tile;

typedef struct state {
    int configured;
    unsigned rows[TILES];
    unsigned row_bytes[TILES];
    tile tiles[TILES];
} state;

typedef struct instruction {
    unsigned prefix;
    unsigned opcode;
    unsigned mod;
    unsigned reg;
    unsigned rm;
    unsigned third; /* VEX.vvvv */
    uintptr_t address;
    uintptr_t stride;
    int has_index;
    unsigned length;
} instruction;

static __thread state of_thread;
static uint64_t executed; /* by all threads */
static struct sigaction before;

static void fail(const char *reason) {
    static const char prefix[] = "amx_tiles: ";
    ssize_t ignored = write(2, prefix, sizeof prefix - 1);
    ignored = write(2, reason, strlen(reason));
    ignored = write(2, "\n", 1);
    (void)ignored;
    _exit(70);
}

static const int registers[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

static uintptr_t value_of(const ucontext_t *context, unsigned number) {
    return (uintptr_t)context->uc_mcontext.gregs[registers[number]];
}

static int32_t int32_at(const uint8_t *code) {
    int32_t value;
    memcpy(&value, code, sizeof value);
    return value;
}

/* The operand in memory behind ModRM. */
static void decode_memory(const ucontext_t *context, const uint8_t *code, unsigned vex, instruction *found) {
    unsigned at = found->length; /* behind ModRM */
    unsigned base_high = (vex >> 5 & 1u) != 0 ? 0 : 8;
    unsigned index_high = (vex >> 6 & 1u) != 0 ? 0 : 8;
    uintptr_t address = 0;
    int no_base = 0;
    int relative = 0;
    if (found->rm == 4) {
        unsigned sib = code[at++];
        unsigned index = (sib >> 3 & 7u) + index_high;
        unsigned base = sib & 7u;
        if (index != 4) {
            found->stride = value_of(context, index) << (sib >> 6);
            found->has_index = 1;
        }
        no_base = base == 5 && found->mod == 0;
        if (!no_base) {
            address = value_of(context, base + base_high);
        }
    } else if (found->rm == 5 && found->mod == 0) {
        no_base = relative = 1;
    } else {
        address = value_of(context, found->rm + base_high);
    }
    if (found->mod == 1) {
        address += (uintptr_t)(intptr_t)(int8_t)code[at++];
    } else if (found->mod == 2 || no_base) {
        address += (uintptr_t)(intptr_t)int32_at(code + at);
        at += 4;
    }
    found->length = at;
    found->address = relative ? address + (uintptr_t)code + at : address;
}

/* Whether it is one of AMX's: VEX.128.0F38.W0 49, 4B or 5E. */
static int decode(const ucontext_t *context, const uint8_t *code, instruction *found) {
    memset(found, 0, sizeof *found);
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84) != 0) {
        return 0;
    }
    found->prefix = code[2] & 3u;
    found->third = ~(code[2] >> 3) & 15u;
    found->opcode = code[3];
    found->mod = code[4] >> 6;
    found->reg = code[4] >> 3 & 7u;
    found->rm = code[4] & 7u;
    found->length = 5;
    if (found->opcode != 0x49 && found->opcode != 0x4b && found->opcode != 0x5e) {
        return 0;
    }
    if (found->mod != 3) {
        decode_memory(context, code, code[1], found);
    }
    return 1;
}

static void configure(const uint8_t *config) {
    uint8_t zero[CONFIG_BYTES] = {0};
    memset(&of_thread, 0, sizeof of_thread);
    if (config[0] == 0) { /* as TILERELEASE */
        return;
    }
    if (config[0] != 1 || memcmp(config + 2, zero, 14) != 0 || memcmp(config + 32, zero, 16) != 0 ||
        memcmp(config + 56, zero, 8) != 0) {
        fail("LDTILECFG of an unknown palette, or of more than 8 tiles");
    }
    if (config[1] != 0) {
        fail("LDTILECFG with a row to go on from");
    }
    for (unsigned i = 0; i < TILES; i++) {
        of_thread.row_bytes[i] = config[16 + 2 * i] + 256u * config[17 + 2 * i];
        of_thread.rows[i] = config[48 + i];
        if (of_thread.row_bytes[i] > ROW_BYTES || of_thread.rows[i] > ROWS ||
            (of_thread.row_bytes[i] == 0) != (of_thread.rows[i] == 0)) {
            fail("LDTILECFG of a tile that is too large, or of rows without columns");
        }
    }
    of_thread.configured = 1;
}

static void check_tile(unsigned number) {
    if (!of_thread.configured || number >= TILES || of_thread.rows[number] == 0) {
        fail("a tile that is not configured");
    }
}

static void load(const instruction *it) {
    check_tile(it->reg);
    memset(&of_thread.tiles[it->reg], 0, sizeof(tile));
    for (unsigned row = 0; row < of_thread.rows[it->reg]; row++) {
        const void *source = (const void *)(it->address + row * it->stride);
        memcpy(of_thread.tiles[it->reg].bytes[row], source, of_thread.row_bytes[it->reg]);
    }
}

static void store(const instruction *it) {
    check_tile(it->reg);
    for (unsigned row = 0; row < of_thread.rows[it->reg]; row++) {
        void *destination = (void *)(it->address + row * it->stride);
        memcpy(destination, of_thread.tiles[it->reg].bytes[row], of_thread.row_bytes[it->reg]);
    }
}

static int32_t element(uint8_t byte, int is_signed) {
    return is_signed ? (int8_t)byte : byte;
}

static void multiply(const instruction *it) {
    unsigned sums = it->reg;
    unsigned left = it->rm;
    unsigned right = it->third;
    int left_signed = it->prefix == PF2 || it->prefix == PF3;
    int right_signed = it->prefix == PF2 || it->prefix == P66;
    check_tile(sums);
    check_tile(left);
    check_tile(right);
    if (sums == left || sums == right || left == right) {
        fail("a product of one tile twice");
    }
    if (of_thread.rows[sums] != of_thread.rows[left] ||
        of_thread.row_bytes[sums] != of_thread.row_bytes[right] || of_thread.row_bytes[sums] % 4 != 0 ||
        of_thread.row_bytes[left] != 4 * of_thread.rows[right]) {
        fail("a product of tiles whose sizes do not fit");
    }
    for (unsigned row = 0; row < of_thread.rows[sums]; row++) {
        uint32_t total[ROW_BYTES / 4];
        memcpy(total, of_thread.tiles[sums].bytes[row], sizeof total);
        for (unsigned k = 0; k < of_thread.rows[right]; k++) {
            for (unsigned column = 0; column < of_thread.row_bytes[sums] / 4; column++) {
                for (unsigned byte = 0; byte < 4; byte++) {
                    int32_t a = element(of_thread.tiles[left].bytes[row][4 * k + byte], left_signed);
                    int32_t b = element(of_thread.tiles[right].bytes[k][4 * column + byte], right_signed);
                    total[column] += (uint32_t)(a * b);
                }
            }
        }
        memcpy(of_thread.tiles[sums].bytes[row], total, sizeof total);
    }
}

/* Whether it was one that it knows. */
static int execute(const instruction *it) {
    int memory = it->mod != 3;
    switch (it->opcode) {
    case 0x49:
        if (memory && it->prefix == NONE && it->reg == 0) {
            configure((const uint8_t *)it->address);
        } else if (!memory && it->prefix == NONE && it->reg == 0 && it->rm == 0) {
            memset(&of_thread, 0, sizeof of_thread);
        } else if (!memory && it->prefix == PF2 && it->rm == 0) {
            check_tile(it->reg);
            memset(&of_thread.tiles[it->reg], 0, sizeof(tile));
        } else {
            return 0;
        }
        return 1;
    case 0x4b:
        if (!memory || it->rm != 4 || it->prefix == NONE) {
            return 0;
        }
        if (!it->has_index) {
            fail("a tile of rows that all lie in one place");
        }
        if (it->prefix == PF3) {
            store(it);
        } else {
            load(it);
        }
        return 1;
    default:
        if (memory) {
            return 0;
        }
        multiply(it);
        return 1;
    }
}

static void handle(int signal, siginfo_t *info, void *raw) {
    ucontext_t *context = raw;
    instruction found;
    if (decode(context, (const uint8_t *)context->uc_mcontext.gregs[REG_RIP], &found) && execute(&found)) {
        context->uc_mcontext.gregs[REG_RIP] += found.length;
        __atomic_fetch_add(&executed, 1, __ATOMIC_RELAXED);
        return;
    }
    if ((before.sa_flags & SA_SIGINFO) != 0) {
        before.sa_sigaction(signal, info, raw);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal);
    } else { /* the instruction is tried again, and ends the process */
        sigaction(SIGILL, &before, NULL);
    }
}

/* Emulates from now on, in all threads; 0 is success. */
EXPORTED int amx_tiles_begin(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGILL, &action, &before);
}

/* In a program that loads this library first, no thread may block SIGILL, as the runtime's do with all
 * signals: Linux ends a process whose instruction raises one that is blocked. */
EXPORTED int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) {
    sigset_t without;
    if (set != NULL && how != SIG_UNBLOCK) {
        without = *set;
        sigdelset(&without, SIGILL);
        set = &without;
    }
    return syscall(SYS_rt_sigprocmask, how, set, old, (size_t)8) == 0 ? 0 : errno;
}

/* In a program that loads this library first (LD_PRELOAD), from its start on. */
__attribute__((constructor)) static void begin_if_preloaded(void) {
    const char *preloaded = getenv("LD_PRELOAD");
    if (preloaded != NULL && strstr(preloaded, "amx_tiles") != NULL && amx_tiles_begin() != 0) {
        fail("no handler of SIGILL");
    }
}

/* Puts back what was there before. */
EXPORTED int amx_tiles_end(void) {
    return sigaction(SIGILL, &before, NULL);
}

/* Instructions that were emulated, of all threads. */
EXPORTED uint64_t amx_tiles_executed(void) {
    return __atomic_load_n(&executed, __ATOMIC_RELAXED);
}

/* Whether this thread's tiles are as TILERELEASE leaves them. */
EXPORTED int amx_tiles_released(void) {
    return !of_thread.configured;
}
