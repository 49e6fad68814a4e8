/* tolerances.txt: for each output a line with the absolute and the relative tolerance.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader/loader.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 128 };

/* Reads one number and moves on; a negative one if there is none, or it is not a tolerance. */
static double read_number(char **text) {
    char *end;
    while (**text == ' ' || **text == '\t') {
        ++*text;
    }
    if ((**text < '0' || **text > '9') && **text != '.') { /* strtod would take inf, nan and signs */
        return -1;
    }
    double value = strtod(*text, &end);
    if (end == *text || (*end != ' ' && *end != '\t' && *end != '\r' && *end != 0) || !(value <= 1e300)) {
        return -1;
    }
    *text = end;
    return value;
}

static int read_line(char *line, tolerance *to) {
    to->absolute = read_number(&line);
    to->relative = to->absolute < 0 ? -1 : read_number(&line);
    while (*line == ' ' || *line == '\t' || *line == '\r') {
        line++;
    }
    return to->relative >= 0 && *line == 0;
}

size_t tolerances_parse(const char *text, size_t nbytes, tolerance *to, size_t count) {
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        char line[LINE];
        size_t length = 0;
        while (at + length < nbytes && text[at + length] != '\n') {
            length++;
        }
        if (length >= LINE || memchr(text + at, 0, length) != NULL) {
            return i + 1;
        }
        memcpy(line, text + at, length);
        line[length] = 0;
        if (!read_line(line, &to[i])) {
            return i + 1;
        }
        at += length + (at + length < nbytes ? 1 : 0);
    }
    return at == nbytes ? 0 : count + 1;
}
