/* Feeds a fuzz target with corrupted copies of files: fuzz SEED COUNT FILE... The same seed, the same inputs.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 16 };

static uint64_t state;

/* splitmix64 */
static uint64_t next_random(void) {
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static size_t below(size_t limit) {
    return limit == 0 ? 0 : (size_t)(next_random() % limit);
}

/* One change: a byte, a number that is large or small, a cut, bytes moved. */
static size_t corrupt(unsigned char *bytes, size_t nbytes) {
    static const uint64_t numbers[] = {0,          1,          127,        128,        255,        65535,
                                       0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX, 1ull << 63, 4096};
    size_t near_start = below(4) == 0 ? nbytes : nbytes < 512 ? nbytes : 512;
    size_t at = below(near_start);
    size_t left = nbytes - at;
    uint64_t number = numbers[below(sizeof numbers / sizeof numbers[0])];
    switch (next_random() % 5) {
    case 0:
        if (left > 0) {
            bytes[at] = (unsigned char)next_random();
        }
        break;
    case 1:
        if (left > 0) {
            bytes[at] ^= (unsigned char)(1u << below(8));
        }
        break;
    case 2:
        at -= at % 4;
        memcpy(bytes + at, &number, nbytes - at < 8 ? nbytes - at : below(2) == 0 ? 4 : 8);
        break;
    case 3:
        return at;
    default:
        if (left > 0) {
            size_t from = below(nbytes);
            size_t most = nbytes - (from > at ? from : at);
            memmove(bytes + at, bytes + from, below(most));
        }
    }
    return nbytes;
}

static size_t load(const char *path, unsigned char *bytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "cannot open %s\n", path);
        exit(2);
    }
    size_t nbytes = fread(bytes, 1, ROOM, file);
    fclose(file);
    return nbytes;
}

int main(int argc, char **argv) {
    static unsigned char original[ROOM];
    static unsigned char copy[ROOM];
    if (argc < 4) {
        return 2;
    }
    state = strtoull(argv[1], NULL, 10);
    for (int file = 3; file < argc; file++) {
        size_t nbytes = load(argv[file], original);
        for (long i = 0; i < atol(argv[2]); i++) {
            size_t length = nbytes;
            memcpy(copy, original, nbytes);
            for (size_t changes = below(4); changes > 0; changes--) {
                length = corrupt(copy, length);
            }
            unsigned char *exact =
                malloc(length > 0 ? length : 1); /* so that a sanitizer sees a byte too far */
            memcpy(exact, copy, length);
            LLVMFuzzerTestOneInput(exact, length);
            free(exact);
        }
    }
    return 0;
}
