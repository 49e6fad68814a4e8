/* Vector table and first instructions of a Cortex-M: FPU on, where there is one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "firmware.h"

void Reset_Handler(void) __attribute__((noreturn));

/* Coprocessor Access Control Register, ARMv7-M Architecture Reference Manual B3.2.20: full access to the FPU.
 */
static void enable_fpu(void) {
#ifdef __ARM_FP
    volatile uint32_t *cpacr = (volatile uint32_t *)0xE000ED88u;
    *cpacr |= 0xFu << 20;
    __asm__ volatile("dsb\n isb" ::: "memory");
#endif
}

/* Configuration and Control Register, B3.2.8: an unaligned word or halfword is a fault, as on every ARMv6-M,
 * also where a larger core runs its code. */
static void trap_unaligned(void) {
#if __ARM_ARCH == 6
    volatile uint32_t *ccr = (volatile uint32_t *)0xE000ED14u;
    *ccr |= 1u << 3;
    __asm__ volatile("dsb\n isb" ::: "memory");
#endif
}

void Reset_Handler(void) {
    enable_fpu();
    trap_unaligned();
    firmware_start();
}

typedef void (*handler)(void);

static const struct {
    uint32_t *stack;
    handler reset;
    handler exceptions[14]; /* NMI, HardFault, MemManage, BusFault, UsageFault, ... SysTick */
} vectors __attribute__((section(".vectors"), used)) = {
    firmware_stack_top,
    Reset_Handler,
    {firmware_fault, firmware_fault, firmware_fault, firmware_fault, firmware_fault, firmware_fault,
     firmware_fault, firmware_fault, firmware_fault, firmware_fault, firmware_fault, firmware_fault,
     firmware_fault, firmware_fault},
};
