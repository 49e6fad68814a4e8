/* What C cannot say of a RISC-V core.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_FIRMWARE_MACHINE_H
#define EDGEPACK_FIRMWARE_MACHINE_H

#include <stdint.h>

/* These three instructions in a row, none of them compressed, are the call ("RISC-V Semihosting", 3). */
static inline uint32_t semihosting_call(uint32_t operation, const volatile void *argument) {
    register uint32_t a0 __asm__("a0") = operation;
    register const volatile void *a1 __asm__("a1") = argument;
    __asm__ volatile(".option push\n .option norvc\n .balign 16\n"
                     "slli x0, x0, 0x1f\n ebreak\n srai x0, x0, 7\n .option pop"
                     : "+r"(a0)
                     : "r"(a1)
                     : "memory");
    return a0;
}

static inline unsigned char *stack_pointer(void) {
    unsigned char *here;
    __asm__ volatile("mv %0, sp" : "=r"(here));
    return here;
}

/* The lower half of minstret ("The RISC-V Instruction Set Manual", volume II, 3.1.11). */
static inline uint32_t instruction_counter(void) {
    uint32_t value;
    __asm__ volatile(".option push\n .option arch, +zicsr\n csrr %0, minstret\n .option pop" : "=r"(value));
    return value;
}

static inline void million_instructions(void) {
    uint32_t left = 500000;
    __asm__ volatile("1: addi %0, %0, -1\n bnez %0, 1b" : "+r"(left));
}

#endif
