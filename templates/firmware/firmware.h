/* What the boards' part of the firmware gives to its programs. On your own hardware it is your SDK's.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_FIRMWARE_H
#define EDGEPACK_FIRMWARE_H

#include <stddef.h>
#include <stdint.h>

/* ---- start.c ---- */

int main(void);

/* Sets memory up and calls main; vectors.c goes on there when the core has a stack. */
void firmware_start(void) __attribute__((noreturn));

/* Says so, and ends the program with status 99. */
void firmware_fault(void) __attribute__((noreturn));

/* Lowest and highest address of the stack, from the linker script; it grows down. */
extern uint32_t firmware_stack_limit[];
extern uint32_t firmware_stack_top[];

/* ---- semihosting.c: what a debugger or an emulator does for the program ---- */

/* Ends the program; the emulator's exit status is `status`. */
void firmware_exit(int status) __attribute__((noreturn));

/* Prints to the debugger's console. */
void firmware_print(const char *text);

/* The words of the command line, with spaces between them, cut at `capacity` and terminated. */
void firmware_arguments(char *text, size_t capacity);

/* ---- clock.c ---- */

/* From now on edgepack_now_ns returns ticks of the board's counter, which advances with the instructions
 * under an emulator that is told so (qemu: -icount). */
void firmware_count_instructions(void);

#endif
