/* A device with two places for params in flash, to which files come one after the other; prints for each what
 * became of it, and the bits of what the model then computes. SPDX-License-Identifier: Apache-2.0 */
#include <net.h>

#include "firmware.h"

/* The board's flash is memory that can be written. */
static void flash_erase(const void *begin, size_t nbytes) {
    unsigned char *to = (unsigned char *)(uintptr_t)begin;
    for (size_t i = 0; i < nbytes; i++) {
        to[i] = 0xff;
    }
}

static void flash_write(const volatile void *begin, const void *from, size_t nbytes) {
    volatile unsigned char *to = (volatile unsigned char *)(uintptr_t)begin;
    for (size_t i = 0; i < nbytes; i++) {
        to[i] = ((const unsigned char *)from)[i];
    }
}

#include "update.inc"

/* Erased; no compiler knows that they are constant here. */
__asm__(".pushsection .data.switches,\"aw\",%progbits\n.balign 4096\n.globl switches\nswitches:\n"
        ".fill 4096, 1, 0xff\n.popsection\n");

enum { RECEIVED = 0x21000000, STEP = 0x10000 };

static unsigned char memory[NET_ARENA_BYTES] __attribute__((aligned(64)));

static void print_word(uint32_t value) {
    char text[10] = " 00000000";
    for (int i = 8; i > 0; i--, value >>= 4) {
        text[i] = "0123456789abcdef"[value & 15];
    }
    firmware_print(text);
}

/* As after a start of the device: what is in use is opened anew. */
static void report(ep_status status) {
    union {
        float values[NET_OUTPUT_Y_ELEMENTS];
        uint32_t bits[NET_OUTPUT_Y_ELEMENTS];
    } y = {{0}};
    float x[NET_INPUT_X_ELEMENTS];
    ep_model model;
    for (int i = 0; i < NET_INPUT_X_ELEMENTS; i++) {
        x[i] = (float)i / 4 - 1;
    }
    firmware_print(ep_status_name(status));
    if (open_params(NULL, &model) != EP_OK ||
        net_run_direct(&model, memory, sizeof memory, x, y.values) != EP_OK) {
        firmware_print(" and nothing runs");
    }
    ep_model_close(&model);
    if (net_run_direct(NULL, memory, sizeof memory, x, y.values) != EP_E_NULL) {
        firmware_print(" and no model runs");
    }
    for (int i = 0; i < NET_OUTPUT_Y_ELEMENTS; i++) {
        print_word(y.bits[i]);
    }
    firmware_print("\n");
}

int main(void) {
    report(EP_OK);
    for (uintptr_t at = RECEIVED; *(volatile uint32_t *)at != 0; at += STEP) {
        report(update_params((const void *)(at + 64), *(volatile uint32_t *)at, NULL));
    }
    return 0;
}
