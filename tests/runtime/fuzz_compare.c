/* Fuzz target: comparing tensors of every dtype, of any bits. A tensor always equals itself. */
#include "fuzz.h"

#include <stdlib.h>

#include "loader/loader.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes) {
    tolerance none = {0, 0};
    for (uint32_t dtype = EP_BOOL; dtype <= EP_FLOAT64; dtype++) {
        ep_tensor tensor = {"t", NULL, NULL, 0, 0, 0};
        size_t half = nbytes / 2 / 8 * 8;
        tensor.dtype = dtype;
        tensor.nbytes = half;
        comparison same = compare(&tensor, bytes, bytes, none);
        comparison other = compare(&tensor, bytes, bytes + half, none);
        if (same.mismatches != 0 || same.max_abs_err != 0 || same.elements != half / ep_dtype_bytes(dtype) ||
            (other.mismatches == 0) != !(other.max_abs_err > 0)) {
            abort();
        }
    }
    return 0;
}
