/* Fuzz target: the same with the header's hash set right, so that the table's own checks must hold. It
 * includes the runtime, for the hash is not public. */
#include "runtime/runtime.c"

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t nbytes) {
    unsigned char *image = malloc(nbytes > 0 ? nbytes : 1);
    ep_params_header header;
    if (image == NULL) {
        return 0;
    }
    memcpy(image, bytes, nbytes);
    if (ep_params_read(image, nbytes, &header) == EP_OK) {
        ep_sha256 hash;
        memset(image + EP_PARAMS_DIGEST, 0, 32);
        ep_sha256_init(&hash);
        ep_sha256_update(&hash, image, (size_t)header.header_bytes);
        ep_sha256_final(&hash, image + EP_PARAMS_DIGEST);
        ep_params_check(image, nbytes);
    }
    free(image);
    /* The rest of the runtime is not used here. */
    (void)ep_api_table;
    return 0;
}
