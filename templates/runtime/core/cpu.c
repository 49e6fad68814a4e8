/* What this CPU and its system can do, compared with what the model's machine code was compiled for. Bits are
 * numbered per architecture; the names are LLVM's (and those of cpu_requires in a device's YAML).
 * SPDX-License-Identifier: Apache-2.0 */

/* XCR0's bits of AMX's tiles: how they are set up, and what they hold. */
#define EP_CPU_TILES 0x60000

/* X(identifier, bit, name, CPUID leaf, subleaf, register eax to edx as 0 to 3, bit in it, XCR0 bits needed)
 */
#define EP_CPU_X86_64_LIST(X) \
    X(SSE3, 0, "sse3", 1, 0, 2, 0, 0) \
    X(SSSE3, 1, "ssse3", 1, 0, 2, 9, 0) \
    X(SSE4_1, 2, "sse4.1", 1, 0, 2, 19, 0) \
    X(SSE4_2, 3, "sse4.2", 1, 0, 2, 20, 0) \
    X(POPCNT, 4, "popcnt", 1, 0, 2, 23, 0) \
    X(MOVBE, 5, "movbe", 1, 0, 2, 22, 0) \
    X(LZCNT, 6, "lzcnt", 0x80000001, 0, 2, 5, 0) \
    X(BMI, 7, "bmi", 7, 0, 1, 3, 0) \
    X(BMI2, 8, "bmi2", 7, 0, 1, 8, 0) \
    X(AVX, 9, "avx", 1, 0, 2, 28, 0x06) \
    X(AVX2, 10, "avx2", 7, 0, 1, 5, 0x06) \
    X(FMA, 11, "fma", 1, 0, 2, 12, 0x06) \
    X(F16C, 12, "f16c", 1, 0, 2, 29, 0x06) \
    X(AVX512F, 13, "avx512f", 7, 0, 1, 16, 0xe6) \
    X(AVX512BW, 14, "avx512bw", 7, 0, 1, 30, 0xe6) \
    X(AVX512CD, 15, "avx512cd", 7, 0, 1, 28, 0xe6) \
    X(AVX512DQ, 16, "avx512dq", 7, 0, 1, 17, 0xe6) \
    X(AVX512VL, 17, "avx512vl", 7, 0, 1, 31, 0xe6) \
    X(AVX512VNNI, 18, "avx512vnni", 7, 0, 2, 11, 0xe6) \
    X(AVX512BF16, 19, "avx512bf16", 7, 1, 0, 5, 0xe6) \
    X(AVX512FP16, 20, "avx512fp16", 7, 0, 3, 23, 0xe6) \
    X(AVXVNNI, 21, "avxvnni", 7, 1, 0, 4, 0x06) \
    X(AVX512VBMI, 22, "avx512vbmi", 7, 0, 2, 1, 0xe6) \
    X(AMX_TILE, 23, "amx-tile", 7, 0, 3, 24, EP_CPU_TILES) \
    X(AMX_INT8, 24, "amx-int8", 7, 0, 3, 25, EP_CPU_TILES)

/* X(identifier, bit, name, word that ep_platform_hwcap is asked for, all of these bits in it) */
#define EP_CPU_AARCH64_LIST(X) \
    X(NEON, 0, "neon", EP_AT_HWCAP, EP_A64_ASIMD) \
    X(FULLFP16, 1, "fullfp16", EP_AT_HWCAP, EP_A64_FPHP | EP_A64_ASIMDHP) \
    X(DOTPROD, 2, "dotprod", EP_AT_HWCAP, EP_A64_ASIMDDP) \
    X(I8MM, 3, "i8mm", EP_AT_HWCAP2, EP_A64_I8MM) \
    X(BF16, 4, "bf16", EP_AT_HWCAP2, EP_A64_BF16) \
    X(SVE, 5, "sve", EP_AT_HWCAP, EP_A64_SVE)

/* LLVM's fp16 is the conversions to and from half, which the kernel has no bit for; VFPv4 includes them. */
#define EP_CPU_ARM_LIST(X) \
    X(NEON, 0, "neon", EP_AT_HWCAP, EP_A32_NEON) \
    X(VFP3, 1, "vfp3", EP_AT_HWCAP, EP_A32_VFP3) \
    X(VFP4, 2, "vfp4", EP_AT_HWCAP, EP_A32_VFP4) \
    X(FP16, 3, "fp16", EP_AT_HWCAP, EP_A32_VFP4)

#define EP_CPU_RISCV64_LIST(X) X(V, 0, "v", EP_AT_HWCAP, EP_RISCV_V)

/* The tests read all lists on every machine; a library looks at its own. */
#define EP_CPU_BIT(bit) (UINT64_C(1) << (bit))

#if defined(__x86_64__)
#include <cpuid.h>

enum {
#define X(identifier, bit, ...) EP_CPU_X86_64_##identifier = bit,
    EP_CPU_X86_64_LIST(X)
#undef X
};

typedef struct ep_cpu_feature {
    char name[12];
    uint32_t leaf;
    uint8_t subleaf;
    uint8_t reg;
    uint8_t bit;
    uint32_t state;
} ep_cpu_feature;

static const ep_cpu_feature ep_cpu_table[] = {
#define X(identifier, bit, name, leaf, subleaf, reg, reg_bit, state) \
    {name, leaf, subleaf, reg, reg_bit, state},
    EP_CPU_X86_64_LIST(X)
#undef X
};

/* XCR0: which register files the system saves; 0 if it saves none (no OSXSAVE). */
static uint32_t ep_cpu_state(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(1, 0, &a, &b, &c, &d) || (c >> 27 & 1u) == 0) {
        return 0;
    }
    __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(a), "=d"(d) : "c"(0)); /* xgetbv */
    return a;
}

/* Whether the system saves the register files that are needed, and lets this process use them. */
static int ep_cpu_usable(uint32_t needed, uint32_t saved) {
    if ((saved & needed) != needed) {
        return 0;
    }
#if defined(EP_NEEDS_TILES)
    return (needed & EP_CPU_TILES) == 0 || ep_platform_permits_tiles();
#else
    return (needed & EP_CPU_TILES) == 0;
#endif
}

static int ep_cpu_has(const ep_cpu_feature *feature) {
    unsigned reg[4] = {0, 0, 0, 0};
    if (!__get_cpuid_count(feature->leaf, feature->subleaf, &reg[0], &reg[1], &reg[2], &reg[3]) ||
        (reg[feature->reg] >> feature->bit & 1u) == 0) {
        return 0;
    }
    return feature->state == 0 || ep_cpu_usable(feature->state, ep_cpu_state());
}

#elif defined(__aarch64__) || defined(__arm__) || (defined(__riscv) && __riscv_xlen == 64)

#if defined(__aarch64__)
#define EP_CPU_LIST             EP_CPU_AARCH64_LIST
#define EP_CPU_ENUM(identifier) EP_CPU_AARCH64_##identifier
#elif defined(__arm__)
#define EP_CPU_LIST             EP_CPU_ARM_LIST
#define EP_CPU_ENUM(identifier) EP_CPU_ARM_##identifier
#else
#define EP_CPU_LIST             EP_CPU_RISCV64_LIST
#define EP_CPU_ENUM(identifier) EP_CPU_RISCV64_##identifier
#endif

enum {
#define X(identifier, bit, name, word, mask) EP_CPU_ENUM(identifier) = bit,
    EP_CPU_LIST(X)
#undef X
};

typedef struct ep_cpu_feature {
    char name[12];
    uint32_t word; /* EP_AT_HWCAP, EP_AT_HWCAP2 */
    uint32_t mask;
} ep_cpu_feature;

static const ep_cpu_feature ep_cpu_table[] = {
#define X(identifier, bit, name, word, mask) {name, word, mask},
    EP_CPU_LIST(X)
#undef X
};

static int ep_cpu_has(const ep_cpu_feature *feature) {
    return ((uint32_t)ep_platform_hwcap(feature->word) & feature->mask) == feature->mask;
}

#else

typedef struct ep_cpu_feature {
    char name[12];
} ep_cpu_feature;

static const ep_cpu_feature ep_cpu_table[] = {{""}};

/* This architecture has no features that a model's machine code may need or not. */
static int ep_cpu_has(const ep_cpu_feature *feature) {
    (void)feature;
    return 1;
}

#endif

enum { EP_CPU_COUNT = (int)(sizeof ep_cpu_table / sizeof ep_cpu_table[0]) };

static int ep_cpu_bit_missing(uint64_t required, unsigned bit) {
    if ((required >> bit & 1u) == 0) {
        return 0;
    }
    return bit >= (unsigned)EP_CPU_COUNT || !ep_cpu_has(&ep_cpu_table[bit]);
}

/* Writes the names of the missing features, with commas; returns how many there are. */
static size_t ep_cpu_missing(uint64_t required, char *text, size_t capacity) {
    size_t count = 0;
    size_t length = 0;
    for (unsigned bit = 0; bit < 64; bit++) {
        if (!ep_cpu_bit_missing(required, bit)) {
            continue;
        }
        const char *name = bit < (unsigned)EP_CPU_COUNT ? ep_cpu_table[bit].name : "unknown";
        if (count > 0 && length + 1 < capacity) {
            text[length++] = ',';
        }
        for (; *name != 0 && length + 1 < capacity; name++) {
            text[length++] = *name;
        }
        count++;
    }
    if (capacity > 0) {
        text[length] = 0;
    }
    return count;
}
