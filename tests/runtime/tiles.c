/* Whether a model may use AMX's tiles, on a CPU and a system that this program makes up. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

static unsigned leaf_7_edx;
static unsigned lowest_leaf_asked = 7;

static int made_up_cpuid(unsigned leaf, unsigned subleaf, unsigned *a, unsigned *b, unsigned *c,
                         unsigned *d) {
    lowest_leaf_asked = leaf < lowest_leaf_asked ? leaf : lowest_leaf_asked;
    *a = *b = *c = 0;
    *d = leaf == 7 && subleaf == 0 ? leaf_7_edx : 0;
    return 1;
}

static int permitted;
static int asked;

static long made_up_syscall(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    long request = va_arg(arguments, long);
    long feature = va_arg(arguments, long);
    va_end(arguments);
    CHECK(number == SYS_arch_prctl && request == 0x1023 && feature == 18);
    asked++;
    return permitted ? 0 : -1;
}

#define __get_cpuid_count made_up_cpuid
#define syscall           made_up_syscall
#include "model.c"

static uint64_t bits(void) {
    return EP_CPU_BIT(EP_CPU_X86_64_AMX_TILE) | EP_CPU_BIT(EP_CPU_X86_64_AMX_INT8);
}

int main(void) {
    char text[32];
    /* A CPU without them is not asked for more, and nor is the system. */
    CHECK(ep_cpu_missing(bits(), text, sizeof text) == 2 && strcmp(text, "amx-tile,amx-int8") == 0);
    CHECK(lowest_leaf_asked == 7 && asked == 0);
    leaf_7_edx = 1u << 24;
    CHECK(ep_cpu_has(&ep_cpu_table[EP_CPU_X86_64_AMX_INT8]) == 0 && lowest_leaf_asked == 7);
    /* Nor is a system asked that does not save tiles: leaf 1 tells that it saves nothing. */
    leaf_7_edx |= 1u << 25;
    CHECK(ep_cpu_missing(bits(), text, sizeof text) == 2 && lowest_leaf_asked == 1 && asked == 0);
    for (uint32_t saved = 0xe7; saved != EP_CPU_TILES + 0xe7u; saved += 0x20000) {
        CHECK(ep_cpu_usable(EP_CPU_TILES, saved) == 0 && asked == 0);
    }
    /* One that does may refuse. Vectors need no permission. */
    CHECK(ep_cpu_usable(EP_CPU_TILES, EP_CPU_TILES + 0xe7u) == 0 && asked == 1);
    CHECK(ep_cpu_usable(0xe6, 0xe7) == 1 && asked == 1);
    permitted = 1;
    CHECK(ep_cpu_usable(EP_CPU_TILES, EP_CPU_TILES + 0xe7u) == 1 && asked == 2);
    CHECK(ep_cpu_usable(EP_CPU_TILES, EP_CPU_TILES + 0xe7u) == 1 && asked == 3);
    return 0;
}
