/* First instructions of a RISC-V core, which starts at the lowest address: stack, trap vector, FPU on where
 * there is one. Source: "The RISC-V Instruction Set Manual", volume II: mtvec 3.1.7, mstatus.FS 3.1.6.
 * SPDX-License-Identifier: Apache-2.0 */
#include "firmware.h"

#ifdef __riscv_flen
#define ENABLE_FPU "li t0, 0x2000\n csrs mstatus, t0\n csrwi fcsr, 0\n"
#else
#define ENABLE_FPU
#endif

void Reset_Handler(void) __attribute__((naked, noreturn, section(".vectors"), used));

void Reset_Handler(void) {
    __asm__ volatile(".option push\n .option arch, +zicsr\n"
                     "la sp, firmware_stack_top\n la t0, firmware_trap\n csrw mtvec, t0\n" ENABLE_FPU
                     ".option pop\n"
                     "tail firmware_start");
}

/* Where traps go: four bytes apart, as mtvec wants its address. */
void firmware_trap(void) __attribute__((aligned(4), noreturn, used));

void firmware_trap(void) {
    firmware_fault();
}
