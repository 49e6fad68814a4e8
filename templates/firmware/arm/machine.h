/* What C cannot say of a Cortex-M.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_FIRMWARE_MACHINE_H
#define EDGEPACK_FIRMWARE_MACHINE_H

#include <stdint.h>

static inline uint32_t semihosting_call(uint32_t operation, const volatile void *argument) {
    register uint32_t r0 __asm__("r0") = operation;
    register const volatile void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static inline unsigned char *stack_pointer(void) {
    unsigned char *here;
    __asm__ volatile("mov %0, sp" : "=r"(here));
    return here;
}

/* COUNTER of the FPGA's registers on Arm's boards MPS2 and MPS3 (Arm DAI 0386, "FPGA system control and
 * I/O"), where the board's linker script says. */
extern volatile uint32_t firmware_counter[];

static inline uint32_t instruction_counter(void) {
    return firmware_counter[0];
}

static inline void million_instructions(void) {
    uint32_t left = 500000;
    __asm__ volatile(".syntax unified\n1: subs %0, %0, #1\n bne 1b" : "+l"(left) : : "cc");
}

#endif
