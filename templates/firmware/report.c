/* One JSON object, written without a C library.
 * SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <float.h>

#include "firmware.h"

static int comma; /* one must stand before the next member */

static void print_char(char c) {
    char text[2] = {c, 0};
    firmware_print(text);
}

static void print_string(const char *text) {
    static const char digits[] = "0123456789abcdef";
    print_char('"');
    for (; *text != 0; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            print_char('\\');
            print_char((char)c);
        } else if (c < 0x20) {
            firmware_print("\\u00");
            print_char(digits[c >> 4]);
            print_char(digits[c & 15]);
        } else {
            print_char((char)c);
        }
    }
    print_char('"');
}

static void print_number(uint64_t value) {
    char text[21];
    char *p = text + sizeof text - 1;
    *p = 0;
    do {
        *--p = (char)('0' + (int)(value % 10));
        value /= 10;
    } while (value != 0);
    firmware_print(p);
}

/* What stands before a value: a comma, and in an object its key. */
static void begin(const char *key) {
    if (comma) {
        firmware_print(", ");
    }
    comma = 1;
    if (key != NULL) {
        print_string(key);
        firmware_print(": ");
    }
}

void report_open(const char *key, char bracket) {
    begin(key);
    print_char(bracket);
    comma = 0;
}

void report_close(char bracket) {
    print_char(bracket);
    comma = 1;
}

void report_text(const char *key, const char *value) {
    begin(key);
    print_string(value);
}

void report_number(const char *key, uint64_t value) {
    begin(key);
    print_number(value);
}

void report_bool(const char *key, int value) {
    begin(key);
    firmware_print(value ? "true" : "false");
}

/* value = digits * 10**(exponent - 8), 10**8 <= digits < 10**9, or 0. */
static uint64_t decimal(double value, int *exponent) {
    uint64_t digits;
    *exponent = 0;
    if (!(value > 0)) {
        return 0;
    }
    for (; value >= 10; ++*exponent) {
        value /= 10;
    }
    for (; value < 1; --*exponent) {
        value *= 10;
    }
    digits = (uint64_t)(value * 1e8 + 0.5);
    if (digits >= 1000000000u) {
        digits /= 10;
        ++*exponent;
    }
    return digits;
}

void report_real(const char *key, double value) {
    int exponent;
    begin(key);
    if (!(value >= -DBL_MAX && value <= DBL_MAX)) {
        firmware_print("null");
        return;
    }
    if (value < 0) {
        print_char('-');
        value = -value;
    }
    uint64_t digits = decimal(value, &exponent);
    print_number(digits);
    exponent -= digits != 0 ? 8 : 0;
    firmware_print(exponent < 0 ? "e-" : "e");
    print_number((uint64_t)(exponent < 0 ? -exponent : exponent));
}

void report_hex(const char *key, const unsigned char *bytes, size_t count) {
    static const char digits[] = "0123456789abcdef";
    begin(key);
    print_char('"');
    for (size_t i = 0; i < count; i++) {
        print_char(digits[bytes[i] >> 4]);
        print_char(digits[bytes[i] & 15]);
    }
    print_char('"');
}

void report_end(void) {
    print_char('\n');
}

int report_error(const char *code, const char *message) {
    report_open(NULL, '{');
    report_text("status", "error");
    report_text("code", code);
    report_text("message", message);
    report_close('}');
    report_end();
    return 2;
}

int report_status(ep_status status) {
    return report_error(ep_status_name(status), ep_status_string(status));
}
