/* bionic's way into a program: the stack's first word is argc; libc does the rest. */
int main(int argc, char **argv);
void __libc_init(long *raw, void (*onexit)(void), int (*slingshot)(int, char **), void *structors);
void start_c(long *raw);

void start_c(long *raw) {
    __libc_init(raw, 0, main, 0);
}

#if defined(__aarch64__)
__asm__(".globl _start\n_start:\n mov x29, #0\n mov x30, #0\n mov x0, sp\n b start_c\n");
#elif defined(__arm__)
__asm__(".globl _start\n_start:\n mov fp, #0\n mov lr, #0\n mov r0, sp\n b start_c\n");
#else
__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call start_c\n");
#endif
