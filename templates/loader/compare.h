/* Whether an output is near enough to what was recorded. Needs no C library: firmware uses it too.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EDGEPACK_LOADER_COMPARE_H
#define EDGEPACK_LOADER_COMPARE_H

#include <edgepack/runtime.h>

typedef struct tolerance {
    double absolute;
    double relative;
} tolerance;

typedef struct comparison {
    uint64_t elements;
    uint64_t mismatches; /* elements with |value - reference| > atol + rtol * |reference| */
    double max_abs_err;  /* infinite if one of the two is NaN or infinite and the other is not the same */
    double max_abs_ref;  /* of the finite ones */
    double sum_sq_err;   /* of the squares of all value - reference */
    double sum_sq_ref;   /* of the squares of the finite references */
} comparison;

comparison compare(const ep_tensor *tensor, const void *value, const void *reference, tolerance allowed);

#endif
