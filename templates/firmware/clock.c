/* The clock of these boards: the emulator's, or its counter of instructions. On your chip: a hardware timer
 * or a cycle counter. SPDX-License-Identifier: Apache-2.0 */
#include "firmware.h"
#include "machine.h"

#include <edgepack/runtime.h>

enum { SYS_ELAPSED = 0x30, SYS_TICKFREQ = 0x31 };

static int counting;

void firmware_count_instructions(void) {
    counting = 1;
}

/* The counter has 32 bits. That is enough between two calls. */
static uint64_t ticks(void) {
    static uint32_t last;
    static uint64_t sum;
    uint32_t now = instruction_counter();
    sum += now - last;
    last = now;
    return 1 + sum;
}

uint64_t edgepack_now_ns(void) {
    volatile uint32_t elapsed[2] = {0, 0};
    if (counting) {
        return ticks();
    }
    uint32_t frequency = semihosting_call(SYS_TICKFREQ, NULL);
    if (frequency == 0 || semihosting_call(SYS_ELAPSED, elapsed) != 0) {
        return 0;
    }
    uint64_t now = (uint64_t)elapsed[1] << 32 | elapsed[0];
    return now / frequency * UINT64_C(1000000000) + now % frequency * UINT64_C(1000000000) / frequency;
}
