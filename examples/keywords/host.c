/* Hears a WAV file of 16 kHz, mono, 16 bits, in pieces as a microphone gives them: keywords CLIP.wav
 * [SAMPLES]. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keywords.h"

static unsigned char memory[KWS_SESSION_BYTES] __attribute__((aligned(64)));
static keywords self;

static unsigned long number(const unsigned char *bytes, unsigned count) {
    unsigned long value = 0;
    for (unsigned i = count; i-- > 0;) {
        value = value << 8 | bytes[i];
    }
    return value;
}

/* The file's place at its first sample, and how many there are; nonzero if it is no such WAV file. */
static int find_samples(FILE *file, unsigned long *count) {
    unsigned char head[16];
    int right = 0;
    if (fread(head, 1, 12, file) != 12 || memcmp(head, "RIFF", 4) != 0 || memcmp(head + 8, "WAVE", 4) != 0) {
        return 1;
    }
    while (fread(head, 1, 8, file) == 8) {
        unsigned long bytes = number(head + 4, 4);
        if (memcmp(head, "data", 4) == 0) {
            *count = bytes / 2;
            return !right;
        }
        if (memcmp(head, "fmt ", 4) == 0 && bytes >= 16) {
            if (fread(head, 1, 16, file) != 16) {
                return 1;
            }
            right = number(head, 2) == 1 && number(head + 2, 2) == 1 && number(head + 4, 4) == 16000 &&
                    number(head + 14, 2) == 16;
            bytes -= 16;
        }
        if (fseek(file, (long)(bytes + bytes % 2), SEEK_CUR) != 0) {
            return 1;
        }
    }
    return 1;
}

static int hear(const int16_t *samples, size_t count) {
    heard result;
    int status;
    keywords_write(&self, samples, count);
    while ((status = keywords_poll(&self, &result)) == 1) {
        printf("%5lu ms  %-8s %3d %%%s\n", (unsigned long)result.ms, keywords_names[result.word],
               result.percent, result.is_keyword ? "  <-" : "");
    }
    return status;
}

int main(int argc, char **argv) {
    unsigned long left = 0, piece = argc > 2 ? strtoul(argv[2], NULL, 10) : 137;
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL || piece == 0 || piece > RING_SAMPLES || find_samples(file, &left) != 0) {
        fprintf(stderr,
                "usage: keywords CLIP.wav [SAMPLES], a clip of 16 kHz, mono, 16 bits; 1 to %d samples at a "
                "time\n",
                (int)RING_SAMPLES);
        return 2;
    }
    int status = (int)keywords_open(&self, memory, sizeof memory);
    while (status == 0 && left > 0) {
        static unsigned char bytes[2 * RING_SAMPLES];
        static int16_t samples[RING_SAMPLES];
        size_t count = fread(bytes, 2, left < piece ? left : piece, file);
        if (count == 0) {
            break;
        }
        for (size_t i = 0; i < count; i++) {
            samples[i] = (int16_t)number(bytes + 2 * i, 2);
        }
        left -= count;
        status = hear(samples, count);
    }
    fclose(file);
    return status == 0 ? 0 : 1;
}
