        .text
        .globl  edgepack_model_test
        .type   edgepack_model_test, %function
edgepack_model_test:
        ret
        .size   edgepack_model_test, . - edgepack_model_test
        .section .note.GNU-stack, "x", %progbits
