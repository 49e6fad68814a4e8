/* Semihosting: the program stops at a breakpoint, and the debugger or emulator does what a register says.
 * Sources: Arm, "Semihosting for AArch32 and AArch64"; RISC-V International, "RISC-V Semihosting", which has
 * the same operations. Without a debugger the breakpoint is a fault. SPDX-License-Identifier: Apache-2.0 */
#include "firmware.h"
#include "machine.h"

enum { SYS_WRITE0 = 0x04, SYS_GET_CMDLINE = 0x15, SYS_EXIT_EXTENDED = 0x20, APPLICATION_EXIT = 0x20026 };

void firmware_exit(int status) {
    const volatile uint32_t block[2] = {APPLICATION_EXIT, (uint32_t)status};
    for (;;) {
        semihosting_call(SYS_EXIT_EXTENDED, block);
    }
}

void firmware_print(const char *text) {
    semihosting_call(SYS_WRITE0, text);
}

void firmware_arguments(char *text, size_t capacity) {
    volatile struct {
        char *text;
        uint32_t capacity;
    } block = {text, (uint32_t)capacity};
    text[0] = 0;
    if (semihosting_call(SYS_GET_CMDLINE, &block) != 0) {
        text[0] = 0;
    }
    text[capacity - 1] = 0;
}
