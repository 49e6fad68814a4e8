/* glibc dressed up as bionic's libc.so, for running a program of Android under an emulator. */
#define _GNU_SOURCE
#include <dlfcn.h>
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

#if defined(__arm__)
/* Android passes floats in integer registers, this glibc does not. */
__attribute__((pcs("aapcs"))) double android_strtod(const char *text, char **end) __asm__("strtod");

double android_strtod(const char *text, char **end) {
    double (*real)(const char *, char **);
    *(void **)&real = dlsym(RTLD_NEXT, "strtod");
    return real(text, end);
}
#endif
