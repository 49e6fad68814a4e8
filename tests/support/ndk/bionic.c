/* glibc dressed up as bionic's libc.so, for running a program of Android under an emulator. */
#include <errno.h>
#include <stdlib.h>

void __libc_init(long *raw, void (*onexit)(void), int (*slingshot)(int, char **), void *structors);
int *__errno(void);

void __libc_init(long *raw, void (*onexit)(void), int (*slingshot)(int, char **), void *structors) {
    (void)onexit;
    (void)structors;
    exit(slingshot((int)raw[0], (char **)(raw + 1)));
}

int *__errno(void) {
    return &errno;
}
