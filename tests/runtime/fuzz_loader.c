/* Fuzz target: the loader's program. The bytes are its arguments, one to a line, and after a zero byte what
 * its files hold: which one begins with the rest, the others are as they should be. No file is touched:
 * system_read and system_write are wrapped. Whatever it is given, it prints one JSON object and exits with 0,
 * 1 or 2. */
#define _GNU_SOURCE
#include "fuzz.h"

#define main loader_main
#include "loader/main.c"
#undef main

#include <stdlib.h>

#include <mini.h>

enum { ARGUMENTS = 24 };

FILE *__wrap_system_read(const char *path);
FILE *__wrap_system_write(const char *path);

static unsigned char given[1 << 13]; /* of the file that the bytes hold */
static size_t given_bytes;
static unsigned char which;

static FILE *opened(const void *bytes, size_t nbytes) {
    return nbytes == 0 ? fopen("/dev/null", "rb") : fmemopen((void *)(uintptr_t)bytes, nbytes, "rb");
}

FILE *__wrap_system_write(const char *path) {
    (void)path;
    return fopen("/dev/null", "wb");
}

FILE *__wrap_system_read(const char *path) {
    static const char tolerances[] = "1e-5 1e-5\n1e-3 0\n0 0\n0 0\n";
    static const unsigned char zeros[MINI_INPUT_DATA_ELEMENTS * sizeof(float)];
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    unsigned file = 0;
    size_t nbytes = sizeof zeros;
    if (strcmp(name, "tolerances.txt") == 0) {
        file = 1;
    } else if (strstr(name, "_1.bin") != NULL) {
        file = 2;
        nbytes = strncmp(name, "input", 5) == 0 ? 8 : 16;
    } else if (strstr(name, "_2.bin") != NULL) {
        file = 3;
        nbytes = 8;
    } else if (strstr(name, "_3.bin") != NULL) {
        file = 4;
        nbytes = 64;
    } else if (strstr(name, "none") != NULL) {
        return NULL;
    }
    if (which % 8 == file) {
        return opened(given, given_bytes);
    }
    return file == 1 ? opened(tolerances, sizeof tolerances - 1) : opened(zeros, nbytes);
}

/* A number that would keep it busy is shortened; larger ones are refused anyway. */
static void shorten(char *text) {
    if (strspn(text, "0123456789") == strlen(text) && strlen(text) < 8 && strlen(text) > 1) {
        text[1] = 0;
    }
}

static void check_printed(const char *text, size_t nbytes, int result) {
    int braces = 0;
    int quoted = 0;
    for (size_t i = 0; i < nbytes; i++) {
        if (text[i] == '"') {
            quoted = !quoted;
        } else if (text[i] == '\\' && quoted) {
            i++;
        } else if (!quoted) {
            braces += text[i] == '{' || text[i] == '[';
            braces -= text[i] == '}' || text[i] == ']';
        }
        if (braces < 0 || (text[i] == '\n') != (i + 1 == nbytes) || (braces == 0 && i + 2 < nbytes)) {
            abort();
        }
    }
    if (result < 0 || result > 2 || nbytes == 0 || braces != 0 || quoted != 0) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes) {
    const uint8_t *zero = nbytes == 0 ? NULL : memchr(bytes, 0, nbytes);
    size_t length = zero != NULL ? (size_t)(zero - bytes) : nbytes;
    char *text = malloc(length + 1);
    char *arguments[ARGUMENTS + 1] = {NULL};
    char *printed = NULL;
    size_t printed_bytes = 0;
    int count = 1;
    memcpy(text, bytes, length);
    text[length] = 0;
    char program[] = "mini";
    arguments[0] = program;
    for (char *part = strtok(text, "\n"); part != NULL && count < ARGUMENTS; part = strtok(NULL, "\n")) {
        shorten(part);
        arguments[count++] = part;
    }
    which = length + 1 < nbytes ? bytes[length + 1] : 7;
    given_bytes = length + 2 < nbytes ? nbytes - length - 2 : 0;
    given_bytes = given_bytes < sizeof given ? given_bytes : sizeof given;
    if (given_bytes > 0) {
        memcpy(given, bytes + length + 2, given_bytes);
    }
    FILE *terminal = stdout;
    stdout = open_memstream(&printed, &printed_bytes);
    int result = loader_main(count, arguments);
    fclose(stdout);
    stdout = terminal;
    if (count < 2 || strcmp(arguments[1], "--help") != 0) {
        check_printed(printed, printed_bytes, result);
    }
    free(printed);
    free(text);
    return 0;
}
