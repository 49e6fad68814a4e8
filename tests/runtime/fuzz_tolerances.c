/* Fuzz target: tolerances.txt. What is accepted is a tolerance. */
#include "fuzz.h"

#include <stdlib.h>

#include "loader/loader.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes) {
    for (size_t count = 0; count <= 4; count++) {
        tolerance found[4];
        size_t wrong = tolerances_parse((const char *)bytes, nbytes, found, count);
        for (size_t i = 0; wrong == 0 && i < count; i++) {
            if (!(found[i].absolute >= 0 && found[i].absolute <= 1e300 && found[i].relative >= 0 &&
                  found[i].relative <= 1e300)) {
                abort();
            }
        }
        if (wrong > count + 1) {
            abort();
        }
    }
    return 0;
}
