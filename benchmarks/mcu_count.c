/* Counts the instructions of one run: SysTick, on RISC-V minstret, under qemu's -icount, where an instruction
 * takes 1 ns. A loop of a million instructions before says how many ticks these are. Compiled by
 * mcu_instructions.py, with the header of the network, its sizes and the path of its input; TENSORS where it
 * has several. SPDX-License-Identifier: Apache-2.0 */
#include HEADER

#include <stdint.h>

#include "firmware.h"
#include "mcu_print.h"

enum { TOP = 0xFFFFFF, LOOPS = 500000 };

__asm__(".pushsection .rodata.input,\"a\",%progbits\n.balign 64\n.global count_input\ncount_input:\n.incbin "
        "\"" INPUT "\"\n.popsection\n");
extern const int8_t count_input[];

static int8_t input[INPUT_BYTES] __attribute__((aligned(16)));
static int8_t output[OUTPUT_BYTES] __attribute__((aligned(16)));

#if !defined(TENSORS)
#define TENSORS input, output
#endif

#if defined(NETWORK)
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

static unsigned char memory[JOIN(MACRO, _ARENA_BYTES)]
    __attribute__((section(".bss.edgepack.session"), aligned(64)));

static int run_network(void) {
    return JOIN(NETWORK, _run_direct)(memory, sizeof memory, TENSORS);
}
#elif defined(LAYERS)
static int run_network(void) {
    return layers_run(input, output);
}
#else
static uint8_t arena[BKNN_NET_ARENA_SIZE + 1] __attribute__((aligned(64)));

static int run_network(void) {
    bknn_net_infer(arena, input, output);
    return 0;
}
#endif

#if defined(__riscv)
static uint32_t ticks(void) {
    uint32_t count;
    __asm__ volatile(".option push\n .option arch, +zicsr\n csrr %0, minstret\n .option pop" : "=r"(count));
    return count;
}

static void start_ticks(void) {}

static void run_a_million(void) {
    uint32_t left = LOOPS;
    __asm__ volatile("1: addi %0, %0, -1\n bnez %0, 1b" : "+r"(left));
}
#else
/* Armv7-M Architecture Reference Manual, B3.3: control, reload value, current value. */
static volatile uint32_t *const systick = (volatile uint32_t *)0xE000E010u;

static uint32_t ticks(void) {
    return TOP - systick[2];
}

static void start_ticks(void) {
    systick[1] = TOP;
    systick[2] = 0;
    systick[0] = 5; /* enabled, by the processor's clock, no interrupt */
    while (systick[2] == 0) {
    }
}

static void run_a_million(void) {
    uint32_t left = LOOPS;
    __asm__ volatile("1: subs %0, #1\n bne 1b" : "+l"(left)::"cc");
}
#endif

static uint32_t ticks_of_a_million(void) {
    uint32_t before = ticks();
    run_a_million();
    return ticks() - before;
}

static void fill_input(void) {
    for (uint32_t i = 0; i < INPUT_BYTES; i++) {
        input[i] = count_input[i];
    }
#if defined(LAYERS)
    layers_start(input);
#endif
}

int main(void) {
    fill_input();
    int status = run_network();
    fill_input();
    start_ticks();
    uint32_t million = ticks_of_a_million();
    uint32_t before = ticks();
    if (status == 0) {
        status = run_network();
    }
    uint32_t run = ticks() - before;
#if defined(LAYERS)
    layers_finish(output);
#endif
    print_number(million);
    print_number(run);
    print_bytes(output, OUTPUT_BYTES);
    return status;
}
