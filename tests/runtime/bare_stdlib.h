/* What a C library for firmware declares, as far as the runtime uses it. */
#include <stddef.h>

void *malloc(size_t nbytes);
void free(void *memory);
