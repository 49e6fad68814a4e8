/* Fuzz target: a params file from memory, opened and checked. The library's idea of the params follows the
 * file's (as if the file were its own), so that the checks behind the first ones are reached as well. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include <mini.h>

static void open_and_check(const ep_descriptor *descriptor, const void *image, size_t nbytes) {
    ep_model model;
    if (ep_model_open_memory(descriptor, image, nbytes, &model) == EP_OK) {
        volatile unsigned char last =
            descriptor->params_bytes > 0 ? model.params[descriptor->params_bytes - 1] : 0;
        (void)last;
        ep_model_check_params(&model);
    }
    ep_model_close(&model);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes) {
    ep_descriptor descriptor = edgepack_model_mini;
    void *image = NULL;
    if (posix_memalign(&image, 64, nbytes > 0 ? nbytes : 1) != 0) {
        return 0;
    }
    memcpy(image, bytes, nbytes);
    open_and_check(&descriptor, image, nbytes);
    if (nbytes >= 128) {
        memcpy(descriptor.params_id, bytes + 48, 32);
        memcpy(&descriptor.params_bytes, bytes + 32, 8);
        open_and_check(&descriptor, image, nbytes);
    }
    free(image);
    return 0;
}
