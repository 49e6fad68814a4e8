/* What the programs for boards print: numbers, and bytes as hexadecimal digits, a line each.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

#include "firmware.h"

static void print_number(uint32_t value) {
    char text[12];
    char *at = text + sizeof text - 1;
    *at = 0;
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    firmware_print(at);
    firmware_print("\n");
}

static void print_bytes(const int8_t *values, uint32_t count) {
    char text[3] = {0, 0, 0};
    for (uint32_t i = 0; i < count; i++) {
        text[0] = "0123456789abcdef"[(uint8_t)values[i] >> 4];
        text[1] = "0123456789abcdef"[(uint8_t)values[i] & 15];
        firmware_print(text);
    }
    firmware_print("\n");
}
