/* Vector table and start of a Cortex-M: FPU on, initialised data copied, the rest zeroed, main called.
 * SPDX-License-Identifier: Apache-2.0 */
#include "firmware.h"

/* Addresses that the linker script defines: where initialised data are stored, where they go, what is zeroed.
 */
extern uint32_t firmware_data_source[];
extern uint32_t firmware_data_start[];
extern uint32_t firmware_data_end[];
extern uint32_t firmware_bss_start[];
extern uint32_t firmware_bss_end[];

void Reset_Handler(void) __attribute__((noreturn));

/* Coprocessor Access Control Register, ARMv7-M Architecture Reference Manual B3.2.20: full access to the FPU.
 */
static void enable_fpu(void) {
    volatile uint32_t *cpacr = (volatile uint32_t *)0xE000ED88u;
    *cpacr |= 0xFu << 20;
    __asm__ volatile("dsb\n isb" ::: "memory");
}

static void set_up_memory(void) {
    const volatile uint32_t *from = firmware_data_source;
    for (volatile uint32_t *to = firmware_data_start; to < firmware_data_end; to++) {
        *to = *from++;
    }
    for (volatile uint32_t *to = firmware_bss_start; to < firmware_bss_end; to++) {
        *to = 0;
    }
}

void Reset_Handler(void) {
    enable_fpu();
    set_up_memory();
    firmware_exit(main());
}

static void fault(void) {
    firmware_print("The processor reported a fault.\n");
    firmware_exit(99);
}

typedef void (*handler)(void);

static const struct {
    uint32_t *stack;
    handler reset;
    handler exceptions[14]; /* NMI, HardFault, MemManage, BusFault, UsageFault, ... SysTick */
} vectors __attribute__((section(".vectors"), used)) = {
    firmware_stack_top,
    Reset_Handler,
    {fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault},
};
