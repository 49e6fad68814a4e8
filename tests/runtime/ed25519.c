/* Reads records from standard input: signature (64 bytes), key (32), the message's size (4, the lowest first)
 * and the message; prints a line of 0 or 1 for each. */
#define EP_PARAMS_KEY    {0}
#define EP_PARAMS_LAYOUT {0}
#include "runtime/runtime.c"

#include <stdio.h>

int main(void) {
    static unsigned char record[100 + 4096];
    while (fread(record, 1, 100, stdin) == 100) {
        size_t nbytes = ep_read_u32(record + 96);
        if (nbytes > 4096 || fread(record + 100, 1, nbytes, stdin) != nbytes) {
            return 1;
        }
        printf("%d\n", ep_ed25519_verify(record, record + 64, record + 100, nbytes));
    }
    return 0;
}
