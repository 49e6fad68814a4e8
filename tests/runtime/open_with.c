/* Opens a bundle's model with options: params file, least version, ids of 32 bytes in hexadecimal that are
 * taken too. Prints the statuses of opening and of the check of all params. */
#include <small.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    static unsigned char ids[32 * 8];
    ep_open_options options = EP_OPEN_OPTIONS_INIT;
    ep_model model;
    if (argc < 3 || argc > 11) {
        return 1;
    }
    options.path = argv[1];
    options.params_version = strtoull(argv[2], NULL, 10);
    for (int i = 3; i < argc; i++) {
        for (size_t byte = 0; byte < 32; byte++) {
            char digits[3] = {argv[i][2 * byte], argv[i][2 * byte + 1], 0};
            ids[32 * (size_t)(i - 3) + byte] = (unsigned char)strtoul(digits, NULL, 16);
        }
    }
    options.params_ids = argc > 3 ? ids : NULL;
    options.params_id_count = (size_t)(argc - 3);
    ep_status status = ep_model_open_with(&edgepack_model_small, &options, &model);
    printf("%s", ep_status_name(status));
    if (status == EP_OK) {
        printf(" %s", ep_status_name(ep_model_check_params(&model)));
    }
    ep_model_close(&model);
    return 0;
}
