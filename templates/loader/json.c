/* One JSON object on stdout.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader/loader.h"

#include <inttypes.h>
#include <math.h>

static void write_string(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text != 0; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            fprintf(out, "\\%c", c);
        } else if (c < 0x20) {
            fprintf(out, "\\u%04x", (unsigned)c);
        } else {
            fputc(c, out);
        }
    }
    fputc('"', out);
}

/* What stands before a value: a comma, and in an object its key. */
static void begin(json *to, const char *key) {
    if (to->comma) {
        fputs(", ", to->out);
    }
    to->comma = 1;
    if (key != NULL) {
        write_string(to->out, key);
        fputs(": ", to->out);
    }
}

void json_open(json *to, const char *key, char bracket) {
    begin(to, key);
    fputc(bracket, to->out);
    to->comma = 0;
}

void json_close(json *to, char bracket) {
    fputc(bracket, to->out);
    to->comma = 1;
}

void json_text(json *to, const char *key, const char *value) {
    begin(to, key);
    write_string(to->out, value);
}

void json_u64(json *to, const char *key, uint64_t value) {
    begin(to, key);
    fprintf(to->out, "%" PRIu64, value);
}

void json_i64(json *to, const char *key, int64_t value) {
    begin(to, key);
    fprintf(to->out, "%" PRId64, value);
}

void json_bool(json *to, const char *key, int value) {
    begin(to, key);
    fputs(value ? "true" : "false", to->out);
}

void json_real(json *to, const char *key, double value) {
    begin(to, key);
    if (isfinite(value)) {
        fprintf(to->out, "%.9g", value);
    } else {
        fputs("null", to->out);
    }
}

void json_hex(json *to, const char *key, const unsigned char *bytes, size_t count) {
    begin(to, key);
    fputc('"', to->out);
    for (size_t i = 0; i < count; i++) {
        fprintf(to->out, "%02x", (unsigned)bytes[i]);
    }
    fputc('"', to->out);
}

static int in_words;

void report_in_words(void) {
    in_words = 1;
}

void print_words(const char *text) {
    for (; *text != 0; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c > 0x7e) {
            printf("\\x%02x", (unsigned)c);
        } else {
            putchar(c);
        }
    }
}

int report_error(const char *code, const char *message, const char *subject) {
    char text[LOADER_PATH + 256];
    json out = {stdout, 0};
    snprintf(text, sizeof text, "%s%s%s", message, subject[0] != 0 ? ": " : "", subject);
    if (in_words) {
        printf("error %s: ", code);
        print_words(text);
        putchar('\n');
        return LOADER_ERROR;
    }
    json_open(&out, NULL, '{');
    json_text(&out, "status", "error");
    json_text(&out, "code", code);
    json_text(&out, "message", text);
    json_close(&out, '}');
    fputc('\n', stdout);
    return LOADER_ERROR;
}

int report_status(ep_status status) {
    return report_error(ep_status_name(status), ep_status_string(status), "");
}

void report_variant(json *to, const ep_model *model) {
    char text[512];
    if (model->descriptor->variant != NULL) {
        json_text(to, "variant", model->descriptor->variant);
    }
    if (ep_model_backend(model, text, sizeof text) == EP_OK) {
        json_text(to, "backend", text);
    }
}
