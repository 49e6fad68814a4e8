/* What happens before main on every core: initialised data copied, the rest zeroed; and what a fault does.
 * SPDX-License-Identifier: Apache-2.0 */
#include "firmware.h"

/* Addresses that the linker script defines: where initialised data are stored, where they go, what is zeroed.
 */
extern uint32_t firmware_data_source[];
extern uint32_t firmware_data_start[];
extern uint32_t firmware_data_end[];
extern uint32_t firmware_bss_start[];
extern uint32_t firmware_bss_end[];

static void set_up_memory(void) {
    const volatile uint32_t *from = firmware_data_source;
    for (volatile uint32_t *to = firmware_data_start; to < firmware_data_end; to++) {
        *to = *from++;
    }
    for (volatile uint32_t *to = firmware_bss_start; to < firmware_bss_end; to++) {
        *to = 0;
    }
}

void firmware_start(void) {
    set_up_memory();
    firmware_exit(main());
}

void firmware_fault(void) {
    firmware_print("The processor reported a fault.\n");
    firmware_exit(99);
}
