/* What happens before main where params lie in RAM: these and initialised data are copied, the rest is
 * zeroed; and what a fault does. SPDX-License-Identifier: Apache-2.0 */
#include "firmware.h"

/* A range that is stored elsewhere; its end is behind its last word. */
typedef struct copied {
    const volatile uint32_t *from;
    volatile uint32_t *to;
    const volatile uint32_t *end;
} copied;

/* Addresses that the linker script defines: a table of what is copied, and what is zeroed. */
extern const copied firmware_copies[];
extern const copied firmware_copies_end[];
extern uint32_t firmware_bss_start[];
extern uint32_t firmware_bss_end[];

static void set_up_memory(void) {
    for (const copied *part = firmware_copies; part < firmware_copies_end; part++) {
        const volatile uint32_t *from = part->from;
        for (volatile uint32_t *to = part->to; to < part->end; to++) {
            *to = *from++;
        }
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
