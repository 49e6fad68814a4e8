        .text
        .globl  edgepack_model_test
        .type   edgepack_model_test, %function
edgepack_model_test:
        ret
        .balign 8
        .quad   edgepack_model_test
        .size   edgepack_model_test, . - edgepack_model_test
        .section .note.GNU-stack, "", %progbits
