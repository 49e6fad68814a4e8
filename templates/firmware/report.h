/* One JSON object on the debugger's console, as the loader of other devices prints it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_FIRMWARE_REPORT_H
#define EDGEPACK_FIRMWARE_REPORT_H

#include <edgepack/runtime.h>

void report_open(const char *key, char bracket);
void report_close(char bracket);
void report_text(const char *key, const char *value);
void report_number(const char *key, uint64_t value);
void report_bool(const char *key, int value);
void report_real(const char *key, double value); /* null unless finite; nine digits */
void report_hex(const char *key, const unsigned char *bytes, size_t count);
void report_end(void);

/* {"status": "error", ...}; returns the exit status of what could not be done. */
int report_error(const char *code, const char *message);
int report_status(ep_status status);

#endif
