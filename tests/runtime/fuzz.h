/* A fuzz target is a file with LLVMFuzzerTestOneInput. With libFuzzer:
 *     clang -fsanitize=fuzzer,address,undefined ...
 * or with fuzz_main.c, which needs nothing: seeded corruption of the files that it is given. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes);

#endif
