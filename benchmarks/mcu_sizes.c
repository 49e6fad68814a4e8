/* Runs a network of int8 once and says how many instructions and how much stack that takes, under qemu's
 * -icount. Compiled by mcu_sizes.py: NETWORK is a bundle's, EMX one of emx-onnx-cgen, TFLM one of TFLite
 * Micro (mcu_tflm.cc), else it is bakenn's. SPDX-License-Identifier: Apache-2.0 */
#ifdef HEADER
#include HEADER
#endif

#include <stddef.h>
#include <stdint.h>

#include "firmware.h"
#include "mcu_print.h"
#include "machine.h"

enum { STACK_BYTE = 0xa5, MARGIN = 64 };

__asm__(".pushsection .edgepack.recorded,\"a\",%progbits\n.balign 64\n.global "
        "sizes_input\nsizes_input:\n.incbin \"" INPUT "\"\n.popsection\n");
extern const int8_t sizes_input[];
extern unsigned char firmware_bss_end[];

#ifndef TFLM /* whose input and output are in its arena */
static int8_t input[INPUT_BYTES] __attribute__((aligned(16)));
static int8_t output[OUTPUT_BYTES] __attribute__((aligned(16)));
#endif

#if defined(NETWORK)
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

static unsigned char memory[JOIN(MACRO, _ARENA_BYTES)]
    __attribute__((section(".bss.edgepack.session"), aligned(64)));

static int open_network(void) {
    return 0;
}

static int run_network(void) {
    return JOIN(NETWORK, _run_direct)(memory, sizeof memory, input, output);
}

static uint32_t arena_bytes(void) {
    return sizeof memory;
}
#elif defined(EMX)
void net(const int8_t *network_input, int8_t *network_output);

static int open_network(void) {
    return 0;
}

static int run_network(void) {
    net(input, output);
    return 0;
}

static uint32_t arena_bytes(void) {
    return 0;
}
#elif defined(TFLM)
int tflm_open(void);
int tflm_run(void);
int8_t *tflm_input(void);
int8_t *tflm_output(void);
uint32_t tflm_arena_bytes(void);
#define input  tflm_input()
#define output tflm_output()

static int open_network(void) {
    return tflm_open();
}

static int run_network(void) {
    return tflm_run();
}

static uint32_t arena_bytes(void) {
    return tflm_arena_bytes();
}
#else
static uint8_t arena[BKNN_NET_ARENA_SIZE + 1] __attribute__((aligned(64)));

static int open_network(void) {
    return 0;
}

static int run_network(void) {
    bknn_net_infer(arena, input, output);
    return 0;
}

static uint32_t arena_bytes(void) {
    return sizeof arena;
}
#endif

/* Nothing lies below the stack pointer: there are no interrupts here. */
__attribute__((noinline)) static void paint_stack(void) {
    unsigned char *end = stack_pointer() - MARGIN;
    for (volatile unsigned char *p = firmware_bss_end; p < end; p++) {
        *p = STACK_BYTE;
    }
}

__attribute__((noinline)) static uint32_t used_stack(const unsigned char *top) {
    const volatile unsigned char *p = firmware_bss_end;
    while (p < top && *p == STACK_BYTE) {
        p++;
    }
    return (uint32_t)(top - (const unsigned char *)p);
}

/* Before each run: the input may lie where a later result goes. */
static void fill_input(void) {
    for (uint32_t i = 0; i < INPUT_BYTES; i++) {
        input[i] = sizes_input[i];
    }
}

int main(void) {
    const unsigned char *top = stack_pointer();
    paint_stack();
    int status = open_network();
    if (status == 0) {
        fill_input();
        status = run_network();
    }
    uint32_t stack = used_stack(top);
    uint32_t start = instruction_counter();
    million_instructions();
    uint32_t million = instruction_counter() - start;
    if (status == 0) {
        fill_input();
    }
    start = instruction_counter();
    if (status == 0) {
        status = run_network();
    }
    uint32_t run = instruction_counter() - start;
    print_number(million);
    print_number(run);
    print_number(stack);
    print_number(arena_bytes());
    print_bytes(output, OUTPUT_BYTES);
    return status;
}
